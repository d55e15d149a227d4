"""Evaluation of scores against the truth: ROC curves, AUCs, intervals and thresholds.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from memowidgets.evaluation.curve import (
    Comparison,
    Evaluation,
    OperatingPoint,
    below_class,
    compare,
    lowest_share,
    roc,
)
from memowidgets.evaluation.intervals import clopper_pearson

__all__ = [
    "Comparison",
    "Evaluation",
    "OperatingPoint",
    "below_class",
    "clopper_pearson",
    "compare",
    "lowest_share",
    "roc",
]
