"""How a model is trained: every number that two runs must share to be compared."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
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
STEPS = "steps"
AUGMENTATIONS = ("none", "flip", "crop", "flip+crop")
_GIVEN: dict[str, Callable[..., Any]] = {}  # users' functions, by the text that stands for them


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
    optimizer : {"adamw", "sgd"} or callable, optional
        SGD runs with momentum 0.9. A callable makes one from a list of parameters, at rates of
        its own, which `schedule` then scales: ``lambda p: torch.optim.SGD(p, lr=0.1)``.
    schedule : {"constant", "linear", "cosine", "steps"} or callable, optional
        How the rate falls: not at all; to 0 at the end in a line or half a cosine; to a tenth at
        each of the `milestones`. A callable gives the factor for the share that is done.
    milestones : sequence of float, optional
        Shares of the training at which ``"steps"`` goes down; by default a half and three
        quarters, as the paper's network on CIFAR-10 (150 and 225 of 300 epochs).
    warmup : float, optional
        Share of the steps over which the rate rises to `lr` first.
    weight_decay : float, optional
        As the optimizer defines it.
    precision : {"auto", "float32", "bfloat16"}, optional
        bfloat16 is autocast, what is trained stays float32. ``"auto"`` takes it where the hardware
        multiplies matrices in it (GPUs, CPUs with AMX), and float32 elsewhere. That is settled when
        an audit is made, written into its manifest, and the same on every machine from then on.
    label_noise : float, optional
        Share of the pool's labels that are flipped at random, alike for every model; none by
        default. The paper's reference code flips 0.033, which its text does not mention.
    augment : {"none", "flip", "crop", "flip+crop"}, optional
        Of images, while training: mirrored half of the time, shifted by up to an eighth of their
        side. None by default, as in the paper.

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
    ValueError: unknown schedule 'stairs'; valid: constant, linear, cosine, steps
    """

    epochs: float | None = None
    checkpoint_every: float | None = None
    batch_size: int | None = None
    accumulate: int | None = None
    lr: float | None = None
    optimizer: str | Callable[..., Any] | None = None
    schedule: str | Callable[[float], float] | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    precision: str | None = None
    label_noise: float | None = None
    milestones: Sequence[float] | None = None
    augment: str | None = None

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
        _check_name("schedule", self.schedule, (*SCHEDULES, STEPS))
        _check_name("precision", self.precision, PRECISIONS)
        _check_name("augment", self.augment, AUGMENTATIONS)
        _check_milestones(self.milestones)

    def resolved(self, defaults: Mapping[str, Any]) -> Settings:
        """The same settings with every open field taken from a model's defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {k: _plain(v) for k, v in values.items() if v is not None}
        known = {field.name for field in fields(self)}
        base = replace(_FALLBACK, **{k: v for k, v in defaults.items() if k in known})
        if given.get("augment", "none") != "none" and "augment" not in defaults:
            raise ValueError(f"augment={self.augment!r} is for images; this model takes none")
        return replace(base, **given)


@dataclass(frozen=True)
class Settings:
    """A `TrainingConfig` with no field open; those that an old run lacks are as they were then."""

    epochs: float
    checkpoint_every: float
    batch_size: int
    accumulate: int
    lr: float
    optimizer: str | Callable[..., Any]
    schedule: str | Callable[[float], float]
    warmup: float
    weight_decay: float
    precision: str
    label_noise: float
    milestones: tuple[float, ...]
    augment: str

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Settings:
        """Settings as a run directory holds them, also one from before a field was there.

        A user's function comes back where it was given before in this process; elsewhere the
        text that stands for it does, and training with that is an error.
        """
        known = {field.name for field in fields(cls)}
        return replace(_FALLBACK, **{k: _read(v) for k, v in stored.items() if k in known})

    def described(self) -> dict[str, Any]:
        """The settings as text and numbers, a user's function as its name and a hash of it."""
        return {k: _described(v) for k, v in asdict(self).items()}

    def steps_per_epoch(self, n_members: int) -> int:
        """Optimizer steps in a pass over the members; the last may be smaller."""
        return math.ceil(n_members / (self.batch_size * self.accumulate))

    def total_steps(self, n_members: int) -> int:
        """Optimizer steps of the whole training, at least one."""
        return max(1, round(self.epochs * self.steps_per_epoch(n_members)))

    def checkpoint_steps(self, n_members: int) -> dict[int, float]:
        """Step and epoch of each checkpoint: 0, every `checkpoint_every` epochs, the end."""
        per_epoch, total = self.steps_per_epoch(n_members), self.total_steps(n_members)
        return spread_checkpoints(self.epochs, self.checkpoint_every, per_epoch, total)

    def rate(self, step: int, n_members: int, lr: float | None = None) -> float:
        """The learning rate of a step, a pure function of how much of the training is done."""
        top = self.lr if lr is None else lr
        done = step / self.total_steps(n_members)
        if done < self.warmup:
            return top * (step + 1) / (self.warmup * self.total_steps(n_members) + 1)
        return top * self._factor((done - self.warmup) / (1 - self.warmup))

    def _factor(self, done: float) -> float:
        if self.schedule == STEPS:
            return 0.1 ** sum(done >= milestone for milestone in self.milestones)
        schedule = self.schedule
        if callable(schedule):
            factor = float(schedule(done))
            if not (factor >= 0 and math.isfinite(factor)):
                raise ValueError(f"the schedule gives {factor} after {done:.1%} of the training")
            return factor
        if schedule not in SCHEDULES:
            raise ValueError(lost_function("schedule", schedule))
        return SCHEDULES[schedule](done)


def spread_checkpoints(epochs: float, every: float, per_epoch: int, total: int) -> dict[int, float]:
    """Step and epoch of each checkpoint of a training of `total` steps."""
    count = math.ceil(epochs / every - 1e-9)
    steps: dict[int, float] = {}
    for epoch in (i * every for i in range(count)):
        steps.setdefault(round(epoch * per_epoch), round(epoch, 9))
    return {s: e for s, e in steps.items() if s < total} | {total: round(epochs, 9)}


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
    milestones=(0.5, 0.75),
    augment="none",
)


def lost_function(what: str, name: str) -> str:
    """The message where a user's function is not at hand."""
    return (
        f"this run is trained with a {what} of its owner's, {name}: make the audit again with "
        f"Audit(…, training=TrainingConfig({what}=…))"
    )


def _described(value: Any) -> Any:
    if not callable(value):
        return list(value) if isinstance(value, tuple) else value
    text = f"{getattr(value, '__qualname__', type(value).__qualname__)}@{_function_hash(value)}"
    _GIVEN[text] = value
    return text


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return _GIVEN.get(value, value) if isinstance(value, str) else value


def _function_hash(function: Callable[..., Any]) -> str:
    """Of its source, and of what it holds from outside that can be written down."""
    code = getattr(function, "__code__", None)
    try:
        source = inspect.getsource(function if code is not None else type(function))
    except (OSError, TypeError):
        source = repr((code.co_code, code.co_consts)) if code is not None else ""
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    held += [*(getattr(function, "__defaults__", None) or ()), *_arguments_of(function)]
    plain = [value for value in held if isinstance(value, str | int | float | tuple | None)]
    return hashlib.sha256(f"{source}{plain!r}".encode()).hexdigest()[:16]


def _arguments_of(function: Any) -> list[Any]:
    """What a functools.partial holds."""
    inner = getattr(function, "func", None)
    if inner is None:
        return []
    keywords = sorted(getattr(function, "keywords", {}).items())
    return [_function_hash(inner), *getattr(function, "args", ()), *keywords]


def _plain(value: Any) -> Any:
    """Python's own number for one of NumPy's; a whole one is an integer."""
    if isinstance(value, str) or callable(value):
        return value
    if isinstance(value, Sequence):
        return tuple(float(v) for v in value)
    return int(value) if value == int(value) else float(value)


def _check_positive(name: str, value: float | None) -> None:
    if isinstance(value, str):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be a positive number, not {value}")


def _check_whole(name: str, value: float | None) -> None:
    if value is not None and value != int(value):
        raise ValueError(f"{name} must be a whole number, not {value}")


def _check_milestones(milestones: Sequence[float] | None) -> None:
    if milestones is None:
        return
    shares = list(milestones)
    if any(not 0 < share < 1 for share in shares) or shares != sorted(set(shares)):
        raise ValueError(
            f"milestones are rising shares of the training between 0 and 1, not {milestones!r}"
        )


def _check_name(what: str, name: Any, valid: tuple[str, ...]) -> None:
    if callable(name) and what in ("optimizer", "schedule"):
        return
    if name is not None and name not in valid:
        raise ValueError(f"unknown {what} {name!r}; valid: {', '.join(valid)}")
