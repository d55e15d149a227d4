"""Computing a score by its row: calling its function, checking what it returns, keeping that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import ScoreKey
from memowidgets.audit.numbers.inputs import (
    INPUTS,
    Inputs,
    check_kept,
    check_several,
    is_defined,
    key_of,
    lacks_references,
    needs,
    needs_pass,
    uses_layer,
)
from memowidgets.checks import real_numbers, several
from memowidgets.evaluation.scored import Scored
from memowidgets.metrics import mean_over_checkpoints, mean_rank
from memowidgets.metrics.psmi import IMPRECISE, small_classes
from memowidgets.models.device import computed_on, resolve_device
from memowidgets.progress import Cancelled
from memowidgets.registry import Score, find_row, own_names, version_of
from memowidgets.store import StoreError
from memowidgets.vocabulary import Note, first_line, quoted

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class ScorePart(NamedTuple):
    """What is kept of a score: the values of one function at one place.

    Attributes
    ----------
    row : Score
        The score, which has a function.
    asked : Inputs
        The place.
    """

    row: Score
    asked: Inputs

    @property
    def key(self) -> ScoreKey:
        """By what it is kept."""
        return key_of(self.row, self.asked)

    @property
    def doing(self) -> str:
        """What a progress bar says while it is computed."""
        doing = f"computing {self.row.spoken}"
        return f"{doing} at {self.asked.layer}" if uses_layer(self.row) else doing


def parts_of(row: Score, asked: Inputs) -> list[ScorePart]:
    """Return what is to be kept of a score: itself, or those that it is made of.

    There is nothing to keep of what takes no time, and of what can't be computed.
    """
    if row.at_once or lacks_references(row, asked) or not is_defined(row, asked):
        return []
    if not row.parts:
        return [ScorePart(row, asked)]
    found = []
    for each in _made_of(row, asked):
        found += parts_of(*each)
    return list(dict.fromkeys(found))


def _made_of(row: Score, asked: Inputs) -> list[ScorePart]:
    """Return the scores that one is made of, where it is; empty for one that has a function."""
    if row.mean_over_checkpoints:
        part = find_row(row.mean_over_checkpoints)
        return [ScorePart(part, replace(asked, record=one)) for one in asked.so_far]
    return [ScorePart(find_row(name), asked) for name in row.mean_rank]


def is_known(part: ScorePart) -> bool:
    """Return whether a part of a score was computed before."""
    return _known(*part) is not None


def is_to_be_known(part: ScorePart) -> bool:
    """Return whether to keep a score of a user's that is made of others, and is computed by now.

    It is computed from its parts again wherever its row is known; what is kept of it is for whoever
    opens the run without that row.
    """
    row, asked = part
    if not row.parts or row.name in own_names() or version_of(row) is None:
        return False
    return is_ready(row, asked) and not asked.evidence.scores.has(part.key)


def _known(row: Score, asked: Inputs) -> Scored | None:
    """Return the scores by a row, if they were computed before."""
    if _must_be_made(row, asked):
        return None
    return asked.evidence.scores.find(key_of(row, asked))


def _must_be_made(row: Score, asked: Inputs) -> bool:
    """Whether what was kept isn't read, because the pass that it comes from is lost."""
    evidence = asked.evidence
    at = evidence.checkpoints[asked.record.name]
    can_be_made = "pass" in evidence.makes
    return can_be_made and needs_pass(row) and not at.has_pass


def is_ready(row: Score, asked: Inputs) -> bool:
    """Return whether `compute` answers without computing anything that takes time."""
    evidence = asked.evidence
    if lacks_references(row, asked) or not is_defined(row, asked):
        return False
    if row.parts:
        return all(is_ready(*each) for each in _made_of(row, asked))
    if row.at_once:
        return all(
            need.what == "pool" or evidence.has(need) for need in needs(row, asked)
        )
    return not _must_be_made(row, asked) and evidence.scores.has(key_of(row, asked))


def compute(row: Score, asked: Inputs) -> Scored:
    """Return the scores of the members by a row, or what was kept of them."""
    if row.mean_rank:
        return _mean_of_ranks(row, asked)
    if row.mean_over_checkpoints:
        return _mean_over_checkpoints(row, asked)
    found = None if row.at_once else _known(row, asked)
    if found is None:
        found = computed(ScorePart(row, asked))
    check_kept(found.scores, f"scores by {row.name}", asked.record)
    return _finished(row, asked, found)


def _finished(row: Score, asked: Inputs, found: Scored) -> Scored:
    """Return scores with the labels of their members, and with notes on classes."""
    evidence = asked.evidence
    found = found.only(~np.isin(found.positions, evidence.undrawn))
    labels, notes = evidence.labels[found.positions], found.notes
    if row.is_gone:
        said = f"the function of {row.name} is not here, so these are the values that were kept"
        notes = (*notes, Note("kept alone", said))
    if row.fits_classes:
        names = evidence.data.class_names
        n_of_each = np.bincount(labels, minlength=len(names))
        notes = (*small_classes(names, n_of_each), *notes)
    return replace(found, labels=labels, notes=notes)


def computed(part: ScorePart) -> Scored:
    """Return what a row's function returns for the arrays that it needs, called anew.

    Raises
    ------
    StoreError
        If the evidence lacks one of these arrays.
    ValueError, TypeError
        If the function raises, or its result is not a score of each member.
    """
    row, asked = part
    evidence = asked.evidence
    arrays = {name: INPUTS[name].read(asked) for name in row.parameters}
    held = arrays.get("representations")
    found = None
    if held is not None and row.on_device:

        def on_device(tensor: Any) -> Any:
            # an error of the device is that of `computed_on`, not of the function
            return row.call(arrays | {"representations": tensor})

        found = computed_on(resolve_device(evidence.device), held, on_device)
    elif held is not None:
        # a copy, which a function of a user's may write to
        kind = np.promote_types(held.dtype, np.float32)
        arrays["representations"] = np.array(held, kind)
    if found is None:
        found = _result(row, arrays)
    return _checked_result(row, found, evidence.members)


def _result(row: Score, arrays: dict[str, Any]) -> Any:
    try:
        return row.call(arrays)
    except (Cancelled, StoreError):
        raise
    except (Exception, SystemExit) as error:
        failed = f"the score {row.name} could not be computed"
        why = first_line(error)
        if row.name not in own_names():  # a user's function may name samples
            kind = type(error).__name__
            said = Note("own error", f"{failed} because of a {kind}", [why])
            raise ValueError(said) from error
        raise ValueError(f"{failed}: {why}") from error


def _checked_result(row: Score, found: object, members: NDArray[np.str_]) -> Scored:
    """Return what a score's function returned as scores of those members that have one."""
    errors, said = None, ()
    if isinstance(found, tuple):
        if len(found) not in (2, 3):
            raise ValueError(
                f"the score {row.name} returned a tuple of {len(found)}: it must be scores and "
                "their standard errors, and at most a list of sentences"
            )
        said = found[2] if len(found) == 3 else ()
        found, errors = found[:2]
    values = _checked_column(row, "", found, members)
    rows = np.flatnonzero(~np.isnan(values))
    if not len(rows):
        raise ValueError(f"the score {row.name} is NaN for all {len(members)} members")
    if errors is not None:
        errors = _checked_column(row, "standard errors, ", errors, members)[rows]
        if np.isnan(errors).any() or errors.min() < 0:
            first = members[rows][~(errors >= 0)][0]
            wrong = f"the score {row.name} returned a standard error that is negative or NaN"
            raise ValueError(Note("wrong error of a score", wrong, [quoted(first)]))
    notes = [
        one if isinstance(one, Note) else _own_note(row, str(one))
        for one in several(f"the notes of the score {row.name}", said)
    ]
    return Scored(rows, values[rows], errors, notes=tuple(notes))


def _checked_column(
    row: Score, what: str, found: object, members: NDArray[np.str_]
) -> Floats:
    """Return one number for each member, which may be NaN, or raise."""
    if found is None:
        raise TypeError(
            f"the score {row.name} returned no values: it must return one for each of "
            f"{len(members)} members"
        )
    of_score = f"what the score {row.name} returned"
    values = real_numbers(found, of_score).astype(np.float64)
    if values.shape != members.shape:
        raise ValueError(
            f"the score {row.name} returned {what}values of shape {values.shape}: it must return "
            f"one for each of {len(members)} members"
        )
    endless = np.flatnonzero(np.isinf(values))
    if len(endless):
        first = endless[0]
        wrong = (
            f"the score {row.name} returned {what}{values[first]}, where it must be a number, or "
            "NaN for a member without a score"
        )
        place = f"{quoted(members[first])}, which is row {first}"
        raise ValueError(Note("wrong score", wrong, [place]))
    return values


def _own_note(row: Score, text: str) -> Note:
    """Return a user's sentence about a score, which may name samples."""
    return Note("own note", f"the function of the score {row.name} left a note", [text])


def _mean_of_ranks(row: Score, asked: Inputs) -> Scored:
    """Return the mean rank of the members that have each score."""
    found = [compute(*each) for each in _made_of(row, asked)]
    rows, aligned = _of_all(found)
    notes = dict.fromkeys(note for one in found for note in one.notes)
    return Scored(rows, mean_rank(aligned), notes=tuple(notes))


def _mean_over_checkpoints(row: Score, asked: Inputs) -> Scored:
    """Return the mean; its standard error is at most the mean of theirs."""
    check_several(asked)
    found = [compute(*each) for each in _made_of(row, asked)]
    rows, aligned = _of_all(found)
    errors = None
    if all(one.errors is not None for one in found):
        of_each = [
            cast("Floats", one.errors)[np.isin(one.positions, rows)] for one in found
        ]
        errors = np.mean(of_each, axis=0)
    # the tolerance was that of one checkpoint
    notes = (note for one in found for note in one.notes if note.key != IMPRECISE)
    return Scored(
        rows,
        mean_over_checkpoints(aligned),
        errors,
        notes=tuple(dict.fromkeys(notes)),
    )


def _of_all(found: Sequence[Scored]) -> tuple[Labels, Floats]:
    """Return the members that have each of several scores, and these scores."""
    rows = reduce(np.intersect1d, [one.positions for one in found])
    of_each = [one.scores[np.isin(one.positions, rows)] for one in found]
    return rows, np.stack(of_each)
