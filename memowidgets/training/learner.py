"""Training of one module to a step, and of the target with its checkpoints, resumed bit for bit."""

from __future__ import annotations

import inspect
import json
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import Bases
from memowidgets.models.device import (
    COMPUTED,
    apart,
    cpu_threads,
    free_bytes,
    free_memory,
    resolve_precision,
    room_for,
    sent,
    torch_device,
    wait_for,
    working_on,
)
from memowidgets.progress import Progress
from memowidgets.store import NotThereError, RunDirectory, StoreError, Tensors
from memowidgets.training.checkpoint import (
    HELD_OUT,
    KEEP_ALL,
    Allocate,
    Forward,
    Record,
    end_batches,
    forward,
    forward_of,
    left_out,
    name_of,
    outputs_of,
    read_record,
    read_records,
    record_file,
)
from memowidgets.training.config import (
    OPTIMIZERS,
    RandomStates,
    Settings,
    derived_seed,
    epoch_seed,
    lost_function,
)
from memowidgets.training.design import Design
from memowidgets.training.lookout import (
    Lookout,
    StopRule,
    lost_held_out,
    read_told,
    write_held_out,
)
from memowidgets.training.recorder import Recorder, Unseen, Weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

WEIGHTS = "weights."
_OPTIMIZER = "optimizer."
_RANDOM = "random."
_FIRST_RATE = "first_lr"  # learning rate of a group that the schedule scales
TARGET_STREAM = 3
_SHARE = 1 / 4  # largest share of the free memory that a kept model may have
_FREE_BYTES = 2**32  # where a device does not tell its free memory
SAME = 1e-4  # of a loss in nats, where it is rounded as in training: the difference is 0 there
# in the median, on another device or with other versions, as TF32 explains
_ELSEWHERE = 1e-2


class LooksAt(Protocol):
    """What looks at a model in training."""

    def __call__(self, rows: NDArray[np.int64], /, *, capture: bool = False) -> Forward:
        """Run it over some samples, without or with its layers."""


# of a checkpoint's name and what looks at the model there
Visit = Callable[[str, LooksAt], None]


@dataclass(frozen=True)
class Recipe:
    """Settings that the target and its shadow models share.

    Attributes
    ----------
    model : Model
        Model that creates the module.
    data : Dataset
        All samples. Each learner trains on its own members.
    settings : Settings
        Settings of the loop.
    device : str
        Device, as torch names it.
    anywhere : bool
        Whether ``"auto"`` chose the device, so that another machine chooses its own.
    bases : Bases or None
        Frozen weights that the process keeps for its next model.
    """

    model: Model
    data: Dataset
    settings: Settings
    device: str
    anywhere: bool = False
    bases: Bases | None = None

    def in_worker(self) -> Recipe:
        """Return the recipe as a worker keeps it, with room for frozen weights."""
        return replace(self, bases=Bases())

    def train_one(
        self,
        members: NDArray[np.int64],
        seed: int,
        steps: Mapping[str, int],
        n_target: int,
        visit: Visit,
        progress: Progress,
        what: str,
    ) -> str:
        """Train one model to the last of some checkpoints, and visit it at each.

        Parameters
        ----------
        members : array of shape (n_members,), int64
            Positions of the samples to train on.
        seed : int
            Its seed.
        steps : dict of str to int
            Steps of the target, by checkpoint.
        n_target : int
            Number of the target's members.
        visit : callable
            Function of a checkpoint's name and of what looks at samples.
        progress, what : Progress and str
            Progress, and what it shows.

        Returns
        -------
        str
            The precision of its passes.
        """
        # no other thread uses this model: a pass keeps what it captures there; copy would pickle it
        model = object.__new__(type(self.model))
        vars(model).update(vars(self.model))
        learner = Learner(replace(self, model=model), members, seed)
        for name, step in self.own_steps(steps, len(members), n_target):
            learner.advance(step, progress, what)
            visit(name, learner.look_at)
        return learner.precision

    def own_steps(
        self, steps: Mapping[str, int], n_members: int, n_target: int
    ) -> list[tuple[str, int]]:
        """Return the checkpoints in order, each at a model's own step of the target's epoch."""
        wanted = dict(steps)
        settings = self.settings
        if settings.steps_per_epoch(n_members) != settings.steps_per_epoch(n_target):
            own = settings.total_steps(n_members)
            of = settings.total_steps(n_target)
            for name, step in wanted.items():
                # at step 0 is a model that was never trained, and only there
                wanted[name] = max(round(step / of * own), min(step, 1))
        return sorted(wanted.items(), key=lambda item: item[1])


class Learner:
    """Module with its optimizer and its random states.

    Parameters
    ----------
    recipe : Recipe
        Model, data and settings.
    members : array of shape (n_members,), int64
        Positions of the samples to train on.
    seed : int
        Seed of the weights, the order of the samples, and the module's own draws.
    """

    def __init__(self, recipe: Recipe, members: NDArray[np.int64], seed: int) -> None:
        import torch

        self.recipe = recipe
        self.members = members
        self.seed = seed
        self.step = 0
        self._device = torch.device(recipe.device)
        self.precision = resolve_precision(self._device, recipe.settings.precision)
        with self._on_device(), room_for():
            # The feeder is first: it may keep the output of frozen blocks, which the module then
            # does not need.
            where = recipe.data, self._device, self.precision
            self._feed = recipe.model.feeder(*where)
            self._random = RandomStates(seed, self._device)
            with self._random.active():
                self.module = recipe.model.begin(*where, recipe.bases)
            self._labels = torch.from_numpy(recipe.data.labels).to(self._device)
        self._order: tuple[int, NDArray[np.int64]] | None = None

    @cached_property
    def _optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, made when it is first needed: a pass alone needs none."""
        optimizer = _optimizer(self.module, self.recipe.settings)
        for group in optimizer.param_groups:
            group[_FIRST_RATE] = float(group["lr"])
        return optimizer

    def advance(self, stop: int, progress: Progress, what: str) -> None:
        """Train up to a step; `Progress` may cancel between two steps."""
        total = self.recipe.settings.total_steps(len(self.members))
        self.module.train()
        threads = cpu_threads(self.recipe.model.cpu_threads)
        with self._on_device(), self._random.active(), threads:
            while self.step < stop:
                progress.report(self.step, total, what)
                self._take_step()

    def look_at(
        self, positions: NDArray[np.int64], data: Dataset | None = None, **options: Any
    ) -> Forward:
        """Run a pass over samples, which changes nothing; options are those of `forward`."""
        data = self.recipe.data if data is None else data
        feed = self._feed if data is self.recipe.data else None
        where = data, positions, self._device, self.precision
        with self._on_device():
            return forward(self.recipe.model, self.module, *where, feed=feed, **options)

    def forget_optimizer(self) -> int:
        """Free the memory that only training needs; return the bytes of the module."""
        self.__dict__.pop("_optimizer", None)
        self.module.zero_grad(set_to_none=True)
        held = (*self.module.parameters(), *self.module.buffers())
        return sum(int(tensor.nbytes) for tensor in held)

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the module's state as arrays."""
        return {k: _array(v) for k, v in self.recipe.model.weights(self.module).items()}

    def load_weights(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Load a module's state; the optimizer stays as it is."""
        self.recipe.model.load_weights(
            self.module, {k: _tensor(v) for k, v in weights.items()}
        )

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
        """Return what `resume` needs: arrays and text."""
        saved = self._optimizer.state_dict()
        arrays = {WEIGHTS + k: v for k, v in self.weights().items()}
        arrays |= {_RANDOM + k: v for k, v in self._random.arrays().items()}
        plain: dict[str, dict[str, Any]] = {}
        for i, entries in saved["state"].items():
            tensors = {k: v for k, v in entries.items() if hasattr(v, "detach")}
            arrays |= {f"{_OPTIMIZER}{i}.{k}": _array(v) for k, v in tensors.items()}
            plain[str(i)] = {k: v for k, v in entries.items() if k not in tensors}
        return arrays, {
            "step": str(self.step),
            "groups": json.dumps(saved["param_groups"]),
            "plain": json.dumps(plain),
        }

    def resume(
        self, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]
    ) -> None:
        """Continue from a saved learner, or from weights alone with a fresh optimizer."""
        state: dict[int, dict[str, Any]] = {}
        trained = self._trained()
        for name, array in _below(_OPTIMIZER, arrays).items():
            index, key = name.split(".", 1)
            tensor = _in_layout_of(trained[int(index)], _tensor(array))
            state.setdefault(int(index), {})[key] = tensor
        for place, entries in json.loads(metadata.get("plain", "{}")).items():
            state.setdefault(int(place), {}).update(entries)
        self.load_weights(_below(WEIGHTS, arrays))
        if "groups" in metadata:
            self._optimizer.load_state_dict(
                {"state": state, "param_groups": json.loads(metadata["groups"])}
            )
            self._random.load(_below(_RANDOM, arrays))
        self.step = int(metadata["step"])

    def _trained(self) -> list[Any]:
        return [
            one for group in self._optimizer.param_groups for one in group["params"]
        ]

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        deterministic = self.recipe.settings.deterministic
        with apart(self._device), working_on(self._device, deterministic=deterministic):
            yield

    def _take_step(self) -> None:
        settings = self.recipe.settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.rate(
                self.step, len(self.members), group[_FIRST_RATE]
            )
        what = f"a batch of {settings.batch_size} samples in training"
        with room_for(
            what, "pass a smaller batch_size=, with accumulate= for steps of equal size"
        ):
            self._gradients(self._samples())
        with room_for():
            self._optimizer.step()
        self.step += 1

    def _gradients(self, samples: NDArray[np.int64]) -> None:
        """Compute gradients of the mean loss over a step's samples, batch by batch."""
        import torch

        model = self.recipe.model
        settings = self.recipe.settings
        self._optimizer.zero_grad(set_to_none=True)
        for start in range(0, len(samples), settings.batch_size):
            batch = samples[start : start + settings.batch_size]
            labels = self._labels[sent(torch.from_numpy(batch), self._device)]
            with model.autocast(self._device, self.precision):
                inputs = model.augmented(self._feed(batch), settings.augment)
                try:
                    _, losses = model.outputs(self.module, inputs, labels)
                except ValueError as error:
                    # a last batch of one sample, over which the module can't normalise
                    is_one = len(batch) == 1 < settings.batch_size
                    if is_one and "more than 1 value per channel" in str(error):
                        continue
                    raise
            if not losses.requires_grad:
                raise _untrained(self.module)
            # takes less than sum() and division
            share = torch.full_like(losses, 1 / len(samples))
            losses.backward(share)  # type: ignore[no-untyped-call]
        if self.step == 0 and not any(p.grad is not None for p in self._trained()):
            raise _untrained(self.module)

    def _samples(self) -> NDArray[np.int64]:
        """Return the step's samples; each epoch's order depends on the seed alone."""
        size = self.recipe.settings.batch_size * self.recipe.settings.accumulate
        epoch, index = divmod(
            self.step, self.recipe.settings.steps_per_epoch(len(self.members))
        )
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng(epoch_seed(self.seed, epoch))
            model = self.recipe.model
            lengths = (
                model.lengths(self.recipe.data) if model.batches_by_length else None
            )
            order = epoch_order(
                self.members, lengths, self.recipe.settings.batch_size, rng
            )
            self._order = (epoch, order)
        return self._order[1][index * size : (index + 1) * size]


def _untrained(module: torch.nn.Module) -> ValueError:
    return ValueError(
        f"no weight of {type(module).__name__} that requires a gradient gets one from the loss, so "
        "nothing would be trained. Set requires_grad on weights that its forward uses, and let no "
        "forward or hook on it call another module"
    )


def _optimizer(module: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    import torch

    parameters = [p for p in module.parameters() if p.requires_grad]
    if not parameters:
        raise _untrained(module)
    if callable(settings.optimizer):
        return given_optimizer(settings.optimizer, parameters)
    if settings.optimizer not in OPTIMIZERS:
        raise ValueError(lost_function("optimizer", settings.optimizer))
    rates: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        return _without_compiler(torch.optim.SGD)(parameters, momentum=0.9, **rates)
    return _without_compiler(torch.optim.AdamW)(parameters, fused=True, **rates)


@cache
def _without_compiler(
    kind: type[torch.optim.Optimizer],
) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimizer of torch whose methods do not import torch's compiler.

    torch wraps these methods to hide them from `torch.compile`, which takes a third of the time
    that a new process needs before its first step. What they compute stays the same.
    """
    import torch

    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "step": step})


def given_optimizer(
    make: Callable[..., Any], parameters: list[Any]
) -> torch.optim.Optimizer:
    """Return the optimizer that a user's function makes for some parameters.

    Raises
    ------
    TypeError
        If it makes something else.
    """
    import torch

    optimizer = make(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(
            f"optimizer must return a torch.optim.Optimizer, not {type(optimizer).__name__}"
        )
    return optimizer


def _below(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {k.removeprefix(prefix): arrays[k] for k in arrays if k.startswith(prefix)}


def _array(tensor: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array


def _tensor(array: NDArray[Any]) -> Tensor:
    import torch

    return torch.from_numpy(np.array(array))


def _in_layout_of(weights: Tensor, values: Tensor) -> Tensor:
    """Return values with the strides of weights: a fused step pairs them by place in memory."""
    strides = (weights if weights.shape == values.shape else values).stride()
    return values.new_empty_strided(values.shape, strides).copy_(values)


def epoch_order(
    members: NDArray[np.int64],
    lengths: NDArray[Any] | None,
    batch_size: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the samples in the order of an epoch, drawn from `rng`.

    With lengths, a random order is cut into groups of up to 50 batches. Samples are sorted by
    length within each group, and then the batches are shuffled. Random samples, not the longest,
    are left for the last, smaller batch.

    Parameters
    ----------
    members : array of shape (n,), int64
        Positions of the samples.
    lengths : array or None
        Length of each sample of the data. None for a random order.
    batch_size : int
        Number of samples in a batch.
    rng : numpy.random.Generator
        Source of random numbers.

    Returns
    -------
    array of shape (n,), int64

    Examples
    --------
    >>> lengths = np.array([9, 1, 8, 2, 9, 1, 8, 2])
    >>> order = epoch_order(np.arange(8), lengths, 4, np.random.default_rng(3))
    >>> order.tolist(), lengths[order].tolist()
    ([1, 7, 6, 2, 5, 3, 4, 0], [1, 2, 8, 8, 1, 2, 9, 9])
    """
    order = rng.permutation(members)
    n_batches = len(order) // batch_size
    if lengths is None or n_batches < 2:
        return order
    full, rest = np.split(order, [n_batches * batch_size])
    # four groups or more, so that small sets do not have the same batches in every epoch
    n_sorted = min(50, max(1, n_batches // 4)) * batch_size
    groups = np.split(full, range(n_sorted, len(full), n_sorted))
    grouped = np.concatenate([g[np.argsort(lengths[g], kind="stable")] for g in groups])
    batches = rng.permutation(grouped.reshape(n_batches, batch_size), axis=0)
    return np.concatenate([batches.ravel(), rest])


# the target


class Loaded:
    """Learner with the weights of a checkpoint; a process keeps at most one, and no large one."""

    _last: ClassVar[weakref.ref[Loaded] | None] = None

    def __init__(self) -> None:
        # a pass changes the mode of its module while it runs
        self.alone = threading.RLock()
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
            self._learner = learner
            self._of = of
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
        self.recipe = recipe
        self.members = members
        self.held_out = held_out
        self.labels: NDArray[np.int64] = recipe.data.labels[members]

    def ask(
        self,
        module: nn.Module,
        data: Dataset,
        positions: NDArray[np.int64],
        **options: object,
    ) -> Forward:
        """Run the module over any samples; options are those of `forward`."""
        raise NotImplementedError

    def test(self, module: nn.Module, progress: Progress) -> Unseen | None:
        """Run the module over the held-out samples, if there are any."""
        if self.held_out is None or not len(self.held_out):
            return None
        everything = np.arange(len(self.held_out))
        options: dict[str, Any] = {"progress": progress, "noun": HELD_OUT}
        seen = self.ask(module, self.held_out, everything, **options)
        return Unseen(seen, self.held_out.labels)


class _LearnerPasses(ModelPasses):
    """Passes over the module of a learner, without representations.

    They are computed from the checkpoint's weights when a score asks for them.
    """

    def __init__(self, learner: Learner, held_out: Dataset | None) -> None:
        super().__init__(learner.recipe, learner.members, held_out)
        self._learner = learner

    def ask(
        self,
        module: nn.Module,  # noqa: ARG002 - it is the learner's
        data: Dataset,
        positions: NDArray[np.int64],
        **options: object,
    ) -> Forward:
        """Run the learner's module over any samples."""
        return self._learner.look_at(positions, data=data, **options)

    def look(
        self, module: nn.Module, progress: Progress, allocate: Allocate
    ) -> Forward:
        """Run the module over the members."""
        where = self.recipe.data, self.members
        return self.ask(module, *where, progress=progress, allocate=allocate)

    def weights(self, module: nn.Module) -> Weights:
        """Return what a checkpoint stores; its digest is that of the file."""
        model = self.recipe.model
        return Weights(
            "",
            self._learner.weights(),
            model.weights_name,
            model.weights_config(module),
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
        self._run = run
        self.recipe = recipe
        self._design = design
        self._held_out = held_out
        self._loaded = loaded or Loaded()
        self._seed = derived_seed(seed, TARGET_STREAM)

    def train(self, stop: StopRule | None, progress: Progress) -> None:
        """Train to the end, or to the first checkpoint at which `stop` says where to look.

        Training continues from the last checkpoint on disk, with the same result, bit for bit, as
        without the interruption.
        """
        plan = self.recipe.settings.plan(len(self._design.members))
        steps = plan.steps()
        self._make_lost_held_out()
        labels = self.recipe.data.labels[self._design.members]
        lookout = None if stop is None else Lookout(self._run, labels, stop)
        if self._is_done(steps, lookout):
            return
        with self._run.lock("checkpoints"):
            records = read_records(self._run)
            self._loaded.drop()
            learner = self._resume(records, steps)
            passes = _LearnerPasses(learner, self._held_out)
            recorder = Recorder(self._run, passes, plan)
            records = [record for record in records if record.step <= learner.step]
            for step, epoch in steps.items():
                if records and step <= learner.step:
                    continue
                seconds = self._bring(learner, step, epoch, progress)
                record = recorder.write(
                    learner.module, step, Progress(), seconds=seconds
                )
                self._keep_state(learner, record)
                records.append(record)
                if lookout is not None and lookout.tell(records) is not None:
                    break
            self._loaded.keep(learner, self._identity(records[-1]))

    def _is_done(self, plan: Mapping[int, float], lookout: Lookout | None) -> bool:
        """Return whether no training is left; a missing checkpoint counts as training left."""
        records = read_records(self._run)
        steps = [record.step for record in records]
        if steps != list(plan)[: len(steps)]:
            return False
        if len(steps) == len(plan):
            return True
        if lookout is None or len(steps) < 2:
            return False
        if read_told(self._run) is not None:
            return lookout.told(records) is not None
        with self._run.lock("checkpoints"):
            return lookout.tell(records) is not None

    def _make_lost_held_out(self) -> None:
        """Compute the held-out losses of checkpoints whose file is lost, if weights are there."""
        if self._held_out is None or not len(self._held_out):
            return
        members = self.recipe.data.labels[self._design.members]
        everything = np.arange(len(self._held_out))
        for record in lost_held_out(self._run, read_records(self._run)):
            if not self._run.has(self._weights(record.name), record.weights):
                continue
            with self._loaded.alone, self._run.lock("checkpoints"):
                learner = self._learner_at(record.name)
                seen = learner.look_at(everything, data=self._held_out)
                losses = seen.losses
                labels = self._held_out.labels
                write_held_out(self._run, record, losses, labels, members)

    def forward(self, name: str, progress: Progress, allocate: Allocate) -> Forward:
        """Run a checkpoint over the members, capturing the layers that `allocate` provides for."""
        with self._loaded.alone:
            learner = self._learner_at(name)
            seen = learner.look_at(
                self._design.members, capture=True, progress=progress, allocate=allocate
            )
            self._check_repeats(learner, read_record(self._run, name), seen)
            return seen

    def look(self, name: str, positions: NDArray[np.int64]) -> Forward:
        """Run a checkpoint over any samples, without capturing representations."""
        with self._loaded.alone:
            self.check(name)
            return self._learner_at(name).look_at(positions)

    def check(self, name: str) -> None:
        """Raise if what the model computes at a checkpoint has changed since training."""
        with self._loaded.alone:
            self._check_repeats(self._learner_at(name), read_record(self._run, name))

    def _check_repeats(
        self, learner: Learner, record: Record, seen: Forward | None = None
    ) -> None:
        """Raise if a learner does not give the members the losses that training kept there.

        `seen` is a pass over all members. By default, the first and the last batch of one is made.

        Raises
        ------
        StoreError
            If what the model computes has changed since.
        """
        losses = self._kept_losses(record)
        members = self._design.members
        places = np.arange(len(members))
        if seen is None:
            if losses is not None:
                places = end_batches(self.recipe.model, self.recipe.data, members)
            seen = learner.look_at(members[places])
        here = np.asarray(seen.losses, np.float64)
        if losses is None:  # they are lost, and the record has two numbers of them
            here = np.array([here.mean(), np.median(here)])
            there = np.array([record.train_loss, record.median_loss])
        else:
            there = losses[places].astype(np.float64)
        apart = np.abs(here - there)
        shares = apart / np.maximum(1.0, np.abs(there))
        is_same = record.made_by == seen.made_by
        if (shares.max() <= SAME) if is_same else (np.median(shares) <= _ELSEWHERE):
            return
        self._loaded.drop()  # the code of its module may be the changed one
        errs = "" if is_same else ", or this device errs"
        raise StoreError(
            f"at {record.name} of {self._run.path} the losses of members differ from those in "
            f"training by up to {apart.max():.2g} nats: what the model computes has changed since"
            f"{errs}. Take the change back, or train the changed model at another path"
        )

    def _kept_losses(self, record: Record) -> NDArray[np.float32] | None:
        """Return the members' losses that training kept at a checkpoint; None if they are lost.

        Others may have been computed since in their place, on another device.
        """
        for place in (outputs_of(record.name), forward_of(record.name)):
            if self._run.has(place, record.weights):
                losses = np.array(
                    self._run.read_tensors(place, record.weights)["losses"]
                )
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
        steps = self.recipe.settings.plan(len(self._design.members)).steps()
        by_name = {name_of(epoch): step for step, epoch in steps.items()}
        if last.name not in by_name or by_name[last.name] == max(steps):
            raise ValueError(
                f"{last.name} ends a training on {len(self._design.members)} samples; use "
                'start="scratch"'
            )
        for record in read_records(parent):
            if record.step <= last.step and record.name in by_name:
                resume = f"checkpoints/{record.name}/resume"
                metadata = dict[str, str]()
                if parent.has(resume):
                    state = parent.read_tensors(resume)
                    arrays = dict(state)
                    metadata = dict(state.metadata)
                else:
                    weights = self._kept_weights(parent, record.name)
                    arrays = {WEIGHTS + key: value for key, value in weights.items()}
                metadata["step"] = str(by_name[record.name])
                self._run.write_tensors(start_of(record.name), arrays, metadata)

    def _bring(
        self, learner: Learner, step: int, epoch: float, progress: Progress
    ) -> float:
        """Bring a learner to a checkpoint; return the seconds of training that it took.

        A fork has the state from `start_from` instead.
        """
        start = start_of(name_of(epoch))
        began = time.monotonic()
        if self._run.has(start):
            state = self._run.read_tensors(start)
            learner.resume(state, state.metadata)
            return 0.0
        learner.advance(step, progress, "training the target")
        wait_for(torch_device(self.recipe.device))
        return time.monotonic() - began if step else 0.0

    def _weights(self, name: str) -> str:
        return f"checkpoints/{name}/{self.recipe.model.weights_name}"

    def _kept_weights(self, run: RunDirectory, name: str) -> Tensors:
        """Return the weights of a checkpoint, checked against its record."""
        place = self._weights(name)
        if (why := left_out(run)) and not run.has(place):
            raise NotThereError(f"{run.path} {why}", KEEP_ALL, name)
        return run.read_tensors(place, read_record(run, name).weights or None)

    def _learner_at(self, name: str) -> Learner:
        """Return the module of a checkpoint, in the precision of its recorded pass."""
        settings = self.recipe.settings
        record = read_record(self._run, name)
        if (known := self._loaded.find(self._identity(record))) is not None:
            return known
        if record.precision not in COMPUTED:
            wanted = " or ".join(COMPUTED)
            raise StoreError(
                f"the pass at {name} is in {record.precision}; it needs {wanted}"
            )
        recipe = replace(
            self.recipe, settings=replace(settings, precision=record.precision)
        )
        self._loaded.drop()
        learner = Learner(recipe, self._design.members, self._seed)
        identity = self._identity(record)  # from before the file is read
        learner.load_weights(self._kept_weights(self._run, name))
        self._loaded.keep(learner, identity)
        return learner

    def _identity(self, record: Record) -> Hashable:
        """Return a value that changes when the weights of a checkpoint are written again."""
        return record.name, record.weights, self._run.state(self._weights(record.name))

    def _resume(self, records: Sequence[Record], plan: Mapping[int, float]) -> Learner:
        """Return a learner as it was at the last checkpoint before the first missing one."""
        learner = Learner(self.recipe, self._design.members, self._seed)
        whole = takewhile(
            lambda at: at[0].step == at[1], zip(records, plan, strict=False)
        )
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
        self._run.write_tensors(
            f"checkpoints/{record.name}/resume", arrays, notes, record.weights
        )
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
    if not (name is None or run.has(start_of(name)) or run.has_file(record_file(name))):
        raise StoreError(
            f"{run.path} has lost the weights of {name} that it starts from: call fork once more "
            "on the audit that it came from"
        )
