"""False alarms where nothing is memorised, against METHOD.md's rates and against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.memorization import log_lira
from memowidgets.memorization.chance import ByChance


def nothing_memorised(m, n=4000, seed=0, spread=0.27):
    """Shadow models in a balanced design; gaps and the target's gap of one Gaussian a sample."""
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    deviation = np.exp(spread * rng.normal(size=n))
    return rng.normal(size=(m, n)) * deviation, members, rng.normal(size=n) * deviation


@pytest.mark.parametrize(("m", "rate"), [(4, 0.010), (8, 0.0031), (16, 0.0015), (32, 0.0005)])
def test_the_rates_of_the_shrunk_variance(m, rate):
    gaps, members, _ = nothing_memorised(m)
    assert ByChance.of(gaps, members).share(4.0) == pytest.approx(rate, rel=0.35)


def test_the_rate_of_the_papers_variance():
    gaps, members, _ = nothing_memorised(8)
    assert ByChance.of(gaps, members, "per-sample").share(4.0) == pytest.approx(0.065, rel=0.05)


@pytest.mark.parametrize("variance", ["shrunk", "global", "per-sample"])
@pytest.mark.parametrize("eta", [1.0, 4.0])
def test_it_is_what_log_lira_gives(variance, eta):
    gaps, members, target = nothing_memorised(16, 60_000, 1)
    counted = (log_lira(gaps, members, target, variance) >= eta).mean()
    error = np.sqrt(counted / 60_000)
    expected = ByChance.of(gaps, members, variance).share(eta)
    assert expected == pytest.approx(counted, rel=0.2, abs=4 * error)


@pytest.mark.parametrize("variance", ["shrunk", "global"])
def test_a_side_with_one_model_counts_where_it_gives_a_value(variance):
    gaps, _, target = nothing_memorised(4, 60_000, 2)
    members = np.random.default_rng(3).random(gaps.shape) < 0.5
    values = log_lira(gaps, members, target, variance)
    counted = (values[~np.isnan(values)] >= 4).mean()
    assert ByChance.of(gaps, members, variance).share(4.0) == pytest.approx(counted, rel=0.1)


def test_it_is_the_same_every_time_and_falls_with_eta():
    gaps, members, _ = nothing_memorised(8)
    rates = [ByChance.of(gaps, members).share(eta) for eta in (-1e9, 0, 1, 2, 4, 8, 1e9)]
    assert rates[0] == pytest.approx(1)
    assert rates[-1] == 0
    assert rates == sorted(rates, reverse=True)
    assert ByChance.of(gaps, members).share(4) == rates[4]


def test_models_without_two_on_a_side_are_refused():
    with pytest.raises(ValueError, match="fewer than two shadow models on a side"):
        ByChance.of(np.zeros((2, 3)), np.zeros((2, 3), bool))
