"""Training of one module: to a step, saved completely, and resumed bit for bit."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import Bases
from memowidgets.models.device import (
    apart,
    cpu_threads,
    resolve_precision,
    room_for,
    sent,
    working_on,
)
from memowidgets.progress import Progress
from memowidgets.training.config import OPTIMIZERS, Settings, lost_function
from memowidgets.training.forward import Allocate, Forward, forward
from memowidgets.training.seeds import RandomStates, epoch_seed

if TYPE_CHECKING:
    import torch
    from torch import Tensor


WEIGHTS, _OPTIMIZER, _RANDOM = "weights.", "optimizer.", "random."
_BATCHES_SORTED = 50  # number of batches among which samples are sorted by length
_FEWEST_GROUPS = 4  # so that small sets do not have the same batches in every epoch
_FIRST_RATE = "first_lr"  # learning rate of a group that the schedule scales


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

        self.recipe, self.members, self.seed = recipe, members, seed
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
        made = _optimizer(self.module, self.recipe.settings)
        for group in made.param_groups:
            group[_FIRST_RATE] = float(group["lr"])
        return made

    def advance(self, stop: int, progress: Progress, what: str) -> None:
        """Train up to a step; `Progress` may cancel between two steps."""
        total = self.total_steps
        self.module.train()
        threads = cpu_threads(self.recipe.model.cpu_threads)
        with self._on_device(), self._random.active(), threads:
            while self.step < stop:
                progress.report(self.step, total, what)
                self._take_step()

    def look_at(
        self,
        positions: NDArray[np.int64],
        *,
        data: Dataset | None = None,
        capture: bool = False,
        progress: Progress | None = None,
        allocate: Allocate | None = None,
    ) -> Forward:
        """Run a forward pass over samples, without changing what is learned."""
        own = data is None or data is self.recipe.data
        with self._on_device():
            return forward(
                self.recipe.model,
                self.module,
                self.recipe.data if data is None else data,
                positions,
                self._device,
                self.precision,
                capture=capture,
                progress=progress,
                allocate=allocate,
                feed=self._feed if own else None,
            )

    @property
    def total_steps(self) -> int:
        """Number of steps of the whole training."""
        return self.recipe.settings.total_steps(len(self.members))

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
        self.recipe.model.load_weights(self.module, {k: _tensor(v) for k, v in weights.items()})

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

    def resume(self, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
        """Continue from a saved learner, or, after `state_of_weights`, with a fresh optimizer."""
        state: dict[int, dict[str, Any]] = {}
        for name in arrays:
            if name.startswith(_OPTIMIZER):
                index, key = name.removeprefix(_OPTIMIZER).split(".", 1)
                state.setdefault(int(index), {})[key] = _tensor(arrays[name])
        for place, entries in json.loads(metadata.get("plain", "{}")).items():
            state.setdefault(int(place), {}).update(entries)
        self.load_weights(_below(WEIGHTS, arrays))
        if "groups" in metadata:
            self._optimizer.load_state_dict(
                {"state": state, "param_groups": json.loads(metadata["groups"])}
            )
            self._random.load(_below(_RANDOM, arrays))
        self.step = int(metadata["step"])

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        deterministic = self.recipe.settings.deterministic
        with apart(self._device), working_on(self._device, deterministic=deterministic):
            yield

    def _take_step(self) -> None:
        settings = self.recipe.settings
        for group in self._optimizer.param_groups:
            group["lr"] = settings.rate(self.step, len(self.members), group[_FIRST_RATE])
        what = f"a batch of {settings.batch_size} samples in training"
        with room_for(what, "pass a smaller batch_size=, with accumulate= for steps of equal size"):
            self._gradients(self._samples())
        with room_for():
            self._optimizer.step()
        self.step += 1

    def _gradients(self, samples: NDArray[np.int64]) -> None:
        """Compute gradients of the mean loss over a step's samples, batch by batch."""
        import torch

        model, settings = self.recipe.model, self.recipe.settings
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
            share = torch.full_like(losses, 1 / len(samples))  # takes less than sum() and division
            losses.backward(share)  # type: ignore[no-untyped-call]

    def _samples(self) -> NDArray[np.int64]:
        """Return the step's samples; each epoch's order depends on the seed alone."""
        size = self.recipe.settings.batch_size * self.recipe.settings.accumulate
        epoch, index = divmod(self.step, self.recipe.settings.steps_per_epoch(len(self.members)))
        if self._order is None or self._order[0] != epoch:
            rng = np.random.default_rng(epoch_seed(self.seed, epoch))
            model = self.recipe.model
            lengths = model.lengths(self.recipe.data) if model.batches_by_length else None
            order = epoch_order(self.members, lengths, self.recipe.settings.batch_size, rng)
            self._order = (epoch, order)
        return self._order[1][index * size : (index + 1) * size]


def state_of_weights(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the input of `Learner.resume` for weights alone."""
    return {WEIGHTS + name: np.array(array) for name, array in weights.items()}


def _optimizer(module: torch.nn.Module, settings: Settings) -> torch.optim.Optimizer:
    import torch

    parameters = [p for p in module.parameters() if p.requires_grad]
    if callable(settings.optimizer):
        return given_optimizer(settings.optimizer, parameters)
    if settings.optimizer not in OPTIMIZERS:
        raise ValueError(lost_function("optimizer", settings.optimizer))
    rates: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        return _without_compiler(torch.optim.SGD)(parameters, momentum=0.9, **rates)
    return _without_compiler(torch.optim.AdamW)(parameters, fused=True, **rates)


@cache
def _without_compiler(kind: type[torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    """Return an optimizer of torch whose methods do not import torch's compiler.

    torch wraps these methods to hide them from `torch.compile`, which takes a third of the time
    that a new process needs before its first step. What they compute stays the same.
    """
    import torch

    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    step = torch.no_grad()(inspect.unwrap(kind.step))
    return type(kind.__name__, (kind,), {**methods, "step": step})


def given_optimizer(make: Callable[..., Any], parameters: list[Any]) -> torch.optim.Optimizer:
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
            "optimizer must return a torch.optim.Optimizer for a list of parameters, not "
            f"{type(optimizer).__name__}"
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
    n_sorted = min(_BATCHES_SORTED, max(1, n_batches // _FEWEST_GROUPS)) * batch_size
    groups = np.split(full, range(n_sorted, len(full), n_sorted))
    grouped = np.concatenate([g[np.argsort(lengths[g], kind="stable")] for g in groups])
    batches = rng.permutation(grouped.reshape(n_batches, batch_size), axis=0)
    return np.concatenate([batches.ravel(), rest])
