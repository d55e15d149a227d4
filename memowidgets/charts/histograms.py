"""Histograms of log-LiRA over training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memowidgets.charts.look import Theme, finished, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked

if TYPE_CHECKING:
    import altair as alt


_STEP = 0.5  # width of a bin of log-LiRA, in nats
_KINDS = ("↑ memorised (log-LiRA ≥ η)", "↓ others")
_TICKS = [0, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000]


def histograms_of_log_lira(
    values: pd.DataFrame,
    eta: float = 4.0,
    clip: tuple[float, float] = (-10.0, 20.0),
    theme: str | Theme = "light",
) -> alt.ConcatChart:
    """Draw histograms of log-LiRA, one panel per checkpoint.

    Parameters
    ----------
    values : DataFrame
        Columns ``checkpoint`` (its name in the figure) and ``log_lira``, one row per sample and
        checkpoint.
    eta : float
        Threshold from which on a sample is memorised.
    clip : (float, float)
        Range of the axis. Values outside it are counted in the outermost bins.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.ConcatChart
        One panel per checkpoint. Its title has the share of samples at η or above (paper, Appendix
        E). Memorised samples are drawn up from a common line and the others down. Bins are half a
        nat wide, and η is the edge of a bin, so both sides count exactly.

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
        raise ValueError(
            f"{len(counted)} checkpoints are too many for one figure; select some of them"
        )
    edges = np.concatenate(
        [bins[["left", "right"]].to_numpy().ravel() for bins in counted.values()]
    )
    both = pd.concat(counted.values())["up"]
    reach = int(min(both.min(), 0)), int(max(both.max(), 0))
    panels = [
        _histogram(name, bins, eta, (edges.min(), edges.max()), reach, colors)
        for name, bins in counted.items()
    ]
    columns = min(len(panels), 3)
    chart: alt.ConcatChart = alt.ConcatChart(concat=panels, columns=columns, spacing=20)
    chart.resolve = alt.Resolve(scale=alt.ScaleResolveMap(color="shared"))
    return finished(
        chart,
        colors,
        f"Histograms of log-LiRA at {len(panels)} checkpoints; memorised from {eta:g} on.",
    )


def _binned(values: Any, eta: float, clip: tuple[float, float]) -> pd.DataFrame:
    """Count samples in bins of half a nat; bins from 0 on are at η or above.

    ``up`` is the end of a bar: positive for memorised samples, negative for the others.
    """
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
            "up": np.where(places >= 0, samples, -samples),
            "kind": np.where(places >= 0, *_KINDS),
        }
    )


def _histogram(
    name: str,
    bins: pd.DataFrame,
    eta: float,
    across: tuple[float, float],
    reach: tuple[int, int],
    colors: Theme,
) -> alt.LayerChart:
    import altair as alt

    n = int(bins["samples"].sum())
    memorized = int(bins.loc[bins["left"] >= eta, "samples"].sum())
    scale = alt.Scale(type="symlog", constant=1, domain=list(reach), nice=False)
    both_ways = sorted({*_TICKS, *(-tick for tick in _TICKS)})
    ticks = [tick for tick in both_ways if reach[0] <= tick <= reach[1]]
    bars = (
        alt.Chart(bins.assign(zero=0))
        .mark_rect()
        .encode(
            x=alt.X("left:Q", title="log-LiRA, nats", scale=alt.Scale(domain=across, nice=False)),
            x2="right:Q",
            y=alt.Y(
                "zero:Q",
                scale=scale,
                title="samples",
                axis=alt.Axis(values=ticks, labelExpr="format(abs(datum.value), ',')"),
            ),
            y2="up:Q",
            color=alt.Color(
                "kind:N",
                scale=alt.Scale(
                    domain=list(_KINDS),
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
