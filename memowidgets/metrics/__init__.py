"""The scores μ. Each is low where the finished model is likely to memorise a sample.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from __future__ import annotations

from memowidgets.metrics.logits import logit_gap, loss
from memowidgets.metrics.mahalanobis import Mahalanobis
from memowidgets.metrics.many_layers import score_layers
from memowidgets.metrics.psmi import PSMI
from memowidgets.metrics.trace import csl, mean_over_checkpoints, mean_rank

__all__ = [
    "PSMI",
    "Mahalanobis",
    "csl",
    "logit_gap",
    "loss",
    "mean_over_checkpoints",
    "mean_rank",
    "score_layers",
]
