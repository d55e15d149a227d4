"""What figures ask of the tables they are given, and how they keep to few rows."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.visible import listed

__all__ = ["MOST_ROWS", "checked", "thinned"]

MOST_ROWS = 2000
_STRAIGHT = 1e-9  # of an axis: corners that stand out less are rounding
Floats = NDArray[np.float64]


def checked(
    table: pd.DataFrame, what: str, columns: Iterable[str], numbers: Iterable[str] = ()
) -> pd.DataFrame:
    """The table, if a figure can be drawn from it.

    Parameters
    ----------
    table : DataFrame
        What the caller gave.
    what : str
        Its name in messages, such as "the table of checkpoints".
    columns : iterable of str
        What must be there.
    numbers : iterable of str
        Those that must be there and hold finite numbers.

    Raises
    ------
    TypeError
        If it is no DataFrame.
    ValueError
        If a column is missing, there is no row, or a number is NaN or infinite; the message says
        which.
    """
    if not isinstance(table, pd.DataFrame):
        raise TypeError(f"{what} must be a pandas DataFrame, not {type(table).__name__}")
    numbers = list(numbers)
    missing = [name for name in dict.fromkeys((*columns, *numbers)) if name not in table]
    if missing:
        there = listed(table.columns) or "none"
        said = "the columns " if len(missing) > 1 else ""
        raise ValueError(f"{what} lacks {said}{', '.join(missing)}; it has {there}")
    if table.empty:
        raise ValueError(f"{what} has no rows: there is nothing to draw")
    for name in numbers:
        _refuse_wrong_numbers(table, what, name)
    return table


def _refuse_wrong_numbers(table: pd.DataFrame, what: str, name: str) -> None:
    try:
        values = table[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{what} holds {table[name].dtype} in {name}; it must be numbers"
        ) from None
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(
            f"{what} holds {values[wrong[0]]} in {name}, row {wrong[0]}"
            f"{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}: leave such rows out"
        )


def thinned(
    table: pd.DataFrame,
    x: str,
    ys: Sequence[str],
    by: Sequence[str],
    most: int = MOST_ROWS,
) -> tuple[pd.DataFrame, float]:
    """The rows that lines need to look as they would with all of them.

    Parameters
    ----------
    table : DataFrame
        Lines in the order in which they are drawn.
    x, ys : str, sequence of str
        Their columns; a row is kept for all of them or for none.
    by : sequence of str
        What tells one line from another.
    most : int
        Rows to keep, over all lines.

    Returns
    -------
    DataFrame
        The table itself, if it has no more than `most` rows. Else some of its rows, in its order:
        both ends of every line, then the corners that stand out most.
    float
        How far a point that was left out lies off its line, as a share of the axes; 0 where
        nothing but straight stretches were shortened.

    Raises
    ------
    ValueError
        If there are more lines than `most` rows can hold the ends of.
    """
    if len(table) <= most:
        return table, 0.0
    scaled = [_to_unit(table[[x, y]].to_numpy(dtype=np.float64)) for y in ys]
    lines = list(table.groupby(list(by), sort=False, observed=True).indices.values())
    kept, off = _corners([np.sort(line) for line in lines], scaled, most)
    return table.iloc[kept], off


def _to_unit(points: Floats) -> Floats:
    low, high = points.min(axis=0), points.max(axis=0)
    scaled: Floats = (points - low) / np.where(high > low, high - low, 1.0)
    return scaled


def _corners(
    lines: list[NDArray[np.int64]], planes: list[Floats], most: int
) -> tuple[NDArray[np.int64], float]:
    """Ramer's and Douglas and Peucker's corners, the farthest of all lines first."""
    kept = {int(end) for line in lines for end in line[[0, -1]]}
    if len(kept) > most:
        raise ValueError(f"{len(lines)} lines are too many for one figure of {most} rows")
    waiting: list[tuple[float, int, int, int, int]] = []

    def look(which: int, start: int, stop: int) -> None:
        between = lines[which][start : stop + 1]
        if len(between) > 2:
            off = np.max([_distances(plane[between]) for plane in planes], axis=0)
            place = int(np.argmax(off))
            if off[place] > _STRAIGHT:
                heapq.heappush(waiting, (-float(off[place]), which, start, start + place, stop))

    for which, line in enumerate(lines):
        look(which, 0, len(line) - 1)
    while waiting and len(kept) < most:
        _, which, start, place, stop = heapq.heappop(waiting)
        kept.add(int(lines[which][place]))
        look(which, start, place)
        look(which, place, stop)
    return np.array(sorted(kept)), -waiting[0][0] if waiting else 0.0


def _distances(points: Floats) -> Floats:
    """Of each point from the segment between the first and the last."""
    from_start = points - points[0]
    along = from_start[-1]
    length = float(along @ along)
    share = np.clip(from_start @ along / length, 0, 1) if length else np.zeros(len(points))
    off: Floats = np.hypot(*(from_start - share[:, None] * along).T)
    return off
