"""Checks of the tables behind figures, and simplification of long curves."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.visible import listed

MOST_ROWS = 2000
_STRAIGHT = 1e-9  # share of an axis; smaller deviations are rounding errors
Floats = NDArray[np.float64]


def checked(
    table: pd.DataFrame, what: str, columns: Iterable[str], numbers: Iterable[str] = ()
) -> pd.DataFrame:
    """Return the table, or raise if no figure can be drawn from it.

    Parameters
    ----------
    table : DataFrame
        Table that the caller passed.
    what : str
        Name of the table in messages, such as "the table of checkpoints".
    columns : iterable of str
        Required columns.
    numbers : iterable of str
        Required columns of finite numbers.

    Raises
    ------
    TypeError
        If it is not a DataFrame.
    ValueError
        If a column is missing, there is no row, or a number is NaN or infinite. The message names
        it.
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
        raise ValueError(f"{what} has no rows, so there is nothing to draw")
    for name in numbers:
        _refuse_wrong_numbers(table, what, name)
    return table


def _refuse_wrong_numbers(table: pd.DataFrame, what: str, name: str) -> None:
    try:
        values = table[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} has {table[name].dtype} in {name}; it must be numbers") from None
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ValueError(
            f"{what} has {values[wrong[0]]} in {name}, row {wrong[0]}"
            f"{f' and {len(wrong) - 1} more' if len(wrong) > 1 else ''}: leave such rows out"
        )


def thinned(
    table: pd.DataFrame,
    x: str,
    ys: Sequence[str],
    by: Sequence[str],
    most: int = MOST_ROWS,
) -> tuple[pd.DataFrame, float]:
    """Return the rows that suffice to draw lines that look the same.

    Parameters
    ----------
    table : DataFrame
        Points of the lines, in the order in which they are drawn.
    x, ys : str, sequence of str
        Columns of the coordinates. A row is kept for all of `ys` or for none.
    by : sequence of str
        Columns that distinguish the lines.
    most : int
        Number of rows to keep, over all lines.

    Returns
    -------
    DataFrame
        The table itself if it has at most `most` rows. Otherwise both ends of every line and the
        corners that stand out most, in the order of the table.
    float
        Largest distance of a removed point from its line, as a share of the axes. It is 0 if only
        points on straight stretches were removed.

    Raises
    ------
    ValueError
        If there are so many lines that `most` rows cannot hold their ends.
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
    """Return corners by Ramer, Douglas and Peucker, the farthest of all lines first."""
    kept = {int(end) for line in lines for end in line[[0, -1]]}
    if len(kept) > most:
        raise ValueError(f"{len(lines)} lines are too many for one figure of {most} rows")
    waiting: list[tuple[float, int, int, int, int]] = []
    drawn = [[np.ascontiguousarray(plane[line].T) for plane in planes] for line in lines]

    def look(which: int, start: int, stop: int) -> None:
        if stop - start > 1:
            off = _squared_distances(drawn[which][0][:, start : stop + 1])
            for points in drawn[which][1:]:
                np.maximum(off, _squared_distances(points[:, start : stop + 1]), out=off)
            place = int(np.argmax(off))
            farthest = math.sqrt(off[place])
            if farthest > _STRAIGHT:
                heapq.heappush(waiting, (-farthest, which, start, start + place, stop))

    for which, line in enumerate(lines):
        look(which, 0, len(line) - 1)
    while waiting and len(kept) < most:
        _, which, start, place, stop = heapq.heappop(waiting)
        kept.add(int(lines[which][place]))
        look(which, start, place)
        look(which, place, stop)
    return np.array(sorted(kept)), -waiting[0][0] if waiting else 0.0


def _squared_distances(points: Floats) -> Floats:
    """Return each point's squared distance from the segment between the first and the last.

    `points` are (2, n): a row for each coordinate is twice as fast as a row for each point.
    """
    x, y = points - points[:, :1]
    to_x, to_y = float(x[-1]), float(y[-1])
    length = to_x * to_x + to_y * to_y
    if length:
        share = np.clip((x * to_x + y * to_y) / length, 0, 1)
        x, y = x - share * to_x, y - share * to_y
    off: Floats = x * x + y * y
    return off
