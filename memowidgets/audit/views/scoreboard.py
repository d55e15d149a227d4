"""The scoreboard that a user gets: a table, mean ranks and a chart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from memowidgets import charts
from memowidgets.audit.numbers.board import ranked
from memowidgets.audit.views.figures import score_theme

if TYPE_CHECKING:
    import altair as alt

__all__ = ["Scoreboard"]


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """Early scores on several audits.

    It can be taken apart: ``table, chart = mw.scoreboard(audits)``.

    Attributes
    ----------
    table : DataFrame
        One row for each setting, truth and score: ``setting``, ``truth``, ``metric``, ``auc`` with
        its 95 % interval ``auc_low`` to ``auc_high``, ``rank`` (1 is the highest AUC),
        ``difference`` of the AUC to that of the score to compare with, and its paired 95 %
        interval, ``n`` and ``n_memorized`` (pairs of a sample and a target), ``n_by_chance`` (how
        many of these chance alone would give; NaN for canaries) and ``n_targets``.
    missing : tuple of str
        What could not be judged, and why.
    notes : tuple of str
        What a reader must know of a setting before trusting its rows, such as label noise.
    """

    table: pd.DataFrame
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ranks(self) -> pd.DataFrame:
        """Mean rank of each score by truth and over all, best first, and number of rankings."""
        return ranked(self.table)

    @property
    def chart(self) -> alt.LayerChart:
        """Rank of each score in each setting, best mean rank first."""
        return self.figure()

    def figure(self, theme: str = "light") -> alt.LayerChart:
        """Draw the rank of each score in each setting, in a theme, "light" or "dark"."""
        return charts.ranks(self.table, score_theme(theme))

    def __iter__(self) -> Iterator[Any]:
        yield self.table
        yield self.chart

    def __repr__(self) -> str:
        rankings = self.table[["setting", "truth"]].drop_duplicates()
        n_scores, n_settings = len(self.ranks), len(rankings["setting"].unique())
        head = f"Scoreboard: {n_scores} scores, {n_settings} settings, {len(rankings)} rankings"
        missing = [f"missing: {reason}" for reason in self.missing]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([head, self.ranks.round(2).to_string(), *missing, *notes])
