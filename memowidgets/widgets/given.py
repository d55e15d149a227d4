"""Checked arrays of an explorer, and the form in which its page gets them. No widgets here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import check_same_order
from memowidgets.evaluation import Evaluation, compare, roc
from memowidgets.widgets.arrays import (
    ErrorLevels,
    SortedScores,
    checked_errors,
    checked_flags,
    checked_floats,
    checked_log_lira,
    checked_tau,
    eta_range,
    thinned_curve,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Others = Mapping[str, ArrayLike] | Callable[[], Mapping[str, ArrayLike]]

__all__ = [
    "MOST_OTHERS",
    "NOTHING",
    "Given",
    "Judged",
    "checked_others",
    "checked_scores",
    "with_log_lira",
]

BAND_RESAMPLES = 300  # enough for a drawing
MOST_OTHERS = 8  # more lines can't be told apart


@dataclass(frozen=True, eq=False)
class Given:
    """The arrays of the samples that count, checked."""

    title: str
    truth: str
    scores: Floats
    memorized: Bools | None
    log_lira: Floats | None
    levels: ErrorLevels | None
    counting: Bools
    note: str = ""
    version: int = 0
    natural: float | None = 0.0
    canaries: Floats | None = None

    @cached_property
    def sorted(self) -> SortedScores:
        """The scores in rising order."""
        return SortedScores.of(self.scores)

    @property
    def has_truth(self) -> bool:
        """Whether there is ground truth."""
        return self.memorized is not None or self.log_lira is not None

    def memorized_from(self, eta: float) -> Bools | None:
        """Mask of the memorised samples at η; None without ground truth."""
        return self.memorized if self.log_lira is None else self.log_lira >= eta

    @property
    def canary_tau(self) -> float | None:
        """Lowest τ that flags 75 % of the planted canaries; None without any."""
        if self.canaries is None or not len(self.canaries):
            return None
        ordered = np.sort(self.canaries)
        return float(ordered[math.ceil(0.75 * len(ordered)) - 1])

    @property
    def wire(self) -> dict[str, Any]:
        """What the front end draws, except which samples are memorised."""
        if self.levels is None:
            errors: dict[str, bytes | None] = {"levels": None, "codes": None}
        else:
            errors = {**self.levels.packed(self.sorted)}
        return {
            "version": self.version,
            "title": self.title,
            "truth": self.truth,
            "has_log_lira": self.log_lira is not None,
            "eta_range": None if self.log_lira is None else eta_range(self.log_lira),
            "note": self.note,
            "natural": self.natural,
            "canary_tau": self.canary_tau,
            **errors,
            **self.sorted.packed(),
        }


NOTHING = Given("", "", np.empty(0), None, None, None, np.empty(0, dtype=np.bool_))


@dataclass(frozen=True, eq=False)
class Judged:
    """The arrays with the memorised samples at one η."""

    given: Given
    eta: float

    @cached_property
    def memorized(self) -> Bools | None:
        """Mask of the memorised samples; None without ground truth."""
        return self.given.memorized_from(self.eta)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """How well the scores predict the truth; None if there is no ROC."""
        memorized = self.memorized
        if memorized is None or memorized.all() or not memorized.any():
            return None
        return roc(self.given.scores, memorized)

    @property
    def key(self) -> dict[str, Any]:
        """Version and η of these numbers, for the front end."""
        eta = None if self.given.log_lira is None else self.eta
        return {"version": self.given.version, "eta": eta}

    @property
    def wire(self) -> dict[str, Any]:
        """The memorised samples, in the order of the scores."""
        return {**self.key, **self.given.sorted.packed_truth(self.memorized)}

    def late(self) -> dict[str, Any]:
        """Return what takes a while: the band of the ROC, and remarks; no other scores yet."""
        late = {**self.key, "band": None, "remarks": [], "others": [], "failed": ""}
        if self.evaluation is not None:
            frame = self.evaluation.band(BAND_RESAMPLES)
            columns = [frame[name].to_numpy() for name in ("fpr", "tpr_low", "tpr_high")]
            late["band"] = np.concatenate(columns).astype(np.float32).tobytes()
            late["remarks"] = list(self.evaluation.warnings)
        return late

    def compared(self, others: Others | None) -> list[dict[str, Any]]:
        """Return each other score's ROC, its AUC, and how much that is above this one's.

        The AUC and the difference come with their 95 % intervals.
        """
        evaluation = self.evaluation
        if evaluation is None:
            return []
        if callable(others):
            others = _checked_mapping(others(), self.given)
        found = []
        for name, scores in (others or {}).items():
            other = roc(scores, evaluation.memorized)
            difference = None
            if min(evaluation.n_memorized, evaluation.n - evaluation.n_memorized) > 1:
                test = compare(other, evaluation)
                difference = [test.difference, *test.interval]
            points = thinned_curve(other.roc["fpr"].to_numpy(), other.roc["tpr"].to_numpy())
            auc = [other.auc, *other.auc_interval]
            found.append({"name": name, "auc": auc, "difference": difference, "points": points})
        return found


def checked_scores(
    scores: ArrayLike,
    memorized: ArrayLike | None,
    title: str,
    errors: ArrayLike | None,
    truth: str,
    log_lira: ArrayLike | None,
    natural: float | None = 0.0,
    canaries: ArrayLike | None = None,
) -> Given:
    """Check all arrays of a view before anything changes."""
    check_same_order(
        scores=scores, memorized=memorized, errors=errors, log_lira=log_lira, canaries=canaries
    )
    values = checked_floats("scores", scores)
    n = len(values)
    if memorized is not None and log_lira is not None:
        raise ValueError("give memorized or log_lira, not both: η says who is memorised")
    flags = None if memorized is None else checked_flags("memorized", memorized, n)
    gaps = None if log_lira is None else checked_log_lira(log_lira, n)
    spread = None if errors is None else checked_errors(errors, n)
    counting, note = np.ones(n, dtype=np.bool_), ""
    if gaps is not None:
        gaps, counting, note = with_log_lira(gaps)
    levels = None if spread is None else ErrorLevels.of(spread[counting])
    planted = None if canaries is None else values[checked_flags("canaries", canaries, n)]
    zero = None if natural is None else checked_tau(natural, "natural")
    return Given(
        title,
        truth,
        values[counting],
        flags,
        gaps,
        levels,
        counting,
        note,
        natural=zero,
        canaries=planted,
    )


def with_log_lira(log_lira: Floats) -> tuple[Floats | None, Bools, str]:
    """Return the known log-LiRA, a mask of its samples, and a sentence on the others.

    If no sample has one, the mask has all samples.
    """
    known = ~np.isnan(log_lira)
    missing = int((~known).sum())
    if missing == len(known):
        return None, ~known, "No sample has a log-LiRA yet."
    if missing == 0:
        return log_lira, known, ""
    verb = "sample has no log-LiRA and is" if missing == 1 else "samples have no log-LiRA and are"
    return log_lira[known], known, f"{missing} {verb} left out."


def checked_others(others: Others | None, given: Given) -> Others | None:
    """Return other scores of the samples that count; a function is checked when it is called."""
    if others is None or callable(others):
        return others
    if not given.has_truth:
        raise ValueError("without ground truth there is no ROC to compare: give memorized")
    return _checked_mapping(others, given)


def _checked_mapping(others: Mapping[str, ArrayLike], given: Given) -> Mapping[str, Floats]:
    """Return scores by name, of the samples that count."""
    if len(others) > MOST_OTHERS:
        raise ValueError(
            f"others has {len(others)} scores: at most {MOST_OTHERS} can be told apart"
        )
    n = len(given.counting)
    return {
        str(name): checked_floats(f"others[{name!r}]", scores, n)[given.counting]
        for name, scores in others.items()
    }
