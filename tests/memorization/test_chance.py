"""False alarms against rates and brute force; the note on gaps that are plainly not Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis, norm

import memowidgets as mw
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization import log_lira
from memowidgets.memorization.chance import ByChance, excess_kurtosis, note_on_shape

SHAPES = {
    "gaussian": lambda rng, size: rng.normal(size=size),
    "tails": lambda rng, size: rng.standard_t(3, size=size),
    "humps": lambda rng, size: rng.choice([-2.0, 2.0], size=size) + 0.7 * rng.normal(size=size),
}


RECORDED = {"mmlu-field-smollm2": 0.14, "banking77-smollm2": 0.02, "cifar10-wrn": 0.13}


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


def gaps_of(shape, m, n=1000, seed=0):
    """Gaps whose means and deviations differ between samples and sides."""
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    spread = np.sqrt(6 / rng.chisquare(6, n)) * np.where(members, 0.8, 1.0)
    return 3 * rng.normal(size=n) + 2 * members + spread * SHAPES[shape](rng, (m, n)), members


@pytest.mark.parametrize("m", [8, 16, 32, 64])
def test_gaussian_gaps_say_nothing(m):
    for seed in range(5):
        assert note_on_shape(*gaps_of("gaussian", m, seed=seed)) is None


@pytest.mark.parametrize("m", [16, 32, 64])
def test_heavy_tails_and_two_humps_are_found(m):
    for seed in range(3):
        assert "heavy tails" in note_on_shape(*gaps_of("tails", m, seed=seed))
        assert "two humps" in note_on_shape(*gaps_of("humps", m, seed=seed))


def test_nothing_is_said_of_few_gaps():
    assert note_on_shape(*gaps_of("tails", 32, n=10)) is None
    assert note_on_shape(*gaps_of("tails", 6)) is None
    assert note_on_shape(np.ones((32, 100)), np.arange(32)[:, None] % 2 == np.zeros(100)) is None


@pytest.mark.parametrize(("name", "kurtosis"), RECORDED.items())
def test_the_recordings_are_gaussian_enough(name, kurtosis):
    _, members, gaps, _ = member_gaps(mw.open_recorded(name).evidence)
    assert excess_kurtosis(gaps, members)[0] == pytest.approx(kurtosis, abs=0.02)
    assert note_on_shape(gaps, members) is None


def test_an_audit_says_so_beside_chance_and_probabilities():
    gaps, members = gaps_of("tails", 32, n=200)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    audit = mw.Audit.from_arrays(
        labels,
        rng.normal(size=(200, 3)),
        logits=np.column_stack([np.zeros(200), gaps[0] + 3]) * (2 * labels[:, None] - 1),
        shadow_gaps=gaps[1:],
        shadow_members=members[1:],
    )
    eta = float(audit.log_lira().quantile(0.8))
    assert any("heavy tails" in note for note in audit.evaluate("loss", eta=eta).warnings)
    with pytest.warns(UserWarning, match="heavy tails"):
        audit.probability_memorized(eta)


def test_the_share_is_the_integral_over_the_targets_gap():
    rng = np.random.default_rng(0)
    inside, outside = ((rng.normal(size=40), rng.gamma(4, 0.25, 40)) for _ in range(2))
    deviation = rng.gamma(4, 0.25, 40)
    gaps = deviation * norm.ppf((np.arange(20_000)[:, None] + 0.5) / 20_000)
    (mean_in, var_in), (mean_out, var_out) = inside, outside
    ratio = norm.logpdf(gaps, mean_in, np.sqrt(var_in))
    ratio -= norm.logpdf(gaps, mean_out, np.sqrt(var_out))
    for eta in (-2.0, 0.0, 0.5, 2.0):
        found = ByChance(inside, outside, deviation).share(eta)
        assert found == pytest.approx((ratio >= eta).mean(), abs=1e-4)


def test_the_kurtosis_is_that_of_sides_with_a_spread():
    gaps, members = gaps_of("tails", 16, n=40)
    flat = int(np.flatnonzero(members[0])[0])
    gaps[members[:, flat], flat] = 1.0  # on one side alone
    gaps[:, flat + 1] = 2.0
    sides = [
        column[side]
        for column, mask in zip(gaps.T, members.T, strict=True)
        for side in (mask, ~mask)
        if np.ptp(column[side])
    ]
    values = kurtosis(sides, axis=1, bias=False)
    expected = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    assert len(sides) == 77
    assert excess_kurtosis(gaps, members) == pytest.approx(expected)
