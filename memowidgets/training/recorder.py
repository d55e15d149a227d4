"""Checkpoints of a target that another loop trains: looked at where they stand, and kept."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import CausalLM
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.config import spread_checkpoints
from memowidgets.training.design import Design
from memowidgets.training.forward import Forward, forward
from memowidgets.training.learner import Recipe
from memowidgets.training.rho import Prediction, Record, StopRule
from memowidgets.training.target import read_records, record_of

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Course", "Recorder", "check_whole", "read_course"]

_COURSE = "trainer.json"


@dataclass(frozen=True)
class Course:
    """How a training outside runs, as its run directory remembers it.

    Attributes
    ----------
    steps_per_epoch, total_steps : int
        Optimizer steps in a pass over the members, and in the whole training.
    weights : dict of str to str
        A digest of what is trained, by checkpoint: to know a training when it comes again.
    """

    steps_per_epoch: int
    total_steps: int
    weights: dict[str, str] = field(default_factory=dict)


def read_course(run: RunDirectory) -> Course | None:
    """The course of a training outside; None where the audit trains its target itself."""
    if not (run.path / _COURSE).exists():
        return None
    try:
        course = Course(**run.read_json(_COURSE))
    except TypeError as error:
        raise StoreError(f"{run.path / _COURSE} is broken: {error}") from None
    counts = (course.steps_per_epoch, course.total_steps)
    if not all(type(count) is int and count > 0 for count in counts):
        raise StoreError(f"{run.path / _COURSE} is broken: its numbers of steps are none")
    if not isinstance(course.weights, dict):
        raise StoreError(f"{run.path / _COURSE} is broken: its weights are no digests by name")
    return course


class Recorder:
    """Keeps checkpoints of a language model that is trained elsewhere.

    Each is one pass over the members with its hidden states, so that all scores of all
    checkpoints can be had later, whatever the module is made of; and the trained weights, an
    adapter's as peft saves them. Nothing of the module changes, nor any random state.

    Parameters
    ----------
    run : RunDirectory
        Where checkpoints go.
    recipe : Recipe
        Of the audit: its model says how samples are put to the module.
    design : Design
        Who is a member.
    held_out : Dataset or None
        Samples to report test figures on.
    layers : sequence of str
        Names that the audit knows.
    kept_layers : collection of str
        Those of them whose hidden states are kept.
    keep : callable
        Takes a checkpoint's name and its pass, and keeps it.
    shown : callable
        A context that shows how far a pass is, where nobody listens yet.

    Raises
    ------
    TypeError
        If the audit's model is no `CausalLM`.
    ValueError
        If it has adapters of its own, or the labels were flipped for the audit alone.
    """

    def __init__(
        self,
        run: RunDirectory,
        recipe: Recipe,
        design: Design,
        held_out: Dataset | None,
        layers: Sequence[str],
        kept_layers: Collection[str],
        keep: Callable[[str, Forward], None],
        shown: Callable[[Progress | None], AbstractContextManager[Progress]],
    ) -> None:
        _check_recipe(recipe)
        self._run, self._recipe, self._design, self._held_out = run, recipe, design, held_out
        self._layers, self._kept_layers = tuple(layers), frozenset(kept_layers)
        self._keep, self._shown = keep, shown
        self._plan: dict[int, float] = {}

    @property
    def recipe(self) -> Recipe:
        """How the audit puts its samples to a module."""
        return self._recipe

    @property
    def members(self) -> NDArray[np.int64]:
        """Positions of the members in the recipe's data, (n_members,)."""
        return self._design.members

    def begin(self, module: nn.Module, step: int, steps_per_epoch: int, total_steps: int) -> None:
        """Learn the course of the training, before its first step or where it is resumed.

        Raises
        ------
        StoreError
            If the run directory holds checkpoints of the audit's own training.
        ValueError
            If the module is not the audit's, or the training not the one that was recorded.
        """
        check_whole(module)
        self._check_blocks(module)
        records, course = read_records(self._run), read_course(self._run)
        if records and course is None:
            raise StoreError(
                f"{self._run.path} holds checkpoints of audit.train(): choose another path for "
                "what is trained elsewhere"
            )
        course = course or Course(steps_per_epoch, total_steps)
        if len(records) > 1:
            self._check_same(course, records, step, steps_per_epoch, module)
        if step and not records:
            raise ValueError(
                f"the training goes on from step {step}, but {self._run.path} lacks its step 0, to "
                "which every drop refers: give the callback from the start of the training"
            )
        self._write(replace(course, steps_per_epoch=steps_per_epoch, total_steps=total_steps))
        self.follow(steps_per_epoch, total_steps)

    def follow(self, steps_per_epoch: int, total_steps: int) -> None:
        """Learn the course alone: for a process beside the one that records."""
        epochs, every = total_steps / steps_per_epoch, self._recipe.settings.checkpoint_every
        self._plan = spread_checkpoints(epochs, every, steps_per_epoch, total_steps)

    def is_due(self, step: int) -> bool:
        """Whether there is a checkpoint at a step: 0, every `checkpoint_every` epochs, the end."""
        return step in self._plan

    def is_recorded(self, step: int) -> bool:
        """Whether the run directory holds a checkpoint of a step."""
        return any(record.step == step for record in read_records(self._run))

    def record(self, module: nn.Module, step: int, progress: Progress | None = None) -> Record:
        """Keep a checkpoint; one that is there with the same weights stays as it is."""
        digest = _digest(_trained(module))
        with self._run.lock("checkpoints"):
            known = next((r for r in read_records(self._run) if r.step == step), None)
            if known is not None:
                if self._course().weights.get(known.name) == digest:
                    return known
                self._forget_from(step)
            record, seen = self._looked_at(module, step, progress)
            self._run.forget(f"forward/{record.name}", f"scores/{record.name}")
            self._write_weights(module, record.name)
            self._keep(record.name, seen)
            place = f"checkpoints/{record.name}/record.json"
            self._run.write_json(place, dataclasses.asdict(record))
            course = self._course()
            self._write(replace(course, weights={**course.weights, record.name: digest}))
        return record

    def end(self, step: int) -> None:
        """Take a recorded step for the end: the training was stopped there for good."""
        self._write(replace(self._course(), total_steps=step))

    def prediction(self, stop: StopRule, step: int) -> Prediction | None:
        """What the ρ rule chooses of the checkpoints up to a step; None before the second."""
        records = [record for record in read_records(self._run) if record.step <= step]
        return stop.prediction(records) if len(records) > 1 else None

    def _looked_at(
        self, module: nn.Module, step: int, progress: Progress | None
    ) -> tuple[Record, Forward]:
        data, members = self._recipe.data, self._design.members
        with _mode_kept(module), self._shown(progress) as report:
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
        return forward(
            self._recipe.model,
            module,
            data,
            positions,
            next(module.parameters()).device,
            "float32",  # an autocast of the training's own is in the module's forward already
            capture=capture,
            progress=progress,
        )

    def _write_weights(self, module: nn.Module, name: str) -> None:
        file, weights, config = _kept_weights(module)
        if config is not None:
            self._run.write_json(f"checkpoints/{name}/adapter_config.json", config)
        arrays = {key: _array(tensor) for key, tensor in weights.items()}
        self._run.write_tensors(f"checkpoints/{name}/{file}", arrays, {"format": "pt"})

    def _forget_from(self, step: int) -> None:
        """Drop what another course of the training left at this step and after it."""
        for record in read_records(self._run):
            if record.step >= step:
                name = record.name
                self._run.forget(f"checkpoints/{name}", f"forward/{name}", f"scores/{name}")

    def _course(self) -> Course:
        course = read_course(self._run)
        if course is None:
            raise StoreError(f"{self._run.path} has lost its {_COURSE} while it was recorded")
        return course

    def _write(self, course: Course) -> None:
        self._run.write_json(_COURSE, dataclasses.asdict(course))

    def _check_blocks(self, module: nn.Module) -> None:
        found = self._recipe.model.layer_names(module)
        if found != self._layers:
            raise ValueError(
                f"the model in training has {len(found)} blocks, that of the audit "
                f"{len(self._layers)}: give CausalLM.from_model the model that is trained"
            )

    def _check_same(
        self,
        course: Course,
        records: Sequence[Record],
        step: int,
        steps_per_epoch: int,
        module: nn.Module,
    ) -> None:
        """Refuse another training than the one whose checkpoints are there."""
        difference = None
        if course.steps_per_epoch != steps_per_epoch:
            difference = f"{course.steps_per_epoch} steps an epoch, this one {steps_per_epoch}"
        elif step == 0 and course.weights.get(records[0].name) != _digest(_trained(module)):
            difference = "other weights at step 0"
        if difference is not None:
            raise ValueError(
                f"{self._run.path} holds another training, which had {difference}: choose another "
                "path, or delete the folder"
            )


def _check_recipe(recipe: Recipe) -> None:
    if not isinstance(recipe.model, CausalLM):
        raise TypeError(
            "only an audit of a CausalLM records what is trained elsewhere, not one of "
            f"{type(recipe.model).__name__}"
        )
    if recipe.model.settings()["lora"] is not None:
        raise ValueError(
            "the audit's model adds adapters of its own, which are not those in training: make it "
            "with CausalLM.from_model(model, tokenizer), without lora"
        )
    if recipe.settings.label_noise:
        raise ValueError(
            "label_noise flips labels of the audit alone: leave it out where training is elsewhere"
        )


def check_whole(module: nn.Module) -> None:
    """Refuse weights that are spread over processes: a pass in one of them is not possible."""
    parts = [type(part).__name__ for part in module.modules()]
    spread = any(hasattr(p, "ds_id") or hasattr(p, "full_tensor") for p in module.parameters())
    if spread or "FullyShardedDataParallel" in parts:
        raise ValueError(
            "the weights in training are spread over processes (FSDP, DeepSpeed's stage 3, tensor "
            "parallel), so no single one can look at its samples: train with the whole model in "
            "each process (one, or data parallel)"
        )


@contextmanager
def _mode_kept(module: nn.Module) -> Iterator[None]:
    """Put every part back into train or eval mode, each as it was."""
    before = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, training in before:
            part.training = training


def _trained(module: nn.Module) -> dict[str, Tensor]:
    return {n: p.detach() for n, p in module.named_parameters() if p.requires_grad}


def _kept_weights(module: nn.Module) -> tuple[str, dict[str, Tensor], dict[str, Any] | None]:
    """What a checkpoint holds: a file's name, tensors, and peft's description of an adapter."""
    adapter = getattr(module, "active_adapter", None)
    if not hasattr(module, "get_base_model") or not isinstance(adapter, str):
        return "weights", _trained(module), None
    from peft import get_peft_model_state_dict

    from memowidgets.models.lora import quiet_peft

    peft: Any = module
    with quiet_peft():
        weights = get_peft_model_state_dict(
            peft,
            adapter_name=adapter,
            save_embedding_layers=False,  # else peft may ask the hub what the vocabulary was
        )
    config = {**peft.peft_config[adapter].to_dict(), "inference_mode": True}
    return "adapter_model", dict(weights), json.loads(json.dumps(config, default=_plain))


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else str(value)


def _array(tensor: Tensor) -> NDArray[Any]:
    import torch

    exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor  # NumPy has no bfloat16
    array: NDArray[Any] = exact.detach().cpu().numpy()
    return array


def _digest(weights: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in weights.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(_array(tensor)).data)
    return digest.hexdigest()[:16]
