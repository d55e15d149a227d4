"""Training: settings, the loop with its checkpoints, where to look, and shadow models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memowidgets.extras import later

if TYPE_CHECKING:
    from memowidgets.training.config import TrainingConfig
    from memowidgets.training.lightning_callback import LightningCallback
    from memowidgets.training.trainer_callback import MemorizationCallback

__all__ = ["LightningCallback", "MemorizationCallback", "TrainingConfig"]

__getattr__ = later(
    __name__,
    {
        "LightningCallback": "memowidgets.training.lightning_callback",
        "MemorizationCallback": "memowidgets.training.trainer_callback",
        "TrainingConfig": "memowidgets.training.config",
    },
)
