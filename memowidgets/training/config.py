"""How a model is trained: every number that two runs must share to be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from memowidgets.models.precision import PRECISIONS

__all__ = ["TrainingConfig"]

OPTIMIZERS = ("adamw", "sgd")
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _done: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop; those left open follow the model.

    Parameters
    ----------
    epochs : float, optional
        Passes over the members.
    checkpoint_every : float, optional
        Epochs between two checkpoints; step 0 and the end are checkpoints in any case.
    batch_size : int, optional
        Samples in a batch.
    accumulate : int, optional
        Batches in a step (gradient accumulation): the paper's language models take 2 of 2.
    lr : float, optional
        Learning rate at the start.
    optimizer : {"adamw", "sgd"}, optional
        SGD runs with momentum 0.9.
    schedule : {"constant", "linear", "cosine"}, optional
        How the rate falls: not at all, or to 0 at the end in a line or half a cosine.
    warmup : float, optional
        Share of the steps over which the rate rises to `lr` first.
    weight_decay : float, optional
        As the optimizer defines it.
    precision : {"auto", "float32", "bfloat16"}, optional
        bfloat16 is autocast, what is trained stays float32. ``"auto"`` takes it where the hardware
        multiplies matrices in it (GPUs, CPUs with AMX), and float32 elsewhere.
    label_noise : float, optional
        Share of the pool's labels that are flipped at random, alike for every model; none by
        default. The paper's reference code flips 0.033, which its text does not mention.

    Raises
    ------
    ValueError
        If a number is out of range or a name unknown.

    Examples
    --------
    >>> TrainingConfig(epochs=10, schedule="cosine").epochs
    10
    >>> TrainingConfig(schedule="stairs")
    Traceback (most recent call last):
    ...
    ValueError: unknown schedule 'stairs'; valid: constant, linear, cosine
    """

    epochs: float | None = None
    checkpoint_every: float | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lr: float | None = None
    optimizer: str | None = None
    schedule: str | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    precision: str | None = None
    label_noise: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "checkpoint_every", "batch_size", "accumulate", "lr"):
            _check_positive(name, getattr(self, name))
        for name in ("batch_size", "accumulate"):
            _check_whole(name, getattr(self, name))
        if self.warmup is not None and not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is a share from 0 to below 1, not {self.warmup}")
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be 0 or more, not {self.weight_decay}")
        if self.label_noise is not None and not 0 <= self.label_noise < 1:
            raise ValueError(f"label_noise is a share from 0 to below 1, not {self.label_noise}")
        _check_name("optimizer", self.optimizer, OPTIMIZERS)
        _check_name("schedule", self.schedule, tuple(SCHEDULES))
        _check_name("precision", self.precision, PRECISIONS)

    def resolved(self, defaults: Mapping[str, Any]) -> Settings:
        """The same settings with every open field taken from a model's defaults."""
        given = {k: _plain(v) for k, v in asdict(self).items() if v is not None}
        known = {field.name for field in fields(self)}
        base = replace(_FALLBACK, **{k: v for k, v in defaults.items() if k in known})
        return replace(base, **given)


@dataclass(frozen=True)
class Settings:
    """A `TrainingConfig` with no field open; those that an old run lacks are as they were then."""

    epochs: float
    checkpoint_every: float
    batch_size: int
    accumulate: int
    lr: float
    optimizer: str
    schedule: str
    warmup: float
    weight_decay: float
    precision: str
    label_noise: float

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Settings:
        """Settings as a run directory holds them, also one from before a field was there."""
        known = {field.name for field in fields(cls)}
        return replace(_FALLBACK, **{k: v for k, v in stored.items() if k in known})

    def steps_per_epoch(self, n_members: int) -> int:
        """Optimizer steps in a pass over the members; the last may be smaller."""
        return math.ceil(n_members / (self.batch_size * self.accumulate))

    def total_steps(self, n_members: int) -> int:
        """Optimizer steps of the whole training, at least one."""
        return max(1, round(self.epochs * self.steps_per_epoch(n_members)))

    def checkpoint_steps(self, n_members: int) -> dict[int, float]:
        """Step and epoch of each checkpoint: 0, every `checkpoint_every` epochs, the end."""
        per_epoch, total = self.steps_per_epoch(n_members), self.total_steps(n_members)
        count = math.ceil(self.epochs / self.checkpoint_every - 1e-9)
        epochs = [i * self.checkpoint_every for i in range(count)]
        steps: dict[int, float] = {}
        for epoch in epochs:
            steps.setdefault(round(epoch * per_epoch), round(epoch, 9))
        return {s: e for s, e in steps.items() if s < total} | {total: round(self.epochs, 9)}

    def rate(self, step: int, n_members: int) -> float:
        """The learning rate of a step, a pure function of how much of the training is done."""
        done = step / self.total_steps(n_members)
        if done < self.warmup:
            return self.lr * (step + 1) / (self.warmup * self.total_steps(n_members) + 1)
        return self.lr * SCHEDULES[self.schedule]((done - self.warmup) / (1 - self.warmup))


_FALLBACK = Settings(
    epochs=10,
    checkpoint_every=1,
    batch_size=32,
    accumulate=1,
    lr=1e-3,
    optimizer="adamw",
    schedule="constant",
    warmup=0.0,
    weight_decay=0.0,
    precision="float32",
    label_noise=0.0,
)


def _plain(value: Any) -> Any:
    """Python's own number for one of NumPy's; a whole one is an integer."""
    if isinstance(value, str):
        return value
    return int(value) if value == int(value) else float(value)


def _check_positive(name: str, value: float | None) -> None:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive number, not {value}")


def _check_whole(name: str, value: float | None) -> None:
    if value is not None and value != int(value):
        raise ValueError(f"{name} must be a whole number, not {value}")


def _check_name(what: str, name: str | None, valid: tuple[str, ...]) -> None:
    if name is not None and name not in valid:
        raise ValueError(f"unknown {what} {name!r}; valid: {', '.join(valid)}")
