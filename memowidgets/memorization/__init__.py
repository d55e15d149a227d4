"""Measures of memorisation from shadow models: log-LiRA and others.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from memowidgets.memorization.densities import probability_memorized
from memowidgets.memorization.lira import (
    Support,
    attack_success_rate,
    counterfactual,
    log_lira,
    rmia,
    support,
)

__all__ = [
    "Support",
    "attack_success_rate",
    "counterfactual",
    "log_lira",
    "probability_memorized",
    "rmia",
    "support",
]
