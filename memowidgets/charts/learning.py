"""Figures of the training: loss, accuracy, and what can be predicted at each checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import (
    MEMORIZED,
    MUTED,
    OTHER,
    TEST,
    TRAIN,
    banded,
    checked,
    finished,
    ruled,
    styled,
)
from memowidgets.vocabulary import percent, spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt


_SIDES = {"train": "training", "test": "held out"}
_WIDTH, _HEIGHT = 270, 170


def _curves(
    checkpoints: pd.DataFrame, kind: str, y: alt.Y, palette: Sequence[str], legend: alt.Legend
) -> alt.Chart:
    """Return a line by epoch for members and for held-out samples."""
    import altair as alt

    names = {f"{side}_{kind}": name for side, name in _SIDES.items()}
    curves = checkpoints.melt("epoch", list(names), "samples", kind).dropna()
    curves["samples"] = curves["samples"].map(names)
    scale = alt.Scale(domain=list(names.values()))
    color = alt.Scale(domain=list(names.values()), range=list(palette))
    lines: alt.Chart = alt.Chart(curves).mark_line()
    return lines.encode(
        x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(format="~g")),
        y=y,
        color=alt.Color("samples:N", scale=color, legend=legend),
        strokeDash=alt.StrokeDash("samples:N", scale=scale, legend=legend),
    )


def loss_and_accuracy(checkpoints: pd.DataFrame) -> alt.HConcatChart:
    """Draw loss and accuracy of members and held-out samples, and mark the best epoch.

    Parameters
    ----------
    checkpoints : DataFrame
        Table of `Audit.checkpoints`: ``epoch``, ``train_loss``, ``train_accuracy``, ``test_loss``
        and ``test_accuracy`` (NaN if nothing was held out), ``prediction``.

    Returns
    -------
    altair.HConcatChart
        A ring marks the epoch of the best held-out value (the first of equal ones). A vertical rule
        marks the checkpoint that the ρ rule chose (paper, Appendix E, the first two rows).

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, or a number of the members is NaN.

    Examples
    --------
    >>> table = pd.DataFrame({"epoch": [0, 1], "prediction": [False, True]})
    >>> for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
    ...     table[name] = [0.9, 0.5]
    >>> len(loss_and_accuracy(table).hconcat)
    2
    """
    import altair as alt

    columns = ("test_loss", "test_accuracy", "prediction")
    checked(
        checkpoints,
        "the table of checkpoints",
        columns,
        ("epoch", "train_loss", "train_accuracy"),
    )
    panels = [_both_sides(checkpoints, kind) for kind in ("loss", "accuracy")]
    return finished(
        alt.HConcatChart(hconcat=panels, spacing=28),
        f"Loss and accuracy of members and held-out samples at {len(checkpoints)} checkpoints.",
    )


def _both_sides(checkpoints: pd.DataFrame, kind: str) -> alt.LayerChart:
    """Return one panel with members and held-out samples."""
    import altair as alt

    is_loss = kind == "loss"
    y = alt.Y(
        f"{kind}:Q",
        title="loss, nats" if is_loss else "accuracy",
        scale=alt.Scale(domainMin=0) if is_loss else alt.Scale(domainMax=1),
        axis=alt.Axis() if is_loss else alt.Axis(format="%"),
    )
    legend = alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolSize=500)
    lines = _curves(checkpoints, kind, y, (TRAIN, TEST), legend)
    best = _best(checkpoints, kind)
    ring = alt.Chart(best).mark_point(size=90, color=TEST, strokeWidth=2, filled=False)
    layers = [
        lines,
        *marked_prediction(checkpoints, 12 if is_loss else _HEIGHT - 12),
        ring.encode(x="epoch:Q", y=f"{kind}:Q"),
    ]
    return alt.LayerChart(layer=layers, width=_WIDTH, height=_HEIGHT, title=_titled(best, kind))


def _best(checkpoints: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return the row of the first best held-out value, or no row if nothing is held out."""
    held_out = checkpoints[["epoch", f"test_{kind}"]].set_axis(["epoch", kind], axis=1).dropna()
    best = held_out[kind].min() if kind == "loss" else held_out[kind].max()
    return pd.DataFrame(held_out[held_out[kind] == best].head(1))


def _titled(best: pd.DataFrame, kind: str) -> alt.Title:
    """Return a panel's title with the best held-out value."""
    import altair as alt

    name = kind.capitalize()
    if best.empty:
        return alt.Title(name, subtitle="nothing was held out")
    epoch, value = best.iloc[0]
    shown = percent(value) if kind == "accuracy" else f"{value:.3f}"
    said = f"best held out: {shown} at epoch {epoch:g}"
    return alt.Title(name, subtitle=said, subtitleColor=TEST)


def marked_prediction(checkpoints: pd.DataFrame, y: int) -> list[alt.Chart]:
    """Return a labelled vertical rule at the checkpoint that the ρ rule chose."""
    import altair as alt

    chosen = checkpoints.loc[checkpoints["prediction"].astype(bool), ["epoch"]]
    late = bool(len(chosen)) and chosen["epoch"].iloc[0] > checkpoints["epoch"].mean()
    rule = alt.Chart(chosen).mark_rule(strokeDash=[4, 3], color=MUTED).encode(x="epoch:Q")
    label = (
        alt.Chart(chosen)
        .mark_text(
            align="right" if late else "left",
            dx=-6 if late else 6,
            y=y,
            color=MUTED,
        )
        .encode(x="epoch:Q", text=alt.value("ρ: predict here"))
    )
    return [rule, label]


_OTHERS = "other members"


def over_training(
    checkpoints: pd.DataFrame,
    auc: pd.DataFrame | None = None,
    groups: pd.DataFrame | None = None,
    positives: str = "memorised at the end",
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

    checked(checkpoints, "the table of checkpoints", ["prediction"], ["epoch", "median_loss"])
    panels = [] if auc is None else [_auc_panel(auc, checkpoints)]
    panels.append(_loss_panel(checkpoints))
    if groups is not None:
        numbers = ["epoch", "low", "median", "high"]
        checked(groups, "the table of groups", ["quantity", "memorized"], numbers)
        panels += [
            _group_panel(rows, str(quantity), positives, checkpoints)
            for quantity, rows in groups.groupby("quantity", sort=False)
        ]
    chart: alt.ConcatChart = alt.ConcatChart(concat=panels, columns=2, spacing=24)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
    return finished(
        chart,
        f"What can be predicted, and what is memorised, at {len(checkpoints)} checkpoints.",
    )


def _panel(layers: list[Any], checkpoints: pd.DataFrame, title: str) -> alt.LayerChart:
    import altair as alt

    rule = marked_prediction(checkpoints, _HEIGHT)[0]
    return alt.LayerChart(
        layer=[rule, *layers], width=_WIDTH, height=_HEIGHT, title=alt.Title(title)
    )


def _epochs(checkpoints: pd.DataFrame) -> alt.X:
    """Return the axis that all panels share."""
    import altair as alt

    last = float(checkpoints["epoch"].max())
    scale = alt.Scale(domain=[0, last], nice=False)
    return alt.X("epoch:Q", title="epoch", scale=scale, axis=alt.Axis(format="~g"))


def _auc_panel(auc: pd.DataFrame, checkpoints: pd.DataFrame) -> alt.LayerChart:
    import altair as alt

    checked(auc, "the table of AUCs", ["metric"], ["epoch", "auc", "auc_low", "auc_high"])
    names = list(dict.fromkeys(auc["metric"]))
    rows = auc.assign(score=auc["metric"].map(spoken))
    look = styled("score", names, marks=("color", "shape"), orient="bottom", columns=3)
    base = alt.Chart(rows).encode(x=_epochs(checkpoints), color=look["color"])
    y = alt.Y("auc_low:Q", title="AUC", scale=alt.Scale(zero=False, domainMax=1))
    columns = ("auc_low", "auc", "auc_high")
    layers = [
        ruled("y", "auc", 0.5, (2, 3)),
        *banded(base, columns, y, look["shape"], 0.1, 32),
    ]
    return _panel(layers, checkpoints, "AUC, 95 % interval")


def _loss_panel(checkpoints: pd.DataFrame) -> alt.LayerChart:
    import altair as alt

    base = alt.Chart(checkpoints[["epoch", "median_loss"]]).encode(
        x=_epochs(checkpoints),
        y=alt.Y("median_loss:Q", title="nats", scale=alt.Scale(domainMin=0)),
    )
    layers = [
        base.mark_line(color=TRAIN),
        base.mark_point(filled=True, size=32, opacity=1, color=TRAIN),
    ]
    label = marked_prediction(checkpoints, 12)[1]
    return _panel([*layers, label], checkpoints, "Median training loss")


def _group_panel(
    rows: pd.DataFrame, quantity: str, positives: str, checkpoints: pd.DataFrame
) -> alt.LayerChart:
    import altair as alt

    what = spoken(quantity)
    columns = ["low", "median", "high"]
    rows = rows.assign(samples=np.where(rows["memorized"].astype(bool), positives, _OTHERS))
    color, shape = _groups(positives)
    base = alt.Chart(rows).encode(x=_epochs(checkpoints), color=color)
    title = what if quantity == "psmi" else f"{what}, nats"
    band, line, points = banded(base, columns, alt.Y("low:Q", title=title), shape, 0.22, 32)
    lonely = rows[rows.groupby("samples")["epoch"].transform("nunique") == 1]  # no band there
    ends = base.properties(data=lonely).mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q")
    title = f"{what}, median and quartiles"
    return _panel([band, ends, line, points], checkpoints, title)


def _groups(positives: str) -> tuple[alt.Color, alt.Shape]:
    import altair as alt

    names = [positives, _OTHERS]
    legend = alt.Legend(title=None, orient="bottom", symbolOpacity=1)
    ranges = [MEMORIZED, OTHER], ["triangle-up", "circle"]
    return (
        alt.Color("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[0])),
        alt.Shape("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[1])),
    )
