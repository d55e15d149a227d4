"""Scores that need only logits: the loss and the logit gap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_same_order, is_tensor, to_numpy
from memowidgets.metrics.arrays import (
    Array,
    Floats,
    checked_labels,
    checked_numbers,
    like,
    namespace,
    row_chunks,
)


def loss(logits: Any, y: ArrayLike) -> Floats:
    """Return minus the cross-entropy of each sample's label.

    Parameters
    ----------
    logits : (n_samples, n_classes) array_like or torch tensor
        Logits. −inf is allowed for options that a sample does not have, but not for its label.
    y : (n_samples,) array_like of int or str
        Column of each sample's label. Strings stand for the columns in sorted order.

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
    This is the score μ = −loss of the paper's section on threat models. A tensor is processed on
    its own device.

    Examples
    --------
    >>> loss([[0.0, 0.0], [3.0, 0.0]], [0, 1]).round(3)
    array([-0.693, -3.049])
    """
    return _in_chunks(logits, y, _log_probability)


def logit_gap(logits: Any, y: ArrayLike) -> Floats:
    """Return the logit of each sample's label minus its largest other logit.

    Parameters
    ----------
    logits : (n_samples, n_classes) array_like or torch tensor
        Logits over the options or over the whole vocabulary. −inf is allowed for options that a
        sample does not have, but not for its label.
    y : (n_samples,) array_like of int or str
        Column of each sample's label. Strings stand for the columns in sorted order.

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


def _in_chunks(logits: Any, y: ArrayLike, score: Callable[[Array, Array], Array]) -> Floats:
    """Return the score of each row, computed in float64, a chunk at a time."""
    check_same_order(logits=logits, y=y)
    array = checked_numbers(logits, "logits")
    columns = _checked_columns(array, y)
    result = np.empty(len(columns))
    for start, stop in row_chunks(len(columns), 8 * array.shape[1]):
        labels: Array = columns[start:stop, None]
        if is_tensor(array):
            chunk, labels = array[start:stop].double(), like(array, labels)
        else:
            chunk = np.asarray(array[start:stop], dtype=np.float64)
        values = to_numpy(score(chunk, labels))
        if not np.isfinite(values).all():
            _explain(to_numpy(chunk), to_numpy(labels), values, start)
        result[start:stop] = values
    return result


def _checked_columns(logits: Array, y: ArrayLike) -> NDArray[np.int64]:
    """Return the column of each row's label; strings stand for the columns in sorted order."""
    if logits.ndim != 2 or 0 in logits.shape:
        raise ValueError(
            f"logits must be (n_samples, n_classes), but have shape {tuple(logits.shape)}"
        )
    labels = checked_labels(y, logits.shape[0])
    n_columns = int(logits.shape[1])
    if labels.dtype.kind == "U":
        names, labels = np.unique(labels, return_inverse=True)
        if len(names) != n_columns:
            raise ValueError(
                f"y holds {len(names)} different strings for {n_columns} columns of logits, so it "
                "does not tell which column is whose; number the labels by their columns"
            )
    if labels.dtype.kind not in "biu":
        raise TypeError(f"y must hold whole numbers (columns of logits), but has {labels.dtype}")
    outside = (labels < 0) | (labels >= n_columns)
    if outside.any():
        row = int(outside.argmax())
        raise ValueError(
            f"the label of row {row} is {labels[row]}, but logits have the columns 0 to "
            f"{n_columns - 1}"
        )
    return labels.astype(np.int64)


def _taken(chunk: Array, labels: Array) -> Array:
    if is_tensor(chunk):
        return chunk.gather(1, labels)
    return np.take_along_axis(chunk, labels, axis=1)


def _log_probability(chunk: Array, labels: Array) -> Array:
    xp = namespace(chunk)
    own = _taken(chunk, labels)
    top = xp.amax(chunk, 1)[:, None]
    with np.errstate(invalid="ignore"):  # inf − inf is reported afterwards
        shifted = xp.exp(chunk - top)
        return (own - top)[:, 0] - xp.log(shifted.sum(1))


def _gap(chunk: Array, labels: Array) -> Array:
    xp = namespace(chunk)
    others = chunk.clone() if is_tensor(chunk) else chunk.copy()
    own = _taken(chunk, labels)[:, 0]
    others[xp.arange(len(labels)), labels[:, 0]] = -np.inf
    with np.errstate(invalid="ignore"):  # inf − inf is reported afterwards
        return own - xp.amax(others, 1)


def _explain(chunk: Floats, labels: NDArray[np.int64], values: Floats, start: int) -> None:
    """Raise an error that says why the first value that is not finite is undefined."""
    row = int((~np.isfinite(values)).argmax())
    logits, label = chunk[row], int(labels[row, 0])
    wrong = np.isnan(logits) | (logits == np.inf)
    if wrong.any():
        column = int(wrong.argmax())
        raise ValueError(f"the logit in row {start + row}, column {column} is {logits[column]}")
    if logits[label] == -np.inf:
        raise ValueError(
            f"the logit of the label ({label}) of row {start + row} is -inf. Only options that a "
            "sample does not have may be -inf"
        )
    raise ValueError(f"row {start + row} has a single option; a logit gap needs two or more")
