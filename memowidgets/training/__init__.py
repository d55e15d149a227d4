"""Training: settings, the loop with its checkpoints, the ρ rule, and shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memowidgets.training.config import TrainingConfig

if TYPE_CHECKING:
    from memowidgets.training.lightning_callback import LightningCallback
    from memowidgets.training.trainer_callback import MemorizationCallback

__all__ = ["LightningCallback", "MemorizationCallback", "TrainingConfig"]

_LATER = {"LightningCallback": "lightning_callback", "MemorizationCallback": "trainer_callback"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"memowidgets.training has no {name!r}; it has {', '.join(__all__)}")
    from importlib import import_module

    return getattr(import_module(f"memowidgets.training.{_LATER[name]}"), name)
