"""Scores that need only logits: the loss and the logit gap, and means of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import (
    check_finite,
    check_same_order,
    numbered_labels,
    real_numbers,
)
from memowidgets.metrics.arrays import (
    Floats,
    check_one_each,
    checked_numbers,
    row_chunks,
)

FEWEST_CHECKPOINTS = 2
_CLEAR = 0.5  # share of a class's samples whose answers show which column is its own
_FEWEST_ROWS = 10  # of classes in other columns, among half of all rows
_ROUNDING = 1e-3  # of a loss that is 0


def loss(logits: object, y: ArrayLike) -> Floats:
    """Return minus the cross-entropy of each sample's label.

    Parameters
    ----------
    logits : (n_samples, n_classes) array_like or torch tensor
        Logits. −inf is allowed for options that a sample does not have, but not for its label.
    y : (n_samples,) array_like of int or str
        Column of each sample's label. Strings stand for the columns in sorted order, and pandas'
        categories in their own.

    Returns
    -------
    (n_samples,) float64
        Log-probability of the label, in nats (natural logarithms). A low value means that
        memorisation is likely.

    Raises
    ------
    ValueError
        A logit is NaN or +inf, a label's logit is −inf, or a label is not a column.

    Notes
    -----
    This is the score μ = −loss of the paper's section on threat models.

    Examples
    --------
    >>> loss([[0.0, 0.0], [3.0, 0.0]], [0, 1]).round(3)
    array([-0.693, -3.049])
    """
    return _in_chunks(logits, y, _log_probability)


def logit_gap(logits: object, y: ArrayLike) -> Floats:
    """Return the logit of each sample's label minus its largest other logit.

    Parameters
    ----------
    logits : (n_samples, n_classes) array_like or torch tensor
        Logits over the options or over the whole vocabulary. −inf is allowed for options that a
        sample does not have, but not for its label.
    y : (n_samples,) array_like of int or str
        Column of each sample's label. Strings stand for the columns in sorted order, and pandas'
        categories in their own.

    Returns
    -------
    (n_samples,) float64
        Gap in logits, negative if the model prefers another label. A low value means that
        memorisation is likely.

    Raises
    ------
    ValueError
        A logit is NaN or +inf, a label's logit is −inf, a sample has a single option, or a label
        is not a column.

    Notes
    -----
    Defined as in Appendix C of the paper and in its code. Appendix A uses the two largest logits.

    Examples
    --------
    >>> logit_gap([[2.0, 1.0, 0.0], [3.0, 0.0, -np.inf]], [0, 1])
    array([ 1., -3.])
    """
    return _in_chunks(logits, y, _gap)


def _in_chunks(logits: object, y: ArrayLike, score: Callable[..., Floats]) -> Floats:
    """Return the score of each row, computed in float64, a chunk at a time."""
    check_same_order(logits=logits, y=y)
    rows = checked_numbers(logits, "logits")
    columns = _columns_of(rows.shape, y)
    result = np.empty(len(columns))
    for start, stop in row_chunks(len(columns), 8 * rows.shape[1]):
        labels = columns[start:stop]
        chunk = rows[start:stop].exact()
        own = chunk[np.arange(len(labels)), labels]
        with np.errstate(invalid="ignore"):  # inf − inf is reported below
            values = score(chunk, own, labels)
        if not np.isfinite(values).all():
            check_finite(rows.in_numpy(), "logits", allowed=-np.inf)
            row = int((~np.isfinite(values)).argmax())
            if own[row] > -np.inf:
                raise ValueError(
                    f"row {start + row} has a single option; a logit gap needs two or more"
                )
            raise ValueError(
                f"the logit of the label ({labels[row]}) of row {start + row} is -inf. Only "
                "options that a sample does not have may be -inf"
            )
        result[start:stop] = values
    return result


def _columns_of(shape: tuple[int, ...], y: ArrayLike) -> NDArray[np.int64]:
    """Return the column of each row's label; strings stand for the columns in sorted order."""
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"logits must be (n_samples, n_classes), but have shape {shape}"
        )
    labels, names = numbered_labels(y)
    check_one_each(labels, shape[0])
    n_columns = shape[1]
    if names is not None and len(names) != n_columns:
        raise ValueError(
            f"y holds {len(names)} different strings for {n_columns} columns of logits, so it "
            "does not tell which column is whose; number the labels by their columns"
        )
    if labels.dtype.kind not in "biu":
        raise TypeError(
            f"y must hold whole numbers (columns of logits), but has {labels.dtype}"
        )
    outside = (labels < 0) | (labels >= n_columns)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"the label of row {row} is {labels[row]}, but logits have the columns 0 to "
            f"{n_columns - 1}; number the classes from 0, in the order of the columns"
        )
    return labels.astype(np.int64)


def _log_probability(chunk: Floats, own: Floats, _: NDArray[np.int64]) -> Floats:
    top = chunk.max(axis=1)
    total = np.exp(chunk - top[:, None]).sum(axis=1)
    return np.asarray((own - top) - np.log(total))


def _gap(chunk: Floats, own: Floats, labels: NDArray[np.int64]) -> Floats:
    others = chunk.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    return np.asarray(own - others.max(axis=1))


def other_columns(logits: NDArray[Any], labels: NDArray[np.int64]) -> dict[int, int]:
    """Return the column that answers each class, where that is clearly the one of another class.

    Half of the rows match columns with classes, and the others must confirm each match: at least
    half of a class has its largest logit in that column, and less than a quarter in its own. These
    classes must be most of all, or exchange their columns among themselves.

    Parameters
    ----------
    logits : (n_samples, n_classes) array
        Logits, with −inf for options that a sample does not have.
    labels : (n_samples,) array of int
        Column of each label.

    Returns
    -------
    dict of int to int
        Empty if the columns are in the order of the labels, or too few rows say otherwise.

    Examples
    --------
    >>> labels = np.arange(60) % 3
    >>> other_columns(np.eye(3)[(labels + 1) % 3], labels)
    {0: 1, 1: 2, 2: 0}
    """
    n_classes = logits.shape[1]
    counts = np.zeros((2, n_classes, n_classes))
    half = np.random.default_rng(0).permutation(len(labels)) % 2
    np.add.at(counts, (half, labels, logits.argmax(axis=1)), 1)
    first, second = counts / np.maximum(counts.sum(axis=2, keepdims=True), 1)
    classes = np.arange(n_classes)
    columns = first.argmax(axis=1)
    in_other = second[classes, columns] >= _CLEAR
    in_own = second.diagonal() >= _CLEAR / 2
    clear = in_other & ~in_own & (columns != classes)
    column_of = dict(zip(classes[clear].tolist(), columns[clear].tolist(), strict=True))
    if counts[1][clear].sum() < _FEWEST_ROWS:
        return {}
    # a model that has learned by half answers one class by another, but does not exchange them
    one_to_one = len({*column_of.values()}) == len(column_of)
    is_exchange = {*column_of} == {*column_of.values()}
    is_order = one_to_one and (2 * len(column_of) > n_classes or is_exchange)
    return column_of if is_order else {}


def order_warning(what: str, logits: NDArray[Any], labels: NDArray[np.int64]) -> str:
    """Return a sentence if logits fit the labels far better in another order of their columns."""
    other = other_columns(logits, labels)
    if not other:
        return ""
    first = list(other.items())[:3]
    examples = ", ".join(
        f"most samples of class {c} in column {column}" for c, column in first
    )
    return (
        f"{what} have their largest value in the column of another class for {len(other)} of "
        f"{logits.shape[1]} classes: {examples}. Labels and columns must be in one order: pass "
        "class_names in the order of the columns, such as model.classes_"
    )


def csl(losses: ArrayLike) -> Floats:
    """Return minus the mean loss of each sample over the checkpoints so far.

    Parameters
    ----------
    losses : (n_checkpoints, n_samples) array_like
        Training loss of each sample at each checkpoint after step 0, in nats, in the order of
        training.

    Returns
    -------
    (n_samples,) float64
        Cumulative sample loss over the number of checkpoints, negated, in nats. A low value means
        that memorisation is likely.

    Raises
    ------
    ValueError
        If there are fewer than two checkpoints, or a loss is NaN, infinite or negative.

    Notes
    -----
    Ravikumar et al. 2025 sum the loss over training ("cumulative sample loss"); their score is
    high where memorisation is likely. A sample that is learned late has a high loss for long.

    Examples
    --------
    >>> csl([[2.0, 1.0], [0.5, 1.0], [0.1, 0.4]]).round(3)
    array([-0.867, -0.8  ])
    """
    table = _read_table(losses, "losses")
    if table.min() < -_ROUNDING:
        raise ValueError(
            f"losses must not be negative, but one is {table.min():g}; the score 'loss' is minus "
            "the loss"
        )
    return -mean_over_checkpoints(table)


def mean_over_checkpoints(scores: ArrayLike) -> Floats:
    """Return the mean of each sample's score over checkpoints.

    Parameters
    ----------
    scores : (n_checkpoints, n_samples) array_like
        One score at each checkpoint after step 0, in the order of training.

    Returns
    -------
    (n_samples,) float64
        Mean score, in the score's unit.

    Raises
    ------
    ValueError
        If there are fewer than two checkpoints, or a score is NaN or infinite.

    Examples
    --------
    >>> mean_over_checkpoints([[1.0, 0.0], [0.4, 0.2], [0.1, 0.1]])
    array([0.5, 0.1])
    """
    mean: Floats = _read_table(scores, "scores").mean(axis=0)
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
    import pandas as pd  # which nothing else here needs

    table = _read_table(scores, "scores", "scores")
    ranks = pd.DataFrame(table.T).rank().mean(axis=1).to_numpy(np.float64)
    mean: Floats = ranks / table.shape[1]  # at the end, so that equal sums stay equal
    return mean


def _read_table(values: ArrayLike, what: str, rows: str = "checkpoints") -> Floats:
    table = real_numbers(values, what).astype(np.float64)
    if table.ndim != 2 or len(table) < FEWEST_CHECKPOINTS or not table.shape[1]:
        raise ValueError(
            f"{what} must be (n_{rows}, n_samples), with a row for each of two {rows} or more, but "
            f"has shape {table.shape}"
        )
    check_finite(table, what)
    return table
