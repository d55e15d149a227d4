"""Figure of the scores and of memorisation over the course of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.learning import marked_prediction
from memowidgets.charts.look import Theme, finished, styled, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked, thinned

if TYPE_CHECKING:
    import altair as alt


_OTHERS = "other members"
_WIDTH, _HEIGHT = 270, 170


def over_training(
    checkpoints: pd.DataFrame,
    auc: pd.DataFrame | None = None,
    groups: pd.DataFrame | None = None,
    positives: str = "memorised at the end",
    theme: str | Theme = "light",
) -> alt.ConcatChart:
    """Draw AUCs, the loss, and the scores of memorised and other samples over training.

    Parameters
    ----------
    checkpoints : DataFrame
        Table of `Audit.checkpoints`: ``epoch``, ``median_loss``, ``prediction``.
    auc : DataFrame, optional
        Table of `Audit.compare` with ``checkpoints="all"``: ``metric``, ``epoch``, ``auc``,
        ``auc_low``, ``auc_high``, with one layer for each score.
    groups : DataFrame, optional
        Columns ``quantity`` ("psmi", "log_lira"), ``epoch``, ``memorized`` (bool), ``low``,
        ``median`` and ``high``: the quartiles of both groups.
    positives : str
        Name of the memorised samples in the legend.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.ConcatChart
        Panels with the AUC of each score and its interval, the median training loss, and, for each
        quantity, the medians with bands from the first to the third quartile (paper, Figure 3).

    Raises
    ------
    ValueError
        If a column is missing, a table is empty, or a number is NaN.

    Examples
    --------
    >>> table = pd.DataFrame({"epoch": [0, 1], "median_loss": [2, 0.1], "prediction": [0, 1]})
    >>> len(over_training(table).concat)
    1
    """
    import altair as alt

    colors = theme_named(theme)
    checked(checkpoints, "the table of checkpoints", ["prediction"], ["epoch", "median_loss"])
    panels = [] if auc is None else [_auc_panel(auc, checkpoints, colors)]
    panels.append(_loss_panel(checkpoints, colors))
    if groups is not None:
        numbers = ["epoch", "low", "median", "high"]
        checked(groups, "the table of groups", ["quantity", "memorized"], numbers)
        panels += [
            _group_panel(rows, str(quantity), positives, checkpoints, colors)
            for quantity, rows in groups.groupby("quantity", sort=False)
        ]
    chart: alt.ConcatChart = alt.ConcatChart(concat=panels, columns=2, spacing=24)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
    return finished(
        chart,
        colors,
        f"What can be predicted, and what is memorised, at {len(checkpoints)} checkpoints.",
    )


def _panel(
    layers: list[Any], checkpoints: pd.DataFrame, colors: Theme, title: str
) -> alt.LayerChart:
    import altair as alt

    rule = marked_prediction(checkpoints, colors, _HEIGHT)[0]
    return alt.LayerChart(
        layer=[rule, *layers], width=_WIDTH, height=_HEIGHT, title=alt.Title(title)
    )


def _epochs(checkpoints: pd.DataFrame) -> alt.X:
    """Return the axis that all panels share."""
    import altair as alt

    last = float(checkpoints["epoch"].max())
    scale = alt.Scale(domain=[0, last], nice=False)
    return alt.X("epoch:Q", title="epoch", scale=scale, axis=alt.Axis(format="~g"))


def _auc_panel(auc: pd.DataFrame, checkpoints: pd.DataFrame, colors: Theme) -> alt.LayerChart:
    import altair as alt

    checked(auc, "the table of AUCs", ["metric"], ["epoch", "auc", "auc_low", "auc_high"])
    rows, _ = thinned(auc, "epoch", ["auc", "auc_low", "auc_high"], ["metric"], MOST_ROWS // 2)
    names = list(dict.fromkeys(rows["metric"]))
    rows = rows.assign(score=rows["metric"].map(colors.spoken))
    look = styled(colors, "score", names, marks=("color", "shape"), orient="bottom", columns=3)
    base = alt.Chart(rows).encode(x=_epochs(checkpoints), color=look["color"])
    scale = alt.Scale(zero=False, domainMax=1)
    band = base.mark_area(opacity=0.1).encode(
        y=alt.Y("auc_low:Q", title="AUC", scale=scale), y2="auc_high:Q"
    )
    line = base.mark_line().encode(y="auc:Q")
    points = base.mark_point(filled=True, size=32, opacity=1).encode(y="auc:Q", shape=look["shape"])
    chance = alt.Chart(pd.DataFrame({"auc": [0.5]})).mark_rule(
        strokeDash=[2, 3], color=colors.muted
    )
    layers = [chance.encode(y="auc:Q"), band, line, points]
    return _panel(layers, checkpoints, colors, "AUC, 95 % interval")


def _loss_panel(checkpoints: pd.DataFrame, colors: Theme) -> alt.LayerChart:
    import altair as alt

    rows, _ = thinned(
        checkpoints[["epoch", "median_loss"]].assign(line=0),
        "epoch",
        ["median_loss"],
        ["line"],
        MOST_ROWS // 8,
    )
    base = alt.Chart(rows[["epoch", "median_loss"]]).encode(
        x=_epochs(checkpoints),
        y=alt.Y("median_loss:Q", title="nats", scale=alt.Scale(domainMin=0)),
    )
    layers = [
        base.mark_line(color=colors.train),
        base.mark_point(filled=True, size=32, opacity=1, color=colors.train),
    ]
    label = marked_prediction(checkpoints, colors, 12)[1]
    return _panel([*layers, label], checkpoints, colors, "Median training loss")


def _group_panel(
    rows: pd.DataFrame, quantity: str, positives: str, checkpoints: pd.DataFrame, colors: Theme
) -> alt.LayerChart:
    import altair as alt

    what = colors.spoken(quantity)
    columns = ["low", "median", "high"]
    rows, _ = thinned(rows, "epoch", columns, ["memorized"], MOST_ROWS // 4)
    rows = rows.assign(samples=np.where(rows["memorized"].astype(bool), positives, _OTHERS))
    color, shape = _groups(positives, colors)
    base = alt.Chart(rows).encode(x=_epochs(checkpoints), color=color)
    title = what if quantity == "psmi" else f"{what}, nats"
    band = base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_line().encode(y="median:Q")
    lonely = rows[rows.groupby("samples")["epoch"].transform("nunique") == 1]  # no band there
    ends = base.properties(data=lonely).mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=32, opacity=1).encode(y="median:Q", shape=shape)
    title = f"{what}, median and quartiles"
    return _panel([band, ends, line, points], checkpoints, colors, title)


def _groups(positives: str, colors: Theme) -> tuple[alt.Color, alt.Shape]:
    import altair as alt

    names = [positives, _OTHERS]
    legend = alt.Legend(title=None, orient="bottom", symbolOpacity=1)
    ranges = [colors.memorized, colors.other], ["triangle-up", "circle"]
    return (
        alt.Color("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[0])),
        alt.Shape("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[1])),
    )
