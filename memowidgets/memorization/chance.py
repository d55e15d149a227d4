"""What chance does to log-LiRA: false alarms, and gaps that are not Gaussian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from memowidgets.memorization.densities import (
    Densities,
    check_sides,
    checked_variance,
    fewest_models,
    fitted_prior,
)
from memowidgets.memorization.gaps import Floats, Mask, Side, Table, blocks, checked_models, moments

_SIMULATED = 20_000  # number of samples; the target's gap is integrated out exactly
FEWEST_GAPS = 4  # of a sample on a side, for its kurtosis
_FEWEST = 30  # kurtoses
_PLAIN, _SURE = 0.3, 4.0  # mean excess kurtosis, and its distance from 0 in standard errors


@dataclass(frozen=True)
class ByChance:
    """Simulated samples that are not memorised, with the fits that the shadow models give.

    Attributes
    ----------
    inside, outside : (means, variances), each (n,) float64
        Mean and variance of the fitted Gaussians.
    deviation : (n,) float64
        True standard deviation of each sample's gaps, inside and outside. Their true mean is 0.
    """

    inside: tuple[Floats, Floats]
    outside: tuple[Floats, Floats]
    deviation: Floats

    @classmethod
    def of(
        cls, shadow_gaps: ArrayLike, shadow_members: ArrayLike, variance: str = "shrunk"
    ) -> ByChance:
        """Simulate shadow models for samples that are not memorised.

        Parameters
        ----------
        shadow_gaps : (n_models, n_samples) array_like
            Logit gaps. Only the differences of their variance between samples are used.
        shadow_members : (n_models, n_samples) array_like of bool
            Whether each shadow model trained on each sample. The simulation uses the same counts.
        variance : {"per-sample", "global", "shrunk"}
            As in `log_lira`.
        """
        checked_variance(variance)
        found = moments(*checked_models(shadow_gaps, shadow_members, "shadow_gaps"))
        check_sides(found)
        fewest = np.minimum(found.inside.count, found.outside.count)
        usable = np.flatnonzero(fewest >= fewest_models(variance))
        rng = np.random.default_rng(0)
        chosen = usable[rng.permutation(np.arange(_SIMULATED) % len(usable))]
        prior = fitted_prior(found.outside)
        freedom = np.inf if prior is None else prior[0]
        deviation = np.ones(_SIMULATED)
        if np.isfinite(freedom):
            deviation = np.sqrt(freedom / rng.chisquare(freedom, size=_SIMULATED))
        inside, outside = (
            _side(rng, side.count[chosen], deviation) for side in (found.inside, found.outside)
        )
        fitted = Densities.fit(inside, outside, variance)
        return cls(*fitted.gaussians(), deviation)

    def share(self, eta: float) -> float:
        """Return the share of samples whose log-LiRA is at least `eta`."""
        (mean_in, var_in), (mean_out, var_out) = self.inside, self.outside
        square = 0.5 / var_out - 0.5 / var_in
        linear = mean_in / var_in - mean_out / var_out
        constant = 0.5 * np.log(var_out / var_in) - eta
        constant += 0.5 * mean_out**2 / var_out - 0.5 * mean_in**2 / var_in
        return float(_above_zero(square, linear, constant, self.deviation).mean())


def _side(rng: np.random.Generator, count: Floats, deviation: Floats) -> Side:
    """Draw the moments of `count` gaps directly, without drawing the gaps."""
    mean = deviation * rng.normal(size=len(count)) / np.sqrt(count)
    squares = np.where(count > 1, rng.chisquare(np.maximum(count - 1, 1)), 0.0)
    return Side(count, mean, deviation**2 * squares)


def _above_zero(square: Floats, linear: Floats, constant: Floats, deviation: Floats) -> Floats:
    """Return the probability that square · g² + linear · g + constant ≥ 0, g ~ N(0, deviation²)."""
    discriminant = linear**2 - 4 * square * constant
    real = discriminant >= 0
    root = np.sqrt(np.where(real, discriminant, 0))
    q = -0.5 * (linear + np.where(linear < 0, -root, root))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.sort([q / square, constant / q], axis=0) / deviation
        low, high = ndtr(roots)
    outside = np.where(real, low + 1 - high, 1.0)
    between = np.where(real, high - low, 0.0)
    return np.nan_to_num(np.where(square >= 0, outside, between))


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


def note_on_shape(shadow_gaps: ArrayLike, shadow_members: ArrayLike) -> str | None:
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
    return (
        f"the logit gaps of shadow models {shape} (mean excess kurtosis {mean:.1f}, where Gaussian "
        "gaps have 0): log-LiRA, the number of positives by chance and probabilities assume "
        "Gaussian gaps, and can be far from right"
    )


def _fourth_powers(gaps: Table, present: Mask, mean: Floats) -> Floats:
    """Return the sum of the fourth powers of each sample's deviations from its mean."""
    total = np.empty(gaps.shape[1])
    for columns in blocks(gaps):
        away = np.where(present[:, columns], gaps[:, columns] - mean[columns], 0.0)
        total[columns] = (away**4).sum(axis=0)
    return total
