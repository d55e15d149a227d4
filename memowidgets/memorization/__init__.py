"""The truth, from shadow models: log-LiRA and its relatives; pure, imports no other room."""

from __future__ import annotations

from memowidgets.memorization.counterfactual import counterfactual
from memowidgets.memorization.global_lira import attack_success_rate
from memowidgets.memorization.lira import log_lira

__all__ = ["attack_success_rate", "counterfactual", "log_lira"]
