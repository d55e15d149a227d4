"""Checkpoints in a run directory: their records, the places of their files, and their training."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import has_form
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.rho import Record, StopRule
from memowidgets.visible import quoted
from memowidgets.vocabulary import percent

if TYPE_CHECKING:
    from torch import Tensor

COURSE = "trainer.json"
RHO = "rho.json"
REPEATS = "repeats.json"  # rows of a Trainer for each member that has several
KEEP = ("all", "prediction+final")


def read_records(run: RunDirectory) -> list[Record]:
    """Return the checkpoints of a run directory, in the order of training."""
    names = run.names("checkpoints", "")
    records = [read_record(run, name) for name in names if run.has_file(record_file(name))]
    records.sort(key=lambda record: record.step)
    if records and records[0].step != 0:
        raise StoreError(
            f"{run.path} has lost its checkpoint of step 0, to which every drop refers; delete "
            "its folder checkpoints and train again"
        )
    return records


def read_record(run: RunDirectory, name: str) -> Record:
    """Return the record of a checkpoint.

    Raises
    ------
    StoreError
        If its file is missing or broken.
    """
    file = record_file(name)
    try:
        record = Record(**run.read_note(file)).checked()
    except (TypeError, ValueError) as error:
        raise StoreError(f"{run.path / file} is broken: {error}; delete its folder") from None
    if record.name != Path(file).parent.name:
        raise StoreError(f"{run.path / file} is broken: it names {quoted(record.name)}")
    return record


def forget_checkpoints(run: RunDirectory, records: Sequence[Record]) -> None:
    """Delete checkpoints, the last one first: step 0 is there as long as any other is."""
    course, gone = read_course(run), {record.name for record in records}
    if course is not None:
        left = {name: of for name, of in course.weights.items() if name not in gone}
        write_course(run, dataclasses.replace(course, weights=left))
    for record in reversed(records):
        name = record.name
        run.forget(f"checkpoints/{name}", forward_of(name), f"scores/{name}")


def arrays_of(weights: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Return tensors as arrays on the CPU, bfloat16 as float32, because NumPy lacks it."""
    import torch

    exact = {k: t.float() if t.dtype == torch.bfloat16 else t for k, t in weights.items()}
    return {
        name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in exact.items()
    }


def name_of(epoch: float) -> str:
    """Return the name of the checkpoint at an epoch."""
    return f"epoch-{epoch:g}"


def record_file(name: str) -> str:
    """Return the place of the record of a checkpoint."""
    return f"checkpoints/{name}/record.json"


def outputs_of(name: str) -> str:
    """Return the place of the members' logits and losses at a checkpoint, without layers."""
    return f"checkpoints/{name}/outputs"


def forward_of(name: str) -> str:
    """Return the place of a checkpoint's pass over the members, with its layers."""
    return f"forward/{name}"


# the training that another loop runs


@dataclass(frozen=True)
class Course:
    """Course of a training that another loop runs.

    Attributes
    ----------
    steps_per_epoch, total_steps : int
        Optimizer steps in an epoch, and in the whole training, as far as it is known.
    weights : dict of str to str
        Digest of the weights by checkpoint. It is written last, so a checkpoint that is named here
        was whole once.
    keep : {"all", "prediction+final"}
        Where weights and representations are kept: at each checkpoint, or where the ρ rule predicts
        and at the end. Logits and losses are kept at each.
    """

    steps_per_epoch: int
    total_steps: int
    weights: dict[str, str] = field(default_factory=dict)
    keep: str = KEEP[0]


def read_course(run: RunDirectory) -> Course | None:
    """Return the course of an external training, or None if the audit trains its own target."""
    if not run.has_file(COURSE):
        return None
    try:
        course = Course(**run.read_note(COURSE))
    except TypeError as error:
        raise StoreError(f"{run.path / COURSE} is broken: {error}") from None
    counts = (course.steps_per_epoch, course.total_steps)
    if not all(type(count) is int and count > 0 for count in counts):
        raise StoreError(f"{run.path / COURSE} is broken: its numbers of steps are invalid")
    if not isinstance(course.weights, dict):
        raise StoreError(f"{run.path / COURSE} is broken: its weights are not digests by name")
    if course.keep not in KEEP:
        raise StoreError(f"{run.path / COURSE} is broken: keep is not one of {', '.join(KEEP)}")
    return course


KEEP_ALL = 'keep="all" keeps them'


def left_out(run: RunDirectory) -> str:
    """Return what a recorded training was told not to keep, for errors; empty for all others."""
    course = read_course(run)
    if course is None or course.keep == KEEP[0]:
        return ""
    return (
        f'was recorded with keep="{course.keep}", so weights and representations are kept at '
        "the prediction checkpoint and the last one, and not"
    )


def read_repeats(run: RunDirectory) -> dict[str, int]:
    """Return how many of a Trainer's rows each member has that has several, by its id."""
    rows: Any = run.read_note(REPEATS).get("rows") if run.has_file(REPEATS) else {}
    if not has_form(rows, {str: int}):
        raise StoreError(f"{run.path / REPEATS} is broken; delete it")
    found: dict[str, int] = rows
    return found


def write_course(run: RunDirectory, course: Course) -> None:
    """Write the course of an external training."""
    run.write_note(COURSE, asdict(course))


def read_stop(run: RunDirectory, *, has_records: bool) -> StopRule:
    """Return the rule by which a run is interrupted; the usual one if it has none."""
    if not run.has_file(RHO):
        if has_records:
            warnings.warn(
                f"{run.path / RHO} is missing, so the prediction checkpoint is chosen at a "
                f"drop of {percent(StopRule().rho)}: call train(stop_at_drop=…) with the run's own",
                UserWarning,
                stacklevel=3,
            )
        return StopRule()
    try:
        kept = run.read_note(RHO)
        return StopRule(**kept)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{run.path / RHO} is broken: {error}; delete it") from None


def write_stop(run: RunDirectory, rule: StopRule) -> None:
    """Keep the rule by which a run is interrupted, until another is given."""
    if not run.has_file(RHO) or rule != read_stop(run, has_records=False):
        run.write_note(RHO, asdict(rule))


def precision_at(run: RunDirectory, record: Record, trained_in: str) -> str:
    """Return the precision of the pass over the members at a checkpoint.

    Raises
    ------
    StoreError
        If the run's own training made the checkpoint in another precision than `trained_in`, that
        of the run. Each checkpoint of an external training has its own.
    """
    if record.precision != trained_in and read_course(run) is None:
        raise StoreError(
            f"{run.path / 'checkpoints' / record.name} was trained in {record.precision}, and the "
            f"run computes in {trained_in}; delete the folder checkpoints and train again"
        )
    return record.precision
