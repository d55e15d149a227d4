"""Altair figures: functions that turn a data frame into a chart."""

from memowidgets.charts.gallery import Figures
from memowidgets.charts.learning import loss_and_accuracy, over_training
from memowidgets.charts.memorized import (
    histograms_of_log_lira,
    memorization_scatter,
    memorized_per_model,
    shadow_curves,
)
from memowidgets.charts.predictions import (
    auc_by_eta,
    auc_by_layer,
    auc_by_setting,
    roc_curves,
    roc_panels,
    roc_table,
)

__all__ = [
    "Figures",
    "auc_by_eta",
    "auc_by_layer",
    "auc_by_setting",
    "histograms_of_log_lira",
    "loss_and_accuracy",
    "memorization_scatter",
    "memorized_per_model",
    "over_training",
    "roc_curves",
    "roc_panels",
    "roc_table",
    "shadow_curves",
]
