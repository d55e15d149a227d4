"""Checkpoints of a module that a user's own loop trains, in a run directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

import numpy as np

from memowidgets.checks import warn_user
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.course import COURSE, Course, read_course
from memowidgets.training.forward import FloatArray, Shapes
from memowidgets.training.loop.passes import Looker, default_forward
from memowidgets.training.loop.plan import CheckpointPlan
from memowidgets.training.loop.untouched import unwrapped
from memowidgets.training.recorder import (
    check_whole,
    digest_of,
    others_after,
    trained_weights,
)
from memowidgets.training.rho import Prediction, Record, StopRule
from memowidgets.training.target import name_of, read_records, record_file, record_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["LoopRecorder"]

_SAMPLED = 1024  # values of a frozen weight in a digest
_FLOAT32, _SHORT = 1e-3, 5e-2  # rounding of logits, on other devices and in other batches


class LoopRecorder:
    """Recorder of checkpoints of a module that a user's own loop trains.

    A checkpoint is one pass over the data: logits, losses and representations. It has no weights,
    only a digest of them that identifies the training.

    Parameters
    ----------
    run : RunDirectory
        Run directory for the checkpoints.
    looker : Looker
        Passes over the module.
    plan : CheckpointPlan
        Steps at which checkpoints are due.
    shown : callable
        Context that shows the progress of a pass.
    held_out : Looker, optional
        Passes over samples that the loop does not train on.
    """

    def __init__(
        self,
        run: RunDirectory,
        looker: Looker,
        plan: CheckpointPlan,
        shown: Callable[[Progress | None], AbstractContextManager[Progress]],
        held_out: Looker | None = None,
    ) -> None:
        self._run, self._looker, self._plan, self._shown = run, looker, plan, shown
        self._held_out = held_out
        self._steps_per_epoch = plan.steps_per_epoch
        self._records: list[Record] = []  # of this training, as far as it is known

    @property
    def n_samples(self) -> int:
        """Number of samples of a pass."""
        return len(self._looker.labels)

    def begin(self, module: nn.Module, steps_done: int | None, *, overwrite: bool) -> int:
        """Record step 0, or find the step at which a recorded training continues.

        Returns
        -------
        int
            Current step of the training.

        Raises
        ------
        ValueError
            If the run directory has another training.
        """
        check_whole(module)
        module = unwrapped(module)
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            if records and overwrite:
                self._forget(records)
                self._run.place(COURSE).unlink(missing_ok=True)
                records = []
            step = self._resumed_at(module, records, steps_done) if records else 0
            digest = _digest(module)
            if any(r.step == step and not _is_same(r.weights, digest) for r in records):
                warn_user(
                    f"{self._run.path} has other weights at step {step}, so this checkpoint and "
                    "later ones are recorded anew; load the trained weights before mw.watch"
                )
            if not records and steps_done:
                raise ValueError(
                    f"steps_done is {steps_done}, but {self._run.path} lacks step 0, to which "
                    "every drop refers; watch a training from its start"
                )
            if read_course(self._run) is None:
                self._write(Course(self._steps_per_epoch, 1))
        same = next((r for r in records if r.step == step and _is_same(r.weights, digest)), None)
        if same is not None:
            self._check_forward(module, same)
        elif records and self._looker.forward is not default_forward:
            warn_user(
                f"the weights are those of no checkpoint in {self._run.path}, so forward= was not "
                "compared with that of the recording"
            )
        self.continue_at(module, step)
        if self._plan.epoch_at(step) is not None:
            self.record(module, step)
        return step

    def _check_forward(self, module: nn.Module, record: Record) -> None:
        """Raise if the module with a checkpoint's weights gives other logits than in its pass.

        Raises
        ------
        ValueError
            If it does: the module's code, or `forward`, is another.
        """
        place = f"forward/{record.name}"
        if not self._run.has(place, record.weights):
            return
        kept = np.asarray(self._run.read_tensors(place, record.weights)["logits"])
        logits = self._looker.first_logits(module)
        there = np.asarray(kept[: len(logits)], np.float64)
        apart = float(np.abs(logits - there).max()) / max(float(np.abs(there).max()), 1e-30)
        if apart > (_FLOAT32 if record.precision == "float32" else _SHORT):
            raise ValueError(
                f"the module has the weights of {record.name} in {self._run.path}, but gives other "
                f"logits than were recorded, by {apart:.1g} of their size: its code or forward= "
                "has changed. Choose another path, or pass overwrite=True to replace the recording"
            )

    def continue_at(self, module: nn.Module, step: int) -> None:
        """Go on from the checkpoints before a step, and from the one there if it is the module."""
        records = [record for record in read_records(self._run) if record.step <= step]
        if records and records[-1].step == step:
            digest = _digest(unwrapped(module))
            records = records if _is_same(records[-1].weights, digest) else records[:-1]
        self._records = records

    def record(self, module: nn.Module, step: int) -> Record:
        """Record a checkpoint, unless it exists with the same weights.

        Raises
        ------
        StoreError
            If another training was recorded here meanwhile.
        """
        self._records = self._recorded(unwrapped(module), step)
        return self._records[-1]

    def _recorded(self, module: nn.Module, step: int) -> list[Record]:
        """Return the checkpoints of this training up to this step, which is recorded."""
        digest = _digest(module)
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            last = self._records[-1] if self._records else None
            others = others_after(self._run, records, last, step)
            known = next((record for record in records if record.step == step), None)
            if known is not None:
                has_pass = self._run.has(f"forward/{known.name}", known.weights)
                if has_pass and _is_same(known.weights, digest):
                    return [record for record in records if record.step <= step]
            if others:
                self._forget(others)
            elif len(records) > 1 and all(_trained(r.weights) == _trained(digest) for r in records):
                warn_user(
                    f"at step {step} the weights are those of step 0; pass mw.watch the module "
                    "that the optimizer trains"
                )
            epoch = self._plan.epoch_at(step)
            if epoch is None:
                epoch = round(step / self._steps_per_epoch, 9)
            record = self._looked_at(module, step, epoch, digest)
            self._run.write_note(record_file(record.name), dataclasses.asdict(record))
            before = [one for one in records if one not in others and one.step < step]
            self._note([*before, record])
        return [*before, record]

    def prediction(self, stop: StopRule, step: int) -> Prediction | None:
        """Return the choice of the ρ rule up to a step, or None before the second checkpoint."""
        records = [record for record in self._records if record.step <= step]
        return stop.prediction(records) if len(records) > 1 else None

    def _resumed_at(
        self, module: nn.Module, records: Sequence[Record], steps_done: int | None
    ) -> int:
        course = self._course()
        if course.steps_per_epoch != self._steps_per_epoch:
            raise ValueError(
                f"{self._run.path} has a training with {course.steps_per_epoch} steps an epoch, "
                f"this one has {self._steps_per_epoch}; choose another path, or pass "
                "overwrite=True to replace it"
            )
        if steps_done is not None:
            return steps_done
        digest = _digest(module)
        for record in records:
            if _is_same(record.weights, digest):
                return record.step
        raise ValueError(
            f"{self._run.path} has a training whose weights differ from these at each of its "
            f"{len(records)} checkpoints; choose another path, pass overwrite=True to replace it, "
            "or steps_done= to go on after this number of steps"
        )

    def _looked_at(self, module: nn.Module, step: int, epoch: float, digest: str) -> Record:
        place = f"forward/{name_of(epoch)}"
        self._run.forget(place, f"scores/{name_of(epoch)}")
        with ExitStack() as stack:

            def allocate(shapes: Shapes, precision: str) -> Mapping[str, FloatArray]:
                made_in = {"precision": precision}
                return stack.enter_context(self._run.new_tensors(place, shapes, made_in, digest))

            report = stack.enter_context(self._shown(None))
            seen = self._looker.look(module, report, allocate)
            test = self._looked_at_others(module, report)
            record = record_of(step, epoch, seen, self._looker.labels, test)
        return dataclasses.replace(record, weights=digest)

    def _looked_at_others(self, module: nn.Module, report: Progress) -> tuple[float, float] | None:
        """Return the mean loss and the accuracy of the held-out samples."""
        if self._held_out is None:
            return None

        def allocate(shapes: Shapes, _precision: str) -> Mapping[str, FloatArray]:
            return {name: np.empty(shape, np.float32) for name, shape in shapes.items()}

        return self._held_out.look(module, report, allocate).figures(self._held_out.labels)

    def _note(self, records: Sequence[Record]) -> None:
        """Write the course, in which the last checkpoint so far is the end."""
        known = {r.name: r.weights for r in records}
        self._write(Course(self._steps_per_epoch, max(1, *(r.step for r in records)), known))

    def _forget(self, records: Sequence[Record]) -> None:
        """Delete checkpoints, the last one first: step 0 is there as long as any other is."""
        gone = {record.name for record in records}
        course = self._course()
        left = {name: of for name, of in course.weights.items() if name not in gone}
        self._write(dataclasses.replace(course, weights=left))
        for record in reversed(records):
            name = record.name
            self._run.forget(f"checkpoints/{name}", f"forward/{name}", f"scores/{name}")

    def _course(self) -> Course:
        course = read_course(self._run)
        if course is None:
            raise StoreError(f"{self._run.path} has lost its {COURSE} while it was recorded")
        return course

    def _write(self, course: Course) -> None:
        self._run.write_note(COURSE, dataclasses.asdict(course))


def _digest(module: nn.Module) -> str:
    """Return a digest of the trained weights, and one of some of each other weight and buffer.

    A frozen backbone is large, and another one differs almost everywhere.
    """
    trained = trained_weights(module)
    others = {
        name: _sampled(tensor)
        for name, tensor in module.state_dict().items()
        if name not in trained and hasattr(tensor, "detach") and not tensor.is_meta
    }
    return digest_of(trained) + (f"-{digest_of(others)}" if others else "")


def _sampled(tensor: Tensor) -> Tensor:
    some = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _SAMPLED)]
    return some.float() if some.is_floating_point() else some  # NumPy lacks most short types


def _trained(digest: str) -> str:
    return digest.partition("-")[0]


def _is_same(recorded: str, digest: str) -> bool:
    """Return whether weights are those of a checkpoint; older ones knew of the trained ones."""
    return recorded == (digest if "-" in recorded else _trained(digest))
