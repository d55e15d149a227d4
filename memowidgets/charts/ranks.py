"""Figure of the ranks of scores in several settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from memowidgets.charts.look import Theme, finished, styled, theme_named
from memowidgets.charts.tables import MOST_ROWS, checked

if TYPE_CHECKING:
    import altair as alt

__all__ = ["ranks"]


def ranks(table: pd.DataFrame, theme: str | Theme = "light") -> alt.LayerChart:
    """Draw the rank of each score in each setting, and its mean rank.

    Parameters
    ----------
    table : DataFrame
        One row for each ranking and score: ``setting``, ``truth``, ``metric``, ``rank`` (1 is the
        best), as `memowidgets.scoreboard` gives them.
    theme : {"light", "dark"} or Theme
        Colours of the chart.

    Returns
    -------
    altair.LayerChart
        Scores from top to bottom by their mean rank, which is the long mark. Each point is one
        ranking.

    Raises
    ------
    ValueError
        If a column is missing, the table is empty, a rank is NaN, or there are too many rows.

    Examples
    --------
    >>> rows = {"setting": "digits", "truth": "canaries", "metric": ["psmi", "loss"]}
    >>> len(ranks(pd.DataFrame({**rows, "rank": [1, 2]})).layer)
    2
    """
    import altair as alt

    colors = theme_named(theme)
    checked(table, "the table of ranks", ["setting", "truth", "metric"], ["rank"])
    if len(table) > MOST_ROWS // 2:
        raise ValueError(f"the table of ranks has {len(table)} rows, too many for a figure")
    means = table.groupby("metric", sort=False)["rank"].mean().sort_values(kind="stable")
    order = [colors.spoken(name) for name in means.index]
    look = styled(colors, "score", list(dict.fromkeys(table["metric"])), marks=("color", "shape"))
    rows = table[["setting", "truth", "rank"]].assign(score=table["metric"].map(colors.spoken))
    scale = alt.Scale(domain=[0.5, float(table["rank"].max()) + 0.5], nice=False)
    across = alt.X("rank:Q", title="rank by AUC (1 is best)", scale=scale)
    down = alt.Y("score:N", title=None, sort=order, axis=alt.Axis(labelLimit=220))
    points = (
        alt.Chart(rows)
        .mark_point(filled=True, size=60, opacity=0.55)
        .encode(
            x=across,
            y=down,
            color=look["color"].legend(None),
            shape=look["shape"].legend(None),
            tooltip=["setting:N", "truth:N", "score:N", "rank:Q"],
        )
    )
    drawn = pd.DataFrame({"score": order, "rank": means.to_numpy()})
    means_chart = (
        alt.Chart(drawn).mark_tick(thickness=3, size=18, color=colors.text).encode(x=across, y=down)
    )
    n = len(table[["setting", "truth"]].drop_duplicates())
    return finished(
        alt.LayerChart(layer=[points, means_chart], width=360, height=24 * len(order)),
        colors,
        f"Ranks of {len(order)} scores in {n} rankings; best mean rank: {order[0]}.",
    )
