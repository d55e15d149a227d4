"""Thresholds that need no ground truth: where τ stands at first, and a rule by class."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_finite, plain_labels, real_number, real_numbers, to_numpy

__all__ = ["OPENING_SHARE", "below_class", "lowest_share", "opening_tau"]

ONE_BELOW = -1.0  # robust deviation from the median of the class: the rule by class
OPENING_SHARE = 0.05  # of the samples, flagged at first where a score has no threshold of its own
_ROUNDING = 1e-6  # relative to the median; float32 rounds to a sixteenth of it
_GAUSSIAN = 1.4826  # standard deviation of a Gaussian, in median absolute deviations


def lowest_share(scores: ArrayLike, share: float = OPENING_SHARE) -> float:
    """Return the τ that flags a share of the samples, those with the lowest scores.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk.
    share : float
        Share of the samples, above 0 and at most 1. At least one sample is flagged, and samples
        with equal scores are flagged together.

    Returns
    -------
    float
        One of the scores.

    Raises
    ------
    ValueError
        If there is no score, one is NaN or infinite, or the share is out of range.

    Examples
    --------
    >>> lowest_share([3.0, 1.0, 2.0, 5.0, 4.0], 0.4)
    2.0
    """
    values = checked_scores(scores)
    if not 0 < real_number("share", share) <= 1:
        raise ValueError(f"share must be above 0 and at most 1, not {share}")
    count = max(round(share * len(values)), 1)
    return float(np.partition(values, count - 1)[count - 1])


def opening_tau(scores: ArrayLike, natural: float | None) -> float:
    """Return where τ stands at first: the score's own threshold, or the lowest 5 % flagged.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk.
    natural : float or None
        Threshold that means the same for every model, as 0 for PSMI. None if the score has none.

    Examples
    --------
    >>> opening_tau([3.0, 1.0, 2.0], 0.0), opening_tau([3.0, 1.0, 2.0], None)
    (0.0, 1.0)
    """
    return lowest_share(scores) if natural is None else real_number("natural", natural)


def flagging(scores: ArrayLike, n: int) -> float:
    """Return the highest score at which at most `n` samples are flagged.

    If none can be, because too many samples share the lowest score, it lies below all of them.

    Examples
    --------
    >>> flagging([0.3, -0.2, 0.1, 0.1], 2), flagging([0.3, -0.2, 0.1, 0.1], 3)
    (-0.2, 0.1)
    """
    values = checked_scores(scores)
    if n >= len(values):
        return float(values.max())
    below = values[values < np.partition(values, n)[n]]
    return float(below.max()) if len(below) else float(np.nextafter(values.min(), -np.inf))


def class_spread(
    scores: ArrayLike, labels: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the median of each sample's class, and the class's robust deviation.

    The robust deviation is 1.4826 times the median absolute deviation. It is never 0: where most
    scores of a class are equal, others may differ by rounding alone.
    """
    values, classes = checked_scores(scores), plain_labels(to_numpy(labels))
    if classes.shape != values.shape:
        raise ValueError(
            f"labels must hold one label for each of {len(values)} scores, but has shape "
            f"{classes.shape}"
        )
    _, codes, counts = np.unique(classes, return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts

    def medians(of: NDArray[np.float64]) -> NDArray[np.float64]:
        rising = of[np.lexsort((of, codes))]
        low, high = rising[starts + (counts - 1) // 2], rising[starts + counts // 2]
        found: NDArray[np.float64] = (low / 2 + high / 2)[codes]
        return found

    middle = medians(values)
    rounding = _ROUNDING * np.where(middle == 0, 1.0, np.abs(middle))
    return middle, _GAUSSIAN * np.maximum(medians(np.abs(values - middle)), rounding)


def below_class(scores: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
    """Return which scores are at least one robust deviation below the median of their class.

    The robust deviation is 1.4826 times the median absolute deviation from the class's median. The
    rule needs no ground truth, and suits every score and any number of classes. It flags about a
    sixth of the samples where the scores of a class are Gaussian.

    Parameters
    ----------
    scores : (n,) array_like
        Scores. A low score means risk.
    labels : (n,) array_like
        Label of each sample.

    Returns
    -------
    (n,) bool
        Whether each sample is flagged. The only sample of a class never is, and of a class whose
        scores are equal up to rounding none is.

    Raises
    ------
    ValueError
        If there is no score, one is NaN or infinite, a label is missing, or lengths differ.

    Examples
    --------
    >>> below_class([0.0, 1.0, 1.1, 1.2, 5.0, 5.1, 5.2, 4.0], [0, 0, 0, 0, 1, 1, 1, 1]).tolist()
    [True, False, False, False, False, False, False, True]
    """
    values = checked_scores(scores)
    middle, deviation = class_spread(values, labels)
    flagged: NDArray[np.bool_] = (values - middle) / deviation <= ONE_BELOW
    return flagged


def checked_scores(scores: ArrayLike) -> NDArray[np.float64]:
    """Return one finite score for each sample, or raise."""
    values = real_numbers(scores, "scores").astype(np.float64)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"scores must be one number for each sample, but has shape {values.shape}")
    check_finite(values, "scores", "leave out samples that have no score")
    return values
