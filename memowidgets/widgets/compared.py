"""Several scores of the same samples at one budget: whom each would flag. No widgets here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.evaluation import Evaluation, compare, roc
from memowidgets.vocabulary import verb, whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.evaluation.scored import Scored
    from memowidgets.widgets.messages import Part


@dataclass(frozen=True, eq=False)
class Compared:
    """Samples that have each of several scores.

    Attributes
    ----------
    positions : array of shape (n,), int64
        Which samples, by their positions.
    scores : array of shape (n_scores, n), float64
        A low score means risk.
    memorized : array of shape (n,), bool, optional
        None without ground truth.
    left_out : int
        Number of samples that lack one of the scores.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    memorized: NDArray[np.bool_] | None
    left_out: int

    @classmethod
    def of(
        cls, first: Scored, memorized: NDArray[np.bool_] | None, others: Sequence[Scored]
    ) -> Compared:
        """Take the samples of the first score that have each other one too."""
        beside = [_aligned(each.positions, each.scores, first.positions) for each in others]
        scores = np.stack([first.scores, *beside])
        there = ~np.isnan(scores).any(axis=0)
        if not there.any():
            raise ValueError("these scores have no sample in common: choose another one")
        known = None if memorized is None else memorized[there]
        return cls(first.positions[there], scores[:, there], known, int((~there).sum()))

    @cached_property
    def ranks(self) -> NDArray[np.uint32]:
        """How many samples score at most as high as each, of shape (n_scores, n).

        A budget flags what has at most that rank, so samples that tie are flagged together or not.
        """
        found = [np.searchsorted(np.sort(each), each, side="right") for each in self.scores]
        return np.stack(found).astype(np.uint32)

    def part(self, asked: Part) -> NDArray[np.int64]:
        """Return the positions of the samples that some scores flag at a budget, and others not."""
        wanted = np.array(asked["flagged"], dtype=np.bool_)[:, None]
        flagged = self.ranks[: len(wanted)] <= asked["budget"]
        chosen: NDArray[np.int64] = self.positions[(flagged == wanted).all(axis=0)]
        return chosen

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """One for each score; none where there is no ROC."""
        if self.memorized is None or self.memorized.all() or not self.memorized.any():
            return []
        return [roc(each, self.memorized) for each in self.scores]

    def said(self, names: Sequence[str]) -> str:
        """Return in words by how much the AUCs of the first two scores differ."""
        left_out = ""
        if self.left_out:
            lack = verb(self.left_out, "sample lacks", "samples lack")
            left_out = f"{whole(self.left_out)} {lack} one of these scores and are left out. "
        if not self.evaluations:
            return left_out.strip()
        first, second = self.evaluations[:2]
        if min(first.n_memorized, first.n - first.n_memorized) < 2:
            return f"{left_out}With one sample of a kind, nobody can tell the AUCs apart."
        found = compare(first, second)
        low, high = found.interval
        unclear = low <= 0 <= high
        digits = next((d for d in (2, 3) if round(low, d) and round(high, d)), 4)
        shown = [f"{round(x, digits) + 0.0:.{digits}f}" for x in (found.difference, low, high)]
        by, *ends = (text.replace("-", "−") for text in shown)
        so = "includes 0: this audit can't tell them apart" if unclear else "leaves out 0"
        between = f"Its paired 95 % interval, {' to '.join(ends)}, {so}."
        return f"{left_out}The AUC of {names[0]} less that of {names[1]} is {by}. {between}"

    @property
    def wire(self) -> dict[str, Any]:
        """Ranks of each score as uint32, and which samples are memorised, one bit for each."""
        known = self.memorized
        return {
            "n": len(self.positions),
            "ranks": [each.tobytes() for each in self.ranks],
            "bits": None if known is None else np.packbits(known).tobytes(),
        }


def _aligned(
    at: NDArray[np.int64], scores: NDArray[np.float64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the scores of these positions, NaN for one that has none."""
    everywhere = np.full(int(max(at.max(initial=0), positions.max(initial=0))) + 1, np.nan)
    everywhere[at] = scores
    return everywhere[positions]
