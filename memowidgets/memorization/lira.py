"""Local LiRA: how much likelier the target's gap is if it trained on a sample than if not."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.memorization.gaps import Floats, Mask, Side, checked_models, coinciding, sides
from memowidgets.memorization.variance import (
    FEWEST_MODELS,
    checked_variance,
    estimate,
    floor,
)


def log_lira(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    variance: str = "per-sample",
) -> Floats:
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

    Returns
    -------
    (n_samples,) float64
        log p_in(gap) − log p_out(gap), in nats; the paper calls a sample memorised from η = 4.
        0 where the gap is the same under all models. NaN for a sample that is in every shadow
        model or in none, which has no log-LiRA; finite otherwise.

    Raises
    ------
    ValueError
        Shapes differ, a gap is NaN or infinite, or the variance is unknown.
    TypeError
        The mask holds anything but bool, 0 and 1.

    Warns
    -----
    UserWarning
        With "per-sample", where a sample has fewer than 8 models on a side.

    Notes
    -----
    Computed in log space; both variances are at least 1e-6 of the one pooled over samples and
    sides. Appendix C of the paper; "shrunk" follows BaVarIA (arXiv 2603.11799): a scaled inverse
    χ² prior by marginal likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(40)[:, None] % 2 == [0, 1]
    >>> gaps = rng.normal(size=(40, 2)) + 6 * members * [1, 0]
    >>> log_lira(gaps, members, [6.0, 0.0]).round(1)
    array([15.5, -0.1])
    """
    checked_variance(variance)
    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    target = _checked_target(target_gaps, gaps.shape[1])
    inside, outside = sides(gaps, members)
    if variance == "per-sample":
        _warn_if_few(inside, outside)
    ratio = log_ratio(target, inside, outside, variance)
    ratio[coinciding(gaps) & (ratio == ratio)] = 0.0  # noqa: PLR0124 - NaN stays NaN
    return ratio


def log_ratio(gaps: Floats, inside: Side, outside: Side, variance: str) -> Floats:
    """Log p_in − log p_out of each sample's gap; NaN where a side has no model."""
    least = floor(inside, outside)
    likelier_in = _log_density(gaps, inside, np.maximum(estimate(inside, variance), least))
    likelier_out = _log_density(gaps, outside, np.maximum(estimate(outside, variance), least))
    defined = (inside.count > 0) & (outside.count > 0)
    return np.where(defined, likelier_in - likelier_out, np.nan)


def _log_density(gaps: Floats, side: Side, variance: Floats) -> Floats:
    """Log of the Gaussian density, without the constant that cancels."""
    return np.asarray(-0.5 * (np.log(variance) + (gaps - side.mean) ** 2 / variance))


def _checked_target(target_gaps: ArrayLike, n_samples: int) -> Floats:
    target = np.asarray(target_gaps, dtype=np.float64)
    if target.shape != (n_samples,):
        raise ValueError(
            f"target_gaps must hold one gap for each of the {n_samples} samples, but has shape "
            f"{target.shape}"
        )
    bad: Mask = ~np.isfinite(target)
    if bad.any():
        raise ValueError(
            f"target_gaps holds {bad.sum()} values that are NaN or infinite, the first for "
            f"sample {bad.argmax()}"
        )
    return target


def _warn_if_few(inside: Side, outside: Side) -> None:
    fewest = np.minimum(inside.count, outside.count)
    few = int(((fewest > 0) & (fewest < FEWEST_MODELS)).sum())
    if few:
        warnings.warn(
            f"{few} of {len(fewest)} samples have fewer than {FEWEST_MODELS} shadow models inside "
            'or outside: a variance of their own is unreliable; use variance="shrunk"',
            UserWarning,
            stacklevel=3,
        )
