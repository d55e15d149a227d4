"""Look of all figures: colours, checked tables, pictures without a network."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import altair as alt
import numpy as np
import pandas as pd

from memowidgets.registry import own_names, spoken
from memowidgets.vocabulary import COLUMNS, listed

# the colours of the widgets
BACKGROUND = "#ffffff"
TEXT = "#1f2328"
MUTED = "#5b6670"
LINE = "#d4dade"
MEMORIZED = "#c2334b"
OTHER = "#7d95aa"
ACCENT = "#1c5d8c"
TRAIN = TEXT  # members
TEST = "#7a5a12"  # held-out samples
SCORES = (
    *("#1c5d8c", "#b45a09", "#0f7a5c", "#6f35b8", "#5b6670"),
    *("#a877d9", "#3a4012", "#4747ff", "#7d8ab2", "#314059"),
)
CELLS = "#bcd3e4", "#0b3555"  # with few and with many samples
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
# Widths are measured in Liberation Sans. Other browsers may only have fonts that are a fifth wider.
_PADDING = {"left": 8, "top": 8, "bottom": 8, "right": 60}
_BETWEEN_COLUMNS = 36
Chart = TypeVar("Chart")


def require(
    table: pd.DataFrame, what: str, columns: Iterable[str], numbers: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a table that can be drawn: Altair would leave out what is missing, and say nothing.

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
    ValueError
        If a column is missing, there is no row, or a number is NaN or infinite. The message names
        it.
    """
    numbers = list(numbers)
    missing = [
        name for name in dict.fromkeys((*columns, *numbers)) if name not in table
    ]
    if missing:
        there = listed(table.columns) or "none"
        raise ValueError(f"{what} lacks {', '.join(missing)}; it has {there}")
    if table.empty:
        raise ValueError(f"{what} has no rows, so there is nothing to draw")
    for name in numbers:
        values = table[name].to_numpy(dtype=np.float64)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"{what} has {values[row]} in {name}, row {row}: leave such rows out"
            )
    return table


def thin_curves(curves: pd.DataFrame, by: Sequence[str], cells: int) -> pd.DataFrame:
    """Return the points of ROC curves that a figure can tell apart, and both ends of each.

    Parameters
    ----------
    curves : DataFrame
        ``fpr``, ``tpr`` and the columns `by`, which distinguish the curves.
    cells : int
        Points are told apart by a grid of so many cells a side.
    """
    points = (curves[["fpr", "tpr"]] * cells).round().assign(**curves[list(by)])
    last = ~curves.duplicated(list(by), keep="last")
    return curves[~points.duplicated() | last]


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Return the colour of each score: the same in every figure for those that have a name."""
    names = list(dict.fromkeys(names))
    known = [*own_names(), *COLUMNS]
    taken = {
        name: SCORES[known.index(name) % len(SCORES)] for name in names if name in known
    }
    spare = [color for color in SCORES if color not in taken.values()] or list(SCORES)
    others = [name for name in names if name not in known]
    found = taken | {name: spare[i % len(spare)] for i, name in enumerate(others)}
    return {name: found[name] for name in names}


def encode_names(
    field: str,
    names: Iterable[str],
    labels: Mapping[str, str] | None = None,
    marks: Sequence[str] = ("color", "strokeDash"),
    **legend: Any,
) -> dict[str, Any]:
    """Return encodings that distinguish names by colour and by dashes or shape.

    `labels` are the texts that the field has in place of the names.
    """
    colors = colors_of(names)
    domain = [(labels or {}).get(name, spoken(name)) for name in colors]
    drawn_as = (
        {"symbolType": "stroke", "symbolSize": 500} if "strokeDash" in marks else {}
    )
    shown = alt.Legend(**{"title": None, "symbolOpacity": 1, **drawn_as, **legend})
    kinds = {"color": alt.Color, "strokeDash": alt.StrokeDash, "shape": alt.Shape}
    own: dict[str, dict[str, Any]] = {"color": {"range": list(colors.values())}}
    return {
        mark: kinds[mark](
            f"{field}:N",
            scale=alt.Scale(domain=domain, **own.get(mark, {})),
            legend=shown,
        )
        for mark in marks
    }


def finish(chart: Chart, description: str) -> Chart:
    """Return the chart with our look and a description, shown as a picture in notebooks."""
    # set in place: `properties` and `configure` would copy all of it
    top = cast("Any", chart)
    top.background = BACKGROUND
    top.description = description
    top.padding = _PADDING
    top.config = alt.Config(**_CONFIGURATION)
    kind: Any = type(top)
    object.__setattr__(top, "__class__", _offline(kind))
    return cast("Chart", top)


def layer(layers: Sequence[Any], description: str, **properties: Any) -> alt.LayerChart:
    """Return layers over each other as one finished chart."""
    chart: alt.LayerChart = alt.LayerChart(layer=list(layers), **properties)
    return finish(chart, description)


def rule_at(
    axis: str, field: str, value: float, dash: Sequence[int] = (4, 3)
) -> alt.Chart:
    """Return a dashed rule at a value on an axis, ``"x"`` or ``"y"``."""
    at = alt.Chart(pd.DataFrame({field: [value]}))
    line: alt.Chart = at.mark_rule(strokeDash=list(dash), color=MUTED)
    return line.encode(**{axis: f"{field}:Q"})


def band(
    rows: pd.DataFrame,
    across: alt.X,
    columns: Sequence[str],
    up: alt.Y,
    color: alt.Color,
    shape: alt.Shape,
) -> list[alt.Chart]:
    """Return lines with their points, and a band around each, from columns low, middle and high.

    `up` is the axis of the column low. A rule shows the interval of a lonely point, too.
    """
    _, middle, high = (f"{name}:Q" for name in columns)
    base = alt.Chart(rows).encode(x=across, color=color)
    return [
        base.mark_area(opacity=0.14).encode(y=up, y2=high),
        base.mark_rule(opacity=0.3).encode(y=up, y2=high),
        base.mark_line().encode(y=middle),
        base.mark_point(filled=True, size=36, opacity=1).encode(y=middle, shape=shape),
    ]


AREA = ("auc", "auc_low", "auc_high")


def auc_bands(table: pd.DataFrame, across: alt.X, **legend: Any) -> list[alt.Chart]:
    """Return a line at the AUC of chance, ½, and the AUC of each score with its 95 % band."""
    rows = table.assign(score=table["metric"].map(spoken))
    look = encode_names("score", rows["metric"], marks=("color", "shape"), **legend)
    scale = alt.Scale(zero=False, domainMax=1)
    up = alt.Y("auc_low:Q", title="AUC, 95 % interval", scale=scale)
    bands = band(
        rows, across, ("auc_low", "auc", "auc_high"), up, look["color"], look["shape"]
    )
    return [rule_at("y", "auc", 0.5, (2, 3)), *bands]


_WORDS = {"labelColor": MUTED, "titleColor": TEXT, "titleFontWeight": "normal"}
_SIZES = {"labelFontSize": 11, "titleFontSize": 12}
_CONFIGURATION: dict[str, Any] = {
    "font": _FONT,
    "axis": {
        **_WORDS,
        **_SIZES,
        "gridColor": LINE,
        "gridOpacity": 0.55,
        "domainColor": MUTED,
        "tickColor": MUTED,
        "titlePadding": 10,
    },
    "legend": {
        **_WORDS,
        **_SIZES,
        "labelColor": TEXT,
        "labelLimit": 420,
        "symbolStrokeWidth": 2,
        "symbolSize": 70,
        "rowPadding": 4,
        "columnPadding": _BETWEEN_COLUMNS,
    },
    "title": {
        "color": TEXT,
        "subtitleColor": MUTED,
        "fontSize": 12,
        "fontWeight": 600,
        "subtitleFontSize": 11,
        "anchor": "start",
        "frame": "group",
        "offset": 8,
    },
    "view": {"stroke": LINE},
    "text": {"color": TEXT, "fontSize": 11},
}


class _Picture:
    """Display as an SVG picture, because Altair's own display fetches scripts from a CDN."""

    def _repr_mimebundle_(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        chart = cast("alt.Chart", self)
        picture = io.StringIO()
        chart.save(picture, format="svg")
        return {"image/svg+xml": picture.getvalue(), "text/plain": "a chart"}


@cache
def _offline(kind: type[Any]) -> type[Any]:
    return type(f"Offline{kind.__name__}", (_Picture, kind), {})
