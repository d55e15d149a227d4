"""Figures of TPR against FPR: all scores in one, or one panel per checkpoint or η."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import Theme, finished, styled, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked, thinned

if TYPE_CHECKING:
    import altair as alt

    from memowidgets.evaluation import Evaluation


_NUMBERS = ("fpr", "tpr", "auc", "auc_low", "auc_high")
_WHAT = "the table of curves"
_PANEL = 210  # pixels; the longest name of a score and its AUC fit into it
_VISIBLE = 0.005  # share of an axis; more than a pixel on paper


def roc_table(evaluations: Mapping[str, Evaluation], **more: Any) -> pd.DataFrame:
    """Return the curves of several scores as a table for `roc_curves` and `roc_panels`.

    Parameters
    ----------
    evaluations : mapping of str to Evaluation
        Evaluations by score, or by whatever else distinguishes the curves.
    **more
        Additional columns with one value each, such as ``panel="epoch 2"``.

    Returns
    -------
    DataFrame
        ``score``, ``fpr``, ``tpr``, ``tau``, ``auc``, ``auc_low``, ``auc_high`` and `more`.

    Raises
    ------
    ValueError
        If there is no evaluation.

    Examples
    --------
    >>> from memowidgets.evaluation import roc
    >>> roc_table({"psmi": roc([-1.0, 0.5], [True, False])}, panel="epoch 2").shape
    (3, 8)
    """
    if not evaluations:
        raise ValueError("there is no evaluation to draw")
    curves = []
    for name, found in evaluations.items():
        low, high = found.auc_interval
        curve = found.roc.assign(auc=found.auc, auc_low=low, auc_high=high, **more)
        curve.insert(0, "score", name)
        curves.append(curve)
    return pd.concat(curves, ignore_index=True)


def roc_curves(
    curves: pd.DataFrame,
    tau: float | None = 0.0,
    marked: str | None = "psmi",
    theme: str | Theme = "light",
) -> alt.LayerChart:
    """Draw TPR against FPR of several scores, with each AUC and its interval in the legend.

    Parameters
    ----------
    curves : DataFrame
        Table of `roc_table`: ``score``, ``fpr``, ``tpr``, ``tau``, ``auc``, ``auc_low``,
        ``auc_high``.
    tau : float or None
        Threshold to mark. The paper recommends 0 for PSMI (Table 1).
    marked : str or None
        Score whose curve is marked. None marks every curve.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.LayerChart
        If the curves have more than 2000 corners together, only those that stand out most are
        drawn. A line under the figure says so if the difference is visible (paper, Figure 2).

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, or a number is NaN.

    Examples
    --------
    >>> from memowidgets.evaluation import roc
    >>> scores, truth = [-1.0, 0.5, 2.0], [True, False, False]
    >>> len(roc_curves(roc_table({"psmi": roc(scores, truth)})).layer)
    3
    """
    import altair as alt

    colors, drawn, off = theme_named(theme), *_thin(curves, ["score"])
    names = list(dict.fromkeys(drawn["score"]))
    firsts = drawn.groupby("score", sort=False).first()
    areas = {
        str(name): f"{row.auc:.3f} ({row.auc_low:.3f} to {row.auc_high:.3f})"
        for name, row in firsts.iterrows()
    }
    labels = {name: f"{colors.spoken(name)}: {area}" for name, area in areas.items()}
    drawn = drawn.assign(label=drawn["score"].map(labels))
    look = styled(colors, "label", names, labels, title="AUC (95 % interval)")
    lines = (
        alt.Chart(drawn[["label", "fpr", "tpr"]])
        .mark_line(strokeWidth=1.8)
        .encode(**_axes(), **look)
    )
    at = curves[:0] if tau is None else _at(curves, tau, marked, ["score"])
    points = [_marked(at, tau, colors)] if tau is not None and len(at) else []
    chart = alt.LayerChart(
        layer=[_chance(colors), lines, *points], width=300, height=300, title=_note(off, colors)
    )
    return finished(chart, colors, f"TPR against FPR: AUC {'; '.join(labels.values())}.")


def roc_panels(
    curves: pd.DataFrame,
    tau: float | None = 0.0,
    marked: str | None = "psmi",
    columns: int = 3,
    theme: str | Theme = "light",
) -> alt.ConcatChart:
    """Draw TPR against FPR in one panel per checkpoint, η or setting, with the AUCs.

    Parameters
    ----------
    curves : DataFrame
        As for `roc_curves`, with a column ``panel`` for the panel's title.
    tau, marked
        As for `roc_curves`.
    columns : int
        Number of panels in a row.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.ConcatChart
        Panels as in `roc_curves`, each with its AUCs but without their intervals (paper, Appendix
        E).

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, a number is NaN, or there are too many panels
        for 2000 rows.

    Examples
    --------
    >>> from memowidgets.evaluation import roc
    >>> found = {"psmi": roc([-1.0, 0.5, 2.0], [True, False, False])}
    >>> len(roc_panels(roc_table(found, panel="epoch 2")).concat)
    1
    """
    import altair as alt

    checked(curves, _WHAT, ["panel"])
    colors, drawn, off = theme_named(theme), *_thin(curves, ["panel", "score"])
    names = list(dict.fromkeys(drawn["score"]))
    points = None if tau is None else _at(curves, tau, marked, ["panel", "score"])
    panels = [
        _roc_panel(str(title), rows, names, points, colors)
        for title, rows in drawn.groupby("panel", sort=False)
    ]
    chart: alt.ConcatChart = alt.ConcatChart(
        concat=panels, columns=min(columns, len(panels)), spacing=16, title=_note(off, colors)
    )
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="shared", strokeDash="shared"))
    return finished(chart, colors, f"TPR against FPR in {len(panels)} panels.")


def _thin(curves: pd.DataFrame, by: list[str]) -> tuple[pd.DataFrame, float]:
    """Return the rows to draw and their error, leaving room for the AUCs and marks."""
    checked(curves, _WHAT, ["score", "tau"], _NUMBERS)
    n_lines = curves.groupby(by).ngroups
    return thinned(curves, "fpr", ["tpr"], by, max(MOST_ROWS - 3 * n_lines - 20, 1))


def _note(off: float, colors: Theme) -> Any:
    """Return a note about curves that are visibly simplified."""
    import altair as alt

    if off <= _VISIBLE:
        return alt.Undefined
    said = f"Curves are drawn to within {off:.1%} of the axes."
    return alt.Title(said, fontSize=11, fontWeight="normal", color=colors.muted)


def _axes(*, small: bool = False) -> dict[str, Any]:
    import altair as alt

    ticks: Any = [0, 0.5, 1] if small else alt.Undefined
    axis = alt.Axis(format="%", values=ticks, tickCount=5)
    scale = alt.Scale(domain=[0, 1], nice=False)
    return {
        "x": alt.X("fpr:Q", title="FPR", scale=scale, axis=axis),
        "y": alt.Y("tpr:Q", title="TPR", scale=scale, axis=axis),
    }


def _chance(colors: Theme) -> alt.Chart:
    import altair as alt

    ends = pd.DataFrame({"fpr": [0, 1], "tpr": [0, 1]})
    line: alt.Chart = alt.Chart(ends).mark_line(color=colors.line, strokeWidth=1)
    return line.encode(*_axes().values())


def _at(curves: pd.DataFrame, tau: float, marked: str | None, by: list[str]) -> pd.DataFrame:
    """Return the last point of each curve whose own threshold is at most `tau`."""
    if np.isnan(tau):
        raise ValueError("tau is NaN; it must be a number, or None for no mark")
    wanted = curves if marked is None else curves[curves["score"] == marked]
    return wanted[wanted["tau"] <= tau].groupby(by, sort=False).last().reset_index()


def _marked(points: pd.DataFrame, tau: float, colors: Theme) -> alt.Chart:
    """Return crosses, and a legend with the rates at them."""
    import altair as alt

    points = points.assign(
        at=[
            f"{colors.spoken(score)} at τ = {tau:g}: TPR {tpr:.3f}, FPR {fpr:.3f}"
            for score, tpr, fpr in points[["score", "tpr", "fpr"]].to_numpy()
        ]
    )
    fills = [style[0] for style in colors.styles(points["score"]).values()]
    shown = alt.Legend(title=None, orient="right")
    names = list(points["at"])
    chart = alt.Chart(points[["at", "fpr", "tpr"]]).mark_point(
        size=190, filled=True, opacity=1, stroke=colors.background, strokeWidth=1.2
    )
    drawn: alt.Chart = chart.encode(
        *_axes().values(),
        shape=alt.Shape("at:N", scale=alt.Scale(domain=names, range=["cross"]), legend=shown),
        fill=alt.Fill("at:N", scale=alt.Scale(domain=names, range=fills), legend=shown),
    )
    return drawn


def _roc_panel(
    title: str, rows: pd.DataFrame, names: list[str], points: pd.DataFrame | None, colors: Theme
) -> alt.LayerChart:
    import altair as alt

    drawn = rows.assign(label=rows["score"].map(colors.spoken))
    look = styled(colors, "label", names, orient="bottom", columns=4)
    lines = (
        alt.Chart(drawn[["label", "fpr", "tpr"]])
        .mark_line(strokeWidth=1.5)
        .encode(**_axes(small=True), **look)
    )
    layers: list[Any] = [_chance(colors), lines, *_areas(drawn, look["color"], colors)]
    if points is not None:
        here = points[points["panel"].astype(str) == title]
        layers += [_crosses(here, colors)] if len(here) else []
    return alt.LayerChart(layer=layers, width=_PANEL, height=_PANEL, title=alt.Title(title))


def _areas(rows: pd.DataFrame, color: Any, colors: Theme) -> list[alt.Chart]:
    """Return the AUCs in the lower right corner, which good curves leave free."""
    import altair as alt

    areas = rows.groupby("label", sort=False)["auc"].first().reset_index()
    areas["text"] = [f"{row.label} {row.auc:.3f}" for row in areas.itertuples()]
    areas["tpr"] = 0.04 + 0.065 * np.arange(len(areas))[::-1]
    areas["fpr"] = 0.98
    base = alt.Chart(areas).encode(**_axes(small=True), text="text:N")
    font: dict[str, Any] = {"align": "right", "fontWeight": "bold", "fontSize": 10}
    halo = base.mark_text(stroke=colors.background, strokeWidth=4, opacity=0.85, **font)
    words = base.mark_text(**font).encode(color=color)
    return [halo, words]


def _crosses(points: pd.DataFrame, colors: Theme) -> alt.Chart:
    import altair as alt

    styles = colors.styles(points["score"])
    shown = points.assign(fill=[styles[name][0] for name in points["score"]])
    drawn: alt.Chart = alt.Chart(shown[["fpr", "tpr", "fill"]]).mark_point(
        shape="cross", size=130, filled=True, opacity=1, stroke=colors.background, strokeWidth=1
    )
    return drawn.encode(*_axes(small=True).values(), fill=alt.Fill("fill:N", scale=None))
