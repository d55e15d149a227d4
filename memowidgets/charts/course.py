"""Figures over the course of training: learning curves, and memorisation as it comes about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import Theme, finished, spoken, styled, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked, thinned

if TYPE_CHECKING:
    import altair as alt

__all__ = ["histograms_of_log_lira", "loss_and_accuracy", "over_training", "training_curves"]

_CURVES = {
    "drop": "median loss, share dropped",
    "train_accuracy": "training accuracy",
    "test_accuracy": "held-out accuracy",
}
_DASHES = ([1, 0], [6, 3], [2, 2])
_SIDES = {"train": "training", "test": "held out"}
_WIDTH, _HEIGHT = 270, 170
_STEP = 0.5  # width of a bin of log-LiRA, in nats
_TICKS = [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000]


def training_curves(checkpoints: pd.DataFrame, theme: str = "light") -> alt.LayerChart:
    """How the target learns: the drop of the median loss, and accuracy, by epoch.

    Parameters
    ----------
    checkpoints : DataFrame
        As `Audit.checkpoints` returns it: ``epoch``, ``drop``, ``train_accuracy``,
        ``test_accuracy`` (may be NaN), ``prediction``.
    theme : {"light", "dark"}
        Colours.

    Returns
    -------
    altair.LayerChart
        A vertical rule marks the checkpoint that the ρ rule chose (paper, Figure 3). In a
        notebook it shows itself as a picture, without a network.

    Raises
    ------
    ValueError
        If a column is missing, or the table is empty.

    Examples
    --------
    >>> table = pd.DataFrame(
    ...     {
    ...         "epoch": [0, 1],
    ...         "drop": [0.0, 0.96],
    ...         "train_accuracy": [0.1, 0.9],
    ...         "test_accuracy": [0.1, 0.8],
    ...         "prediction": [False, True],
    ...     }
    ... )
    >>> len(training_curves(table).layer)
    3
    """
    import altair as alt

    what, colors = "the table of checkpoints", theme_named(theme)
    numbers = ("epoch", "drop", "train_accuracy")
    checked(checkpoints, what, (*_CURVES, "prediction"), numbers)
    curves = checkpoints.melt("epoch", list(_CURVES), "curve", "share").dropna()
    curves["curve"] = curves["curve"].map(_CURVES)
    curves, _ = thinned(curves, "epoch", ["share"], ["curve"], MOST_ROWS - 2)
    names = list(_CURVES.values())
    legend = alt.Legend(title=None, symbolType="stroke", symbolSize=500)
    palette = (colors.accent, colors.train, colors.test)
    lines = (
        alt.Chart(curves)
        .mark_line()
        .encode(
            x=alt.X("epoch:Q", title="epoch"),
            y=alt.Y("share:Q", title="share", scale=alt.Scale(domainMax=1)),
            color=alt.Color("curve:N", scale=alt.Scale(domain=names, range=palette), legend=legend),
            strokeDash=alt.StrokeDash(
                "curve:N", scale=alt.Scale(domain=names, range=_DASHES), legend=legend
            ),
        )
    )
    marks = _prediction(checkpoints, colors, 208)
    return finished(
        alt.LayerChart(layer=[lines, *marks], width=420, height=220),
        colors,
        f"Drop of the median loss and accuracy at {len(checkpoints)} checkpoints.",
    )


def loss_and_accuracy(checkpoints: pd.DataFrame, theme: str = "light") -> alt.HConcatChart:
    """Loss and accuracy of members and held-out samples, with the best epoch of each.

    Parameters
    ----------
    checkpoints : DataFrame
        As `Audit.checkpoints` returns it: ``epoch``, ``train_loss``, ``train_accuracy``,
        ``test_loss`` and ``test_accuracy`` (NaN where nothing was held out), ``prediction``.
    theme : {"light", "dark"}
        Colours.

    Returns
    -------
    altair.HConcatChart
        A ring marks the epoch of the best held-out value, the first of equals; a vertical rule
        the checkpoint that the ρ rule chose (paper, Appendix E, the first two rows).

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
    colors = theme_named(theme)
    panels = [_both_sides(checkpoints, kind, colors) for kind in ("loss", "accuracy")]
    return finished(
        alt.HConcatChart(hconcat=panels, spacing=28),
        colors,
        f"Loss and accuracy of members and held-out samples at {len(checkpoints)} checkpoints.",
    )


def _both_sides(checkpoints: pd.DataFrame, kind: str, colors: Theme) -> alt.LayerChart:
    """One panel: members and held-out samples."""
    import altair as alt

    renamed = checkpoints.rename(columns={f"{side}_{kind}": name for side, name in _SIDES.items()})
    curves = renamed.melt("epoch", list(_SIDES.values()), "samples", kind).dropna()
    curves, _ = thinned(curves, "epoch", [kind], ["samples"], MOST_ROWS // 2 - 4)
    names = list(_SIDES.values())
    legend = alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolSize=500)
    color = alt.Color(
        "samples:N",
        scale=alt.Scale(domain=names, range=[colors.train, colors.test]),
        legend=legend,
    )
    dash = alt.StrokeDash(
        "samples:N", scale=alt.Scale(domain=names, range=list(_DASHES[:2])), legend=legend
    )
    scale = alt.Scale(domainMin=0) if kind == "loss" else alt.Scale(domainMax=1)
    axis = alt.Axis(format="%") if kind == "accuracy" else alt.Axis()
    lines = (
        alt.Chart(curves)
        .mark_line()
        .encode(
            x=alt.X("epoch:Q", title="epoch"),
            y=alt.Y(
                f"{kind}:Q",
                title="loss, nats" if kind == "loss" else "accuracy",
                scale=scale,
                axis=axis,
            ),
            color=color,
            strokeDash=dash,
        )
    )
    best = _best(checkpoints, kind)
    ring = alt.Chart(best).mark_point(size=90, color=colors.test, strokeWidth=2, filled=False)
    layers = [
        lines,
        *_prediction(checkpoints, colors, 12 if kind == "loss" else _HEIGHT - 12),
        ring.encode(x="epoch:Q", y=f"{kind}:Q"),
    ]
    return alt.LayerChart(
        layer=layers, width=_WIDTH, height=_HEIGHT, title=_titled(best, kind, colors)
    )


def _best(checkpoints: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The row of the best held-out value, the first of equals; none where nothing is held out."""
    held_out = checkpoints[["epoch", f"test_{kind}"]].set_axis(["epoch", kind], axis=1).dropna()
    best = held_out[kind].min() if kind == "loss" else held_out[kind].max()
    return pd.DataFrame(held_out[held_out[kind] == best].head(1))


def _titled(best: pd.DataFrame, kind: str, colors: Theme) -> alt.Title:
    """What a panel shows, and the best of it."""
    import altair as alt

    name = kind.capitalize()
    if best.empty:
        return alt.Title(name, subtitle="nothing was held out")
    epoch, value = best.iloc[0]
    shown = f"{value:.1%}" if kind == "accuracy" else f"{value:.3f}"
    said = f"best held out: {shown} at epoch {epoch:g}"
    return alt.Title(name, subtitle=said, subtitleColor=colors.test)


def _prediction(checkpoints: pd.DataFrame, colors: Theme, y: int) -> list[alt.Chart]:
    """A vertical rule at the checkpoint that the ρ rule chose, and what it is."""
    import altair as alt

    chosen = checkpoints.loc[checkpoints["prediction"].astype(bool), ["epoch"]]
    late = bool(len(chosen)) and chosen["epoch"].iloc[0] > checkpoints["epoch"].mean()
    rule = alt.Chart(chosen).mark_rule(strokeDash=[4, 3], color=colors.muted).encode(x="epoch:Q")
    label = (
        alt.Chart(chosen)
        .mark_text(
            align="right" if late else "left",
            dx=-6 if late else 6,
            y=y,
            color=colors.muted,
        )
        .encode(x="epoch:Q", text=alt.value("ρ: predict here"))
    )
    return [rule, label]


def over_training(
    checkpoints: pd.DataFrame,
    auc: pd.DataFrame | None = None,
    groups: pd.DataFrame | None = None,
    theme: str = "light",
) -> alt.ConcatChart:
    """When memorisation can be predicted, and when it comes about.

    Parameters
    ----------
    checkpoints : DataFrame
        As `Audit.checkpoints`: ``epoch``, ``median_loss``, ``prediction``.
    auc : DataFrame, optional
        As `Audit.compare` with ``checkpoints="all"``: ``metric``, ``epoch``, ``auc``,
        ``auc_low``, ``auc_high``, one layer for each score.
    groups : DataFrame, optional
        ``quantity`` ("psmi", "log_lira"), ``epoch``, ``memorized`` (bool, in the finished model),
        ``low``, ``median``, ``high``: quartiles of either group.
    theme : {"light", "dark"}
        Colours.

    Returns
    -------
    altair.ConcatChart
        Panels: AUC of each score with its interval, the median training loss, and for each
        quantity the medians with bands from the first to the third quartile (paper, Figure 3).

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
            _group_panel(rows, str(quantity), checkpoints, colors)
            for quantity, rows in groups.groupby("quantity", sort=False)
        ]
    chart: alt.ConcatChart = alt.ConcatChart(concat=panels, columns=2, spacing=24).resolve_scale(
        color="independent", shape="independent"
    )
    return finished(
        chart,
        colors,
        f"What can be predicted, and what is memorised, at {len(checkpoints)} checkpoints.",
    )


def _panel(
    layers: list[Any], checkpoints: pd.DataFrame, colors: Theme, title: str
) -> alt.LayerChart:
    import altair as alt

    rule = _prediction(checkpoints, colors, _HEIGHT)[0]
    return alt.LayerChart(
        layer=[rule, *layers], width=_WIDTH, height=_HEIGHT, title=alt.Title(title)
    )


def _epochs(checkpoints: pd.DataFrame) -> alt.X:
    """The same axis in every panel."""
    import altair as alt

    last = float(checkpoints["epoch"].max())
    return alt.X("epoch:Q", title="epoch", scale=alt.Scale(domain=[0, last], nice=False))


def _auc_panel(auc: pd.DataFrame, checkpoints: pd.DataFrame, colors: Theme) -> alt.LayerChart:
    import altair as alt

    checked(auc, "the table of AUCs", ["metric"], ["epoch", "auc", "auc_low", "auc_high"])
    rows, _ = thinned(auc, "epoch", ["auc", "auc_low", "auc_high"], ["metric"], MOST_ROWS // 2)
    names = list(dict.fromkeys(rows["metric"]))
    rows = rows.assign(score=rows["metric"].map(spoken))
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
    label = _prediction(checkpoints, colors, 12)[1]
    return _panel([*layers, label], checkpoints, colors, "Median training loss")


def _group_panel(
    rows: pd.DataFrame, quantity: str, checkpoints: pd.DataFrame, colors: Theme
) -> alt.LayerChart:
    import altair as alt

    what = spoken(quantity)
    columns = ["low", "median", "high"]
    rows, _ = thinned(rows, "epoch", columns, ["memorized"], MOST_ROWS // 4)
    rows = rows.assign(samples=rows["memorized"].astype(bool).map(_GROUPS))
    color, shape = _groups(colors)
    base = alt.Chart(rows).encode(x=_epochs(checkpoints), color=color)
    title = what if quantity == "psmi" else f"{what}, nats"
    band = base.mark_area(opacity=0.22).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_line().encode(y="median:Q")
    lonely = rows[rows.groupby("samples")["epoch"].transform("nunique") == 1]  # no band there
    ends = base.properties(data=lonely).mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=32, opacity=1).encode(y="median:Q", shape=shape)
    title = f"{what}, median and quartiles"
    return _panel([band, ends, line, points], checkpoints, colors, title)


_GROUPS = {True: "memorised at the end", False: "other members"}


def _groups(colors: Theme) -> tuple[alt.Color, alt.Shape]:
    import altair as alt

    names = list(_GROUPS.values())
    legend = alt.Legend(title=None, orient="bottom", symbolOpacity=1)
    ranges = [colors.memorized, colors.other], ["triangle-up", "circle"]
    return (
        alt.Color("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[0])),
        alt.Shape("samples:N", legend=legend, scale=alt.Scale(domain=names, range=ranges[1])),
    )


def histograms_of_log_lira(
    values: pd.DataFrame,
    eta: float = 4.0,
    clip: tuple[float, float] = (-10.0, 20.0),
    theme: str = "light",
) -> alt.ConcatChart:
    """How many samples have which log-LiRA, checkpoint by checkpoint.

    Parameters
    ----------
    values : DataFrame
        ``checkpoint`` (as a reader says it) and ``log_lira``, a row a sample and checkpoint.
    eta : float
        A sample is memorised from here on.
    clip : (float, float)
        For drawing only: what lies beyond is counted in the outermost bins.
    theme : {"light", "dark"}
        Colours.

    Returns
    -------
    altair.ConcatChart
        A panel a checkpoint, with the share at η or above in its title (paper, Appendix E). Bins
        are half a nat wide and η is an edge of one, so that the colours count exactly.

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, a value is NaN, or η is not within `clip`.

    Examples
    --------
    >>> table = pd.DataFrame({"checkpoint": "epoch 1", "log_lira": [0.1, 0.2, 7.0]})
    >>> chart = histograms_of_log_lira(table)
    >>> chart.concat[0].title.subtitle
    '33.3% memorised (1 of 3)'
    """
    import altair as alt

    colors = theme_named(theme)
    checked(values, "the table of log-LiRA", ["checkpoint"], ["log_lira"])
    if not clip[0] < eta < clip[1]:
        raise ValueError(f"eta must lie within clip, {clip[0]:g} to {clip[1]:g}, but is {eta:g}")
    counted = {
        str(name): _binned(rows["log_lira"].to_numpy(dtype=float), eta, clip)
        for name, rows in values.groupby("checkpoint", sort=False)
    }
    n_rows = sum(len(bins) for bins in counted.values())
    if n_rows > MOST_ROWS:
        raise ValueError(f"{len(counted)} checkpoints are too many for one figure: choose some")
    edges = np.concatenate(
        [bins[["left", "right"]].to_numpy().ravel() for bins in counted.values()]
    )
    tallest = max(int(bins["samples"].max()) for bins in counted.values())
    panels = [
        _histogram(name, bins, eta, (edges.min(), edges.max()), tallest, colors)
        for name, bins in counted.items()
    ]
    columns = min(len(panels), 3)
    chart: alt.ConcatChart = alt.ConcatChart(concat=panels, columns=columns, spacing=20)
    chart = chart.resolve_scale(color="shared")
    return finished(
        chart,
        colors,
        f"Histograms of log-LiRA at {len(panels)} checkpoints; memorised from {eta:g} on.",
    )


def _binned(values: Any, eta: float, clip: tuple[float, float]) -> pd.DataFrame:
    """Samples in bins of half a nat, counted from η: its sign tells who is memorised."""
    lowest = int(np.floor((clip[0] - eta) / _STEP))
    highest = int(np.ceil((clip[1] - eta) / _STEP)) - 1
    places, samples = np.unique(
        np.floor((values - eta) / _STEP).clip(lowest, highest), return_counts=True
    )
    return pd.DataFrame(
        {
            "left": eta + places * _STEP,
            "right": eta + (places + 1) * _STEP,
            "samples": samples,
            "kind": np.where(places >= 0, "memorised (log-LiRA ≥ η)", "others"),
        }
    )


def _histogram(
    name: str,
    bins: pd.DataFrame,
    eta: float,
    across: tuple[float, float],
    tallest: int,
    colors: Theme,
) -> alt.LayerChart:
    import altair as alt

    n = int(bins["samples"].sum())
    memorized = int(bins.loc[bins["left"] >= eta, "samples"].sum())
    scale = alt.Scale(type="symlog", constant=1, domain=[0, tallest], nice=False)
    ticks = [tick for tick in _TICKS if tick <= tallest]
    bars = (
        alt.Chart(bins.assign(zero=0))
        .mark_rect()
        .encode(
            x=alt.X("left:Q", title="log-LiRA, nats", scale=alt.Scale(domain=across, nice=False)),
            x2="right:Q",
            y=alt.Y("zero:Q", scale=scale, title="samples", axis=alt.Axis(values=ticks)),
            y2="samples:Q",
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(
                    domain=["memorised (log-LiRA ≥ η)", "others"],
                    range=[colors.memorized, colors.other],
                ),
                legend=alt.Legend(title=None, orient="bottom"),
            ),
        )
    )
    line = alt.Chart(pd.DataFrame({"left": [eta]})).mark_rule(strokeDash=[4, 3], color=colors.muted)
    return alt.LayerChart(
        layer=[bars, line.encode(x="left:Q")],
        width=180,
        height=120,
        title=alt.Title(name, subtitle=f"{memorized / n:.1%} memorised ({memorized} of {n})"),
    )
