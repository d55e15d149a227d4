"""Figures of the ground truth: log-LiRA, definitions of memorisation, shadow models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from memowidgets.charts.look import (
    CELLS,
    MEMORIZED,
    OTHER,
    TEXT,
    band,
    encode_names,
    finish,
    layer,
    require,
    rule_at,
)
from memowidgets.registry import spoken
from memowidgets.vocabulary import estimate, percent

_STEP = 0.5  # width of a bin of log-LiRA, in nats
_KINDS = ("↑ memorised (log-LiRA ≥ η)", "↓ others")
_POWERS = [1, 10, 100, 1000, 10_000, 100_000]
_TICKS = sorted([0, *_POWERS, *(-tick for tick in _POWERS)])


def histograms_of_log_lira(
    values: pd.DataFrame, eta: float = 4.0, clip: tuple[float, float] = (-10.0, 20.0)
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
    '33 % memorised (1 of 3)'
    """
    require(values, "the table of log-LiRA", ["checkpoint"], ["log_lira"])
    if not clip[0] < eta < clip[1]:
        raise ValueError(
            f"eta must lie within clip, {clip[0]:g} to {clip[1]:g}, but is {eta:g}"
        )
    panels = [
        _histogram(
            str(name),
            _count_bins(rows["log_lira"].to_numpy(dtype=float), eta, clip),
            eta,
        )
        for name, rows in values.groupby("checkpoint", sort=False)
    ]
    chart = alt.ConcatChart(concat=panels, columns=min(len(panels), 3), spacing=20)
    shared = alt.ScaleResolveMap(color="shared", x="shared", y="shared")
    chart.resolve = alt.Resolve(scale=shared)
    return finish(
        chart,
        f"Histograms of log-LiRA at {len(panels)} checkpoints; memorised from {eta:g} on.",
    )


def _count_bins(values: Any, eta: float, clip: tuple[float, float]) -> pd.DataFrame:
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


def _histogram(name: str, bins: pd.DataFrame, eta: float) -> alt.LayerChart:
    n = int(bins["samples"].sum())
    memorized = int(bins.loc[bins["left"] >= eta, "samples"].sum())
    both_ways = alt.Axis(values=_TICKS, labelExpr="format(abs(datum.value), ',')")
    log = alt.Scale(type="symlog", constant=1, nice=False)
    kinds = alt.Scale(domain=list(_KINDS), range=[MEMORIZED, OTHER])
    legend = alt.Legend(title=None, orient="bottom")
    bars = alt.Chart(bins.assign(zero=0)).mark_rect()
    chart = bars.encode(
        x=alt.X(
            "left:Q", title="log-LiRA, nats", scale=alt.Scale(zero=False, nice=False)
        ),
        x2="right:Q",
        y=alt.Y("zero:Q", title="samples", scale=log, axis=both_ways),
        y2="up:Q",
        color=alt.Color("kind:N", scale=kinds, legend=legend),
    )
    return alt.LayerChart(
        layer=[chart, rule_at("x", "left", eta)],
        width=180,
        height=120,
        title=alt.Title(
            name, subtitle=f"{percent(memorized / n)} memorised ({memorized} of {n})"
        ),
    )


_CELLS = 40


def memorization_scatter(
    values: pd.DataFrame,
    x: str = "counterfactual",
    y: str = "attack_success_rate",
    spearman: pd.DataFrame | None = None,
) -> alt.LayerChart:
    """Draw two definitions of memorisation against each other, with samples counted in cells.

    Parameters
    ----------
    values : DataFrame
        One row per sample, as in `MemorizationComparison.values`.
    x, y : str
        Columns to draw.
    spearman : DataFrame, optional
        Table of `MemorizationComparison.spearman`. Spearman's rank correlation ρ of the two columns
        is shown above the figure.

    Returns
    -------
    altair.LayerChart
        At most 1600 cells. Cells with more samples are darker (paper, Appendix C).

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, or a value is NaN.

    Examples
    --------
    >>> table = pd.DataFrame({"counterfactual": [0.1, 2.0], "attack_success_rate": [0.5, 0.9]})
    >>> len(memorization_scatter(table).layer)
    1
    """
    require(values, "the table", [], [x, y])
    color = alt.Color(
        "samples:Q",
        scale=alt.Scale(type="log", range=list(CELLS)),
        legend=alt.Legend(format="d", tickCount=4),
    )
    cells = alt.Chart(_count_cells(values, x, y)).mark_rect()
    chart = cells.encode(
        x=alt.X("x:Q", title=spoken(x)),
        x2="x2:Q",
        y=alt.Y("y:Q", title=spoken(y), scale=alt.Scale(zero=False)),
        y2="y2:Q",
        color=color,
    )
    title = "" if spearman is None else _rho(spearman, x, y, len(values))
    description = f"{spoken(y)} against {spoken(x)} of {len(values)} samples."
    return layer([chart], description, width=340, height=260, title=title)


def _count_cells(values: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Count the samples in each cell that is not empty."""
    counts, across, up = np.histogram2d(values[x], values[y], bins=_CELLS)
    columns, rows = np.nonzero(counts)
    return pd.DataFrame(
        {
            "x": across[columns],
            "x2": across[columns + 1],
            "y": up[rows],
            "y2": up[rows + 1],
            "samples": counts[columns, rows].astype(int),
        }
    )


def _rho(spearman: pd.DataFrame, x: str, y: str, n: int) -> str:
    """Return a line with Spearman's ρ of a pair."""
    require(spearman, "the table of correlations", ["a", "b", "low", "high"])
    pair = spearman[
        [{a, b} == {x, y} for a, b in zip(spearman["a"], spearman["b"], strict=True)]
    ]
    require(
        pair,
        f"the table of correlations, for {x} and {y},",
        [],
        ["rho", "low", "high", "n"],
    )
    row = pair.iloc[0]
    of_all = f" of {n}" if row["n"] != n else ""
    value = estimate(row["rho"], (row["low"], row["high"]))
    return f"Spearman's ρ {value}, {row['n']:.0f}{of_all} samples"


def memorized_per_model(counts: Mapping[str, pd.DataFrame]) -> alt.LayerChart:
    """Draw how many samples each model truly memorises, a row for each set of models.

    Parameters
    ----------
    counts : mapping of str to DataFrame
        Tables of `Audit.memorized_per_model`, by what the models trained on, such as "before",
        "after" and "after random removals": a row for each model, with ``truly`` and ``memorized``.

    Returns
    -------
    altair.LayerChart
        A dot for each model at the expected number of samples that it truly memorises, and a rule
        at their mean. The label of the row has mean and range, and the mean number of samples that
        count as memorised.

    Raises
    ------
    ValueError
        If a column is missing, there is nothing to draw, or a count is NaN or infinite.

    Examples
    --------
    >>> before = pd.DataFrame({"truly": [7.8, 0.4, 11.2], "memorized": [9, 2, 13]})
    >>> memorized_per_model({"before": before}).description
    'Samples truly memorised per model. before: 6.5 (0.4 to 11, 3 models), 8 counted.'
    """
    tables = [
        require(of, f"the table {name!r}", ["memorized"], ["truly"]).assign(of=name)
        for name, of in counts.items()
    ]
    if not tables:
        raise ValueError("counts has no rows: give a table of memorized_per_model()")
    table = pd.concat(tables, ignore_index=True)
    labels = {
        name: f"{name}: {_few(of['truly'].mean())} ({_few(of['truly'].min())} to "
        f"{_few(of['truly'].max())}, {len(of)} models), {of['memorized'].mean():.0f} counted"
        for name, of in table.groupby("of", sort=False)
    }
    y = alt.Y(
        "of:N", title=None, sort=list(labels.values()), axis=alt.Axis(labelLimit=320)
    )
    x = alt.X(
        "truly:Q",
        title="samples that a model truly memorises (expected)",
        scale=alt.Scale(zero=True),
    )
    base = alt.Chart(table.assign(of=table["of"].map(labels))).encode(y=y)
    dots = base.mark_point(filled=True, opacity=0.5, size=60, color=MEMORIZED)
    means = base.mark_tick(thickness=3, size=26, color=TEXT).encode(x="mean(truly):Q")
    description = f"Samples truly memorised per model. {'; '.join(labels.values())}."
    return layer([dots.encode(x=x), means], description, width=400, height=150)


def _few(count: float) -> str:
    """Return an expected number of samples, with a decimal where it is small."""
    return f"{count:.1f}" if count < 9.95 else f"{count:.0f}"


def shadow_curves(table: pd.DataFrame, value: str = "auc") -> alt.LayerChart:
    """Draw a number against the number of shadow models, with its band.

    Parameters
    ----------
    table : DataFrame
        Table of `Audit.shadow_curve`. Sizes at which no subset has a value (NaN) are left out.
    value : {"auc", "memorized", "overlap", "agreement"}
        Column to draw.

    Returns
    -------
    altair.LayerChart

    Raises
    ------
    ValueError
        If a column is missing, or there is nothing to draw.

    Examples
    --------
    >>> row = {"n_shadows": [4, 8], "auc": [0.8, 0.9], "auc_low": [0.7, 0.85]}
    >>> len(shadow_curves(pd.DataFrame({**row, "auc_high": [0.9, 0.95]})).layer)
    4
    """
    columns = [f"{value}_low", value, f"{value}_high"]
    require(table, "the table", columns, ["n_shadows"])
    rows = require(
        table.dropna(subset=columns), f"the table, where {value} is known,", [], columns
    )
    name = spoken(value)
    across = alt.X(
        "n_shadows:Q", title="shadow models", scale=alt.Scale(type="log", base=2)
    )
    up = alt.Y(f"{columns[0]}:Q", title=spoken(value), scale=alt.Scale(zero=False))
    look = encode_names("number", [name], {name: name}, marks=("color", "shape"))
    layers = band(
        rows.assign(number=name), across, columns, up, look["color"], look["shape"]
    )
    description = f"{name} from up to {rows['n_shadows'].max()} shadow models."
    return layer(layers, description, width=400, height=230)
