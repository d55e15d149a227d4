"""What a score's parameters stand for in an evidence: what they need, and the arrays themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import (
    LOGITS,
    REFERENCES,
    REPRESENTATIONS,
    SHADOWS,
    TRACE,
    Evidence,
    Need,
    ScoreKey,
)
from memowidgets.audit.numbers.truth import truth_needs
from memowidgets.checks import check_finite
from memowidgets.files import digest
from memowidgets.metrics.logits import FEWEST_CHECKPOINTS
from memowidgets.registry import Score, find_row, parameters_of, version_of
from memowidgets.training.checkpoint import LAYER, Record

Array = NDArray[Any]


@dataclass(frozen=True)
class Inputs:
    """Where a score is asked for: an evidence, a layer by name, and a checkpoint."""

    evidence: Evidence
    layer: str
    record: Record

    @property
    def so_far(self) -> list[Record]:
        """The checkpoints after step 0 up to this one, of which a mean needs two."""
        return self.evidence.names.so_far(self.record)


@dataclass(frozen=True)
class Input:
    """What one parameter stands for.

    Attributes
    ----------
    kind : str
        Kind of evidence that it is from; "" for what every evidence has.
    read : callable
        Function of an `Inputs` that returns its value.
    """

    kind: str
    read: Callable[[Inputs], Any]


def _of_pass(name: str, allowed: float = 0.0) -> Callable[[Inputs], Array]:
    """Return a reader of an array of the forward pass, which copies it."""

    def read(asked: Inputs) -> Array:
        values = np.array(asked.evidence.of_pass(asked.record, name))
        return check_kept(values, name, asked.record, allowed)

    return read


def _representations(asked: Inputs) -> Array:
    return asked.evidence.of_pass(asked.record, LAYER + asked.layer)


def _logit_gap(asked: Inputs) -> Array:
    gaps = np.array(asked.evidence.gaps_of_pass(asked.record))
    return check_kept(gaps, "logit gaps", asked.record)


def _losses(asked: Inputs) -> Array:
    check_several(asked)
    of_each = [asked.evidence.losses(record) for record in asked.so_far]
    return np.stack(of_each)


def _of_references(asked: Inputs) -> Array:
    evidence = asked.evidence
    models = evidence.references.read(asked.record.name)
    return models.gaps[:, evidence.member_columns]


def _of_shadows(name: str) -> Callable[[Inputs], Array]:
    """Return a reader of the masks or the gaps of shadow models."""

    def read(asked: Inputs) -> Array:
        evidence = asked.evidence
        models = evidence.shadows.read(asked.record.name)
        of_pool: Array = getattr(models, name)
        return of_pool[:, evidence.member_columns]

    return read


INPUTS: dict[str, Input] = {
    "representations": Input(REPRESENTATIONS, _representations),
    "logits": Input(
        LOGITS, _of_pass("logits", allowed=-np.inf)
    ),  # −inf: no such option
    "labels": Input("", lambda asked: asked.evidence.labels.copy()),
    "loss": Input(LOGITS, _of_pass("losses")),
    "logit_gap": Input(LOGITS, _logit_gap),
    "losses": Input(TRACE, _losses),
    "reference_gaps": Input(REFERENCES, _of_references),
    "shadow_gaps": Input(SHADOWS, _of_shadows("gaps")),
    "shadow_members": Input(SHADOWS, _of_shadows("members")),
    "target_gaps": Input(
        SHADOWS, lambda asked: np.array(asked.evidence.target_gaps(asked.record))
    ),
    "random_state": Input("", lambda asked: int(asked.evidence.manifest["seed"])),
}


def kinds_of(row: Score) -> frozenset[str]:
    """Return the kinds of evidence that a score uses, itself or by the rows that it is made of."""
    found = {INPUTS[name].kind for name in parameters_of(row)}
    return frozenset(found - {""})


def uses_layer(row: Score) -> bool:
    """Return whether a score has another value at each layer."""
    return REPRESENTATIONS in kinds_of(row)


def needs(row: Score, asked: Inputs) -> list[Need]:
    """Return what a score needs of which checkpoints; `Evidence.missing` says what is not there."""
    evidence, record = asked.evidence, asked.record
    found: list[Need] = []
    if row.mean_over_checkpoints:
        part = find_row(row.mean_over_checkpoints)
        for each in asked.so_far:
            found += needs(part, Inputs(evidence, asked.layer, each))
        return list(dict.fromkeys(found))
    for name in row.mean_rank:
        found += needs(find_row(name), asked)
    kinds = {INPUTS[name].kind for name in row.parameters}
    if SHADOWS in kinds:
        found += truth_needs(evidence, record)
    if kinds & {REPRESENTATIONS, LOGITS}:
        found.append(Need("pass", record.name))
    if TRACE in kinds:
        found += [Need("losses", each.name) for each in asked.so_far]
    return list(dict.fromkeys(found))


def is_defined(row: Score, asked: Inputs) -> bool:
    """Return whether there are enough checkpoints for a score, if it is of several."""
    return TRACE not in kinds_of(row) or len(asked.so_far) >= FEWEST_CHECKPOINTS


def lacks_references(row: Score, asked: Inputs) -> bool:
    """Return whether a score needs reference models that are not there at a checkpoint."""
    models = asked.evidence.references
    there = bool(models.indices) and asked.record.name in models.checkpoints
    return REFERENCES in kinds_of(row) and not there


def check_several(asked: Inputs) -> None:
    """Refuse to compute a score of several checkpoints where there are none.

    Raises
    ------
    NotThereError
        If this evidence has one checkpoint, or no losses.
    ValueError
        If there are fewer than two.
    """
    if TRACE in asked.evidence.absent:
        raise asked.evidence.absent[TRACE].error()
    records = asked.so_far
    if len(records) < FEWEST_CHECKPOINTS:
        raise ValueError(
            f"a mean over the checkpoints up to {asked.record.name} needs two after step 0, and "
            f"there {'is one' if records else 'is none'}: choose a later checkpoint or a score "
            "of one checkpoint such as psmi or loss, or train a new run with checkpoints "
            "closer together (checkpoint_every of TrainingConfig)"
        )


def needs_pass(row: Score) -> bool:
    """Return whether a score is computed from the forward pass of its checkpoint."""
    return bool(kinds_of(row) & {REPRESENTATIONS, LOGITS})


def key_of(row: Score, asked: Inputs) -> ScoreKey:
    """Return what identifies the scores by a row: its function, the place, what they come from."""
    evidence, kinds = asked.evidence, kinds_of(row)
    version = version_of(row)
    others = []
    if TRACE in kinds:
        others += [evidence.weights_at(each) for each in asked.so_far]
    if REFERENCES in kinds:
        others.append(evidence.references.digest)
    if SHADOWS in kinds:
        of_target = evidence.has(Need("pool", asked.record.name))
        others += [evidence.shadows.digest, str(of_target)]
    return ScoreKey(
        metric=row.name,
        layer=asked.layer if uses_layer(row) else "",
        checkpoint=asked.record.name,
        of=evidence.weights_at(asked.record),
        target=evidence.target,
        version=row if version is None else version,
        beside=digest(others) if others else "",
    )


def check_kept(values: Array, what: str, record: Record, allowed: float = 0.0) -> Array:
    """Return values of a pass. Raise for a NaN or an infinite one, which no pass writes."""
    where = f"the {what} at {record.name}"
    remedy = f"what was kept of {record.name} is broken, so delete it and make it again"
    check_finite(values, where, remedy, row="member", allowed=allowed)
    return values
