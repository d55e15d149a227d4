"""Settings and random numbers of training, which two runs must share to be comparable."""

from __future__ import annotations

import inspect
import json
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import check_version, real_number, several, whole_number
from memowidgets.models.device import PRECISIONS, module_of

if TYPE_CHECKING:
    import torch

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
STEPS = "steps"
_MOST_CHECKPOINTS = 10_000
_NAMES = {
    "optimizer": OPTIMIZERS,
    "schedule": (*SCHEDULES, STEPS),
    "precision": PRECISIONS,
    "augment": ("none", "flip", "crop", "flip+crop"),
}
_FUNCTION = "function "  # stands before the name of a user's function in a manifest
# SeedSequence treats [0, 4, 0] like [0, 4]. These streams have the seeds of that plain form,
# each at the one length of path at which it is used. Every other path has its own seeds.
_LENGTHS = {0: 1, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 2}
_OWN = "device"  # state of the generator of a training's own device
_ONE_AT_A_TIME = threading.RLock()  # the generators belong to the whole process


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop. Fields that are left open follow the model.

    Parameters
    ----------
    epochs : float, optional
        Number of passes over the members.
    checkpoint_every : float, optional
        Epochs between two checkpoints. Step 0 and the end are always checkpoints.
    batch_size : int, optional
        Number of samples in a batch. A last batch of one sample is left out where the module
        normalises over its batch.
    accumulate : int, optional
        Number of batches in a step (gradient accumulation). The paper's language models use 2
        batches of 2.
    lr : float, optional
        Learning rate at the start.
    optimizer : {"adamw", "sgd"} or callable, optional
        SGD has momentum 0.9. A callable creates an optimizer from a list of parameters, with its
        own learning rates, which `schedule` then scales: ``lambda p: torch.optim.SGD(p, lr=0.1)``.
    schedule : {"constant", "linear", "cosine", "steps"} or callable, optional
        Course of the learning rate: constant; falling to 0 at the end, linearly or as half a
        cosine; or divided by ten at each of the `milestones`. A callable returns the factor for the
        finished share of the training.
    milestones : sequence of float, optional
        Shares of the training at which ``"steps"`` lowers the rate. The default is a half and three
        quarters, as for the paper's network on CIFAR-10 (epochs 150 and 225 of 300).
    weight_decay : float, optional
        Weight decay, as the optimizer defines it.
    precision : {"auto", "float32", "bfloat16"}, optional
        ``"bfloat16"`` uses autocast, and trained weights stay float32. ``"auto"`` is bfloat16 if
        the hardware multiplies matrices in it (GPUs, CPUs with AMX), else float32. The choice is
        made when an audit is created, is written into its manifest, and then holds on every
        machine.
    label_noise : float, optional
        Share of the pool's labels that are flipped at random, in the same way for every model (the
        pool is the set that training sets are drawn from). The default is 0. The paper's reference
        code flips 0.033, which its text does not mention.
    augment : {"none", "flip", "crop", "flip+crop"}, optional
        Augmentation of images in training: mirrored half of the time, shifted by up to an eighth of
        their side, or both. None by default, as in the paper.
    deterministic : bool, optional
        Whether to use torch's deterministic algorithms and no TF32 on a GPU, so that two runs there
        are equal bit for bit. Training is then slower, and an operation without such an algorithm
        is an error. Off by default: two runs on a GPU differ by rounding. On a CPU they are equal
        in any case, with the same number of threads.
    version : str, optional
        Text that identifies `optimizer` and `schedule` where they are functions. They are known by
        what they do: two steps with seeded gradients, and the factor of every step. Give a version,
        and change it, for what only acts later.

    Raises
    ------
    ValueError
        If a number is out of range or a name is unknown. An audit also refuses more than 10 000
        checkpoints.

    Examples
    --------
    >>> TrainingConfig(epochs=10, schedule="cosine").epochs
    10
    >>> TrainingConfig(schedule="stairs")
    Traceback (most recent call last):
    ...
    ValueError: unknown schedule 'stairs'; valid: constant, linear, cosine, steps
    """

    epochs: float | None = None
    checkpoint_every: float | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lr: float | None = None
    optimizer: str | Callable[..., Any] | None = None
    schedule: str | Callable[[float], float] | None = None
    weight_decay: float | None = None
    precision: str | None = None
    label_noise: float | None = None
    milestones: Sequence[float] | None = None
    augment: str | None = None
    deterministic: bool | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "checkpoint_every", "lr"):
            value = getattr(self, name)
            if value is not None and not real_number(name, value, finite=True) > 0:
                raise ValueError(f"{name} must be a positive number, not {value}")
        for name in ("batch_size", "accumulate"):
            if (value := getattr(self, name)) is not None:
                whole_number(name, value, 1)
        noise = self.label_noise
        if noise is not None and not 0 <= real_number("label_noise", noise) < 1:
            raise ValueError(
                f"label_noise must be a share from 0 to below 1, not {noise}"
            )
        if self.weight_decay is not None:
            real_number("weight_decay", self.weight_decay, 0, finite=True)
        for name, valid in _NAMES.items():
            _check_name(name, getattr(self, name), valid)
        if self.milestones is not None:
            given = several("milestones", self.milestones)
            shares = [real_number("a milestone", share) for share in given]
            if shares != sorted({share for share in shares if 0 < share < 1}):
                raise ValueError(
                    f"milestones must be rising shares from 0 to 1, not {given!r}"
                )
        check_version(self.version)

    def resolve(self, defaults: Mapping[str, Any]) -> Settings:
        """Return the settings with every open field taken from a model's defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {k: _plain(v) for k, v in values.items() if v is not None}
        if given.get("augment", "none") != "none" and "augment" not in defaults:
            raise ValueError(f"augment={self.augment!r} is for models of images")
        settings = Settings(
            **{**{k: v for k, v in defaults.items() if k in values}, **given}
        )
        if settings.epochs / settings.checkpoint_every > _MOST_CHECKPOINTS:
            raise ValueError(
                f"{settings.epochs:g} epochs with "
                f"checkpoint_every={settings.checkpoint_every:g} are more than "
                f"{_MOST_CHECKPOINTS} checkpoints; pass a larger checkpoint_every"
            )
        return settings


@dataclass(frozen=True)
class Settings:
    """`TrainingConfig` without open fields; these are the defaults where a model states none."""

    epochs: float = 10
    checkpoint_every: float = 1
    batch_size: int = 32
    accumulate: int = 1
    lr: float = 1e-3
    optimizer: str | Callable[..., Any] = "adamw"
    schedule: str | Callable[[float], float] = "constant"
    weight_decay: float = 0.0
    precision: str = "float32"
    label_noise: float = 0.0
    milestones: tuple[float, ...] = (0.5, 0.75)
    augment: str = "none"
    deterministic: bool = False
    version: str = ""

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Settings:
        """Read settings from a run directory, which leaves out those that are off.

        Of a user's function a manifest has only the name, and training with that is an error.
        """
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in stored.items()
            if k in names
        }
        return cls(**values)

    def as_manifest(self) -> dict[str, Any]:
        """Return the settings as text and numbers, a function as its name."""
        manifest = {
            field.name: _as_text(getattr(self, field.name)) for field in fields(self)
        }
        off = [name for name in ("deterministic", "version") if not manifest[name]]
        return {name: value for name, value in manifest.items() if name not in off}

    def steps_per_epoch(self, n_members: int) -> int:
        """Return the number of optimizer steps in an epoch; the last may be smaller."""
        return math.ceil(n_members / (self.batch_size * self.accumulate))

    def total_steps(self, n_members: int) -> int:
        """Return the number of optimizer steps of the whole training, at least one."""
        return max(1, round(self.epochs * self.steps_per_epoch(n_members)))

    def plan(self, n_members: int) -> CheckpointPlan:
        """Return the plan of the checkpoints: 0, every `checkpoint_every` epochs, the end."""
        per_epoch = self.steps_per_epoch(n_members)
        total = self.total_steps(n_members)
        return CheckpointPlan(per_epoch, self.checkpoint_every, total, self.epochs)

    def rate(self, step: int, n_members: int, lr: float | None = None) -> float:
        """Return the learning rate of a step, which depends only on the finished share."""
        top = self.lr if lr is None else lr
        return top * self._factor(step / self.total_steps(n_members))

    def _factor(self, done: float) -> float:
        schedule = self.schedule
        if schedule == STEPS:
            return 0.1 ** sum(done >= milestone for milestone in self.milestones)
        if callable(schedule):
            factor = float(schedule(done))
            if not (factor >= 0 and math.isfinite(factor)):
                raise ValueError(
                    f"the schedule returns {factor} after {done:.1%} of the training"
                )
            return factor
        if schedule not in SCHEDULES:
            raise ValueError(lost_function("schedule", schedule))
        return SCHEDULES[schedule](done)


class CheckpointPlan:
    """Steps at which checkpoints are due: step 0, at equal distances, and the end if it is known.

    If several epochs fall on one step, it has the one that it is nearest to.

    Parameters
    ----------
    steps_per_epoch : int
        Optimizer steps in an epoch.
    every : float
        Epochs between two checkpoints.
    total : int, optional
        Optimizer steps in the whole training.
    epochs : float, optional
        Epochs in the whole training. By default they follow from `total`.

    Raises
    ------
    ValueError
        If `every` is not a positive number.

    Examples
    --------
    >>> plan = CheckpointPlan(steps_per_epoch=7, every=0.5)
    >>> [plan.epoch_at(step) for step in range(8)]
    [0.0, None, None, None, 0.5, None, None, 1.0]
    >>> CheckpointPlan(4, 0.5, total=5).steps()
    {0: 0.0, 2: 0.5, 4: 1.0, 5: 1.25}
    """

    def __init__(
        self,
        steps_per_epoch: int,
        every: float,
        total: int | None = None,
        epochs: float | None = None,
    ) -> None:
        if not 0 < real_number("checkpoint_every", every) < math.inf:
            raise ValueError(
                f"checkpoint_every (epochs) must be a positive number, not {every!r}"
            )
        self.steps_per_epoch = steps_per_epoch
        self.every = every
        self.total = total
        n_epochs = None if total is None else total / steps_per_epoch
        self._epochs = n_epochs if epochs is None else epochs

    def epoch_at(self, step: int) -> float | None:
        """Return the epoch of the checkpoint at a step; None if none is due there."""
        if self._epochs is not None and self.total is not None and step >= self.total:
            return round(self._epochs, 9) if step == self.total else None
        stride = self.every * self.steps_per_epoch
        # the earlier of two that are as near
        nearest = math.ceil(round(step / stride - 0.5, 6))
        return round(nearest * self.every, 9) if self._step(nearest) == step else None

    def epoch_of(self, step: int) -> float:
        """Return the epoch of any step, as it names a checkpoint there."""
        due = self.epoch_at(step)
        return round(step / self.steps_per_epoch, 9) if due is None else due

    def steps(self) -> dict[int, float]:
        """Return step and epoch of each checkpoint of a training whose end is known."""
        assert self.total is not None  # noqa: S101 - for the type checker
        assert self._epochs is not None  # noqa: S101
        count = math.ceil(self._epochs / self.every - 1e-9)
        due = {step for k in range(count) if (step := self._step(k)) < self.total}
        steps = {step: self.epoch_at(step) for step in [*sorted(due), self.total]}
        return {step: epoch for step, epoch in steps.items() if epoch is not None}

    def _step(self, k: int) -> int:
        return round(k * self.every * self.steps_per_epoch)


def lost_function(what: str, name: str) -> str:
    """Return the error message for a user's function that is not available."""
    return (
        f"this run is trained with its owner's {what} ({name}); create the audit with "
        f"Audit(…, training=TrainingConfig({what}=…))"
    )


def is_function(described: Any) -> bool:
    """Return whether a setting in a manifest stands for a user's function."""
    return isinstance(described, str) and described.startswith(_FUNCTION)


def _as_text(value: Any) -> Any:
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    is_named = inspect.isroutine(value) or isinstance(value, type)
    return _FUNCTION + (value if is_named else type(value)).__qualname__


def _plain(value: Any) -> Any:
    """Return NumPy's number as Python's, as an integer if it is whole."""
    if isinstance(value, str | bool) or callable(value):
        return value
    if isinstance(value, Sequence):
        return tuple(float(v) for v in value)
    return int(value) if value == int(value) else float(value)


def _check_name(what: str, name: Any, valid: tuple[str, ...]) -> None:
    if callable(name) and what in ("optimizer", "schedule"):
        return
    if name is not None and (not isinstance(name, str) or name not in valid):
        raise ValueError(f"unknown {what} {name!r}; valid: {', '.join(valid)}")


# random numbers


def derived_seed(seed: int, *path: int) -> int:
    """Return an independent 32-bit seed for each path below a seed.

    Parameters
    ----------
    seed : int
        Seed, from 0.
    path : int
        Numbers from 0 to 2³² − 1: a stream, and numbers within it.

    Examples
    --------
    >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(0, 2)
    (True, False)
    >>> derived_seed(0, 4, 0) == derived_seed(0, 4)
    False
    """
    if path and len(path) == _LENGTHS.get(path[0]):
        return _first_word(np.random.SeedSequence([seed, *path]))
    return _first_word(np.random.SeedSequence(seed, spawn_key=(len(path), *path)))


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of the order of the samples in an epoch."""
    return _first_word(np.random.SeedSequence([seed, epoch]))


def _first_word(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0])


class RandomStates:
    """States of torch's, NumPy's and Python's generators that belong to one training.

    Training runs inside `active`, which swaps these states in and restores the previous ones
    afterwards, so that neither affects the other. Of a device's generators, only that of the
    training's own device is touched. So a training goes on on any other device.

    Parameters
    ----------
    seed : int
        Seed of all generators.
    device : torch.device, optional
        Device of the training. Default: the CPU.
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        import torch

        self._device = device
        with restore_random_states():
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002 - anyone's module may draw from it
            random.seed(seed)
            self._states = _capture()
        if _has_generator(device):
            self._states[_OWN] = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these states within this context; other trainings in this process wait."""
        with restore_random_states(self._device):
            _restore(self._states, self._device)
            try:
                yield
            finally:
                self._states = _capture(self._device)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the states as arrays, for a safetensors file."""
        kind, key, *rest = self._states["numpy"]
        plain = json.dumps(
            [[kind, key.tolist(), *rest], self._states["python"]]
        ).encode()
        of_torch = {
            k: v.numpy().copy() for k, v in self._states.items() if k in ("torch", _OWN)
        }
        return {**of_torch, "plain": np.frombuffer(plain, dtype=np.uint8)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from saved states; a device that they lack keeps the state of the seed."""
        import torch

        (kind, key, *rest), (version, internal, following) = json.loads(
            arrays["plain"].tobytes()
        )
        self._states |= {
            "numpy": (kind, np.array(key, np.uint32), *rest),
            "python": (version, tuple(internal), following),
        }
        of_torch = {"torch", _OWN} & self._states.keys() & arrays.keys()
        self._states |= {
            name: torch.from_numpy(np.array(arrays[name])) for name in of_torch
        }


@contextmanager
def restore_in_main_thread(device: torch.device | None = None) -> Iterator[None]:
    """Restore all random states at the end, whatever drew from them.

    In another thread than the main one nothing is restored, because the user's own cell may have
    drawn meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with restore_random_states(device):
        yield


@contextmanager
def restore_random_states(device: torch.device | None = None) -> Iterator[None]:
    """Restore all random states at the end, a device's own included, in any thread."""
    with _ONE_AT_A_TIME:
        before = _capture(device)
        try:
            yield
        finally:
            _restore(before, device)


def _has_generator(device: torch.device | None) -> TypeGuard[torch.device]:
    """Return whether a device has a generator beside the CPU's."""
    if device is None or device.type in ("cpu", "meta"):
        return False
    return hasattr(module_of(device), "get_rng_state")


def _where(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is one


def _capture(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states as the generators give them, which takes less time than arrays."""
    import torch

    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "python": random.getstate(),
    }
    if _has_generator(device):
        states[_OWN] = module_of(device).get_rng_state(*_where(device))
    return states


def _restore(states: Mapping[str, Any], device: torch.device | None = None) -> None:
    import torch

    torch.set_rng_state(states["torch"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
    if _has_generator(device) and _OWN in states:
        module_of(device).set_rng_state(states[_OWN], *_where(device))
