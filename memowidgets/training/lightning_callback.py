"""Callback for Lightning's Trainer that watches its training."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from memowidgets.checks import warn_user
from memowidgets.training.origin import Origin, origin_of_lightning

if TYPE_CHECKING:
    from collections.abc import Iterable


def _base() -> type:
    """Return the class of callbacks of the Lightning that is imported or installed, or object."""
    names = "lightning.pytorch", "pytorch_lightning"
    for name in sorted(
        names, key=lambda name: name.partition(".")[0] not in sys.modules
    ):
        with suppress(ModuleNotFoundError):
            base: type = import_module(name).Callback
            return base
    return object


if TYPE_CHECKING:
    Callback = object
else:
    Callback = _base()

__all__ = ["LightningCallback"]


class WatchedLoop(Protocol):
    """What the callback tells of a loop, such as `mw.watch` returns."""

    steps: int
    steps_per_epoch: int

    def step(self) -> bool:
        """Count a step, and return whether to stop and look."""

    def end(self) -> None:
        """Record the last step."""

    def continue_at(self, steps_done: int) -> None:
        """Go on from a step."""

    def count_draws(self, loader: Iterable[object]) -> None:
        """Count how often a loader draws each sample."""

    def name_origin(self, origin: Origin) -> None:
        """Keep who runs the loop."""


class LightningCallback(Callback):
    """Callback that counts the optimizer steps of Lightning's Trainer for `mw.watch`.

    It works with ``lightning.Trainer`` and ``pytorch_lightning.Trainer``. With gradient
    accumulation, a step is one of the optimizer, not a batch. The last step is recorded too.

    Parameters
    ----------
    watch : Watch
        Made by ``mw.watch`` before ``trainer.fit``, of the module that the Trainer trains.
    stop : bool
        Whether to stop the Trainer where to look.

    Raises
    ------
    ModuleNotFoundError
        If Lightning is not installed.
    TypeError
        If `watch` is not a watched loop.

    Warns
    -----
    UserWarning
        If an epoch has other steps than ``steps_per_epoch`` of `mw.watch`.

    Notes
    -----
    A Trainer that resumes (``ckpt_path=``) continues the recording at its own step; if the module
    was initialised in another way than in the first run, pass that step as ``steps_done`` to
    `mw.watch`. The pass runs
    outside of the Trainer's precision plugin: use ``forward=`` of ``mw.watch`` for mixed precision.
    Weights that are spread over processes (FSDP, DeepSpeed's stage 3) are an error.

    Examples
    --------
    ::

        watch = mw.watch(module, train_set, path="runs/mine", steps_per_epoch=len(loader))
        trainer = lightning.Trainer(callbacks=[mw.training.LightningCallback(watch)])
        trainer.fit(module, loader)
        watch.audit.dashboard()
    """

    def __init__(self, watch: WatchedLoop, stop: bool = True) -> None:
        if LightningCallback.__mro__[1] is object:
            raise ModuleNotFoundError("install Lightning with pip install lightning")
        if not hasattr(watch, "step") or not hasattr(watch, "continue_at"):
            raise TypeError(
                f"watch must be what mw.watch returns, not {type(watch).__name__}"
            )
        self._watch = watch
        self._stop = stop
        self._seen = 0
        self._began = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Go on at the Trainer's step if it resumes, and count what its loader draws."""
        # an epoch that it resumes has no start
        self._seen = self._began = trainer.global_step
        if self._seen:
            self._watch.continue_at(self._seen)
        self._watch.count_draws(trainer.train_dataloader)
        self._watch.name_origin(origin_of_lightning(trainer, pl_module, self._seen))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - the hook's
        """Note the step at which an epoch begins."""
        self._began = trainer.global_step

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - the hook's
        """Warn if the first whole epoch has another number of steps than mw.watch was given."""
        steps = trainer.global_step - self._began
        told = self._watch.steps_per_epoch
        is_cut = trainer.should_stop or trainer.global_step == trainer.max_steps
        if self._began == 0 and steps != told and not is_cut:
            warn_user(
                f"an epoch of the Trainer has {steps} optimizer steps; pass mw.watch "
                f"steps_per_epoch={steps} in place of {told}"
            )

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """Count the optimizer steps of a batch, and stop where to look."""
        while self._seen < trainer.global_step:
            self._seen += 1
            if self._watch.step() and self._stop:
                trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - the hook's
        """Record the last step."""
        if self._watch.steps:
            self._watch.end()
