"""Measures of memorisation from shadow models: log-LiRA and others.

This room is pure: it takes and returns arrays, and imports no other room.
"""

from memowidgets.memorization.lira import (
    Support,
    attack_success_rate,
    counterfactual,
    log_lira,
    rmia,
    support,
)
from memowidgets.memorization.posterior import probability_memorized

__all__ = [
    "Support",
    "attack_success_rate",
    "counterfactual",
    "log_lira",
    "probability_memorized",
    "rmia",
    "support",
]
