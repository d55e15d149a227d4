"""95 % intervals of a share and of an AUC. Their width is never 0."""

from __future__ import annotations

from collections.abc import Callable

from scipy.special import betaincinv

Interval = tuple[float, float]

_Z95 = 1.959963984540054
_HALVINGS = 60


def clopper_pearson(count: float, total: float) -> Interval:
    """Return the exact 95 % interval of a share.

    Parameters
    ----------
    count, total : int
        Successes and trials. `total` is at least 1. Expected counts need not be whole.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1].

    Examples
    --------
    >>> low, high = clopper_pearson(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.187, 0.813)
    """
    low = float(betaincinv(count, total - count + 1, 0.025)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high


def newcombe(auc: float, n_positives: float, n_negatives: float) -> Interval:
    """Return the 95 % score interval of an AUC.

    Parameters
    ----------
    auc : float
        AUC, from 0 to 1.
    n_positives, n_negatives : int
        Numbers of samples of each kind, above 0. Expected counts need not be whole.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1]. The width is never 0.

    Notes
    -----
    Method 5 of Newcombe (2006), Statistics in Medicine 25:559-573: all areas θ with
    (auc − θ)² ≤ z² V(θ). V is the variance of Hanley and McNeil (1982), with both sample sizes
    inside its bracket replaced by their mean.

    Examples
    --------
    >>> low, high = newcombe(1.0, 20, 1000)
    >>> round(low, 3), high
    (0.95, 1.0)
    """
    mean = (n_positives + n_negatives) / 2
    pairs = n_positives * n_negatives

    def excluded(area: float) -> bool:
        spread = (1 - area) / (2 - area) + area / (1 + area)
        variance = area * (1 - area) * (1 + (mean - 1) * spread) / pairs
        return (auc - area) ** 2 > _Z95**2 * variance

    low = _bisected(excluded, 0.0, auc) if auc > 0 else 0.0
    high = _bisected(excluded, 1.0, auc) if auc < 1 else 1.0
    return low, high


def wider(one: Interval, other: Interval) -> Interval:
    """Return the smallest interval that contains both."""
    return min(one[0], other[0]), max(one[1], other[1])


def _bisected(excluded: Callable[[float], bool], outside: float, inside: float) -> float:
    """Return the point between `inside` and `outside` where `excluded` changes."""
    for _ in range(_HALVINGS):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return (outside + inside) / 2
