"""Training of the target: interrupted at ρ, resumed, with every checkpoint on disk."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models.device import (
    COMPUTED,
    free_bytes,
    free_memory,
    torch_device,
    wait_for,
)
from memowidgets.progress import Progress
from memowidgets.store import NotThereError, RunDirectory, StoreError, Tensors
from memowidgets.training.checkpoint import (
    KEEP_ALL,
    Record,
    StopRule,
    forward_of,
    left_out,
    name_of,
    outputs_of,
    precision_at,
    read_record,
    read_records,
    record_file,
)
from memowidgets.training.design import Design
from memowidgets.training.forward import Allocate, Forward, end_batches
from memowidgets.training.learner import Learner, Recipe, state_of_weights
from memowidgets.training.recorder import Recorder, Weights
from memowidgets.training.seeds import derived_seed

if TYPE_CHECKING:
    from torch import nn

_TARGET_STREAM = 3
_SHARE = 1 / 4  # largest share of the free memory that a kept model may have
_FREE_BYTES = 2**32  # where a device does not tell its free memory
_SAME = 1e-4  # of a loss in nats, where it is rounded as in training: the difference is 0 there
_ELSEWHERE = 1e-2  # in the median, on another device or with other versions, as TF32 explains


class Loaded:
    """Learner with the weights of a checkpoint; a process keeps at most one, and no large one."""

    _last: ClassVar[weakref.ref[Loaded] | None] = None

    def __init__(self) -> None:
        self.alone = threading.RLock()  # a pass changes the mode of its module while it runs
        self._learner: Learner | None = None
        self._of: Hashable = None

    def find(self, of: Hashable) -> Learner | None:
        """Return the learner if it has the weights `of`, else None."""
        return self._learner if self._of == of else None

    def keep(self, learner: Learner, of: Hashable) -> None:
        """Keep a learner that has the weights `of`, if it is small, and drop all others."""
        self.drop()
        told = free_bytes(torch_device(learner.recipe.device))
        free = _FREE_BYTES if told is None else told
        if learner.forget_optimizer() <= _SHARE * free:
            self._learner, self._of = learner, of
            Loaded._last = weakref.ref(self)

    def drop(self) -> None:
        """Give back the memory of the learner that the process keeps, whoever made it."""
        last = Loaded._last() if Loaded._last is not None else None
        if last is not None and (learner := last._learner) is not None:  # noqa: SLF001 - of this class
            last._learner = last._of = None  # noqa: SLF001
            device = torch_device(learner.recipe.device)
            del learner
            free_memory(device)


class ModelPasses:
    """Passes over the samples of a recipe, as its model feeds them.

    Parameters
    ----------
    recipe : Recipe
        Recipe of the audit.
    members : array of shape (n_members,), int64
        Positions of the members in the recipe's data.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    """

    layer_names: tuple[str, ...] = ()

    def __init__(
        self, recipe: Recipe, members: NDArray[np.int64], held_out: Dataset | None
    ) -> None:
        self.recipe, self.members, self.held_out = recipe, members, held_out
        self.labels: NDArray[np.int64] = recipe.data.labels[members]

    def ask(
        self, module: nn.Module, data: Dataset, positions: NDArray[np.int64], **options: Any
    ) -> Forward:
        """Run the module over any samples; options are those of `forward`."""
        raise NotImplementedError

    def test(self, module: nn.Module, progress: Progress) -> tuple[float, float] | None:
        """Return the mean loss and the accuracy of the held-out samples, if there are any."""
        if self.held_out is None or not len(self.held_out):
            return None
        everything = np.arange(len(self.held_out))
        unseen = self.ask(module, self.held_out, everything, progress=progress)
        return unseen.figures(self.held_out.labels)


class _LearnerPasses(ModelPasses):
    """Passes over the module of a learner, without representations.

    They are computed from the checkpoint's weights when a score asks for them.
    """

    def __init__(
        self, learner: Learner, members: NDArray[np.int64], held_out: Dataset | None
    ) -> None:
        super().__init__(learner.recipe, members, held_out)
        self._learner = learner

    def ask(
        self,
        module: nn.Module,  # noqa: ARG002 - it is the learner's
        data: Dataset,
        positions: NDArray[np.int64],
        **options: Any,
    ) -> Forward:
        """Run the learner's module over any samples."""
        return self._learner.look_at(positions, data=data, **options)

    def look(self, module: nn.Module, progress: Progress, allocate: Allocate) -> Forward:
        """Run the module over the members."""
        where = self.recipe.data, self.members
        return self.ask(module, *where, progress=progress, allocate=allocate)

    def weights(self, module: nn.Module) -> Weights:
        """Return what a checkpoint stores; its digest is that of the file."""
        model = self.recipe.model
        return Weights(
            "", self._learner.weights(), model.weights_name, model.weights_config(module)
        )


class TargetTraining:
    """Training of the target, with its checkpoints.

    Parameters
    ----------
    run : RunDirectory
        Run directory for the checkpoints.
    recipe : Recipe
        Model, data and settings.
    design : Design
        Split with the members.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    seed : int
        The audit's seed.
    loaded : Loaded, optional
        Holder of the model of the last checkpoint, which saves loading it again.
    """

    def __init__(
        self,
        run: RunDirectory,
        recipe: Recipe,
        design: Design,
        held_out: Dataset | None,
        seed: int,
        loaded: Loaded | None = None,
    ) -> None:
        self._run, self._recipe, self._design, self._held_out = run, recipe, design, held_out
        self._loaded = loaded or Loaded()
        self._seed = derived_seed(seed, _TARGET_STREAM)

    def train(self, stop: StopRule | None, progress: Progress) -> None:
        """Train to the end, or to the first checkpoint where `stop` is reached.

        Training continues from the last checkpoint on disk, with the same result, bit for bit, as
        without the interruption.
        """
        plan = self._recipe.settings.plan(len(self._design.members))
        steps = plan.steps()
        if _is_done(read_records(self._run), steps, stop):
            return
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            if _is_done(records, steps, stop):
                return
            self._loaded.drop()
            learner = self._resumed(records, steps)
            passes = _LearnerPasses(learner, self._design.members, self._held_out)
            recorder = Recorder(self._run, passes, plan)
            records = [record for record in records if record.step <= learner.step]
            for step, epoch in steps.items():
                if records and step <= learner.step:
                    continue
                start = time.monotonic()
                trained = self._bring(learner, step, epoch, progress)
                wait_for(torch_device(self._recipe.device))
                seconds = time.monotonic() - start if trained else 0.0
                with self._run.together():
                    record = recorder.write(learner.module, step, Progress(), seconds=seconds)
                self._keep_state(learner, record)
                records.append(record)
                if stop is not None and stop.is_reached(records):
                    break
            self._loaded.keep(learner, self._identity(records[-1]))

    def forward(self, name: str, progress: Progress, allocate: Allocate) -> Forward:
        """Run a checkpoint over the members, capturing the layers that `allocate` provides for."""
        with self._loaded.alone:
            learner = self._trained(name)
            seen = learner.look_at(
                self._design.members, capture=True, progress=progress, allocate=allocate
            )
            self._check_repeats(learner, read_record(self._run, name), seen)
            return seen

    def look(self, name: str, positions: NDArray[np.int64]) -> Forward:
        """Run a checkpoint over any samples, without capturing representations."""
        with self._loaded.alone:
            self.check(name)
            return self._trained(name).look_at(positions)

    def check(self, name: str) -> None:
        """Raise if what the model computes at a checkpoint has changed since training."""
        with self._loaded.alone:
            self._check_repeats(self._trained(name), read_record(self._run, name))

    def _check_repeats(self, learner: Learner, record: Record, seen: Forward | None = None) -> None:
        """Raise if a learner does not give the members the losses that training kept there.

        `seen` is a pass over all members. By default, the first and the last batch of one is made.

        Raises
        ------
        StoreError
            If what the model computes has changed since.
        """
        kept, members = self._kept_losses(record), self._design.members
        places = np.arange(len(members))
        if seen is None:
            if kept is not None:
                places = end_batches(self._recipe.model, self._recipe.data, members)
            seen = learner.look_at(members[places])
        here = np.asarray(seen.losses, np.float64)
        if kept is None:  # they are lost, and the record has two numbers of them
            here = np.array([here.mean(), np.median(here)])
            there = np.array([record.train_loss, record.median_loss])
        else:
            there = kept[places].astype(np.float64)
        apart = np.abs(here - there)
        shares = apart / np.maximum(1.0, np.abs(there))
        is_same = record.made_by == seen.made_by
        if (shares.max() <= _SAME) if is_same else (np.median(shares) <= _ELSEWHERE):
            return
        self._loaded.drop()  # the code of its module may be the changed one
        errs = "" if is_same else ", or this device errs"
        raise StoreError(
            f"at {record.name} of {self._run.path} the losses of members differ from those in "
            f"training by up to {apart.max():.2g} nats: what the model computes has changed since"
            f"{errs}. Nothing was kept: take the change back, or train the changed model at "
            "another path"
        )

    def _kept_losses(self, record: Record) -> NDArray[np.float32] | None:
        """Return the members' losses that training kept at a checkpoint; None if they are lost.

        Others may have been computed since in their place, on another device.
        """
        for place in (outputs_of(record.name), forward_of(record.name)):
            if self._run.has(place, record.weights):
                losses = np.array(self._run.read_tensors(place, record.weights)["losses"])
                if float(np.median(losses)) == record.median_loss:
                    return losses
        return None

    def start_from(self, parent: RunDirectory, last: Record) -> None:
        """Start with another run's checkpoints up to one of them, and continue from there.

        Weights are copied to the steps of the same epochs here. Of the last checkpoint, the
        optimizer's state is copied too, if it still exists.

        Raises
        ------
        ValueError
            If this training is too short to have a checkpoint there and steps after it.
        """
        steps = self._recipe.settings.plan(len(self._design.members)).steps()
        by_name = {name_of(epoch): step for step, epoch in steps.items()}
        if last.name not in by_name or by_name[last.name] == max(steps):
            raise ValueError(
                f"{last.name} is the end of a training on {len(self._design.members)} samples, so "
                'no training is left after it; use start="scratch"'
            )
        for record in read_records(parent):
            if record.step <= last.step and record.name in by_name:
                arrays, metadata = self._state_of(parent, record.name)
                metadata["step"] = str(by_name[record.name])
                self._run.write_tensors(start_of(record.name), arrays, metadata)

    def _state_of(
        self, run: RunDirectory, name: str
    ) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        resume = f"checkpoints/{name}/resume"
        if run.has(resume):
            state = run.read_tensors(resume)
            return {key: np.array(state[key]) for key in state}, dict(state.metadata)
        return state_of_weights(self._kept_weights(run, name)), {}

    def _bring(self, learner: Learner, step: int, epoch: float, progress: Progress) -> bool:
        """Bring a learner to a checkpoint; return whether that took training.

        A fork has the state from `start_from` instead.
        """
        start = start_of(name_of(epoch))
        if self._run.has(start):
            state = self._run.read_tensors(start)
            learner.resume(state, state.metadata)
            return False
        learner.advance(step, progress, "training the target")
        return step > 0

    def _weights(self, name: str) -> str:
        return f"checkpoints/{name}/{self._recipe.model.weights_name}"

    def _kept_weights(self, run: RunDirectory, name: str) -> Tensors:
        """Return the weights of a checkpoint, checked against its record."""
        place = self._weights(name)
        if (why := left_out(run)) and not run.has(place):
            raise NotThereError(f"{run.path} {why}", KEEP_ALL, name)
        return run.read_tensors(place, read_record(run, name).weights or None)

    def _trained(self, name: str) -> Learner:
        """Return the module of a checkpoint, in the precision of its recorded pass."""
        settings, record = self._recipe.settings, read_record(self._run, name)
        if (known := self._loaded.find(self._identity(record))) is not None:
            return known
        made_in = precision_at(self._run, record, settings.precision)
        if made_in not in COMPUTED:
            raise StoreError(
                f"the pass at {name} was made in {made_in}, and an audit computes in "
                f"{' or '.join(COMPUTED)}, so it cannot be repeated"
            )
        recipe = replace(self._recipe, settings=replace(settings, precision=made_in))
        self._loaded.drop()
        learner = Learner(recipe, self._design.members, self._seed)
        identity = self._identity(record)  # from before the file is read
        learner.load_weights(self._kept_weights(self._run, name))
        self._loaded.keep(learner, identity)
        return learner

    def _identity(self, record: Record) -> Hashable:
        """Return a value that changes when the weights of a checkpoint are written again."""
        return record.name, record.weights, self._run.state(self._weights(record.name))

    def _resumed(self, records: Sequence[Record], plan: Mapping[int, float]) -> Learner:
        """Return a learner as it was at the last checkpoint before the first missing one."""
        learner = Learner(self._recipe, self._design.members, self._seed)
        whole = takewhile(lambda at: at[0].step == at[1], zip(records, plan, strict=False))
        for record, _ in reversed(list(whole)):
            name = f"checkpoints/{record.name}/resume"
            if self._run.has(name, record.weights):
                state = self._run.read_tensors(name)
                learner.resume(state, state.metadata)
                self._check_repeats(learner, record)
                break
        return learner

    def _keep_state(self, learner: Learner, record: Record) -> None:
        """Leave the state to resume from at a checkpoint, in place of those of others."""
        arrays, notes = learner.state()
        self._run.write_tensors(f"checkpoints/{record.name}/resume", arrays, notes, record.weights)
        for other in self._run.place("checkpoints").glob("*/resume.safetensors"):
            if other.parent.name != record.name:
                self._run.forget(f"checkpoints/{other.parent.name}/resume")


def start_of(name: str) -> str:
    """Return the place of the weights of a checkpoint that a fork copied."""
    return f"start/{name}"


def check_start(run: RunDirectory, manifest: Mapping[str, Any]) -> None:
    """Refuse to train from scratch what is to go on from another run's weights.

    Raises
    ------
    StoreError
        If those weights are gone.
    """
    name = (manifest.get("fork") or {}).get("checkpoint")
    if name is None or run.has(start_of(name)):
        return
    if not run.has_file(record_file(name)):
        raise StoreError(
            f"{run.path} has lost the weights of {name} that it starts from: call fork once more "
            "on the audit that it came from"
        )


def _is_done(records: Sequence[Record], plan: dict[int, float], stop: StopRule | None) -> bool:
    """Return whether no training is left; a missing checkpoint counts as training left."""
    steps = [record.step for record in records]
    if steps != list(plan)[: len(steps)]:
        return False
    return len(steps) == len(plan) or (stop is not None and stop.is_reached(records))
