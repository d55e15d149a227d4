"""The scores μ. Each is low where the finished model is likely to memorise a sample.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memowidgets.extras import later

if TYPE_CHECKING:
    from memowidgets.metrics.logits import (
        csl,
        logit_gap,
        loss,
        mean_over_checkpoints,
        mean_rank,
    )
    from memowidgets.metrics.mahalanobis import Mahalanobis
    from memowidgets.metrics.psmi import PSMI

__all__ = [
    "PSMI",
    "Mahalanobis",
    "csl",
    "logit_gap",
    "loss",
    "mean_over_checkpoints",
    "mean_rank",
]

_PLACES = dict.fromkeys(__all__, "logits") | {
    "PSMI": "psmi",
    "Mahalanobis": "mahalanobis",
}
__getattr__ = later(
    __name__, {k: f"memowidgets.metrics.{v}" for k, v in _PLACES.items()}
)


def __dir__() -> list[str]:
    return __all__
