"""Scores from several checkpoints of one training: their means, and mean ranks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.checks import real_numbers
from memowidgets.metrics.arrays import Floats, complain_if_not_finite

__all__ = ["csl", "mean_over_checkpoints", "mean_rank"]

FEWEST_CHECKPOINTS = 2
_ROUNDING = 1e-3  # of a loss that is 0


def csl(losses: ArrayLike, last: int | None = None) -> Floats:
    """Return minus the mean loss of each sample over the checkpoints so far.

    Parameters
    ----------
    losses : (n_checkpoints, n_samples) array_like
        Training loss of each sample at each checkpoint after step 0, in nats, in the order of
        training.
    last : int, optional
        Number of checkpoints to average, counted from the end. Default: all.

    Returns
    -------
    (n_samples,) float64
        Cumulative sample loss over the number of checkpoints, negated, in nats. A low value means
        that memorisation is likely.

    Raises
    ------
    ValueError
        If there are fewer than two checkpoints, a loss is NaN, infinite or negative, or `last` is
        not from 2 to n_checkpoints.

    Notes
    -----
    Ravikumar et al. 2025 sum the loss over training ("cumulative sample loss"); their score is
    high where memorisation is likely. A sample that is learned late has a high loss for long.

    Examples
    --------
    >>> csl([[2.0, 1.0], [0.5, 1.0], [0.1, 0.4]]).round(3)
    array([-0.867, -0.8  ])
    """
    table = _checked(losses, "losses")
    if table.min() < -_ROUNDING:
        raise ValueError(
            f"losses must not be negative, but one is {table.min():g}; the score 'loss' is minus "
            "the loss"
        )
    return -mean_over_checkpoints(table, last)


def mean_over_checkpoints(scores: ArrayLike, last: int | None = None) -> Floats:
    """Return the mean of each sample's score over checkpoints.

    Parameters
    ----------
    scores : (n_checkpoints, n_samples) array_like
        One score at each checkpoint after step 0, in the order of training.
    last : int, optional
        Number of checkpoints to average, counted from the end. Default: all.

    Returns
    -------
    (n_samples,) float64
        Mean score, in the score's unit.

    Raises
    ------
    ValueError
        If there are fewer than two checkpoints, a score is NaN or infinite, or `last` is not from
        2 to n_checkpoints.

    Examples
    --------
    >>> mean_over_checkpoints([[1.0, 0.0], [0.4, 0.2], [0.0, 0.1]], last=2)
    array([0.2 , 0.15])
    """
    table = _checked(scores, "scores")
    kept = len(table) if last is None else checked_last(last)
    if kept > len(table):
        raise ValueError(f"last is {last}, but there are only {len(table)} checkpoints")
    mean: Floats = table[-kept:].mean(axis=0)
    return mean


def mean_rank(scores: ArrayLike) -> Floats:
    """Return the mean of each sample's ranks by several scores.

    Parameters
    ----------
    scores : (n_scores, n_samples) array_like
        Values of two scores or more. Each is low where memorisation is likely.

    Returns
    -------
    (n_samples,) float64
        Mean rank over the number of samples, above 0 and at most 1. Equal values share the mean of
        their ranks. A low value means that memorisation is likely.

    Raises
    ------
    ValueError
        If there are fewer than two scores, or a value is NaN or infinite.

    Notes
    -----
    A rank has no unit, so that scores of different units count the same. It depends on the other
    samples: it has no natural threshold.

    Examples
    --------
    >>> mean_rank([[-3.0, 0.0, 2.0, 5.0], [-1.0, -9.0, -0.5, -0.1]])
    array([0.375, 0.375, 0.75 , 1.   ])
    """
    from scipy.stats import rankdata

    table = _checked(scores, "scores", "scores")
    ranks: Floats = rankdata(table, axis=1).mean(axis=0) / table.shape[1]
    return ranks


def checked_last(last: int) -> int:
    """Return the number of checkpoints to average, or raise.

    Raises
    ------
    TypeError
        If it is not a whole number.
    ValueError
        If it is below two.
    """
    if isinstance(last, bool) or not isinstance(last, int | np.integer):
        raise TypeError(f"last must be a number of checkpoints, not {last!r}")
    if last < FEWEST_CHECKPOINTS:
        raise ValueError(
            f"last must be at least {FEWEST_CHECKPOINTS}, not {last}: a mean over one checkpoint "
            "is the score itself"
        )
    return int(last)


def _checked(values: ArrayLike, what: str, rows: str = "checkpoints") -> Floats:
    table = real_numbers(values, what).astype(np.float64)
    if table.ndim != 2:
        raise ValueError(f"{what} must be (n_{rows}, n_samples), but has shape {table.shape}")
    if len(table) < FEWEST_CHECKPOINTS:
        raise ValueError(
            f"{what} must have a row for each of two {rows} or more, but has shape {table.shape}"
        )
    if table.shape[1] == 0:
        raise ValueError(f"{what} holds no sample")
    complain_if_not_finite(table, what)
    return table
