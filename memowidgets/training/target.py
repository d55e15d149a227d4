"""Training of the target: interrupted at ρ, resumed, with every checkpoint on disk."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.precision import COMPUTED, PRECISIONS
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.design import Design
from memowidgets.training.forward import Allocate, Forward
from memowidgets.training.learner import Learner, Recipe, state_of_weights, weights_in
from memowidgets.training.loaded import Loaded
from memowidgets.training.made_in import precision_at
from memowidgets.training.rho import Record, StopRule
from memowidgets.training.seeds import derived_seed
from memowidgets.visible import quoted

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence


_TARGET_STREAM = 3


def read_records(run: RunDirectory) -> list[Record]:
    """Return the checkpoints of a run directory, in the order of training."""
    files = (f"checkpoints/{name}/record.json" for name in run.names("checkpoints", ""))
    records = [_record(run, file) for file in files if run.has_file(file)]
    records.sort(key=lambda record: record.step)
    if records and records[0].step != 0:
        raise StoreError(
            f"{run.path} has lost its checkpoint of step 0, to which every drop refers; delete "
            "its folder checkpoints and train again"
        )
    return records


def _record(run: RunDirectory, file: str) -> Record:
    try:
        record = run.made_of_note(file, _made_record)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{run.path / file} is broken: {error}; delete its folder") from None
    if record.name != Path(file).parent.name:
        raise StoreError(f"{run.path / file} is broken: it names {quoted(record.name)}")
    return record


def _made_record(content: Any) -> Record:
    return Record(**content).checked()


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
        plan = self._recipe.settings.checkpoint_steps(len(self._design.members))
        if _is_done(read_records(self._run), plan, stop):
            return
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            if _is_done(records, plan, stop):
                return
            self._loaded.drop()
            learner = self._resumed(records)
            records = [record for record in records if record.step <= learner.step]
            for step, epoch in plan.items():
                if records and step <= learner.step:
                    continue
                self._bring(learner, step, epoch, progress)
                records.append(self._save(learner, epoch))
                if stop is not None and stop.is_reached(records):
                    break
            self._loaded.keep(learner, self._identity(records[-1]))

    def forward(self, name: str, progress: Progress, allocate: Allocate) -> Forward:
        """Run a checkpoint over the members, capturing the layers that `allocate` provides for."""
        with self._loaded.alone():
            return self._trained(name).look_at(
                self._design.members, capture=True, progress=progress, allocate=allocate
            )

    def look(self, name: str, positions: NDArray[np.int64], data: Dataset | None = None) -> Forward:
        """Run a checkpoint over any samples, without capturing representations."""
        with self._loaded.alone():
            return self._trained(name).look_at(positions, data=data)

    def start_from(self, parent: RunDirectory, last: Record) -> None:
        """Start with another run's checkpoints up to one of them, and continue from there.

        Weights are copied to the steps of the same epochs here. Of the last checkpoint, the
        optimizer's state is copied too, if it still exists.

        Raises
        ------
        ValueError
            If this training is too short to have a checkpoint there and steps after it.
        """
        steps = self._recipe.settings.checkpoint_steps(len(self._design.members))
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

    def look_again(self, record: Record) -> None:
        """Run a checkpoint over the members, and keep its logits and losses."""
        _write_outputs(self._run, record, self.look(record.name, self._design.members))

    def layer_names(self) -> tuple[str, ...]:
        """Return the names of the model's layers, first to last."""
        return self._recipe.model.layer_names(self._learner().module)

    def _state_of(
        self, run: RunDirectory, name: str
    ) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        resume = f"checkpoints/{name}/resume"
        if run.has(resume):
            state = run.read_tensors(resume)
            return {key: np.array(state[key]) for key in state}, dict(state.metadata)
        return state_of_weights(self._kept_weights(run, name)), {}

    def _bring(self, learner: Learner, step: int, epoch: float, progress: Progress) -> None:
        """Bring a learner to a checkpoint, by training or with the state from `start_from`."""
        start = start_of(name_of(epoch))
        if self._run.has(start):
            state = self._run.read_tensors(start)
            learner.resume(state, state.metadata)
        else:
            learner.advance(step, progress, "training the target")

    def _weights(self, name: str) -> str:
        return weights_of(name, self._recipe.model)

    def _kept_weights(self, run: RunDirectory, name: str) -> Tensors:
        """Return the weights of a checkpoint, checked against its record."""
        record = _record(run, record_file(name))
        return run.read_weights(self._weights(name), record.weights)

    def _learner(self) -> Learner:
        return Learner(self._recipe, self._design.members, self._seed)

    def _trained(self, name: str) -> Learner:
        """Return the module of a checkpoint, in the precision of its recorded pass."""
        settings = self._recipe.settings
        record = next(record for record in read_records(self._run) if record.name == name)
        made_in = precision_at(self._run, record, settings.precision)
        if made_in not in PRECISIONS:
            raise StoreError(
                f"the pass at {name} was made in {made_in}, and an audit computes in "
                f"{' or '.join(COMPUTED)}, so it cannot be repeated"
            )
        recipe = dataclasses.replace(
            self._recipe, settings=dataclasses.replace(settings, precision=made_in)
        )
        known = self._loaded.find(recipe, self._identity(record))
        if known is not None:
            return known
        self._loaded.drop()
        learner = Learner(recipe, self._design.members, self._seed)
        identity = self._identity(record)  # from before the file is read
        learner.load_weights(self._kept_weights(self._run, name))
        self._loaded.keep(learner, identity)
        return learner

    def _identity(self, record: Record) -> Hashable:
        """Return a value that changes when the weights of a checkpoint are written again."""
        return record.name, record.weights, self._run.state(self._weights(record.name))

    def _resumed(self, records: Sequence[Record]) -> Learner:
        learner = self._learner()
        state = self._latest_state(self._unbroken(records))
        if state is not None:
            learner.resume(state, state.metadata)
        return learner

    def _unbroken(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the checkpoints before the first missing one."""
        plan = self._recipe.settings.checkpoint_steps(len(self._design.members))
        same = [record.step == step for record, step in zip(records, plan, strict=False)]
        return records[: same.index(False)] if False in same else records

    def _latest_state(self, records: Sequence[Record]) -> Tensors | None:
        for record in reversed(records):
            name = f"checkpoints/{record.name}/resume"
            if self._run.has(name, record.weights or None):
                return self._run.read_tensors(name)
        return None

    def _save(self, learner: Learner, epoch: float) -> Record:
        seen = learner.look_at(self._design.members)
        record = self._record(learner, epoch, seen)
        return write_checkpoint(self._run, learner, record, seen, learner.state())

    def _record(self, learner: Learner, epoch: float, train: Forward) -> Record:
        labels = self._recipe.data.labels[self._design.members]
        test = None
        if self._held_out is not None and len(self._held_out):
            everything = np.arange(len(self._held_out))
            unseen = learner.look_at(everything, data=self._held_out)
            test = unseen.figures(self._held_out.labels)
        return record_of(learner.step, epoch, train, labels, test)


def write_checkpoint(
    run: RunDirectory,
    learner: Learner,
    record: Record,
    seen: Forward,
    state: tuple[Mapping[str, NDArray[Any]], Mapping[str, str]],
) -> Record:
    """Write weights, outputs, record and state, and then delete the previous state.

    `state` is that of `learner`, or a part of it.
    """
    arrays, notes = state
    model, name = learner.recipe.model, record.name
    run.forget(f"forward/{name}", f"scores/{name}")
    for file, content in model.weights_config(learner.module).items():
        run.write_json(f"checkpoints/{name}/{file}", content)
    written = run.write_weights(weights_of(name, model), weights_in(arrays))
    record = dataclasses.replace(record, weights=written)
    _write_outputs(run, record, seen)
    run.write_note(record_file(name), dataclasses.asdict(record))
    run.write_tensors(f"checkpoints/{name}/resume", arrays, notes, record.weights)
    for other in run.place("checkpoints").glob("*/resume.safetensors"):
        if other.parent.name != name:
            run.forget(f"checkpoints/{other.parent.name}/resume")
    return record


def _write_outputs(run: RunDirectory, record: Record, seen: Forward) -> None:
    outputs = {"logits": seen.logits, "losses": seen.losses}
    run.write_tensors(
        outputs_of(record.name), outputs, {"precision": seen.precision}, record.weights
    )


def record_of(
    step: int,
    epoch: float,
    train: Forward,
    labels: NDArray[np.int64],
    test: tuple[float, float] | None,
) -> Record:
    """Create the record of a checkpoint from a pass over the members and the held-out values."""
    train_loss, train_accuracy = train.figures(labels)
    test_loss, test_accuracy = test or (None, None)
    return Record(
        name=name_of(epoch),
        epoch=epoch,
        step=step,
        median_loss=float(np.median(train.losses)),
        train_loss=train_loss,
        train_accuracy=train_accuracy,
        test_loss=test_loss,
        test_accuracy=test_accuracy,
        precision=train.precision,
    )


def start_of(name: str) -> str:
    """Return the place of the weights of a checkpoint that a fork copied."""
    return f"start/{name}"


def record_file(name: str) -> str:
    """Return the place of the record of a checkpoint."""
    return f"checkpoints/{name}/record.json"


def weights_of(name: str, model: Model) -> str:
    """Return the place of the weights of a checkpoint."""
    return f"checkpoints/{name}/{model.weights_name}"


def outputs_of(name: str) -> str:
    """Return the place of the members' logits and losses at a checkpoint."""
    return f"checkpoints/{name}/outputs"


def name_of(epoch: float) -> str:
    """Return the name of the checkpoint at an epoch."""
    return f"epoch-{epoch:g}"


def _is_done(records: Sequence[Record], plan: dict[int, float], stop: StopRule | None) -> bool:
    """Return whether no training is left; a missing checkpoint counts as training left."""
    steps = [record.step for record in records]
    if steps != list(plan)[: len(steps)]:
        return False
    return len(steps) == len(plan) or (stop is not None and stop.is_reached(records))
