"""95 % intervals of a share, of an AUC and of a difference of AUCs."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, logit

from memowidgets.checks import real_number

Interval = tuple[float, float]

_Z95 = 1.959963984540054
_EDGE = 1e-13
_ROUNDING = 1e-9  # relative; expected counts are sums of many numbers


def clopper_pearson(count: float, total: float) -> Interval:
    """Return the exact 95 % interval of a share.

    Parameters
    ----------
    count, total : int
        Successes and trials. Expected counts need not be whole. Of no trials the interval is all
        of [0, 1].

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1].

    Raises
    ------
    TypeError, ValueError
        If they are not numbers from 0, or `count` is above `total`.

    Examples
    --------
    >>> low, high = clopper_pearson(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.187, 0.813)
    """
    real_number("total", total, 0, finite=True)
    real_number("count", count, 0, total * (1 + _ROUNDING))
    low = float(betaincinv(count, total - count + 1, 0.025)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high


def newcombe(auc: float, n_positives: float, n_negatives: float, z: float = _Z95) -> Interval:
    """Return the score interval of an AUC.

    Parameters
    ----------
    auc : float
        AUC, from 0 to 1.
    n_positives, n_negatives : int
        Numbers of samples of each kind, above 0. Expected counts need not be whole.
    z : float
        Normal quantile of the level. Default: that of 95 %.

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

    def outside(area: float) -> float:
        spread = (1 - area) / (2 - area) + area / (1 + area)
        variance = area * (1 - area) * (1 + (mean - 1) * spread) / pairs
        return (auc - area) ** 2 - z**2 * variance

    inside = min(max(auc, _EDGE), 1 - _EDGE)  # at 0 and 1 no area differs from itself
    if outside(inside) >= 0:  # z is too small to reach another area
        return auc, auc
    bounds = (0.0, inside), (inside, 1.0)
    low, high = (float(brentq(outside, *each, xtol=_EDGE)) for each in bounds)
    return low, high


def of_area(
    auc: float, n_positives: float, n_negatives: float, error: float, z: float = _Z95
) -> Interval:
    """Return the interval of an AUC: the wider of two, so that it covers where one of them fails.

    Parameters
    ----------
    auc, n_positives, n_negatives, z
        As for `newcombe`.
    error : float
        DeLong's standard error of the AUC; NaN where a kind has a single sample.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1]. The width is never 0.

    Notes
    -----
    `newcombe` takes the positives to be of one kind. Where half of them are obvious and half are
    like the rest, its 95 % interval covers .86 to .92. DeLong's variance sees such a mixture. Its
    interval on the logit scale is too narrow where positives are few and the AUC is near 1.
    ``python -m benchmarks intervals`` measures what both cover.

    Examples
    --------
    >>> low, high = of_area(0.9, 20, 1000, error=0.05)
    >>> round(low, 3), round(high, 3)
    (0.752, 0.964)
    """
    score = newcombe(auc, n_positives, n_negatives, z)
    if not 0 < auc < 1 or not error > 0:
        return score
    reach = z * error / (auc * (1 - auc))
    return wider(score, (float(expit(logit(auc) - reach)), float(expit(logit(auc) + reach))))


def of_difference(
    aucs: tuple[float, float], each: tuple[Interval, Interval], correlation: float
) -> Interval:
    """Return the interval of a difference of AUCs from the interval of each.

    Parameters
    ----------
    aucs : (float, float)
        Both AUCs.
    each : ((float, float), (float, float))
        Interval of each, at the level of the result.
    correlation : float
        Correlation of their errors.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [−1, 1].

    Notes
    -----
    MOVER, the method of variance estimates recovery: Zou and Donner (2008), Statistics in Medicine
    27:1693-1702, with the correlation as in Newcombe's interval of paired proportions.

    Examples
    --------
    >>> low, high = of_difference((0.9, 0.8), ((0.8, 0.95), (0.7, 0.88)), 0.5)
    >>> round(low, 3), round(high, 3)
    (0.008, 0.187)
    """
    (a, b), ((low_a, high_a), (low_b, high_b)) = aucs, each

    def reach(one: float, other: float) -> float:
        return float(np.sqrt(max(one**2 + other**2 - 2 * correlation * one * other, 0.0)))

    low = a - b - reach(a - low_a, high_b - b)
    return max(low, -1.0), min(a - b + reach(high_a - a, b - low_b), 1.0)


def wider(one: Interval, other: Interval) -> Interval:
    """Return the smallest interval that contains both."""
    return min(one[0], other[0]), max(one[1], other[1])
