"""Local LiRA: how much likelier the target's gap is if it trained on a sample than if not."""

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

_ENOUGH_TO_TELL = 3  # samples whose gaps agree exactly are no accident from here on


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
    """Log-likelihood ratio of the target's logit gap, trained on the sample against not.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gap (true label's logit minus the largest other) under each shadow model.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether the shadow model trained on the sample. The target is not among the shadows.
    target_gaps : (n_samples,) array_like
        Logit gap under the audited model.
    variance : {"per-sample", "global", "shrunk"}
        How the two Gaussians of a sample get their variance: from its own gaps (the paper;
        ddof = 0), one a side from the residuals of all samples (better below some 32 models a
        side), or the posterior mean under a prior fitted a side on all samples (interpolates).
    mode : {"online", "offline"}
        The ratio of both densities (the paper), or the models outside alone.
    return_std : bool
        Whether to return standard errors too.

    Returns
    -------
    (n_samples,) float64
        Online, log p_in(gap) − log p_out(gap), in nats; the paper calls a sample memorised from
        η = 4. Offline, −log of the share of models outside that would have a larger gap: from 0,
        and 4 where it is e⁻⁴. 0 where the gap is the same under all models. NaN for a sample that
        is in every shadow model or in none (offline: in every one), which has no log-LiRA, and
        with "per-sample" for one with a single model on a side; finite otherwise.
    (n_samples,) float64
        If `return_std`, the standard error of each, in nats: a jackknife over the shadow models,
        a side at a time. NaN where leaving one out leaves too few.

    Raises
    ------
    ValueError
        Shapes differ, a gap is NaN or infinite, the variance or mode is unknown, no sample has
        two models on each side, or a shadow model is the target itself.
    TypeError
        The mask is not bool.

    Warns
    -----
    UserWarning
        With "per-sample", where a sample has fewer than 8 models on a side.

    Notes
    -----
    Computed in log space; both variances are at least 1e-6 of the one pooled over samples and
    sides. Appendix C of the paper; offline as Carlini et al. (2022), Section V; "shrunk" follows
    BaVarIA (arXiv 2603.11799): a scaled inverse χ² prior by marginal likelihood.

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
    """0 where all models agree; NaN stays NaN."""
    return np.where(equal & ~np.isnan(values), 0.0, values)


def _refuse_target(gaps: Table, target: Floats) -> None:
    """The target must not be compared with itself: its log-LiRA would always be high."""
    if len(target) < _ENOUGH_TO_TELL:
        return
    same = target.astype(gaps.dtype)  # saved gaps are rounded, the target's may not be
    alike = np.flatnonzero((gaps[:, :100] == same[:100]).all(axis=1))
    for row in alike:
        if np.array_equal(gaps[row], same):
            raise ValueError(
                f"shadow model (row) {row} has exactly the target's gaps: the target must not be "
                "one of its own shadow models, leave that row out"
            )
