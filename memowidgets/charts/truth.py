"""Figures of the ground truth: definitions of memorisation, and numbers of shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from memowidgets.charts.look import Theme, finished, styled, theme_named
from memowidgets.charts.tables import checked

if TYPE_CHECKING:
    import altair as alt


_CELLS = 40


def memorization_scatter(
    values: pd.DataFrame,
    x: str = "counterfactual",
    y: str = "attack_success_rate",
    spearman: pd.DataFrame | None = None,
    theme: str | Theme = "light",
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
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.LayerChart
        At most 1600 cells. Cells with more samples are darker (lighter in the dark theme; paper,
        Appendix C).

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
    import altair as alt

    colors = theme_named(theme)
    checked(values, "the table", [], [x, y])
    cells = _counted(values, x, y)
    drawn = (
        alt.Chart(cells)
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=colors.spoken(x)),
            x2="x2:Q",
            y=alt.Y("y:Q", title=colors.spoken(y), scale=alt.Scale(zero=False)),
            y2="y2:Q",
            color=alt.Color(
                "samples:Q",
                title="samples",
                scale=alt.Scale(type="log", range=list(colors.cells)),
                legend=alt.Legend(format="d", tickCount=4),
            ),
        )
    )
    title = alt.Undefined if spearman is None else alt.Title(_rho(spearman, x, y, len(values)))
    return finished(
        alt.LayerChart(layer=[drawn], width=340, height=260, title=title),
        colors,
        f"{colors.spoken(y)} against {colors.spoken(x)} of {len(values)} samples.",
    )


def _counted(values: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
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
    checked(spearman, "the table of correlations", ["a", "b", "low", "high"])
    found = spearman[[{a, b} == {x, y} for a, b in zip(spearman["a"], spearman["b"], strict=True)]]
    checked(found, f"the table of correlations, for {x} and {y},", [], ["rho", "low", "high", "n"])
    row = found.iloc[0]
    of_all = f" of {n}" if row["n"] != n else ""
    return (
        f"Spearman's ρ {row['rho']:.3f} ({row['low']:.3f} to {row['high']:.3f}), "
        f"{row['n']:.0f}{of_all} samples"
    )


def shadow_curves(
    table: pd.DataFrame, value: str = "auc", theme: str | Theme = "light"
) -> alt.LayerChart:
    """Draw a number against the number of shadow models, with its band.

    Parameters
    ----------
    table : DataFrame
        Table of `Audit.shadow_curve`. Sizes at which no subset has a value (NaN) are left out.
        With a column ``variance`` there is a line for each.
    value : {"auc", "memorized", "agreement", "rho"}
        Column to draw.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

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
    2
    """
    import altair as alt

    colors = theme_named(theme)
    columns = [value, f"{value}_low", f"{value}_high"]
    checked(table, "the table", columns, ["n_shadows"])
    known = checked(
        table.dropna(subset=columns), f"the table, where {value} is known,", [], columns
    )
    several = ["variance"] if "variance" in known else []
    base = alt.Chart(known[["n_shadows", *columns, *several]]).encode(
        x=alt.X("n_shadows:Q", title="shadow models", scale=alt.Scale(type="log", base=2))
    )
    if several:
        names = list(dict.fromkeys(known["variance"]))
        lines = base.mark_line(point=True).encode(
            y=alt.Y(f"{value}:Q", title=colors.spoken(value), scale=alt.Scale(zero=False)),
            **styled(colors, "variance", names, {name: name for name in names}),
        )
        return finished(
            alt.LayerChart(layer=[lines], width=400, height=230),
            colors,
            f"{colors.spoken(value)} from up to {known['n_shadows'].max()} shadow models, by "
            f"variance: {', '.join(names)}.",
        )
    band = base.mark_area(opacity=0.22, color=colors.accent).encode(
        y=alt.Y(f"{value}_low:Q", title=colors.spoken(value), scale=alt.Scale(zero=False)),
        y2=f"{value}_high:Q",
    )
    line = base.mark_line(point={"color": colors.accent}, color=colors.accent).encode(
        y=f"{value}:Q"
    )
    return finished(
        alt.LayerChart(layer=[band, line], width=400, height=230),
        colors,
        f"{colors.spoken(value)} from up to {known['n_shadows'].max()} shadow models.",
    )
