"""Evaluation of scores against the truth: ROC curves, AUCs, intervals and thresholds.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from memowidgets.evaluation.curve import (
    ENOUGH_MODELS,
    FEW_POSITIVES,
    Comparison,
    Evaluation,
    OperatingPoint,
    compare,
    roc,
)
from memowidgets.evaluation.intervals import clopper_pearson
from memowidgets.evaluation.thresholds import OPENING_SHARE, below_class, lowest_share, opening_tau

__all__ = [
    "ENOUGH_MODELS",
    "FEW_POSITIVES",
    "OPENING_SHARE",
    "Comparison",
    "Evaluation",
    "OperatingPoint",
    "below_class",
    "clopper_pearson",
    "compare",
    "lowest_share",
    "opening_tau",
    "roc",
]
