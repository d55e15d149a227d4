"""Gaps of shadow models that are not Gaussian, as log-LiRA takes them to be."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.memorization.gaps import Floats, Mask, Table, blocks, checked_models, moments
from memowidgets.vocabulary import Note

FEWEST_GAPS = 4  # of a sample on a side, for its kurtosis
_FEWEST = 30  # kurtoses
_PLAIN, _SURE = 0.3, 4.0  # mean excess kurtosis, and its distance from 0 in standard errors


def excess_kurtosis(shadow_gaps: ArrayLike, shadow_members: ArrayLike) -> tuple[float, float]:
    """Return the mean excess kurtosis of the gaps of a sample on one side, and its standard error.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gaps. Means and variances may differ between samples and sides.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether each shadow model trained on each sample.

    Returns
    -------
    (float, float)
        0 for Gaussian gaps, above 0 for heavy tails or a few far gaps, below 0 for two humps of
        similar size (−2 at the least). NaN with fewer than 30 sides of at least 4 different gaps.

    Notes
    -----
    The estimate of each sample and side is G₂ (Joanes and Gill 1998, The Statistician 47:183-189).
    It is unbiased for Gaussian gaps. With few gaps it is pulled towards 0 for others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(32)[:, None] % 2 == np.zeros(400)
    >>> for gaps in (rng.normal(size=(32, 400)), rng.standard_t(3, size=(32, 400))):
    ...     print(round(excess_kurtosis(gaps, members)[0], 1))
    -0.0
    2.1
    """
    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    found = moments(gaps, members, "shadow_gaps")
    flat = found.coinciding
    values = []
    for side, present in ((found.inside, members), (found.outside, ~members)):
        fourth = _fourth_powers(gaps, present, side.mean)
        usable = (side.count >= FEWEST_GAPS) & (side.squares > 0) & ~flat
        n, squares = side.count[usable], side.squares[usable]
        plain = n * fourth[usable] / squares**2 - 3
        values.append((n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * plain + 6))
    every = np.concatenate(values)
    if len(every) < _FEWEST:
        return np.nan, np.nan
    return float(every.mean()), float(every.std(ddof=1) / np.sqrt(len(every)))


def note_on_shape(shadow_gaps: ArrayLike, shadow_members: ArrayLike) -> Note | None:
    """Return a note if the gaps are plainly not Gaussian; None otherwise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(32)[:, None] % 2 == np.zeros(400)
    >>> note_on_shape(rng.normal(size=(32, 400)), members) is None
    True
    >>> humps = rng.choice([-2, 2], size=(32, 400)) + rng.normal(size=(32, 400))
    >>> note_on_shape(humps, members)[:50]
    'the logit gaps of shadow models form two humps (me'
    """
    mean, error = excess_kurtosis(shadow_gaps, shadow_members)
    if not abs(mean) >= max(_PLAIN, _SURE * error):
        return None
    shape = "have heavy tails" if mean > 0 else "form two humps"
    return Note(
        "not Gaussian",
        f"the logit gaps of shadow models {shape} (mean excess kurtosis {mean:.1f}, where Gaussian "
        "gaps have 0): log-LiRA and probabilities assume Gaussian gaps, and can be far from right",
        kurtosis=mean,
    )


def _fourth_powers(gaps: Table, present: Mask, mean: Floats) -> Floats:
    """Return the sum of the fourth powers of each sample's deviations from its mean."""
    total = np.empty(gaps.shape[1])
    for columns in blocks(gaps):
        away = np.where(present[:, columns], gaps[:, columns] - mean[columns], 0.0)
        total[columns] = (away**4).sum(axis=0)
    return total
