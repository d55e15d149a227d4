"""Settings of training, which two runs must share to be comparable."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from memowidgets.checks import check_version, real_number, several, whole_number
from memowidgets.models.device import PRECISIONS

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
            raise ValueError(f"label_noise must be a share from 0 to below 1, not {noise}")
        if self.weight_decay is not None:
            real_number("weight_decay", self.weight_decay, 0, finite=True)
        for name, valid in _NAMES.items():
            _check_name(name, getattr(self, name), valid)
        if self.milestones is not None:
            given = several("milestones", self.milestones)
            shares = [real_number("a milestone", share) for share in given]
            if shares != sorted({share for share in shares if 0 < share < 1}):
                raise ValueError(f"milestones must be rising shares from 0 to 1, not {given!r}")
        check_version(self.version)

    def resolved(self, defaults: Mapping[str, Any]) -> Settings:
        """Return the settings with every open field taken from a model's defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {k: _plain(v) for k, v in values.items() if v is not None}
        if given.get("augment", "none") != "none" and "augment" not in defaults:
            raise ValueError(f"augment={self.augment!r} is for models of images")
        found = Settings(**{**{k: v for k, v in defaults.items() if k in values}, **given})
        if found.epochs / found.checkpoint_every > _MOST_CHECKPOINTS:
            raise ValueError(
                f"{found.epochs:g} epochs with checkpoint_every={found.checkpoint_every:g} are "
                f"more than {_MOST_CHECKPOINTS} checkpoints; pass a larger checkpoint_every"
            )
        return found


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
        known = {field.name for field in fields(cls)}
        kept: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in stored.items() if k in known
        }
        return cls(**kept)

    def described(self) -> dict[str, Any]:
        """Return the settings as text and numbers, a function as its name."""
        found = {field.name: _as_text(getattr(self, field.name)) for field in fields(self)}
        off = [name for name in ("deterministic", "version") if not found[name]]
        return {name: value for name, value in found.items() if name not in off}

    def steps_per_epoch(self, n_members: int) -> int:
        """Return the number of optimizer steps in an epoch; the last may be smaller."""
        return math.ceil(n_members / (self.batch_size * self.accumulate))

    def total_steps(self, n_members: int) -> int:
        """Return the number of optimizer steps of the whole training, at least one."""
        return max(1, round(self.epochs * self.steps_per_epoch(n_members)))

    def plan(self, n_members: int) -> CheckpointPlan:
        """Return the plan of the checkpoints: 0, every `checkpoint_every` epochs, the end."""
        per_epoch, total = self.steps_per_epoch(n_members), self.total_steps(n_members)
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
                raise ValueError(f"the schedule returns {factor} after {done:.1%} of the training")
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
            raise ValueError(f"checkpoint_every (epochs) must be a positive number, not {every!r}")
        self.steps_per_epoch, self.every, self.total = steps_per_epoch, every, total
        known = None if total is None else total / steps_per_epoch
        self._epochs = known if epochs is None else epochs

    def epoch_at(self, step: int) -> float | None:
        """Return the epoch of the checkpoint at a step; None if none is due there."""
        if self._epochs is not None and self.total is not None and step >= self.total:
            return round(self._epochs, 9) if step == self.total else None
        stride = self.every * self.steps_per_epoch
        nearest = math.ceil(round(step / stride - 0.5, 6))  # the earlier of two that are as near
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
