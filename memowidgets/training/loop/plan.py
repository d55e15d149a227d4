"""Steps of a training loop at which checkpoints are due."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["CheckpointPlan"]


class CheckpointPlan:
    """Checkpoints at step 0 and at equal distances, without a known end of the training.

    Parameters
    ----------
    steps_per_epoch : int
        Optimizer steps in an epoch.
    every : float
        Epochs between two checkpoints.

    Raises
    ------
    ValueError, TypeError
        If the steps are missing, or either is not a positive number.

    Examples
    --------
    >>> plan = CheckpointPlan(steps_per_epoch=7, every=0.5)
    >>> [plan.epoch_at(step) for step in range(8)]
    [0.0, None, None, None, 0.5, None, None, 1.0]
    """

    def __init__(self, steps_per_epoch: Any, every: float) -> None:
        self.steps_per_epoch = _whole(steps_per_epoch)
        self.every = _positive(every)

    def epoch_at(self, step: int) -> float | None:
        """Return the epoch of the checkpoint at a step; None if none is due there.

        If several epochs fall on one step, it has the one that it is nearest to.
        """
        stride = self.every * self.steps_per_epoch
        near = range(max(0, math.floor((step - 1) / stride)), math.ceil((step + 1) / stride) + 1)
        due = [round(k * self.every, 9) for k in near if round(k * stride) == step]
        return min(due, key=lambda epoch: abs(epoch * self.steps_per_epoch - step), default=None)


def _whole(steps: Any) -> int:
    if steps is None:
        raise ValueError(
            "steps_per_epoch is missing, so no epoch ends; pass the number of optimizer steps in "
            "an epoch, such as len(loader) without gradient accumulation"
        )
    try:
        fits = not isinstance(steps, bool) and steps == int(steps) and steps >= 1
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(
            "steps_per_epoch must be the number of optimizer steps in an epoch, a whole number "
            f"from 1, not {steps!r}"
        )
    return int(steps)


def _positive(every: Any) -> float:
    number = isinstance(every, int | float) and not isinstance(every, bool)
    if not number or not 0 < every < math.inf:
        raise ValueError(
            f"checkpoint_every must be a positive number of epochs, such as 0.2, not {every!r}"
        )
    return float(every)
