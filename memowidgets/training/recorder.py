"""Recording of checkpoints of a target that another loop trains."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import CausalLM, SequenceClassifier
from memowidgets.models.memory import Memory
from memowidgets.models.modes import modes_kept
from memowidgets.models.pooling import plain
from memowidgets.models.precision import used_precision
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import spread_checkpoints
from memowidgets.training.course import COURSE, Course, read_course
from memowidgets.training.design import Design
from memowidgets.training.device import working_on
from memowidgets.training.forward import Forward, forward, halve_passes
from memowidgets.training.learner import Recipe
from memowidgets.training.rho import Prediction, Record, StopRule
from memowidgets.training.target import read_records, record_of
from memowidgets.training.trainer_classes import check_head

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Course", "Recorder", "check_whole", "digest_of", "read_course", "trained_weights"]

_KINDS = (
    "AutoModelForCausalLM",
    "AutoModelForSequenceClassification",
    "AutoModelForImageClassification",
)


class Recorder:
    """Recorder of checkpoints of a model of transformers that another loop trains.

    A checkpoint is one pass over the members with its hidden states, so that every score can be
    computed later, without the module, and the trained weights (adapters as peft saves them). The
    module and all random states stay unchanged.

    Parameters
    ----------
    run : RunDirectory
        Run directory for the checkpoints.
    recipe : Recipe
        Recipe of the audit, whose model feeds samples to the module.
    design : Design
        Split with the members.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    layers : sequence of str
        Names of the audit's layers.
    kept_layers : collection of str
        Layers whose hidden states are stored.
    keep : callable
        Function that stores a checkpoint's record and its pass.
    shown : callable
        Context that shows the progress of a pass, if no `Progress` is given.

    Raises
    ------
    TypeError
        If the audit's model is not a `CausalLM` or a classifier of transformers.
    ValueError
        If it has its own adapters, or the audit flips labels.
    """

    def __init__(
        self,
        run: RunDirectory,
        recipe: Recipe,
        design: Design,
        held_out: Dataset | None,
        layers: Sequence[str],
        kept_layers: Collection[str],
        keep: Callable[[Record, Forward], None],
        shown: Callable[[Progress | None], AbstractContextManager[Progress]],
    ) -> None:
        _check_recipe(recipe)
        self._run, self._recipe, self._design, self._held_out = run, recipe, design, held_out
        self._layers, self._kept_layers = tuple(layers), frozenset(kept_layers)
        self._keep, self._shown = keep, shown
        self._plan: dict[int, float] = {}
        self._memory: Memory | None = None
        self._last: Record | None = None  # of this training, as far as it is known

    @property
    def recipe(self) -> Recipe:
        """Recipe with which the audit feeds samples to a module."""
        return self._recipe

    @property
    def members(self) -> NDArray[np.int64]:
        """Positions of the members in the recipe's data, (n_members,)."""
        return self._design.members

    @property
    def held_out(self) -> Dataset | None:
        """Samples for the test loss and accuracy."""
        return self._held_out

    def begin(self, module: nn.Module, step: int, steps_per_epoch: int, total_steps: int) -> None:
        """Store the course of the training, before its first step or when it resumes.

        Raises
        ------
        StoreError
            If the run directory has checkpoints of the audit's own training.
        ValueError
            If the module is not the audit's, or the training is not the recorded one.
        """
        check_whole(module)
        if not isinstance(self._recipe.model, CausalLM):
            config: Any = plain(module).config
            check_head(config, self._recipe.data.class_names)
        if isinstance(self._recipe.model, SequenceClassifier):
            self._recipe.model.check_padding(module)
        self._check_blocks(module)
        records, course = read_records(self._run), read_course(self._run)
        if records and course is None:
            raise StoreError(
                f"{self._run.path} has checkpoints of audit.train(); choose another path for "
                "an external training"
            )
        course = course or Course(steps_per_epoch, total_steps)
        if len(records) > 1:
            self._check_same(course, records, step, steps_per_epoch, module)
        if step and not records:
            raise ValueError(
                f"the training continues from step {step}, but {self._run.path} lacks its step 0, "
                "to "
                "which every drop refers; use the callback from the start of the training"
            )
        self._write(replace(course, steps_per_epoch=steps_per_epoch, total_steps=total_steps))
        self._last = next((r for r in reversed(records) if r.step <= step), None)
        self.follow(steps_per_epoch, total_steps)

    def follow(self, steps_per_epoch: int, total_steps: int) -> None:
        """Store the course only, in a process that does not record."""
        epochs, every = total_steps / steps_per_epoch, self._recipe.settings.checkpoint_every
        self._plan = spread_checkpoints(epochs, every, steps_per_epoch, total_steps)

    def is_due(self, step: int) -> bool:
        """Return whether a step is a checkpoint: 0, every `checkpoint_every` epochs, the end."""
        return step in self._plan

    def is_recorded(self, step: int) -> bool:
        """Return whether the run directory has a checkpoint of a step."""
        return any(record.step == step for record in read_records(self._run))

    def record(self, module: nn.Module, step: int, progress: Progress | None = None) -> Record:
        """Record a checkpoint, unless it exists with the same weights.

        Raises
        ------
        StoreError
            If another training was recorded here meanwhile.
        """
        self._last = self._recorded(module, step, progress)
        return self._last

    def _recorded(self, module: nn.Module, step: int, progress: Progress | None) -> Record:
        digest = digest_of(trained_weights(module))
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            others = others_after(self._run, records, self._last, step)
            known = next((r for r in records if r.step == step), None)
            if known is not None and self._course().weights.get(known.name) == digest:
                return known
            self._forget(others)
            record, seen = self._looked_at(module, step, progress)
            self._run.forget(f"forward/{record.name}", f"scores/{record.name}")
            record = replace(record, weights=self._write_weights(module, record.name))
            self._keep(record, seen)
            place = f"checkpoints/{record.name}/record.json"
            self._run.write_note(place, dataclasses.asdict(record))
            course, there = self._course(), {r.name for r in read_records(self._run)}
            kept = {name: known for name, known in course.weights.items() if name in there}
            self._write(replace(course, weights={**kept, record.name: digest}))
        return record

    def end(self, step: int) -> None:
        """Make a recorded step the end, because the training was stopped there for good."""
        self._write(replace(self._course(), total_steps=step))

    def prediction(self, stop: StopRule, step: int) -> Prediction | None:
        """Return the choice of the ρ rule up to a step, or None before the second checkpoint."""
        records = [record for record in read_records(self._run) if record.step <= step]
        return stop.prediction(records) if len(records) > 1 else None

    def _looked_at(
        self, module: nn.Module, step: int, progress: Progress | None
    ) -> tuple[Record, Forward]:
        data, members = self._recipe.data, self._design.members
        with modes_kept(module), self._shown(progress) as report:
            seen = self._pass(module, data, members, report, capture=True)
            test = None
            if self._held_out is not None and len(self._held_out):
                everything = np.arange(len(self._held_out))
                unseen = self._pass(module, self._held_out, everything, report)
                test = unseen.figures(self._held_out.labels)
        epoch = self._plan.get(step, round(step / self._course().steps_per_epoch, 9))
        kept = {name: seen.layers[name] for name in self._layers if name in self._kept_layers}
        return record_of(step, epoch, seen, data.labels[members], test), replace(seen, layers=kept)

    def _pass(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        progress: Progress,
        *,
        capture: bool = False,
    ) -> Forward:
        device = next(module.parameters()).device
        look = partial(
            forward,
            self._recipe.model,
            module,
            data,
            positions,
            device,
            "float32",  # the module's forward already has the training's autocast
            capture=capture,
            progress=progress,
        )
        self._memory = self._memory or Memory(device)
        with used_precision(module) as used, working_on(device):
            seen = self._memory.fit(look, partial(halve_passes, self._recipe.model))
        return replace(seen, precision=used[-1])

    def _write_weights(self, module: nn.Module, name: str) -> str:
        """Store the trained weights, and return their digest."""
        file, weights, config = _kept_weights(module)
        if config is not None:
            self._run.write_json(f"checkpoints/{name}/adapter_config.json", config)
        arrays = {key: _array(tensor) for key, tensor in weights.items()}
        return self._run.write_weights(f"checkpoints/{name}/{file}", arrays)

    def _forget(self, records: Sequence[Record]) -> None:
        """Delete checkpoints of another course of the training, the last one first."""
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

    def _check_blocks(self, module: nn.Module) -> None:
        found = self._recipe.model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, but the audit's has "
                f"{len(self._layers)}; pass the trained model to "
                f"{type(self._recipe.model).__name__}.from_model"
            )

    def _check_same(
        self,
        course: Course,
        records: Sequence[Record],
        step: int,
        steps_per_epoch: int,
        module: nn.Module,
    ) -> None:
        """Raise for another training than the one with checkpoints in the run directory."""
        difference = None
        if course.steps_per_epoch != steps_per_epoch:
            difference = f"{course.steps_per_epoch} steps an epoch, this one {steps_per_epoch}"
        elif step == 0 and course.weights.get(records[0].name) != digest_of(
            trained_weights(module)
        ):
            difference = "other weights at step 0"
        if difference is not None:
            raise ValueError(
                f"{self._run.path} has another training, which had {difference}; choose another "
                "path, or delete the folder"
            )


def _check_recipe(recipe: Recipe) -> None:
    if getattr(recipe.model, "kind", None) not in _KINDS:
        raise TypeError(
            "only an audit of a CausalLM or of a classifier of transformers can record an external "
            f"training, not one of {type(recipe.model).__name__}"
        )
    if recipe.model.settings().get("lora") is not None:
        raise ValueError(
            "the audit's model adds its own adapters, which are not those in training; create it "
            f"with {type(recipe.model).__name__}.from_model(model, tokenizer), without lora"
        )
    if recipe.settings.label_noise:
        raise ValueError(
            "label_noise changes only the audit's own training; leave it out for an external one"
        )


def others_after(
    run: RunDirectory, records: Sequence[Record], last: Record | None, step: int
) -> list[Record]:
    """Return the checkpoints of a training that went on in another way, if `step` is not among it.

    `last` is the last recorded checkpoint of the present training, which is now at `step`.

    Raises
    ------
    StoreError
        If `last` is gone or another one, because another training was recorded meanwhile.
    """
    there = {(record.step, record.weights) for record in records}
    if last is not None and last.step < step and (last.step, last.weights) not in there:
        raise StoreError(
            f"{run.path} has another training since {last.name} (step {last.step}) of this one "
            "was recorded, so this one is not recorded any more; record it at another path"
        )
    before = min(step - 1, -1 if last is None else last.step)
    return [record for record in records if record.step > before]


def check_whole(module: nn.Module) -> None:
    """Raise for weights that are spread over processes, where no process can run a pass."""
    parts = [type(part).__name__ for part in module.modules()]
    spread = any(hasattr(p, "ds_id") or hasattr(p, "full_tensor") for p in module.parameters())
    if spread or "FullyShardedDataParallel" in parts:
        raise ValueError(
            "the weights in training are spread over processes (FSDP, DeepSpeed's stage 3, tensor "
            "parallel), so no process can run a forward pass; train with the whole model in "
            "each process (one, or data parallel)"
        )


def trained_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the trained weights by name."""
    return {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}


def _kept_weights(module: nn.Module) -> tuple[str, dict[str, Tensor], dict[str, Any] | None]:
    """Return a checkpoint's file name, tensors, and peft's configuration of an adapter."""
    adapter = getattr(module, "active_adapter", None)
    if not hasattr(module, "get_base_model") or not isinstance(adapter, str):
        lasting = module.state_dict().keys()
        buffers = {n: b for n, b in module.named_buffers() if n in lasting}  # as running means
        return "weights", trained_weights(module) | buffers, None
    from memowidgets.models.lora import adapter_weights

    peft: Any = module
    weights = adapter_weights(peft, adapter)
    config = {**peft.peft_config[adapter].to_dict(), "inference_mode": True}
    return "adapter_model", weights, json.loads(json.dumps(config, default=_plain))


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


def _array(tensor: Tensor) -> NDArray[Any]:
    import torch

    exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # NumPy has no bfloat16
    array: NDArray[Any] = exact.detach().cpu().numpy()
    return array


def digest_of(weights: dict[str, Tensor]) -> str:
    """Return a digest of weights."""
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(_array(tensor)).data)
    return digest.hexdigest()[:16]
