"""Figures of the AUC by setting, by layer, and by η (the threshold on log-LiRA)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import Theme, finished, styled, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked, thinned
from memowidgets.visible import listed

if TYPE_CHECKING:
    import altair as alt


_NUMBERS = ("auc", "auc_low", "auc_high")
_WHAT = "the table of AUCs"


def auc_by_setting(table: pd.DataFrame, theme: str | Theme = "light") -> alt.LayerChart:
    """Draw the AUC of each score in several settings, with its interval.

    Parameters
    ----------
    table : DataFrame
        Tables of `Audit.compare`, one for each audit, with a column ``setting`` that names it:
        ``pd.concat([a.compare().assign(setting="MMLU"), b.compare().assign(setting="ARC")])``.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

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

    colors = theme_named(theme)
    checked(table, _WHAT, ["setting", "metric"], _NUMBERS)
    _refuse_many(table, ["setting", "metric"])
    names = list(dict.fromkeys(table["metric"]))
    rows = table[["setting", "metric", *_NUMBERS]].assign(score=table["metric"].map(colors.spoken))
    look = styled(colors, "score", names, marks=("color", "shape"))
    base = alt.Chart(rows).encode(
        y=alt.Y("setting:N", title=None, sort=None, axis=alt.Axis(labelLimit=260)),
        yOffset=alt.YOffset("score:N", scale=alt.Scale(domain=[*map(colors.spoken, names)])),
        color=look["color"],
    )
    scale = alt.Scale(zero=False, domainMax=1)
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("auc_low:Q", title="AUC (95 % interval)", scale=scale), x2="auc_high:Q"
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(x="auc:Q", shape=look["shape"])
    layers = [_chance("x", colors), bars, points]
    height = 16 * len(names) * rows["setting"].nunique() + 12 * rows["setting"].nunique()
    return finished(
        alt.LayerChart(layer=layers, width=360, height=height),
        colors,
        f"AUC of {len(names)} scores in {rows['setting'].nunique()} settings.",
    )


def auc_by_layer(table: pd.DataFrame, theme: str | Theme = "light") -> alt.LayerChart:
    """Draw the AUC by layer, for the scores that depend on a layer.

    Parameters
    ----------
    table : DataFrame
        Table of `Audit.compare` with ``layers="all"``: ``metric``, ``layer``, ``auc``,
        ``auc_low``, ``auc_high``. Rows without a layer are left out. Layers keep their order.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

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

    colors = theme_named(theme)
    checked(table, _WHAT, ["metric", "layer"], _NUMBERS)
    rows = table[table["layer"].astype(str) != ""]
    checked(rows, f"{_WHAT} with a layer", [])
    _refuse_many(rows, ["metric", "layer"])
    layers = [str(layer) for layer in dict.fromkeys(rows["layer"])]
    rows = rows[["metric", *_NUMBERS]].assign(
        layer=rows["layer"].astype(str), score=rows["metric"].map(colors.spoken)
    )
    across = alt.X(
        "layer:O", title="layer", sort=layers, axis=alt.Axis(labelAngle=0, labelOverlap="greedy")
    )
    names = list(dict.fromkeys(rows["metric"]))
    drawn = _bands(rows, across, names, colors)
    return finished(
        alt.LayerChart(layer=[_chance("y", colors), *drawn], width=360, height=220),
        colors,
        f"AUC of {len(names)} scores at {len(layers)} layers.",
    )


def auc_by_eta(
    table: pd.DataFrame,
    canaries: pd.DataFrame | None = None,
    eta: float = 4.0,
    theme: str | Theme = "light",
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
    theme : {"light", "dark"} or Theme
        Colours of the chart.

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

    colors = theme_named(theme)
    checked(table, _WHAT, ["metric"], ["eta", *_NUMBERS, "n", "n_memorized"])
    _refuse_many(table, ["metric", "eta"])
    names = list(dict.fromkeys(table["metric"]))
    rows = table[["metric", "eta", *_NUMBERS]].assign(score=table["metric"].map(colors.spoken))
    rows, _ = thinned(rows, "eta", list(_NUMBERS), ["metric"], MOST_ROWS // 2)
    scale = alt.Scale(zero=False, nice=False, padding=8)
    across = alt.X("eta:Q", title="η", scale=scale)
    layers = [_chance("y", colors), _chosen(eta, colors), *_bands(rows, across, names, colors)]
    if canaries is not None:
        layers += _canary_lines(canaries, rows, colors)
    above = alt.LayerChart(layer=layers, width=360, height=200)
    below = alt.LayerChart(
        layer=[_chosen(eta, colors), *_shares(table, across, colors)], width=360, height=100
    )
    chart: alt.VConcatChart = alt.VConcatChart(vconcat=[above, below], spacing=14)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(x="shared"))
    return finished(chart, colors, f"AUC of {len(names)} scores, and share memorised, by η.")


def _refuse_many(table: pd.DataFrame, by: list[str]) -> None:
    twice = table.duplicated(by)
    if twice.any():
        first = listed(table.loc[twice, by].iloc[0])
        raise ValueError(
            f"{_WHAT} has {first} twice; it must have one row for each {' and '.join(by)}"
        )
    if len(table) > MOST_ROWS // 2:
        raise ValueError(
            f"{_WHAT} has {len(table)} rows, too many for a figure; select some of them"
        )


def _chance(axis: str, colors: Theme) -> alt.Chart:
    """Return the line of a score that is independent of the truth (AUC = ½)."""
    import altair as alt

    half = alt.Chart(pd.DataFrame({"auc": [0.5]}))
    line: alt.Chart = half.mark_rule(strokeDash=[2, 3], color=colors.muted)
    return line.encode(x="auc:Q") if axis == "x" else line.encode(y="auc:Q")


def _chosen(eta: float, colors: Theme) -> alt.Chart:
    import altair as alt

    line: alt.Chart = alt.Chart(pd.DataFrame({"eta": [eta]})).mark_rule(
        strokeDash=[4, 3], color=colors.muted
    )
    return line.encode(x="eta:Q")


def _bands(rows: pd.DataFrame, across: Any, names: list[str], colors: Theme) -> list[alt.Chart]:
    """Return lines with their 95 % bands, which differ by colour and shape."""
    import altair as alt

    look = styled(colors, "score", names, marks=("color", "shape"))
    base = alt.Chart(rows.drop(columns="metric")).encode(x=across, color=look["color"])
    scale = alt.Scale(zero=False, domainMax=1)
    return [
        base.mark_area(opacity=0.12).encode(
            y=alt.Y("auc_low:Q", title="AUC, 95 % interval", scale=scale), y2="auc_high:Q"
        ),
        base.mark_line().encode(y="auc:Q"),
        base.mark_point(filled=True, size=38, opacity=1).encode(y="auc:Q", shape=look["shape"]),
    ]


def _canary_lines(canaries: pd.DataFrame, rows: pd.DataFrame, colors: Theme) -> list[alt.Chart]:
    """Return dashed lines at the AUCs with planted samples as the truth."""
    import altair as alt

    checked(canaries, "the table of canaries", ["metric"], ["auc"])
    known = canaries[canaries["metric"].isin(rows["metric"])]
    drawn = known[["auc"]].assign(score=known["metric"].map(colors.spoken))
    lines = alt.Chart(drawn).mark_rule(strokeDash=[7, 4], strokeWidth=1.6)
    last = alt.Chart(pd.DataFrame({"eta": [rows["eta"].max()], "auc": [drawn["auc"].max()]}))
    words = last.mark_text(align="right", dy=-8, color=colors.muted)
    return [
        lines.encode(y="auc:Q", color="score:N"),
        words.encode(x="eta:Q", y="auc:Q", text=alt.value("dashed: canaries")),
    ]


def _shares(table: pd.DataFrame, across: Any, colors: Theme) -> list[alt.Chart]:
    """Return the share of memorised samples, from the first score at each η."""
    import altair as alt

    first = table.drop_duplicates("eta").sort_values("eta")
    shares = pd.DataFrame({"eta": first["eta"], "share": first["n_memorized"] / first["n"]})
    if (shares["share"] <= 0).any():
        raise ValueError(f"{_WHAT} has rows without a memorised sample; leave them out")
    shares = shares.assign(line=0, magnitude=np.log10(shares["share"]))
    decades = 10.0 ** np.arange(np.floor(shares["magnitude"].min()), 1)
    shares, _ = thinned(shares, "eta", ["magnitude"], ["line"], MOST_ROWS // 8)
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
        base.mark_line(color=colors.memorized),
        base.mark_point(filled=True, size=38, opacity=1, color=colors.memorized),
    ]
