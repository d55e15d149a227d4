"""What checks a prediction next, with this audit's numbers and times.

PSMI is there at once. Two short trainings check it, and only shadow models tell which samples are
memorised.
"""

from __future__ import annotations

from statistics import median
from typing import NamedTuple

import numpy as np

from memowidgets.audit.evidence import REFERENCES, Evidence
from memowidgets.audit.kept import Scores
from memowidgets.audit.numbers.scores import (
    SCORES,
    Metric,
    is_computed,
    opening_tau,
    score,
)
from memowidgets.progress import duration_in_words
from memowidgets.store import StoreError
from memowidgets.training.design import ReferenceDesign

CHECK, CHECKED_BY = "reference", 2  # the score of a check, and its models for each member
JUDGED_BY = 24  # shadow models that are advised
_FEW_SECONDS = 10.0  # starting the processes takes about as long


class _Flagged(NamedTuple):
    """Members that a score flags where its τ stands at first, and their number in words."""

    rows: frozenset[int]
    in_words: str


def next_steps(
    evidence: Evidence, metric: str | Metric = "psmi", found: Scores | None = None
) -> tuple[str, ...]:
    """Return what would check a prediction next: reference models, and then shadow models.

    Parameters
    ----------
    evidence : Evidence
        Of a run that can train them. For any other, and once there are shadow models, the result
        is empty.
    metric : str or callable
        The score on show.
    found : Scores, optional
        Its values. By default those of the last layer at the prediction, if they were computed
        before.
    """
    if evidence.kind != "run" or evidence.has_ground_truth or len(evidence.names.found) < 2:
        return ()
    if not evidence.references.indices:
        return (f"{offer(evidence, metric, found)}, audit.run_references({CHECKED_BY})",)
    if len(evidence.pool) == len(evidence.member_rows):
        return _agreement(evidence, metric, found)
    share = len(evidence.pool) / 2 / len(evidence.member_rows)  # of the target's steps, in each
    how_long = _time(_seconds(evidence, JUDGED_BY * share * evidence.names.last_step))
    said = (
        "shadow models tell which samples are memorised, and judge both scores in one ROC: "
        f"audit.run_shadows({JUDGED_BY}) trains {JUDGED_BY}{f' ({how_long})' if how_long else ''}"
    )
    return (*_agreement(evidence, metric, found), said)


def offer(evidence: Evidence, metric: str | Metric = "psmi", found: Scores | None = None) -> str:
    """Return how many members a score flags, and the short trainings that check them."""
    models = CHECKED_BY * ReferenceDesign(evidence.references.design).per_round
    flagged, known = _flagged(evidence, metric, found), time_of_check(evidence)
    said = "" if flagged is None else f"{flagged.in_words}: "
    return f"{said}check with {models} more short trainings{f' ({known})' if known else ''}"


def time_of_check(evidence: Evidence) -> str:
    """Return how long the reference models take, as in ``about 40 s``; "" if that is not known.

    It follows from the seconds that the target took to its checkpoints.
    """
    in_halves = ReferenceDesign(evidence.references.design).per_round == 2  # of the members
    reached = evidence.names.prediction().record.step
    share = 1.0 if in_halves else _share(evidence)
    return _time(_seconds(evidence, CHECKED_BY * reached * share))


def _flagged(evidence: Evidence, metric: str | Metric, found: Scores | None) -> _Flagged | None:
    """Return what a score by name flags; None where that is not known without computing it."""
    if not isinstance(metric, str):
        return None
    if found is None:
        if not is_computed(evidence, metric):
            return None
        found = score(evidence, metric)
    tau = opening_tau(metric, found)
    rows = frozenset(found.rows[found.mu <= tau].tolist())
    counted = f"{len(rows)} of {len(evidence.member_rows)} members"
    return _Flagged(rows, f"{SCORES[metric].title} flags {counted} at τ = {tau:.3g}")


def _agreement(evidence: Evidence, metric: str | Metric, found: Scores | None) -> tuple[str, ...]:
    """Say how many members a score and the reference models find both."""
    at = evidence.names.prediction().record.name
    if at not in evidence.references.checkpoints or not isinstance(metric, str):
        return ()
    flagged = _flagged(evidence, metric, found)
    if flagged is None or REFERENCES in SCORES[metric].needs:
        return ()
    try:
        checked, n = score(evidence, CHECK), len(flagged.rows)
    except StoreError:  # a file of theirs is broken; the score itself says so
        return ()
    lowest = checked.rows[np.argsort(checked.mu, kind="stable")[:n]]
    both = len(flagged.rows & set(lowest.tolist()))
    lowest_by = f"the {n} with the lowest scores of the reference models"
    return (f"{flagged.in_words}, and {both} of these are among {lowest_by}",)


def _share(evidence: Evidence) -> float:
    """Return how many samples a reference model trains on, relative to the target."""
    members = len(evidence.member_rows)
    return min(1.0, (len(evidence.pool) - members) / members)


def _seconds(evidence: Evidence, steps: float) -> float | None:
    """Return the seconds of optimizer steps, one after another, as fast as the target's were.

    The median between two checkpoints leaves out what a process imports at its first step.
    """
    of_a_step, before = [], 0
    for record in evidence.names.found:
        if record.seconds > 0:
            of_a_step.append(record.seconds / (record.step - before))
        before = record.step
    return steps * median(of_a_step) if of_a_step else None


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return "a few seconds" if seconds < _FEW_SECONDS else f"about {duration_in_words(seconds)}"
