"""The interval of one AUC: it holds its level where DeLong's does not, and always has a width."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from memowidgets.evaluation import roc
from memowidgets.evaluation.intervals import newcombe

REPLICATES = 1000


def hanley_mcneil(area, positives, negatives):
    """The variance as it is printed, with both sizes inside the bracket replaced by their mean."""
    mean = (positives + negatives) / 2
    both_right, both_wrong = area / (2 - area), 2 * area**2 / (1 + area)
    terms = (mean - 1) * (both_right - area**2) + (mean - 1) * (both_wrong - area**2)
    return (area * (1 - area) + terms) / (positives * negatives)


@pytest.mark.parametrize(
    ("area", "positives", "negatives"), [(0.85, 35, 965), (0.5, 1, 4), (0.98, 20, 20), (0.1, 3, 9)]
)
def test_each_limit_is_one_standard_score_away(area, positives, negatives):
    for limit in newcombe(area, positives, negatives):
        distance = abs(area - limit) / np.sqrt(hanley_mcneil(limit, positives, negatives))
        assert distance == pytest.approx(norm.ppf(0.975), abs=1e-9)


def binormal(area, positives, negatives, seed):
    """Scores of `REPLICATES` studies in which the true AUC is `area`."""
    rng = np.random.default_rng(seed)
    truth = np.arange(positives + negatives) < positives
    shift = np.sqrt(2) * norm.ppf(area)
    return rng.normal(size=(REPLICATES, len(truth))) - shift * truth, truth


@pytest.mark.parametrize(
    ("area", "positives", "negatives"),
    [(0.85, 35, 965), (0.95, 35, 965), (0.95, 35, 265), (0.98, 20, 980)],
)
def test_95_percent_intervals_cover_95_percent(area, positives, negatives):
    """DeLong's Wald interval covers .92, .88, .89 and .79 here; chance moves a share by .007."""
    studies, truth = binormal(area, positives, negatives, seed=positives + negatives)
    intervals = np.array([roc(scores, truth).auc_interval for scores in studies])
    covered = np.mean((intervals[:, 0] <= area) & (area <= intervals[:, 1]))
    assert 0.945 <= covered <= 0.995


def test_no_interval_is_without_width():
    perfect = roc([-1.0] * 30 + [1.0] * 70, np.arange(100) < 30)
    assert perfect.auc == 1
    assert 0.9 < perfect.auc_interval[0] < 0.99
    assert perfect.auc_interval[1] == 1
    reversed_ = roc([1.0] * 30 + [-1.0] * 70, np.arange(100) < 30)
    low, high = perfect.auc_interval
    assert reversed_.auc_interval == pytest.approx((1 - high, 1 - low), abs=1e-12)
    low, high = roc([1.0, 2.0, 3.0], [True, False, False]).auc_interval
    assert 0 < low < 0.5
    assert high == 1


def test_more_samples_make_it_narrower():
    widths = [high - low for low, high in (newcombe(0.9, n, 10 * n) for n in (1, 10, 100, 1000))]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.03
