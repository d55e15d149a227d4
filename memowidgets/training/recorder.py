"""Recorder of checkpoints: it takes a module at a step, and leaves a checkpoint with its pass."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.files import digest_of_arrays
from memowidgets.metrics.logits import order_warning
from memowidgets.models.base import unwrap
from memowidgets.models.quantized import warn_of_repacked
from memowidgets.progress import Progress, progress_or_bar
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import (
    COURSE,
    KEEP,
    LAYER,
    Allocate,
    Course,
    Forward,
    Record,
    device_of,
    file_of_pass,
    forward_of,
    held_out_of,
    name_of,
    outputs_of,
    read_course,
    read_record,
    read_records,
    record_file,
)
from memowidgets.training.config import CheckpointPlan, restore_in_main_thread
from memowidgets.training.draws import Draws, draws_of
from memowidgets.training.lookout import (
    Lookout,
    Prediction,
    StopRule,
    forget_told,
    lost_held_out,
    read_stop,
    write_held_out,
    write_stop,
)
from memowidgets.training.origin import Origin, joined

if TYPE_CHECKING:
    from torch import Tensor, nn


_T = TypeVar("_T")


@dataclass(frozen=True)
class Weights:
    """Weights of a module at a checkpoint.

    Attributes
    ----------
    digest : str
        Digest that identifies them.
    arrays : dict of array
        What is stored of them.
    file : str
        Name of their file in the checkpoint's folder, without its suffix. Empty: nothing is stored.
    notes : dict
        JSON files that other tools need next to the weights, by name.
    """

    digest: str
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    file: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


class Unseen(NamedTuple):
    """A pass over held-out samples, with their labels.

    Attributes
    ----------
    seen : Forward
        The pass.
    labels : array of shape (n_held_out,), int64
        The labels.
    """

    seen: Forward
    labels: NDArray[np.int64]

    @property
    def figures(self) -> tuple[float, float]:
        """Mean loss in nats, and accuracy."""
        return self.seen.figures(self.labels)


class Passes(Protocol):
    """What a recorder asks of its passes: how samples are fed to a module that is in training.

    They leave module, gradients and random states as they are.
    """

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label of each sample, (n,)."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers whose representations are kept, first to last."""

    def look(
        self, module: nn.Module, progress: Progress, allocate: Allocate
    ) -> Forward:
        """Return logits, losses and layers of all samples, in arrays that `allocate` creates."""

    def test(self, module: nn.Module, progress: Progress) -> Unseen | None:
        """Return a pass over the held-out samples, if there are any."""

    def weights(self, module: nn.Module) -> Weights:
        """Return what identifies a checkpoint, and what is stored of it."""


PassesT = TypeVar("PassesT", bound=Passes)


class Recorder(Generic[PassesT]):
    """Recorder of the checkpoints of a training, whoever runs its loop.

    `write` leaves one checkpoint, and is all that `audit.train` needs, which holds the lock and
    knows its own steps. The other methods are for loops of which nothing is known: they go on from
    what is there, and leave what must be known of such a training. Their checkpoint is one pass
    over the samples with its representations, so that every score can be computed later, without
    the module. The module and all random states stay unchanged.

    Parameters
    ----------
    run : RunDirectory
        Run directory for the checkpoints.
    passes : Passes
        How samples are fed to the module: the one thing in which trainings differ here.
    plan : CheckpointPlan
        Steps at which checkpoints are due. `follow` replaces its length.
    keep : {"all", "prediction+final"}
        Where weights and representations are kept, see `Course`.
    stop : StopRule, optional
        Rule by which the prediction checkpoint is chosen. Default: that of the run.
    """

    def __init__(
        self,
        run: RunDirectory,
        passes: PassesT,
        plan: CheckpointPlan,
        keep: str = KEEP[0],
        stop: StopRule | None = None,
    ) -> None:
        if keep not in KEEP:
            raise ValueError(f"unknown keep {keep!r}; valid: {', '.join(KEEP)}")
        self.run = run
        self.passes = passes
        self.keep = keep
        self._plan = plan
        self._stop = stop
        rule = stop or read_stop(run, has_records=False)
        self._lookout = Lookout(run, passes.labels, rule)
        self._records: list[Record] = []  # of this training, as far as it is known
        self._draws: Draws | None = None
        self._origin: Origin | None = None

    def follow(
        self, module: nn.Module, steps_per_epoch: int, total_steps: int | None = None
    ) -> None:
        """Plan the checkpoints of a module, in each process, whether it records or not.

        Parameters
        ----------
        module : Module
            The module in training.
        steps_per_epoch, total_steps : int
            Optimizer steps in an epoch, and in the whole training, if that is known.

        Raises
        ------
        ValueError
            If its weights are spread over processes.
        """
        _check_whole(module)
        self._plan = CheckpointPlan(steps_per_epoch, self._plan.every, total_steps)

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in an epoch."""
        return self._plan.steps_per_epoch

    def is_due(self, step: int) -> bool:
        """Return whether a step can be a checkpoint: 0, every so many epochs, a known end."""
        return self._plan.epoch_at(step) is not None

    def record_at(self, step: int) -> Record | None:
        """Return the checkpoint of a step of this very training, if there is one."""
        return next((record for record in self._records if record.step == step), None)

    def start(
        self, module: nn.Module, step: int | None, *, overwrite: bool = False
    ) -> int:
        """Begin a recording, or go on with one at the step where the training is.

        Call `follow` before. Nothing is recorded yet. A start that is refused leaves no folder that
        was not there before.

        Parameters
        ----------
        module : Module
            The module in training.
        step : int or None
            Its steps so far. None if the weights decide: those of a recorded checkpoint, or step 0
            if there is none.
        overwrite : bool
            Whether to replace another recording.

        Returns
        -------
        int
            Current step of the training.

        Raises
        ------
        StoreError
            If the run directory has checkpoints of the audit's own training.
        ValueError
            If it has those of another training, or lacks step 0 of this one.
        """
        place = self.run.path
        steps_per_epoch = self._plan.steps_per_epoch
        advice = (
            "choose another path, delete the folder, or pass mw.watch overwrite=True"
        )
        with self.run.lock("checkpoints"):
            records = read_records(self.run)
            course = read_course(self.run)
            if records and course is None:
                raise StoreError(
                    f"{place} has checkpoints of audit.train(); choose another path"
                )
            if overwrite:
                forget_checkpoints(self.run, records)
                with self.run.new_revision():
                    self.run.place(COURSE).unlink(missing_ok=True)
                records = []
                course = None
            own = steps_per_epoch, self.keep
            if (
                course
                and len(records) > 1
                and (course.steps_per_epoch, course.keep) != own
            ):
                raise ValueError(
                    f'{place} has keep="{course.keep}" and {course.steps_per_epoch} steps an '
                    f'epoch, not "{self.keep}" and {steps_per_epoch}; pass the same, or {advice}'
                )
            if step and not records:
                raise ValueError(
                    f"{place} lacks step 0, and the training is at step {step}; record it from its "
                    "start"
                )
            digest = self.passes.weights(unwrap(module)).digest
            if step is None and records:
                step = next((r.step for r in records if r.weights == digest), None)
                if step is None:
                    raise ValueError(
                        f"{place} has a training whose weights differ from these at each of its "
                        f"{len(records)} checkpoints; {advice}, or steps_done= to go on"
                    )
            step = step or 0
            if step == 0 and len(records) > 1 and records[0].weights != digest:
                raise ValueError(
                    f"{place} has another training, which had other weights at step 0; {advice}"
                )
            before = course or Course(steps_per_epoch, 1)
            end = self._plan.total or before.total_steps
            begun = replace(
                before,
                steps_per_epoch=steps_per_epoch,
                total_steps=end,
                keep=self.keep,
            )
            self.run.write_note(COURSE, asdict(begun))
        self._records = _up_to(records, step, digest)
        if self._stop is not None:
            write_stop(self.run, self._stop)
        return step

    def continue_at(self, module: nn.Module, step: int) -> None:
        """Go on from the checkpoints before a step, and from the one there if it is the module."""
        digest = self.passes.weights(unwrap(module)).digest
        self._records = _up_to(read_records(self.run), step, digest)

    def name_origin(self, origin: Origin) -> None:
        """Keep with the next checkpoint who trains from here on, with which settings."""
        self._origin = origin

    def count(self, draws: Draws, step: int, again: int, per_step: int = 1) -> None:
        """Keep with each checkpoint from here on how often members were drawn, if that is known.

        Call it after `start` or `continue_at`, before the loader draws.

        Parameters
        ----------
        draws : Draws
            Counts of the loader.
        step, again : int
            Steps so far, and the step from which on the loader draws once more what it drew.
        per_step : int
            Number of batches in an optimizer step, of all processes.
        """
        self._draws = draws
        last = self._records[-1] if self._records else None
        if step == 0:
            return
        if last is None or last.step < again:
            draws.are_seen = False
            return
        draws.go_on_from(self.run, last, (last.step - again) * per_step)

    def write(
        self,
        module: nn.Module,
        step: int,
        progress: Progress,
        weights: Weights | None = None,
        seconds: float = 0.0,
    ) -> Record:
        """Write weights, pass and record of a module at a step, in place of what is there.

        The record comes last: a checkpoint without one was not finished.
        """
        run = self.run
        passes = self.passes
        epoch = self._plan.epoch_of(step)
        weights = weights or passes.weights(module)
        name = name_of(epoch)
        digest = weights.digest or digest_of_arrays(weights.arrays)
        folder = f"checkpoints/{name}"
        beside = forward_of(name), held_out_of(name), draws_of(name)
        run.forget(*beside, f"scores/{name}")
        for file, content in weights.notes.items():
            run.write_text(f"{folder}/{file}", json.dumps(content, indent=1))
        if weights.file:
            as_others_do = {"format": "pt"}
            run.write_tensors(
                f"{folder}/{weights.file}", weights.arrays, as_others_do, digest
            )
        place = forward_of(name) if passes.layer_names else outputs_of(name)
        with file_of_pass(run, place, digest) as allocate:
            seen = passes.look(module, progress, allocate)
            unseen = passes.test(module, progress)
        test_loss, test_accuracy = (None, None) if unseen is None else unseen.figures
        loss = float(np.median(seen.losses))
        # an untrained model may have any order
        has_risen = step > 0 and loss > read_record(run, name_of(0)).median_loss
        if has_risen and (
            disorder := order_warning("the logits", seen.logits, passes.labels)
        ):
            warn_user(disorder)
        record = Record(
            name,
            epoch,
            step,
            loss,
            *seen.figures(passes.labels),
            test_loss,
            test_accuracy,
            seen.precision,
            digest,
            round(seconds, 3),
            seen.made_by,
        )
        if unseen is not None:
            losses = unseen.seen.losses
            labels = unseen.labels
            write_held_out(run, record, losses, labels, passes.labels)
        if self._draws is not None:
            self._draws.write(run, name, digest)
        run.write_note(record_file(name), asdict(record))
        return record

    def pass_by(self, record: Record) -> None:
        """Go on from a checkpoint that this training has come by again, with the same losses."""
        with self.run.lock("checkpoints"):
            records = read_records(self.run)
            self._records = [one for one in records if one.step <= record.step]
            self._tell()

    def record(
        self,
        module: nn.Module,
        step: int,
        progress: Progress | None = None,
        seconds: float = 0.0,
    ) -> Record:
        """Record a checkpoint, unless it exists with the same weights.

        Checkpoints of this step and later ones are of a training that went on in another way, and
        are deleted.

        Raises
        ------
        StoreError
            If another training was recorded here meanwhile.
        """
        device = device_of(module)
        module = unwrap(module)
        warn_of_repacked(module)  # reading the weights packs them as they were
        weights = self.passes.weights(module)
        with restore_in_main_thread(device), self.run.lock("checkpoints"):
            records = read_records(self.run)
            last = self._records[-1] if self._records else None
            there = {(record.step, record.weights) for record in records}
            if (
                last is not None
                and last.step < step
                and (last.step, last.weights) not in there
            ):
                raise StoreError(
                    f"another training was recorded at {self.run.path} since {last.name} (step "
                    f"{last.step}) of this one; record this one at another path"
                )
            is_here = step, weights.digest
            known = next((r for r in records if (r.step, r.weights) == is_here), None)
            if known and self._is_whole(known):
                self._records = [record for record in records if record.step <= step]
                self._tell()
                return known
            own = min(step - 1, -1 if last is None else last.step)
            before = [record for record in records if record.step <= own]
            if len(before) < len(records):
                forget_checkpoints(self.run, records[len(before) :])
            elif len(
                records
            ) > 1 and all(  # the first part of a digest is of trained weights
                r.weights.partition("-")[0] == weights.digest.partition("-")[0]
                for r in records
            ):
                warn_user(
                    f"at step {step} the weights are those of step 0; pass mw.watch the module "
                    "that the optimizer trains"
                )
            with progress_or_bar(progress) as report:
                made = self.write(module, step, report, weights, seconds)
                self._records = [*before, made]
                self._write_course(self._plan.total or max(1, step))
                self._tell()
                self._thin(ended=step == self._plan.total)
        return made

    def _is_whole(self, record: Record) -> bool:
        """Return whether a checkpoint has all that was computed there."""
        has_pass = self.run.has(forward_of(record.name), record.weights)
        return has_pass and not lost_held_out(self.run, [record])

    def _tell(self) -> None:
        """Keep the place to look, if the training is to be interrupted by now."""
        if self._stop is not None:
            self._lookout.tell(self._records)

    def finish(self) -> None:
        """End at the last record, and delete what was kept as long as the training could go on."""
        with self.run.lock("checkpoints"):
            if self._plan.total is not None:  # it may have been stopped for good
                self._write_course(self._records[-1].step)
            self._thin(ended=True)

    def _write_course(self, total_steps: int) -> None:
        digests = {record.name: record.weights for record in self._records}
        before = read_course(self.run)
        origins = joined([] if before is None else before.origins, self._origin)
        course = Course(
            self._plan.steps_per_epoch, total_steps, digests, self.keep, origins
        )
        self.run.write_note(COURSE, asdict(course))

    def _thin(self, *, ended: bool) -> None:
        """Delete weights and representations that `keep` leaves out."""
        if self.keep != "prediction+final":
            return
        told = self._lookout.told(self._records)
        if told is None and (not ended or len(self._records) < 2):
            return  # any checkpoint may still be the one to look at
        chosen = told or self._lookout.prediction(self._records)
        wanted = {chosen.record.name, self._records[-1].name}
        for record in self._records:
            place = forward_of(record.name)
            if record.name in wanted or not self.run.has(place, record.weights):
                continue
            kept = self.run.read_tensors(place, record.weights)
            if any(name.startswith(LAYER) for name in kept):
                arrays = {name: np.array(kept[name]) for name in ("logits", "losses")}
                made_in = {"precision": kept.metadata["precision"]}
                self.run.write_tensors(place, arrays, made_in, record.weights)
            names = record_file(record.name), f"{held_out_of(record.name)}.safetensors"
            own = {Path(name).name for name in names}
            with self.run.new_revision():
                for file in self.run.place(f"checkpoints/{record.name}").iterdir():
                    if file.name not in own:
                        file.unlink()

    def prediction(self, step: int) -> Prediction | None:
        """Return the place to look by a step; None before the second checkpoint.

        None too without a rule to interrupt by.
        """
        records = [record for record in self._records if record.step <= step]
        if self._stop is None or len(records) < 2:
            return None
        return self._lookout.prediction(records)

    def told(self, step: int) -> Prediction | None:
        """Return the place to look, if the training was to be interrupted by a step."""
        records = [record for record in self._records if record.step <= step]
        return None if self._stop is None else self._lookout.told(records)


def forget_checkpoints(run: RunDirectory, records: Sequence[Record]) -> None:
    """Delete checkpoints, the last one first: step 0 is there as long as any other is."""
    course = read_course(run)
    names = [record.name for record in records]
    forget_told(run, names)
    if course is not None:
        left = {name: of for name, of in course.weights.items() if name not in names}
        run.write_note(COURSE, asdict(replace(course, weights=left)))
    for name in reversed(names):
        parts = forward_of(name), f"scores/{name}", draws_of(name)
        run.forget(f"checkpoints/{name}", *parts)


def _up_to(records: Sequence[Record], step: int, digest: str) -> list[Record]:
    """Return the checkpoints before a step, and the one at it if it has these weights."""
    return [
        r for r in records if r.step < step or (r.step, r.weights) == (step, digest)
    ]


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the trained weights by name."""
    return {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}


def _check_whole(module: nn.Module) -> None:
    """Raise for weights that are spread over processes, where no process can run a pass."""
    parts = [type(part).__name__ for part in module.modules()]
    spread = any(
        hasattr(p, "ds_id") or hasattr(p, "full_tensor") for p in module.parameters()
    )
    if spread or "FullyShardedDataParallel" in parts:
        raise ValueError(
            "the weights in training are spread over processes (FSDP, DeepSpeed's stage 3, tensor "
            "parallel); train with the whole model in each process (one, or data parallel)"
        )


def in_the_first_process(work: Callable[[], _T], otherwise: _T) -> _T:
    """Do work in the first process, and return its result in all of them.

    The others wait. Before a process group exists they cannot, and return `otherwise`.

    Raises
    ------
    RuntimeError
        In the other processes, if the work failed in the first one.
    """
    import torch.distributed as dist

    grouped = dist.is_available() and dist.is_initialized()
    # by a launcher
    launched = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    rank = dist.get_rank() if grouped else int(launched) if launched.isdigit() else 0
    if not grouped or dist.get_world_size() == 1:
        return work() if rank == 0 else otherwise
    answer: list[Any] = [otherwise, ""]
    failed: Exception | None = None
    if rank == 0:
        try:
            answer[0] = work()
        except Exception as error:  # noqa: BLE001 - the others must not wait for ever
            failed, answer[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(answer, src=0)
    if failed is not None:
        raise failed
    if answer[1]:
        raise RuntimeError(f"the first process failed: {answer[1]}")
    found: _T = answer[0]
    return found
