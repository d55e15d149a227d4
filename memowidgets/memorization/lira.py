"""Local LiRA: how much likelier the target's gap is if the target trained on the sample."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.memorization.density import Densities, check_sides, checked_mode, warn_if_few
from memowidgets.memorization.gaps import (
    Floats,
    Mask,
    Table,
    checked_models,
    checked_target,
    moments,
)
from memowidgets.memorization.variance import checked_variance

_ENOUGH_TO_TELL = 3  # this many samples with exactly equal gaps are not a coincidence


@overload
def log_lira(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    variance: str = ...,
    mode: str = ...,
    *,
    return_std: Literal[False] = ...,
) -> Floats: ...
@overload
def log_lira(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    variance: str = ...,
    mode: str = ...,
    *,
    return_std: Literal[True],
) -> tuple[Floats, Floats]: ...
def log_lira(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    variance: str = "per-sample",
    mode: str = "online",
    *,
    return_std: bool = False,
) -> Floats | tuple[Floats, Floats]:
    """Return the log-likelihood ratio of the target's logit gap, in training against not.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gap (true label's logit minus the largest other) under each shadow model.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether the shadow model trained on the sample. The target must not be a shadow model.
    target_gaps : (n_samples,) array_like
        Logit gap under the target model.
    variance : {"per-sample", "global", "shrunk"}
        How a sample's two variances are estimated. "per-sample" uses its own gaps, as in the paper
        (ddof = 0). "global" uses one variance per side, from the residuals of all samples; it is
        better below about 32 models per side. "shrunk" interpolates between both: it is the
        posterior mean under a prior that is fitted per side on all samples.
        "online" is the ratio of both densities, as in the paper. "offline" uses only the models
        that did not train on the sample.
    return_std : bool
        Whether to also return standard errors.

    Returns
    -------
    log_lira : (n_samples,) float64
        Online: log p_in(gap) − log p_out(gap), in nats (natural logarithms). The paper calls a
        sample memorised from η = 4 on. Offline: −log of the share of outside models that would
        have a larger gap, which is at least 0, and 4 if that share is e⁻⁴. The value is 0 if the
        gap is equal under all models. It is NaN if the sample is in every shadow model or in none
        (offline: in every one), and with "per-sample" if a side has a single model.
    errors : (n_samples,) float64
        Standard errors in nats, if `return_std` is true: a jackknife over the shadow models,
        one side at a time. NaN if leaving one out leaves too few.

    Raises
    ------
    ValueError
        If shapes differ, a gap is NaN or infinite, the variance or mode is unknown, no sample has
        two models on each side, or a shadow model is the target itself.
    TypeError
        If the mask is not bool.

    Warns
    -----
    UserWarning
        If a sample has fewer than 8 models on a side, with "per-sample".

    Notes
    -----
    All densities are computed in log space. Both variances are at least 1e-6 of the variance
    pooled over samples and sides. The definition is that of the paper's Appendix C; the offline
    mode is that of Carlini et al. (2022), Section V. "shrunk" follows BaVarIA (arXiv 2603.11799):
    a scaled inverse χ² prior, fitted by marginal likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(40)[:, None] % 2 == [0, 1]
    >>> gaps = rng.normal(size=(40, 2)) + 6 * members * [1, 0]
    >>> log_lira(gaps, members, [6.0, 0.0]).round(1)
    array([15.5, -0.1])
    >>> _, errors = log_lira(gaps, members, [6.0, 0.0], return_std=True)
    >>> errors.round(1)
    array([3.2, 0.2])
    """
    checked_variance(variance)
    checked_mode(mode)
    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    target = checked_target(target_gaps, gaps.shape[1])
    found = moments(gaps, members, "shadow_gaps")
    check_sides(found, offline=mode == "offline")
    equal = found.coinciding
    if not equal.all():
        _refuse_target(gaps, target)
    if variance == "per-sample":
        warn_if_few(found, offline=mode == "offline")
    densities = Densities.fit(found.inside, found.outside, variance, mode)
    ratio = _flat(densities.ratio(target), equal)
    if not return_std:
        return ratio
    errors = _flat(densities.errors(target, gaps, members), equal)
    return ratio, np.where(np.isnan(ratio), np.nan, errors)


def _flat(values: Floats, equal: Mask) -> Floats:
    """Return 0 where all models agree, and keep NaN."""
    return np.where(equal & ~np.isnan(values), 0.0, values)


def _refuse_target(gaps: Table, target: Floats) -> None:
    """Raise if a shadow model is the target: its log-LiRA would always be high."""
    if len(target) < _ENOUGH_TO_TELL:
        return
    same = target.astype(gaps.dtype)  # saved gaps are rounded to their dtype
    alike = np.flatnonzero((gaps[:, :100] == same[:100]).all(axis=1))
    for row in alike:
        if np.array_equal(gaps[row], same):
            raise ValueError(
                f"shadow model (row) {row} has exactly the target's gaps, so it seems to be the "
                "target itself; leave that row out"
            )
