"""An audit in the time of its training: its checkpoints, and a score at each of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from memowidgets.audit.numbers import scores
from memowidgets.audit.numbers.computing import is_ready, parts_of
from memowidgets.audit.numbers.inputs import (
    is_defined,
    kinds_of,
    lacks_references,
    needs,
)
from memowidgets.evaluation.scored import BY_CLASS
from memowidgets.registry import own_names
from memowidgets.report import AtTime
from memowidgets.store import StoreError
from memowidgets.widgets.messages import Moment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.audit.evidence import Evidence
    from memowidgets.audit.numbers.inputs import Inputs
    from memowidgets.evaluation.scored import Scored
    from memowidgets.registry import Score

_QUICK_VALUES = 2_000_000
_QUICK_PAIRS = 200_000  # of a sample and a class, whose Gaussian it is compared with
_MOMENT = 1.0  # second: what takes less is computed while time runs
_MOST_SCORES = 1_000_000  # of all checkpoints in a page that holds them


def moments_of(evidence: Evidence) -> list[Moment]:
    """Return the checkpoints after step 0 with what it means to look at each."""
    names = evidence.names
    later = sorted(names.some_records("all"), key=lambda record: record.step)
    if len(later) < 2:
        return []
    chosen = names.prediction()
    final = names.final()
    found = []
    for record in later:
        why = "before the best time"
        if record == chosen.record:
            why = chosen.in_short
        elif record == final:
            why = "end of training"
        elif chosen.why == "unsettled":
            why = "nothing has settled yet"
        elif evidence.not_learned(record):
            why = "too early"
        elif record.step > chosen.record.step:
            why = "after the best time"
        is_star = record == chosen.record and chosen.why != "unsettled"
        moment = Moment(
            record.name,
            f"epoch {record.epoch:g}",
            record.epoch,
            record.weights,
            record.median_loss,
            record.test_loss,
            why,
            is_star,
        )
        found.append(moment)
    return found


def is_ready_at(evidence: Evidence, row: Score, layer: str, checkpoint: str) -> bool:
    """Return whether a score is there in about a second, without a forward pass."""
    asked = scores.ask(evidence, layer, checkpoint)
    if kinds_of(row) - {*evidence.kinds} or lacks_references(row, asked):
        return False
    if not is_defined(row, asked):
        return False
    if not all(evidence.has(one) for one in needs(row, asked)):
        return False
    is_quick = seconds_of_functions(row, asked) <= _MOMENT
    return is_quick and is_small(row, asked)


def scores_in_time(
    evidence: Evidence, row: Score, layer: str, shown: Scored
) -> list[AtTime]:
    """Return the score of the same members at each checkpoint where it is there or quick.

    Where these would be more than a page holds, some checkpoints are left out, at equal distances.
    There is nothing to play without two.
    """
    found = []
    title = shown.title.rpartition(", ")[0]  # without its checkpoint
    for moment in _held(evidence, row, layer, shown):
        values = _values_at(evidence, row, layer, moment.value, shown)
        if values is not None:
            found.append(AtTime(moment, f"{title}, {moment.label}", values))
    return found if len(found) > 1 else []


def _held(evidence: Evidence, row: Score, layer: str, shown: Scored) -> list[Moment]:
    """Return the checkpoints that a page holds: the one on show and the star always."""
    there = [
        moment
        for moment in moments_of(evidence)
        if scores.is_computed(evidence, row, layer, moment.value)
        or is_ready_at(evidence, row, layer, moment.value)
    ]
    room = _MOST_SCORES // max(1, len(shown))
    if len(there) <= room:
        return there
    spread = {round(i) for i in np.linspace(0, len(there) - 1, max(room - 2, 0))}
    return [
        moment
        for i, moment in enumerate(there)
        if i in spread or moment.star or moment.value == shown.checkpoint
    ]


def _values_at(
    evidence: Evidence, row: Score, layer: str, checkpoint: str, shown: Scored
) -> NDArray[np.float64] | None:
    """Return the score of the members on show at a checkpoint, on the same axis."""
    try:
        found = scores.score(evidence, row, layer, checkpoint)
        on_axis = found.against_class if shown.axis == BY_CLASS else found
    except (StoreError, ValueError):  # it is not defined there
        return None
    n = len(evidence.members)
    return scores.of_members(on_axis.scores, on_axis.positions, n)[shown.positions]


def is_small(row: Score, asked: Inputs) -> bool:
    """Whether each of the package's own scores that are to be computed takes about a second."""
    parts = parts_of(row, asked)
    own = [part for part in parts if part.row.name in own_names()]
    pairs = len(asked.evidence.members) * asked.evidence.n_options
    if pairs > _QUICK_PAIRS and any(part.row.fits_classes for part in own):
        return False
    return all(_has_few_values(part.asked) for part in own)


def _has_few_values(asked: Inputs) -> bool:
    try:
        held = scores.states(asked.evidence, asked.layer, asked.record.name)
    except (StoreError, ValueError):
        return False
    return held.size <= _QUICK_VALUES


def seconds_of_functions(row: Score, asked: Inputs) -> float:
    """Return how long the functions of a user's take, infinite if that is not known."""
    seconds = 0.0
    for part in parts_of(row, asked):
        if part.row.name in own_names() or is_ready(*part):
            continue
        took = asked.evidence.scores.seconds(part.row.name)
        seconds += math.inf if took is None else took
    return seconds
