"""Members whose representations are nearest, and the class that most of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.numbers import scores
from memowidgets.store import StoreError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.audit.evidence import Evidence

NEIGHBOURS = 6
_ROWS_AT_ONCE = 4096
_COMPARED_AT_ONCE = 128
_PRODUCTS = 2 * 10**10  # multiplications that take about a second
_TO_SORT = 200  # multiplications that take as long as to sort one distance in
_FEWEST = 1000  # members among which the nearest are looked for


def distances(states: NDArray[np.float32], position: int) -> NDArray[np.float64]:
    """Return the Euclidean distance of each row to one of them, infinite for that row itself.

    Parameters
    ----------
    states : array of shape (n, values)
        Read in pieces: it may lie on disk.
    position : int
        The row that is compared with the others.

    Examples
    --------
    >>> distances(np.array([[0.0], [3.0], [1.0]]), 0)
    array([inf,  3.,  1.])
    """
    here = np.asarray(states[position], dtype=np.float64).ravel()
    squares = np.empty(len(states))
    for start in range(0, len(states), _ROWS_AT_ONCE):
        piece = np.asarray(states[start : start + _ROWS_AT_ONCE], dtype=np.float32)
        difference = piece.reshape(len(piece), -1) - here
        squares[start : start + len(piece)] = np.einsum(
            "ij,ij->i", difference, difference
        )
    squares[position] = np.inf
    return np.sqrt(squares)


def nearest(away: NDArray[np.float64], k: int) -> list[tuple[int, float]]:
    """Return the k nearest rows with their distances, nearest first; fewer if there are fewer."""
    order = np.argsort(away, kind="stable")[: min(k, len(away) - 1)]
    return [(int(row), float(away[row])) for row in order]


def all_nearest(
    states: NDArray[np.floating[Any]], k: int = NEIGHBOURS
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest rows of every row, nearest first, and how far they are.

    All are compared at once, so this is for up to a few thousand rows.

    Examples
    --------
    >>> places, away = all_nearest(np.array([[0.0], [3.0], [1.0]]), k=1)
    >>> places.ravel(), away.ravel()
    (array([2, 2, 0]), array([1., 2., 1.]))
    """
    points = np.asarray(states, dtype=np.float64).reshape(len(states), -1)
    squares = np.einsum("ij,ij->i", points, points)
    away = squares[:, None] + squares - 2 * points @ points.T
    np.fill_diagonal(away, np.inf)
    some = np.argpartition(away, k - 1, axis=1)[:, :k]
    near = np.take_along_axis(away, some, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    near = np.take_along_axis(near, order, axis=1)
    return np.take_along_axis(some, order, axis=1), np.sqrt(np.maximum(0.0, near))


def class_nearby(
    evidence: Evidence, layer: str, checkpoint: str, probabilities: NDArray[np.float64]
) -> NDArray[np.int64] | None:
    """Return the class of most of the nearest members, for each to which the model gives another.

    -1 for a member whose label the model gives, or whose neighbours are of no one class; None
    where the representations are not at hand.
    """
    try:
        states = scores.states(evidence, layer, checkpoint)
    except StoreError:
        return None
    rows = np.flatnonzero(probabilities.argmax(axis=1) != evidence.labels)
    found = np.full(len(states), -1, dtype=np.int64)
    found[rows] = majority_of_nearest(states, evidence.labels, rows)
    return found


def majority_of_nearest(
    states: NDArray[np.floating[Any]],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    k: int = NEIGHBOURS,
) -> NDArray[np.int64]:
    """Return the class that more than half of the k nearest rows have, for some of the rows.

    Where all rows are too many to compare in about a second, they are compared with some of them,
    drawn at random.

    Parameters
    ----------
    states : array of shape (n, values)
        Read in pieces: it may lie on disk.
    labels : array of shape (n,), int64
        The class of each.
    rows : array of int64
        Those whose neighbours are looked for.
    k : int
        Number of neighbours; fewer if there are fewer.

    Returns
    -------
    array of int64
        One for each of `rows`, -1 where no class has more than half.

    Examples
    --------
    >>> states = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> majority_of_nearest(states, np.array([0, 1, 1, 0]), np.array([0, 1]), k=3)
    array([1, 0])
    """
    n, width = len(states), int(np.prod(states.shape[1:]))
    products = len(rows) * (width + _TO_SORT)
    most = max(_FEWEST, _PRODUCTS // max(1, products))
    among = np.arange(n)
    if n > most:
        among = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    others = np.asarray(states[among], dtype=np.float32).reshape(len(among), -1)
    squares = np.einsum("ij,ij->i", others, others)
    found = np.full(len(rows), -1, dtype=np.int64)
    for start in range(0, len(rows), _COMPARED_AT_ONCE):
        some = rows[start : start + _COMPARED_AT_ONCE]
        here = np.asarray(states[some], dtype=np.float32).reshape(len(some), -1)
        away = squares - 2 * here @ others.T  # but for what is the same in a row
        away[some[:, None] == among] = np.inf
        kept = min(k, len(among) - 1)
        near = labels[among[np.argpartition(away, kept, axis=1)[:, :kept]]]
        same = (near[:, :, None] == near[:, None, :]).sum(axis=2)
        for i in np.flatnonzero(2 * same.max(axis=1, initial=0) > kept):
            found[start + i] = near[i, same[i].argmax()]
    return found
