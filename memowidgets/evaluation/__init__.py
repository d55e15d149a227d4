"""How well a score finds what was memorised: ROC, intervals, thresholds; pure, no other room."""

from memowidgets.evaluation.curve import (
    FEW_POSITIVES,
    Comparison,
    Evaluation,
    OperatingPoint,
    chance_note,
    clopper_pearson,
    compare,
    roc,
)

__all__ = [
    "FEW_POSITIVES",
    "Comparison",
    "Evaluation",
    "OperatingPoint",
    "chance_note",
    "clopper_pearson",
    "compare",
    "roc",
]
