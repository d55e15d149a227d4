"""Altair figures: functions that turn a data frame into a chart."""

from memowidgets.charts.areas import auc_by_eta, auc_by_layer, auc_by_setting
from memowidgets.charts.course import over_training
from memowidgets.charts.gallery import FORMATS, Figures
from memowidgets.charts.histograms import histograms_of_log_lira
from memowidgets.charts.learning import loss_and_accuracy, training_curves
from memowidgets.charts.ranks import ranks
from memowidgets.charts.roc import roc_curves, roc_panels, roc_table
from memowidgets.charts.truth import memorization_scatter, shadow_curves

__all__ = [
    "FORMATS",
    "Figures",
    "auc_by_eta",
    "auc_by_layer",
    "auc_by_setting",
    "histograms_of_log_lira",
    "loss_and_accuracy",
    "memorization_scatter",
    "over_training",
    "ranks",
    "roc_curves",
    "roc_panels",
    "roc_table",
    "shadow_curves",
    "training_curves",
]
