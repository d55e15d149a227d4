"""Figures of how well scores predict: ROC curves and AUCs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import (
    BACKGROUND,
    LINE,
    MEMORIZED,
    MUTED,
    banded,
    checked,
    colors_of,
    finished,
    layered,
    ruled,
    styled,
    thinned,
)
from memowidgets.visible import listed
from memowidgets.vocabulary import at, estimate, percent, spoken

if TYPE_CHECKING:
    import altair as alt

    from memowidgets.evaluation import Evaluation


_NUMBERS = ("fpr", "tpr", "auc", "auc_low", "auc_high")
_WHAT = "the table of curves"
_PANEL = 210  # pixels


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
    curves: pd.DataFrame, tau: float | None = 0.0, marked: str | None = "psmi"
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

    Returns
    -------
    altair.LayerChart
        Points that lie within a two-hundredth of the axes of each other are drawn as one (paper,
        Figure 2).

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

    drawn = _thin(curves, ["score"], 200)
    names = list(dict.fromkeys(drawn["score"]))
    firsts = drawn.groupby("score", sort=False).first()
    areas = {
        str(name): estimate(row.auc, (row.auc_low, row.auc_high)) for name, row in firsts.iterrows()
    }
    labels = {name: f"{spoken(name)}: {area}" for name, area in areas.items()}
    drawn = drawn.assign(label=drawn["score"].map(labels))
    look = styled("label", names, labels, title="AUC (95 % interval)")
    lines = (
        alt.Chart(drawn[["label", "fpr", "tpr"]])
        .mark_line(strokeWidth=1.8)
        .encode(**_axes(), **look)
    )
    here = curves[:0] if tau is None else _at(curves, tau, marked, ["score"])
    points = [_marked(here, tau)] if tau is not None and len(here) else []
    return layered(
        [_chance(), lines, *points],
        f"TPR against FPR: AUC {'; '.join(labels.values())}.",
        width=300,
        height=300,
    )


def roc_panels(
    curves: pd.DataFrame, tau: float | None = 0.0, marked: str | None = "psmi", columns: int = 3
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
    drawn = _thin(curves, ["panel", "score"], 80)
    names = list(dict.fromkeys(drawn["score"]))
    points = None if tau is None else _at(curves, tau, marked, ["panel", "score"])
    panels = [
        _roc_panel(str(title), rows, names, points)
        for title, rows in drawn.groupby("panel", sort=False)
    ]
    chart: alt.ConcatChart = alt.ConcatChart(
        concat=panels, columns=min(columns, len(panels)), spacing=16
    )
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="shared", strokeDash="shared"))
    return finished(chart, f"TPR against FPR in {len(panels)} panels.")


def _thin(curves: pd.DataFrame, by: list[str], cells: int) -> pd.DataFrame:
    """Return the rows to draw."""
    return thinned(checked(curves, _WHAT, ["score", "tau"], _NUMBERS), by, cells)


def _axes(*, small: bool = False) -> dict[str, Any]:
    import altair as alt

    ticks: Any = [0, 0.5, 1] if small else alt.Undefined
    axis = alt.Axis(format="%", values=ticks, tickCount=5)
    scale = alt.Scale(domain=[0, 1], nice=False)
    return {
        "x": alt.X("fpr:Q", title="FPR", scale=scale, axis=axis),
        "y": alt.Y("tpr:Q", title="TPR", scale=scale, axis=axis),
    }


def _chance() -> alt.Chart:
    import altair as alt

    ends = pd.DataFrame({"fpr": [0, 1], "tpr": [0, 1]})
    line: alt.Chart = alt.Chart(ends).mark_line(color=LINE, strokeWidth=1)
    return line.encode(*_axes().values())


def _at(curves: pd.DataFrame, tau: float, marked: str | None, by: list[str]) -> pd.DataFrame:
    """Return the last point of each curve whose own threshold is at most `tau`."""
    if np.isnan(tau):
        raise ValueError("tau is NaN; it must be a number, or None for no mark")
    wanted = curves if marked is None else curves[curves["score"] == marked]
    return wanted[wanted["tau"] <= tau].groupby(by, sort=False).last().reset_index()


def _marked(points: pd.DataFrame, tau: float) -> alt.Chart:
    """Return crosses, and a legend with the rates at them."""
    import altair as alt

    points = points.assign(
        at=[
            f"{spoken(score)} {at(tau)}: TPR {percent(tpr)}, FPR {percent(fpr)}"
            for score, tpr, fpr in points[["score", "tpr", "fpr"]].to_numpy()
        ]
    )
    fills = list(colors_of(points["score"]).values())
    shown = alt.Legend(title=None, orient="right")
    names = list(points["at"])
    chart = alt.Chart(points[["at", "fpr", "tpr"]]).mark_point(
        size=190, filled=True, opacity=1, stroke=BACKGROUND, strokeWidth=1.2
    )
    drawn: alt.Chart = chart.encode(
        *_axes().values(),
        shape=alt.Shape("at:N", scale=alt.Scale(domain=names, range=["cross"]), legend=shown),
        fill=alt.Fill("at:N", scale=alt.Scale(domain=names, range=fills), legend=shown),
    )
    return drawn


def _roc_panel(
    title: str, rows: pd.DataFrame, names: list[str], points: pd.DataFrame | None
) -> alt.LayerChart:
    import altair as alt

    drawn = rows.assign(label=rows["score"].map(spoken))
    look = styled("label", names, orient="bottom", columns=4)
    lines = (
        alt.Chart(drawn[["label", "fpr", "tpr"]])
        .mark_line(strokeWidth=1.5)
        .encode(**_axes(small=True), **look)
    )
    layers: list[Any] = [_chance(), lines, _areas(drawn, look["color"])]
    if points is not None:
        here = points[points["panel"].astype(str) == title]
        layers += [_crosses(here)] if len(here) else []
    return alt.LayerChart(layer=layers, width=_PANEL, height=_PANEL, title=alt.Title(title))


def _areas(rows: pd.DataFrame, color: Any) -> alt.Chart:
    """Return the AUCs, below the panel: inside it, those of many scores would cover curves."""
    import altair as alt

    areas = rows.groupby("label", sort=False)["auc"].first().reset_index()
    areas["text"] = [f"{row.label} {row.auc:.2f}" for row in areas.itertuples()]
    areas["tpr"] = -0.24 - 0.062 * np.arange(len(areas))
    areas["fpr"] = 0
    base = alt.Chart(areas).mark_text(align="left", fontWeight="bold", fontSize=10)
    drawn: alt.Chart = base.encode(**_axes(small=True), text="text:N", color=color)
    return drawn


def _crosses(points: pd.DataFrame) -> alt.Chart:
    import altair as alt

    shown = points.assign(fill=points["score"].map(colors_of(points["score"])))
    drawn: alt.Chart = alt.Chart(shown[["fpr", "tpr", "fill"]]).mark_point(
        shape="cross", size=130, filled=True, opacity=1, stroke=BACKGROUND, strokeWidth=1
    )
    return drawn.encode(*_axes(small=True).values(), fill=alt.Fill("fill:N", scale=None))


_AREA = ("auc", "auc_low", "auc_high")
_AREAS_TABLE = "the table of AUCs"


def auc_by_setting(table: pd.DataFrame) -> alt.LayerChart:
    """Draw the AUC of each score in several settings, with its interval.

    Parameters
    ----------
    table : DataFrame
        Tables of `Audit.compare`, one for each audit, with a column ``setting`` that names it:
        ``pd.concat([a.compare().assign(setting="MMLU"), b.compare().assign(setting="ARC")])``.

    Returns
    -------
    altair.LayerChart
        Settings from top to bottom in the table's order (paper, Figure 2, center).

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, a number is NaN, it has more than 1000 rows,
        or a score occurs twice in a setting.

    Examples
    --------
    >>> row = {"setting": ["MMLU"], "metric": ["psmi"], "auc": [0.8]}
    >>> table = pd.DataFrame({**row, "auc_low": [0.7], "auc_high": [0.9]})
    >>> len(auc_by_setting(table).layer)
    3
    """
    import altair as alt

    checked(table, _AREAS_TABLE, ["setting", "metric"], _AREA)
    _refuse_many(table, ["setting", "metric"])
    names = list(dict.fromkeys(table["metric"]))
    rows = table[["setting", "metric", *_AREA]].assign(score=table["metric"].map(spoken))
    look = styled("score", names, marks=("color", "shape"))
    base = alt.Chart(rows).encode(
        y=alt.Y("setting:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("score:N", scale=alt.Scale(domain=[*map(spoken, names)])),
        color=look["color"],
    )
    scale = alt.Scale(zero=False, domainMax=1)
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("auc_low:Q", title="AUC (95 % interval)", scale=scale), x2="auc_high:Q"
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x="auc:Q", shape=look["shape"])
    n = rows["setting"].nunique()
    said, height = f"AUC of {len(names)} scores in {n} settings.", (16 * len(names) + 12) * n
    layers = [ruled("x", "auc", 0.5, (2, 3)), bars, points]
    return layered(layers, said, width=360, height=height)


def auc_by_layer(table: pd.DataFrame) -> alt.LayerChart:
    """Draw the AUC by layer, for the scores that depend on a layer.

    Parameters
    ----------
    table : DataFrame
        Table of `Audit.compare` with ``layers="all"``: ``metric``, ``layer``, ``auc``,
        ``auc_low``, ``auc_high``. Rows without a layer are left out. Layers keep their order.

    Returns
    -------
    altair.LayerChart
        Lines with 95 % bands (paper, Figure 4, left and center). A layer that is chosen as the best
        of this figure is chosen on the labels, so its AUC is optimistic.

    Raises
    ------
    ValueError
        If a column is missing, no row has a layer, a number is NaN, or a score occurs twice at a
        layer.

    Examples
    --------
    >>> row = {"metric": "psmi", "layer": ["1", "2"], "auc": [0.7, 0.8]}
    >>> table = pd.DataFrame({**row, "auc_low": [0.6, 0.7], "auc_high": [0.8, 0.9]})
    >>> len(auc_by_layer(table).layer)
    4
    """
    import altair as alt

    checked(table, _AREAS_TABLE, ["metric", "layer"], _AREA)
    rows = table[table["layer"].astype(str) != ""]
    checked(rows, f"{_AREAS_TABLE} with a layer", [])
    _refuse_many(rows, ["metric", "layer"])
    layers = [str(layer) for layer in dict.fromkeys(rows["layer"])]
    rows = rows[["metric", *_AREA]].assign(
        layer=rows["layer"].astype(str), score=rows["metric"].map(spoken)
    )
    across = alt.X(
        "layer:O", title="layer", sort=layers, axis=alt.Axis(labelAngle=0, labelOverlap="greedy")
    )
    names = list(dict.fromkeys(rows["metric"]))
    said = f"AUC of {len(names)} scores at {len(layers)} layers."
    return layered(_bands(rows, across, names), said, width=360, height=220)


def auc_by_eta(
    table: pd.DataFrame, canaries: pd.DataFrame | None = None, eta: float = 4.0
) -> alt.VConcatChart:
    """Draw the AUC of each score, and the share of memorised samples, by η.

    Parameters
    ----------
    table : DataFrame
        Tables of `Audit.compare`, one for each η: ``metric``, ``eta``, ``auc``, ``auc_low``,
        ``auc_high``, ``n``, ``n_memorized``.
    canaries : DataFrame, optional
        Columns ``metric`` and ``auc``, with the canaries as the truth. They become dashed lines.
    eta : float
        Value of η to mark. The paper uses 4.

    Returns
    -------
    altair.VConcatChart
        AUC with 95 % bands, above the share of memorised samples on a logarithmic axis (paper,
        Figure 4, right, and Figure 5, right).

    Raises
    ------
    ValueError
        If a column is missing, a table is empty, or a number is NaN.

    Examples
    --------
    >>> row = {"metric": "psmi", "eta": [4, 6], "auc": [0.7, 0.8], "n": 900}
    >>> table = pd.DataFrame({**row, "auc_low": [0.6, 0.7], "auc_high": [0.8, 0.9]})
    >>> len(auc_by_eta(table.assign(n_memorized=[30, 9])).vconcat)
    2
    """
    import altair as alt

    checked(table, _AREAS_TABLE, ["metric"], ["eta", *_AREA, "n", "n_memorized"])
    _refuse_many(table, ["metric", "eta"])
    names = list(dict.fromkeys(table["metric"]))
    rows = table[["metric", "eta", *_AREA]].assign(score=table["metric"].map(spoken))
    scale = alt.Scale(zero=False, nice=False, padding=8)
    across = alt.X("eta:Q", title="η", scale=scale)
    half, *bands = _bands(rows, across, names)
    at_eta = ruled("x", "eta", eta)
    layers = [half, at_eta, *bands]
    if canaries is not None:
        layers += _canary_lines(canaries, rows)
    above = alt.LayerChart(layer=layers, width=360, height=200)
    below = alt.LayerChart(layer=[at_eta, *_shares(table, across)], width=360, height=100)
    chart: alt.VConcatChart = alt.VConcatChart(vconcat=[above, below], spacing=14)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(x="shared"))
    return finished(chart, f"AUC of {len(names)} scores, and share memorised, by η.")


def _refuse_many(table: pd.DataFrame, by: list[str]) -> None:
    twice = table.duplicated(by)
    if twice.any():
        first = listed(table.loc[twice, by].iloc[0])
        raise ValueError(
            f"{_AREAS_TABLE} has {first} twice; it must have one row for each {' and '.join(by)}"
        )


def _bands(rows: pd.DataFrame, across: Any, names: list[str]) -> list[alt.Chart]:
    """Return the line of chance (AUC = ½), and lines with their 95 % bands."""
    import altair as alt

    look = styled("score", names, marks=("color", "shape"))
    base = alt.Chart(rows.drop(columns="metric")).encode(x=across, color=look["color"])
    scale = alt.Scale(zero=False, domainMax=1)
    y = alt.Y("auc_low:Q", title="AUC, 95 % interval", scale=scale)
    columns = ("auc_low", "auc", "auc_high")
    half = ruled("y", "auc", 0.5, (2, 3))
    return [half, *banded(base, columns, y, look["shape"], 0.12, 38)]


def _canary_lines(canaries: pd.DataFrame, rows: pd.DataFrame) -> list[alt.Chart]:
    """Return dashed lines at the AUCs with planted samples as the truth."""
    import altair as alt

    checked(canaries, "the table of canaries", ["metric"], ["auc"])
    known = canaries[canaries["metric"].isin(rows["metric"])]
    drawn = known[["auc"]].assign(score=known["metric"].map(spoken))
    lines = alt.Chart(drawn).mark_rule(strokeDash=[7, 4], strokeWidth=1.6)
    last = alt.Chart(pd.DataFrame({"eta": [rows["eta"].max()], "auc": [drawn["auc"].max()]}))
    words = last.mark_text(align="right", dy=-8, color=MUTED)
    return [
        lines.encode(y="auc:Q", color="score:N"),
        words.encode(x="eta:Q", y="auc:Q", text=alt.value("dashed: canaries")),
    ]


def _shares(table: pd.DataFrame, across: Any) -> list[alt.Chart]:
    """Return the share of memorised samples, from the first score at each η."""
    import altair as alt

    first = table.drop_duplicates("eta").sort_values("eta")
    shares = pd.DataFrame({"eta": first["eta"], "share": first["n_memorized"] / first["n"]})
    if (shares["share"] <= 0).any():
        raise ValueError(f"{_AREAS_TABLE} has rows without a memorised sample; leave them out")
    shares = shares.assign(line=0, magnitude=np.log10(shares["share"]))
    decades = 10.0 ** np.arange(np.floor(shares["magnitude"].min()), 1)
    base = alt.Chart(shares[["eta", "share"]]).encode(
        x=across,
        y=alt.Y(
            "share:Q",
            title="memorised",
            scale=alt.Scale(type="log", domain=[decades[0], 1]),
            axis=alt.Axis(format="~%", values=list(decades)),
        ),
    )
    return [
        base.mark_line(color=MEMORIZED),
        base.mark_point(filled=True, size=38, opacity=1, color=MEMORIZED),
    ]
