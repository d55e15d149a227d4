"""Look of all figures: themes, checked and thinned tables, pictures without a network."""

from __future__ import annotations

import heapq
import io
import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import chain, count
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.extras import pip_install
from memowidgets.visible import listed
from memowidgets.vocabulary import SPOKEN, spoken

if TYPE_CHECKING:
    import altair as alt


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


Chart = TypeVar("Chart")
_BUILDING = threading.RLock()  # Altair keeps the setting for all threads

_SHAPES = (
    *("circle", "square", "triangle-up", "diamond", "cross"),
    *("triangle-down", "triangle-right", "triangle-left", "wedge", "arrow"),
)
_DASHES = (
    *([1, 0], [7, 3], [2, 2], [8, 3, 2, 3], [5, 5]),
    *([1, 3], [12, 4], [8, 2, 2, 2, 2, 2], [4, 2], [14, 3, 1, 3]),
)
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
# Widths are measured in Liberation Sans. Other browsers may only have fonts that are a fifth wider.
_PADDING = {"left": 8, "top": 8, "bottom": 8, "right": 60}
_BETWEEN_COLUMNS = 36


@dataclass(frozen=True)
class Theme:
    """Colours of one theme. They are those of the widgets, and fixed for each kind of thing.

    Attributes
    ----------
    background, text, muted, line : str
        Colours of the page, its text, its secondary text, and its grid.
    memorized, other : str
        Colours of memorised samples and of the others.
    accent : str
        Colour of a single highlighted thing.
    train, test : str
        Colours of members and of held-out samples.
    scores : tuple of str
        Colours of scores, in order. A score that `memowidgets.vocabulary` has a name for has the
        same colour, dashes and shape in every figure. Other scores take what is left.
    cells : (str, str)
        Colours of cells with few and with many samples.
    """

    background: str
    text: str
    muted: str
    line: str
    memorized: str
    other: str
    accent: str
    train: str
    test: str
    scores: tuple[str, ...]
    cells: tuple[str, str]

    def styles(self, names: Iterable[str]) -> dict[str, tuple[str, list[int], str]]:
        """Return colour, dashes and shape of each name; no two names have all three alike."""
        names, known, colors = list(dict.fromkeys(names)), list(SPOKEN), len(self.scores)
        places = {name: known.index(name) for name in names if name in known}
        first = min(len(known), colors) if places else 0
        spare = chain(range(first, colors), range(first), count(colors))
        free = (i for i in spare if i not in places.values())
        others = [name for name in names if name not in known]
        places |= dict(zip(others, free, strict=False))
        return {name: self._style(i) for name, i in places.items()}

    def _style(self, i: int) -> tuple[str, list[int], str]:
        turn, place = divmod(i, len(self.scores))
        mark = (place + turn) % len(self.scores)  # colours that come again have other marks
        return self.scores[place], list(_DASHES[mark]), _SHAPES[mark]


LIGHT = Theme(
    background="#ffffff",
    text="#1f2328",
    muted="#5b6670",
    line="#d4dade",
    memorized="#c2334b",
    other="#7d95aa",
    accent="#1c5d8c",
    train="#1f2328",
    test="#7a5a12",
    scores=(
        *("#1c5d8c", "#b45a09", "#0f7a5c", "#6f35b8", "#5b6670"),
        *("#a877d9", "#3a4012", "#4747ff", "#7d8ab2", "#314059"),
    ),
    cells=("#bcd3e4", "#0b3555"),
)
DARK = Theme(
    background="#15191d",
    text="#e6eaee",
    muted="#a4b0ba",
    line="#3b444c",
    memorized="#ee6b80",
    other="#7793ab",
    accent="#72b7ea",
    train="#e6eaee",
    test="#e0b65c",
    scores=(
        *("#72b7ea", "#f0a24e", "#58c9a5", "#a56ff0", "#a4b0ba"),
        *("#7c628c", "#667350", "#7547ff", "#f2bc85", "#8c6627"),
    ),
    cells=("#24506f", "#c3e3fb"),
)
_THEMES = {"light": LIGHT, "dark": DARK}


def theme_named(name: str | Theme) -> Theme:
    """Return the theme of that name; a theme is returned as it is.

    Raises
    ------
    ValueError
        If the name is unknown; the message lists the valid ones.
    """
    if isinstance(name, Theme):
        return name
    if name not in _THEMES:
        raise ValueError(f"unknown theme {name!r}; valid: {', '.join(_THEMES)}")
    return _THEMES[name]


def styled(
    theme: Theme,
    field: str,
    names: Sequence[str],
    labels: Mapping[str, str] | None = None,
    marks: Sequence[str] = ("color", "strokeDash"),
    **legend: Any,
) -> dict[str, Any]:
    """Return encodings that distinguish names by colour and by dashes or shape.

    `labels` are the texts that the field has in place of the names.
    """
    import altair as alt

    styles = theme.styles(names)
    domain = [(labels or {}).get(name, spoken(name)) for name in styles]
    ranges = dict(
        zip(("color", "strokeDash", "shape"), zip(*styles.values(), strict=True), strict=True)
    )
    drawn_as = {"symbolType": "stroke", "symbolSize": 500} if "strokeDash" in marks else {}
    shown = alt.Legend(**{"title": None, "symbolOpacity": 1, **drawn_as, **legend})
    kinds = {"color": alt.Color, "strokeDash": alt.StrokeDash, "shape": alt.Shape}
    return {
        mark: kinds[mark](
            f"{field}:N",
            scale=alt.Scale(domain=domain, range=list(ranges[mark])),
            legend=shown,
        )
        for mark in marks
    }


def finished(chart: Chart, theme: Theme, description: str) -> Chart:
    """Return the chart in a theme, with a description, shown as a picture in notebooks."""
    import altair as alt

    top = cast("Any", chart)  # set in place: `properties` and `configure` would copy all of it
    top.background, top.description, top.padding = theme.background, description, _PADDING
    top.config = alt.Config(**_configuration(theme))
    kind: Any = type(top)
    object.__setattr__(top, "__class__", _offline(kind))
    return cast("Chart", top)


def layered(
    layers: Sequence[Any], theme: Theme, description: str, **properties: Any
) -> alt.LayerChart:
    """Return layers over each other as one `finished` chart."""
    import altair as alt

    chart: alt.LayerChart = alt.LayerChart(layer=list(layers), **properties)
    return finished(chart, theme, description)


def ruled(
    axis: str, field: str, value: float, theme: Theme, dash: Sequence[int] = (4, 3)
) -> alt.Chart:
    """Return a dashed rule at a value on an axis, ``"x"`` or ``"y"``."""
    import altair as alt

    at = alt.Chart(pd.DataFrame({field: [value]}))
    line: alt.Chart = at.mark_rule(strokeDash=list(dash), color=theme.muted)
    return line.encode(**{axis: f"{field}:Q"})


def banded(
    base: alt.Chart, columns: Sequence[str], y: alt.Y, shape: alt.Shape, opacity: float, size: int
) -> list[alt.Chart]:
    """Return a line with its points, and a band around it, from columns low, middle and high."""
    _, middle, high = columns
    return [
        base.mark_area(opacity=opacity).encode(y=y, y2=f"{high}:Q"),
        base.mark_line().encode(y=f"{middle}:Q"),
        base.mark_point(filled=True, size=size, opacity=1).encode(y=f"{middle}:Q", shape=shape),
    ]


@contextmanager
def unvalidated() -> Iterator[None]:
    """Build charts without validating each part: Altair validates the whole when it is shown."""
    from altair.utils.schemapi import debug_mode

    with _BUILDING, debug_mode(arg=False):
        yield


def _configuration(theme: Theme) -> dict[str, Any]:
    words = {"labelColor": theme.muted, "titleColor": theme.text, "titleFontWeight": "normal"}
    sizes = {"labelFontSize": 11, "titleFontSize": 12}
    return {
        "font": _FONT,
        "axis": {
            **words,
            **sizes,
            "gridColor": theme.line,
            "gridOpacity": 0.55,
            "domainColor": theme.muted,
            "tickColor": theme.muted,
            "titlePadding": 10,
        },
        "legend": {
            **words,
            **sizes,
            "labelColor": theme.text,
            "labelLimit": 420,
            "symbolStrokeWidth": 2,
            "symbolSize": 70,
            "rowPadding": 4,
            "columnPadding": _BETWEEN_COLUMNS,
        },
        "title": {
            "color": theme.text,
            "subtitleColor": theme.muted,
            "fontSize": 12,
            "fontWeight": 600,
            "subtitleFontSize": 11,
            "anchor": "start",
            "frame": "group",
            "offset": 8,
        },
        "view": {"stroke": theme.line},
        "text": {"color": theme.text, "fontSize": 11},
    }


class _Picture:
    """Display as an SVG picture, because Altair's own display fetches scripts from a CDN.

    Without vl-convert, JupyterLab and Notebook draw the chart by the Vega-Lite that they have.
    """

    def _repr_mimebundle_(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        chart = cast("alt.Chart", self)
        if find_spec("vl_convert") is None:
            text = f"a chart; pictures of charts need vl-convert: {pip_install('figures')}"
            return {"application/vnd.vegalite.v5+json": chart.to_dict(), "text/plain": text}
        picture = io.StringIO()
        chart.save(picture, format="svg")
        return {"image/svg+xml": picture.getvalue(), "text/plain": "a chart"}


@cache
def _offline(kind: type[Any]) -> type[Any]:
    return type(f"Offline{kind.__name__}", (_Picture, kind), {})
