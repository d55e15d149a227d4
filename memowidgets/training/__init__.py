"""Training: settings, the loop with its checkpoints, the ρ rule, and shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memowidgets.training.config import TrainingConfig

if TYPE_CHECKING:
    from memowidgets.training.trainer_callback import MemorizationCallback

__all__ = ["MemorizationCallback", "TrainingConfig"]


def __getattr__(name: str) -> Any:
    if name != "MemorizationCallback":
        raise AttributeError(f"memowidgets.training has no {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return import_module("memowidgets.training.trainer_callback").MemorizationCallback
