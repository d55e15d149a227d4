"""Figures of the training: loss, accuracy, and what can be predicted at each checkpoint."""

from __future__ import annotations

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from memowidgets.charts.look import (
    AREA,
    MEMORIZED,
    MUTED,
    OTHER,
    TEST,
    TRAIN,
    auc_bands,
    band,
    finish,
    require,
)
from memowidgets.registry import spoken
from memowidgets.vocabulary import percent

_SIDES = {"train": "training", "test": "held out"}
_WIDTH = 270
_HEIGHT = 170


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
        marks the checkpoint to look at (paper, Appendix E, the first two rows).

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
    columns = ("test_loss", "test_accuracy", "prediction")
    numbers = ("epoch", "train_loss", "train_accuracy")
    require(checkpoints, "the table of checkpoints", columns, numbers)
    panels = [_both_sides(checkpoints, kind) for kind in ("loss", "accuracy")]
    return finish(
        alt.HConcatChart(hconcat=panels, spacing=28),
        f"Loss and accuracy of members and held-out samples at {len(checkpoints)} checkpoints.",
    )


def _both_sides(checkpoints: pd.DataFrame, kind: str) -> alt.LayerChart:
    """Return one panel with members and held-out samples, and a ring at the best held-out value."""
    is_loss = kind == "loss"
    names = {f"{side}_{kind}": name for side, name in _SIDES.items()}
    curves = checkpoints.melt("epoch", list(names), "samples", kind).dropna()
    curves["samples"] = curves["samples"].map(names)
    held_out = curves[curves["samples"] == _SIDES["test"]]
    best = held_out[
        held_out[kind] == (held_out[kind].min() if is_loss else held_out[kind].max())
    ]
    best = best.head(1)
    title = alt.Title(kind.capitalize(), subtitle="nothing was held out")
    for epoch, value in best[["epoch", kind]].itertuples(index=False):
        shown = f"{value:.3f}" if is_loss else percent(value)
        title.subtitle = f"best held out: {shown} at epoch {epoch:g}"
        title.subtitleColor = TEST
    domain = list(names.values())
    legend = alt.Legend(
        title=None, orient="bottom", symbolType="stroke", symbolSize=500
    )
    color = alt.Scale(domain=domain, range=[TRAIN, TEST])
    lines = alt.Chart(curves).mark_line()
    ring = alt.Chart(best).mark_point(size=90, color=TEST, strokeWidth=2, filled=False)
    layers = [
        lines.encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(format="~g")),
            y=alt.Y(
                f"{kind}:Q",
                title="loss, nats" if is_loss else "accuracy",
                scale=alt.Scale(domainMin=0) if is_loss else alt.Scale(domainMax=1),
                axis=alt.Axis() if is_loss else alt.Axis(format="%"),
            ),
            color=alt.Color("samples:N", scale=color, legend=legend),
            strokeDash=alt.StrokeDash(
                "samples:N", scale=alt.Scale(domain=domain), legend=legend
            ),
        ),
        *marked_prediction(checkpoints, 12 if is_loss else _HEIGHT - 12),
        ring.encode(x="epoch:Q", y=f"{kind}:Q"),
    ]
    return alt.LayerChart(layer=layers, width=_WIDTH, height=_HEIGHT, title=title)


def marked_prediction(checkpoints: pd.DataFrame, y: int) -> list[alt.Chart]:
    """Return a labelled vertical rule at the checkpoint to look at."""
    chosen = checkpoints.loc[checkpoints["prediction"].astype(bool), ["epoch"]]
    late = bool(len(chosen)) and chosen["epoch"].iloc[0] > checkpoints["epoch"].mean()
    base = alt.Chart(chosen).encode(x="epoch:Q")
    side: dict[str, Any] = (
        {"align": "right", "dx": -6} if late else {"align": "left", "dx": 6}
    )
    label = base.mark_text(y=y, color=MUTED, **side)
    rule = base.mark_rule(strokeDash=[4, 3], color=MUTED)
    return [rule, label.encode(text=alt.value("look here"))]


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
    require(
        checkpoints,
        "the table of checkpoints",
        ["prediction"],
        ["epoch", "median_loss"],
    )
    panels = [_loss_panel(checkpoints)]
    if auc is not None:
        require(auc, "the table of AUCs", ["metric"], ["epoch", *AREA])
        lines = auc_bands(auc, _epochs(checkpoints), orient="bottom", columns=3)
        panels.insert(0, _panel(lines, checkpoints, "AUC"))
    if groups is not None:
        numbers = ["epoch", "low", "median", "high"]
        require(groups, "the table of groups", ["quantity", "memorized"], numbers)
        panels += [
            _group_panel(rows, str(quantity), positives, checkpoints)
            for quantity, rows in groups.groupby("quantity", sort=False)
        ]
    chart = alt.ConcatChart(concat=panels, columns=2, spacing=24)
    chart.resolve = alt.Resolve(
        scale=alt.ScaleResolveMap(color="independent", shape="independent")
    )
    return finish(
        chart,
        f"What can be predicted, and what is memorised, at {len(checkpoints)} checkpoints.",
    )


def _panel(layers: list[Any], checkpoints: pd.DataFrame, title: str) -> alt.LayerChart:
    rule = marked_prediction(checkpoints, _HEIGHT)[0]
    return alt.LayerChart(
        layer=[rule, *layers], width=_WIDTH, height=_HEIGHT, title=title
    )


def _epochs(checkpoints: pd.DataFrame) -> alt.X:
    """Return the axis that all panels share."""
    scale = alt.Scale(domain=[0, float(checkpoints["epoch"].max())], nice=False)
    return alt.X("epoch:Q", title="epoch", scale=scale, axis=alt.Axis(format="~g"))


def _loss_panel(checkpoints: pd.DataFrame) -> alt.LayerChart:
    up = alt.Y("median_loss:Q", title="nats", scale=alt.Scale(domainMin=0))
    line = alt.Chart(checkpoints[["epoch", "median_loss"]]).mark_line(
        color=TRAIN, point={"color": TRAIN}
    )
    label = marked_prediction(checkpoints, 12)[1]
    layers = [line.encode(x=_epochs(checkpoints), y=up), label]
    return _panel(layers, checkpoints, "Median training loss")


def _group_panel(
    rows: pd.DataFrame, quantity: str, positives: str, checkpoints: pd.DataFrame
) -> alt.LayerChart:
    what = spoken(quantity)
    names = [positives, _OTHERS]
    rows = rows.assign(samples=np.where(rows["memorized"].astype(bool), *names))
    legend = alt.Legend(title=None, orient="bottom", symbolOpacity=1)
    colors = alt.Scale(domain=names, range=[MEMORIZED, OTHER])
    shapes = alt.Scale(domain=names, range=["triangle-up", "circle"])
    color = alt.Color("samples:N", legend=legend, scale=colors)
    shape = alt.Shape("samples:N", legend=legend, scale=shapes)
    up = alt.Y("low:Q", title=what if quantity == "psmi" else f"{what}, nats")
    layers = band(
        rows, _epochs(checkpoints), ("low", "median", "high"), up, color, shape
    )
    return _panel(layers, checkpoints, f"{what}, median and quartiles")
