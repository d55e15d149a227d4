"""What became of samples after decisions: the table that `Audit.compare_fork` returns."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets import charts
from memowidgets.audit.evidence import Evidence
from memowidgets.audit.numbers.scores import states
from memowidgets.checks import real_number, whole_number
from memowidgets.evaluation.intervals import clopper_pearson
from memowidgets.store import StoreError

if TYPE_CHECKING:
    import altair as alt

__all__ = ["ForkComparison", "near_to", "with_neighbours"]

NEIGHBOURS, OTHERS = "neighbours", "other kept"
GROUPS = ("removed", "relabelled", "changed", NEIGHBOURS, OTHERS)
_DISTANCES_AT_ONCE = 2**24  # 128 MB


class ForkComparison(pd.DataFrame):
    """Log-LiRA of members before and after decisions, by id, with a summary and a chart.

    It is a DataFrame. What is made of it, such as its rows of one fate, is a plain one. ``attrs``
    has ``checkpoint``, ``eta`` and ``notes``.

    Examples
    --------
    >>> rows = {"fate": ["removed", "kept", "kept"], "near": [False, True, False]}
    >>> values = {"before": [9.0, 1.0, 0.0], "after": [0.0, 5.0, 1.0]}
    >>> found = ForkComparison(pd.DataFrame(rows | values, index=["a", "b", "c"]))
    >>> found.summary[["n", "memorized_before", "memorized_after", "newly_memorized"]]
                n  memorized_before  memorized_after  newly_memorized
    removed     1                 1                0                0
    neighbours  1                 0                1                1
    other kept  1                 0                0                0
    >>> found.sentence.split(":")[0]
    '1 of 2 kept samples that were not memorised (log-LiRA below 4) is newly memorised'
    """

    @property
    def eta(self) -> float:
        """Log-LiRA from which on a sample counts as memorised."""
        return float(self.attrs.get("eta", 4.0))

    @property
    def groups(self) -> pd.Series[str]:
        """Group of each sample: its fate, where kept samples are neighbours or others."""
        kept = np.where(self["near"].to_numpy(dtype=bool), NEIGHBOURS, OTHERS)
        fate = self["fate"].to_numpy(dtype=object)
        return pd.Series(np.where(fate == "kept", kept, fate), self.index, dtype=object).astype(str)

    @property
    def summary(self) -> pd.DataFrame:
        """Counts by group.

        Columns: ``n``, ``memorized_before``, ``memorized_after``, ``newly_memorized`` (only
        after), ``no_longer`` (only before), ``median_before`` and ``median_after`` (log-LiRA).
        """
        groups, rows = self.groups, {}
        before, after = (self[when] >= self.eta for when in ("before", "after"))
        known = self["after"].notna()  # removed samples have none by the fork's own shadow models
        for group in GROUPS:
            of = groups == group
            if of.any():
                rows[group] = {
                    "n": int(of.sum()),
                    "memorized_before": int((of & before).sum()),
                    "memorized_after": int((of & after).sum()),
                    "newly_memorized": int((of & after & ~before).sum()),
                    "no_longer": int((of & before & ~after & known).sum()),
                    "median_before": float(self["before"][of].median()),
                    "median_after": float(self["after"][of].median()),
                }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def sentence(self) -> str:
        """The count of newly memorised samples in words: read it beside any advice to remove."""
        kept = self.summary.reindex([NEIGHBOURS, OTHERS]).fillna(0)
        newly, no_longer = (int(kept[name].sum()) for name in ("newly_memorized", "no_longer"))
        were = int(kept["memorized_before"].sum())
        safe = int(kept["n"].sum()) - were
        if not safe:
            return "No kept sample was below η before, so none can be newly memorised."
        low, high = clopper_pearson(newly, safe)
        near = int(kept["newly_memorized"].loc[NEIGHBOURS])
        share = f"{100 * newly / safe:.1f} %"
        return (
            f"{newly} of {safe} kept samples that were not memorised (log-LiRA below "
            f"{self.eta:g}) {'is' if newly == 1 else 'are'} newly memorised: {share} "
            f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %), {near} of them among the "
            "neighbours of samples that were removed, relabelled or changed. Of "
            f"{were} kept samples that were memorised, "
            f"{no_longer} no longer are."
        )

    @property
    def chart(self) -> alt.LayerChart:
        """Log-LiRA after against before, by group."""
        return self.figure()

    def figure(self, theme: str = "light") -> alt.LayerChart:
        """Draw log-LiRA after against before in a theme, "light" or "dark"."""
        rows = pd.DataFrame(self).assign(group=self.groups).dropna(subset=["before", "after"])
        return charts.fork_scatter(rows, self.eta, theme)

    def __repr__(self) -> str:
        notes = [f"note: {note}" for note in self.attrs.get("notes", ())]
        return "\n".join([self.sentence, self.summary.round(2).to_string(), *notes])

    def _repr_html_(self) -> str:
        """Return the counts, the sentence and the chart as a page without scripts or ids."""
        drawn = charts.Figures(
            {"before and after": self.chart} if self["after"].notna().any() else {}
        )
        counts = self.summary.to_html(float_format=lambda value: f"{value:.2f}", na_rep="")
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.attrs.get("notes", ()))
        return f"<p>{html.escape(self.sentence)}</p>{counts}{drawn._repr_html_()}<ul>{notes}</ul>"


def with_neighbours(
    table: pd.DataFrame, evidence: Evidence, layer: str | int, n_neighbors: int, eta: float
) -> ForkComparison:
    """Return the comparison of a fork with the kept samples that are near to changed ones.

    Parameters
    ----------
    table : DataFrame
        ``fate``, ``before`` and ``after`` of members, by id.
    evidence : Evidence
        That of the audit that was forked. Neighbours are nearest in its representation at the
        prediction checkpoint, which scores use.
    layer : str, int
        Layer of the representation.
    n_neighbors : int
        Number of neighbours of each changed sample.
    eta : float
        Log-LiRA from which on a sample counts as memorised.
    """
    whole_number("n_neighbors", n_neighbors, 1)
    notes = []
    rows = pd.Index(evidence.members).get_indexer(table.index)
    is_kept = (table["fate"] == "kept").to_numpy()
    near = np.zeros(len(table), dtype=np.bool_)
    try:
        of_members = states(evidence, layer, "prediction")
    except (StoreError, ValueError) as error:
        notes.append(f"neighbours are not known: {error}")
    else:
        found = near_to(of_members, rows[~is_kept], rows[is_kept], n_neighbors)
        near = np.isin(rows, found)
    notes.append(
        "training again also moves samples across η by chance, in both directions: compare newly "
        "memorised with no longer memorised"
    )
    made = ForkComparison(table.assign(near=near))
    made.attrs = {**table.attrs, "eta": real_number("eta", eta), "notes": tuple(notes)}
    return made


def near_to(
    states: NDArray[Any], of: NDArray[np.int64], among: NDArray[np.int64], k: int
) -> NDArray[np.int64]:
    """Return the rows of `among` that are one of the `k` nearest of any row of `of`.

    Examples
    --------
    >>> states = np.array([[0.0], [1.0], [1.5], [9.0]])
    >>> near_to(states, np.array([0]), np.array([1, 2, 3]), 2)
    array([1, 2])
    """
    if not len(of) or not len(among):
        return among[:0]
    here = np.asarray(states[of], dtype=np.float64).reshape(len(of), -1)
    best = np.full((len(of), 0), np.inf)
    rows = np.empty((len(of), 0), dtype=np.int64)
    step = max(1, _DISTANCES_AT_ONCE // len(of))
    for start in range(0, len(among), step):  # states may lie on disk
        these = among[start : start + step]
        there = np.asarray(states[these], dtype=np.float64).reshape(len(these), -1)
        squares = (here**2).sum(1)[:, None] + (there**2).sum(1) - 2 * here @ there.T
        best = np.hstack([best, squares])
        rows = np.hstack([rows, np.broadcast_to(these, squares.shape)])
        order = np.argsort(best, axis=1, kind="stable")[:, :k]
        best, rows = (np.take_along_axis(values, order, axis=1) for values in (best, rows))
    return np.unique(rows)
