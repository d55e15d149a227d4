"""How models are trained: settings, the loop with its checkpoints, the ρ rule, shadow models."""

from memowidgets.training.config import TrainingConfig

__all__ = ["TrainingConfig"]
