"""Figures of how well scores predict: ROC curves and AUCs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
import pandas as pd

from memowidgets.charts.look import (
    AREA,
    BACKGROUND,
    LINE,
    MEMORIZED,
    auc_bands,
    encode_names,
    finish,
    layer,
    require,
    rule_at,
    thin_curves,
)
from memowidgets.registry import spoken
from memowidgets.vocabulary import at, estimate, listed, percent

if TYPE_CHECKING:
    from memowidgets.evaluation import Evaluation


_NUMBERS = ("fpr", "tpr", *AREA)
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
    for name, evaluation in evaluations.items():
        low, high = evaluation.auc_interval
        curve = evaluation.roc.assign(
            auc=evaluation.auc, auc_low=low, auc_high=high, **more
        )
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
    require(curves, _WHAT, ["score", "tau"], _NUMBERS)
    firsts = curves.drop_duplicates("score")[["score", *AREA]].to_numpy()
    labels = {
        name: f"{spoken(name)}: {estimate(auc, (low, high))}"
        for name, auc, low, high in firsts
    }
    curves = curves.assign(label=curves["score"].map(labels))
    points = _at(curves, tau, marked, ["score"])
    subtitles = [
        f"{spoken(name)} {at(tau or 0.0)}: TPR {percent(tpr)}, FPR {percent(fpr)}"
        for name, tpr, fpr in points[["score", "tpr", "fpr"]].to_numpy()
    ]
    look = encode_names("label", labels, labels, title="AUC (95 % interval)")
    return layer(
        _draw(thin_curves(curves, ["score"], 200), points, look),
        f"TPR against FPR: AUC {'; '.join(labels.values())}.",
        width=300,
        height=300,
        title=subtitles,
    )


def roc_panels(
    curves: pd.DataFrame,
    tau: float | None = 0.0,
    marked: str | None = "psmi",
    columns: int = 3,
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
        If a column is missing, the table is empty, or a number is NaN.

    Examples
    --------
    >>> from memowidgets.evaluation import roc
    >>> found = {"psmi": roc([-1.0, 0.5, 2.0], [True, False, False])}
    >>> len(roc_panels(roc_table(found, panel="epoch 2")).concat)
    1
    """
    require(curves, _WHAT, ["panel", "score", "tau"], _NUMBERS)
    curves = curves.assign(label=curves["score"].map(spoken))
    points = _at(curves, tau, marked, ["panel", "score"])
    look = encode_names("label", curves["score"], orient="bottom", columns=4)
    panels = [
        alt.LayerChart(
            layer=[
                *_draw(rows, points[points["panel"] == title], look),
                _areas(rows, look["color"]),
            ],
            width=_PANEL,
            height=_PANEL,
            title=str(title),
        )
        for title, rows in thin_curves(curves, ["panel", "score"], 80).groupby(
            "panel", sort=False
        )
    ]
    chart = alt.ConcatChart(
        concat=panels, columns=min(columns, len(panels)), spacing=16
    )
    chart.resolve = alt.Resolve(
        scale=alt.ScaleResolveMap(color="shared", strokeDash="shared")
    )
    return finish(chart, f"TPR against FPR in {len(panels)} panels.")


def _axes() -> dict[str, Any]:
    how: dict[str, Any] = {
        "scale": alt.Scale(domain=[0, 1], nice=False),
        "axis": alt.Axis(format="%", tickCount=5),
    }
    return {
        "x": alt.X("fpr:Q", title="FPR", **how),
        "y": alt.Y("tpr:Q", title="TPR", **how),
    }


def _draw(
    curves: pd.DataFrame, points: pd.DataFrame, look: dict[str, Any]
) -> list[alt.Chart]:
    """Return the line of chance, the curves, and crosses at the points."""
    ends = alt.Chart(pd.DataFrame({"fpr": [0, 1], "tpr": [0, 1]}))
    lines = alt.Chart(curves[["label", "fpr", "tpr"]]).mark_line(strokeWidth=1.7)
    crosses = alt.Chart(points[["label", "fpr", "tpr"]]).mark_point(
        shape="cross",
        size=160,
        filled=True,
        opacity=1,
        stroke=BACKGROUND,
        strokeWidth=1.2,
    )
    return [
        ends.mark_line(color=LINE, strokeWidth=1).encode(**_axes()),
        lines.encode(**_axes(), **look),
        crosses.encode(**_axes(), color=look["color"]),
    ]


def _at(
    curves: pd.DataFrame, tau: float | None, marked: str | None, by: list[str]
) -> pd.DataFrame:
    """Return the last point of each marked curve whose own threshold is at most `tau`."""
    if tau is None:
        return curves[:0]
    if np.isnan(tau):
        raise ValueError("tau is NaN; it must be a number, or None for no mark")
    rows = curves if marked is None else curves[curves["score"] == marked]
    return rows[rows["tau"] <= tau].groupby(by, sort=False).last().reset_index()


def _areas(rows: pd.DataFrame, color: object) -> alt.Chart:
    """Return the AUCs, below the panel: inside it, those of many scores would cover curves."""
    areas = rows.drop_duplicates("label")[["label", "auc"]].assign(fpr=0)
    areas["text"] = [f"{row.label} {row.auc:.2f}" for row in areas.itertuples()]
    areas["tpr"] = -0.24 - 0.062 * np.arange(len(areas))
    base = alt.Chart(areas).mark_text(align="left", fontWeight="bold", fontSize=10)
    texts: alt.Chart = base.encode(**_axes(), text="text:N", color=color)
    return texts


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
        If a column is missing, the table is empty, a number is NaN, or a score occurs twice in a
        setting.

    Examples
    --------
    >>> row = {"setting": ["MMLU"], "metric": ["psmi"], "auc": [0.8]}
    >>> table = pd.DataFrame({**row, "auc_low": [0.7], "auc_high": [0.9]})
    >>> len(auc_by_setting(table).layer)
    3
    """
    table = _of_scores(table, ["setting", "metric"])
    rows = table.assign(score=table["metric"].map(spoken))
    look = encode_names("score", rows["metric"], marks=("color", "shape"))
    base = alt.Chart(rows).encode(
        y=alt.Y("setting:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("score:N", sort=None),
        color=look["color"],
    )
    scale = alt.Scale(zero=False, domainMax=1)
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("auc_low:Q", title="AUC (95 % interval)", scale=scale), x2="auc_high:Q"
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        x="auc:Q", shape=look["shape"]
    )
    n = rows["setting"].nunique()
    n_scores = rows["score"].nunique()
    description = f"AUC of {n_scores} scores in {n} settings."
    height = (16 * n_scores + 12) * n
    layers = [rule_at("x", "auc", 0.5, (2, 3)), bars, points]
    return layer(layers, description, width=360, height=height)


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
    5
    """
    rows = _of_scores(table[table["layer"].astype(str) != ""], ["metric", "layer"])
    layers = [str(layer) for layer in dict.fromkeys(rows["layer"])]
    axis = alt.Axis(labelAngle=0, labelOverlap="greedy")
    across = alt.X("layer:O", title="layer", sort=layers, axis=axis)
    description = f"AUC of {rows['metric'].nunique()} scores at {len(layers)} layers."
    bands = auc_bands(rows.assign(layer=rows["layer"].astype(str)), across)
    return layer(bands, description, width=360, height=220)


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
    require(table, _AREAS, [], ["n", "n_memorized"])
    rows = _of_scores(table, ["metric", "eta"])
    across = alt.X(
        "eta:Q", title="η", scale=alt.Scale(zero=False, nice=False, padding=8)
    )
    at_eta = rule_at("x", "eta", eta)
    layers = [at_eta, *auc_bands(rows, across)]
    title = ""
    if canaries is not None:
        require(canaries, "the table of canaries", ["metric"], ["auc"])
        some = canaries[canaries["metric"].isin(rows["metric"])]
        lines = alt.Chart(some[["auc"]].assign(score=some["metric"].map(spoken)))
        dashed = lines.mark_rule(strokeDash=[7, 4], strokeWidth=1.6)
        layers.append(dashed.encode(y="auc:Q", color="score:N"))
        title = "dashed: canaries"
    above = alt.LayerChart(layer=layers, width=360, height=200, title=title)
    below = alt.LayerChart(
        layer=[at_eta, *_shares(rows, across)], width=360, height=100
    )
    chart = alt.VConcatChart(vconcat=[above, below], spacing=14)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(x="shared"))
    return finish(
        chart, f"AUC of {rows['metric'].nunique()} scores, and share memorised, by η."
    )


_AREAS = "the table of AUCs"


def _of_scores(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return a table of AUCs with one row for each of these columns, or raise."""
    require(table, _AREAS, by, AREA)
    twice = table.duplicated(by)
    if twice.any():
        first = listed(table.loc[twice, by].iloc[0])
        raise ValueError(
            f"{_AREAS} has {first} twice; it must have one row for each {' and '.join(by)}"
        )
    return table


def _shares(table: pd.DataFrame, across: Any) -> list[alt.Chart]:
    """Return the share of memorised samples, from the first score at each η."""
    first = table.drop_duplicates("eta").sort_values("eta")
    shares = pd.DataFrame(
        {"eta": first["eta"], "share": first["n_memorized"] / first["n"]}
    )
    if (shares["share"] <= 0).any():
        raise ValueError(
            f"{_AREAS} has rows without a memorised sample; leave them out"
        )
    scale = alt.Scale(type="log", domainMax=1)
    axis = alt.Axis(format="~%", tickCount=3)
    base = alt.Chart(shares).encode(
        x=across, y=alt.Y("share:Q", title="memorised", scale=scale, axis=axis)
    )
    return [
        base.mark_line(color=MEMORIZED),
        base.mark_point(filled=True, size=38, opacity=1, color=MEMORIZED),
    ]
