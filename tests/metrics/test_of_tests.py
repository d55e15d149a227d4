"""Deliberately broken estimators: each fails a check that the sound one passes."""

from dataclasses import replace

import numpy as np
import pytest

from memowidgets.evaluation import curve
from memowidgets.metrics import controls, fitted
from tests.metrics import checks


def wrong_ddof(monkeypatch):
    sound = fitted.ClassSums.variance

    def broken(sums):
        return sound(sums) * (sums.counts / (sums.counts - 1))[:, None]

    monkeypatch.setattr(fitted.ClassSums, "variance", broken)


def missing_prior(monkeypatch):
    sound = fitted._tables

    def broken(sums, m):
        tables = sound(sums, m)
        return replace(
            tables,
            offset=tables.offset - tables.log_prior[:, None],
            log_prior=np.zeros_like(tables.log_prior),
        )

    monkeypatch.setattr(fitted, "_tables", broken)


def wrong_mean_of_a_control(monkeypatch):
    sound = controls.Controls.means

    def broken(*args):
        means = sound(*args)
        means[0] *= 1.05
        return means

    monkeypatch.setattr(controls.Controls, "means", broken)


def wrong_mean_of_a_logarithm(monkeypatch):
    sound = controls.mean_log
    monkeypatch.setattr(controls, "mean_log", lambda *args: sound(*args) + 0.03)


def ties_counted_twice(monkeypatch):
    def broken(ladder):
        above = 1 - (ladder.false_alarms - ladder.steps()[1]) / ladder.false_alarms[-1]
        return above, ladder.hits / ladder.hits[-1]

    monkeypatch.setattr(curve._Ladder, "placements", broken)


@pytest.mark.parametrize(
    ("mutation", "check"),
    [
        (wrong_ddof, checks.plain_agrees_with_the_formula),
        (missing_prior, checks.plain_agrees_with_the_formula),
        (wrong_mean_of_a_control, checks.means_of_controls_are_exact),
        (wrong_mean_of_a_control, checks.few_directions_are_not_biased),
        (wrong_mean_of_a_logarithm, checks.means_of_controls_are_exact),
        (ties_counted_twice, checks.ties_count_a_half),
    ],
)
def test_a_broken_estimator_fails(monkeypatch, mutation, check):
    check()
    mutation(monkeypatch)
    with pytest.raises(AssertionError):
        check()
