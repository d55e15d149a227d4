"""Log-LiRA and its relatives against scipy, in hard cases, and on bad input."""

import warnings

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

from memowidgets.memorization import attack_success_rate, counterfactual, log_lira
from memowidgets.memorization.densities import fitted_prior
from memowidgets.memorization.gaps import moments


def made(m=40, n=200, seed=0, effect=2.0):
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    spread = rng.gamma(4.0, 0.25, size=n)
    gaps = rng.normal(size=(m, n)) * spread + effect * members * rng.random(n)
    return gaps, members, gaps[0] + 0.5


def by_scipy(gaps, members, target):
    found = []
    for column, mask, gap in zip(gaps.T, members.T, target, strict=True):
        inside, outside = column[mask], column[~mask]
        found.append(
            norm.logpdf(gap, inside.mean(), inside.std())
            - norm.logpdf(gap, outside.mean(), outside.std())
        )
    return np.array(found)


def test_per_sample_is_the_formula():
    gaps, members, target = made()
    np.testing.assert_allclose(log_lira(gaps, members, target), by_scipy(gaps, members, target))


def test_global_uses_the_residuals_of_all():
    gaps, members, target = made()
    residuals = [
        np.concatenate([g[m] - g[m].mean() for g, m in zip(gaps.T, mask.T, strict=True)]).std()
        for mask in (members, ~members)
    ]
    means = [
        np.array([g[m].mean() for g, m in zip(gaps.T, mask.T, strict=True)])
        for mask in (members, ~members)
    ]
    expected = norm.logpdf(target, means[0], residuals[0]) - norm.logpdf(
        target, means[1], residuals[1]
    )
    np.testing.assert_allclose(log_lira(gaps, members, target, "global"), expected)


def test_shrunk_lies_between():
    many = made(2000, 30)
    np.testing.assert_allclose(log_lira(*many, "shrunk"), log_lira(*many), rtol=0.1, atol=0.05)
    rng = np.random.default_rng(1)
    members = np.arange(12)[:, None] % 2 == np.zeros(3000)
    gaps = rng.normal(size=(12, 3000)) + members  # one variance for all
    target = rng.normal(size=3000)
    shrunk, pooled = (log_lira(gaps, members, target, v) for v in ("shrunk", "global"))
    assert np.corrcoef(shrunk, pooled)[0, 1] > 0.99


def test_shrunk_is_best_with_few_models():
    rng = np.random.default_rng(0)
    n, m = 4000, 8
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    spread, effect = rng.gamma(4.0, 0.25, size=n), rng.random(n) * 3
    gaps = rng.normal(size=(m, n)) * spread + effect * members
    truly = rng.random(n) < 0.5
    target = rng.normal(size=n) * spread + effect * truly
    exact = norm.logpdf(target, effect, spread) - norm.logpdf(target, 0, spread)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        errors = {
            name: np.mean(np.abs(log_lira(gaps, members, target, name) - exact).clip(max=20))
            for name in ("per-sample", "global", "shrunk")
        }
    assert errors["shrunk"] < min(errors["per-sample"], errors["global"])


def test_the_prior_is_found():
    rng = np.random.default_rng(0)
    n, m, freedom, scale = 20_000, 10, 6.0, 2.0
    variance = freedom * scale / rng.chisquare(freedom, size=n)
    gaps = rng.normal(size=(2 * m, n)) * np.sqrt(variance)
    found = fitted_prior(moments(gaps, np.arange(2 * m)[:, None] % 2 == np.zeros(n)).inside)
    assert found == pytest.approx((freedom, scale), rel=0.15)


def test_few_models_warn_and_name_shrunk():
    gaps, members, target = made(m=10)
    with pytest.warns(UserWarning, match="shrunk"):
        log_lira(gaps, members, target)
    log_lira(gaps, members, target, "shrunk")
    log_lira(gaps, members, target, "global")


@pytest.mark.parametrize("variance", ["per-sample", "global", "shrunk"])
def test_always_and_never_trained_on_have_none(variance):
    gaps, members, target = made()
    members[:, 0], members[:, 1] = True, False
    found = log_lira(gaps, members, target, variance)
    assert np.isnan(found[:2]).all()
    assert np.isfinite(found[2:]).all()


@pytest.mark.parametrize("variance", ["per-sample", "global", "shrunk", "hierarchical"])
def test_equal_gaps_say_nothing(variance):
    gaps, members, target = made()
    gaps[:, 3] = 1.25
    found = log_lira(gaps, members, target, variance)
    assert found[3] == 0
    step_0 = np.broadcast_to(gaps[0], gaps.shape)
    assert (log_lira(step_0, members, target, variance) == 0).all()
    assert (log_lira(0 * gaps, members, target, variance) == 0).all()  # a head of zeros


@pytest.mark.parametrize("variance", ["per-sample", "global", "shrunk"])
def test_nothing_is_lost_far_out(variance):
    gaps, members, target = made()
    target[:3] = [1e4, -1e4, 500.0]
    gaps[:, 5] = np.where(members[:, 5], 3.0, -3.0)  # no spread on either side
    target[5] = 3.0
    found = log_lira(gaps, members, target, variance)
    assert np.isfinite(found).all()
    assert found[5] > 4


def test_shift_and_scale_do_not_matter():
    gaps, members, target = made()
    for variance in ("per-sample", "global", "shrunk"):
        one = log_lira(gaps, members, target, variance)
        other = log_lira(gaps * 7 + 3, members, target * 7 + 3, variance)
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def attacked(gaps, members):
    right = np.zeros(gaps.shape)
    for model in range(len(gaps)):
        rest = np.arange(len(gaps)) != model
        ratio = by_scipy(gaps[rest], members[rest], gaps[model])
        right[model] = (ratio > 0) == members[model]
    return right.mean(axis=0)


def test_attack_leaves_the_attacked_model_out():
    gaps, members, _ = made(m=20, n=30)
    np.testing.assert_allclose(attack_success_rate(gaps, members), attacked(gaps, members))


def test_attack_grows_with_counterfactual_memorisation():
    gaps, members, _ = made(m=60, n=500, effect=6.0)
    rate, change = attack_success_rate(gaps, members), counterfactual(gaps, members)
    assert spearmanr(rate, change).statistic > 0.7
    assert attack_success_rate(gaps, members, "shrunk").shape == (500,)


def test_attack_has_no_rate_without_both_sides():
    gaps, members, _ = made(m=20, n=5)
    members[:, 0] = True
    rate = attack_success_rate(gaps, members)
    assert np.isnan(rate[0])
    assert np.isfinite(rate[1:]).all()
    assert np.isnan(counterfactual(gaps, members)[0])


def test_counterfactual_is_a_difference_of_means():
    gaps, members, _ = made(n=4)
    expected = [g[m].mean() - g[~m].mean() for g, m in zip(gaps.T, members.T, strict=True)]
    np.testing.assert_allclose(counterfactual(gaps, members), expected)


def test_bad_input():
    gaps, members, target = made(n=6)
    broken = gaps.copy()
    broken[4, 2] = np.nan
    cases = [
        (lambda: log_lira(broken, members, target), r"model \(row\) 4, sample \(column\) 2"),
        (lambda: log_lira(gaps, members, np.full(6, np.nan)), "6 of 6 .*the first in row 0"),
        (lambda: log_lira(gaps, members[:, :3], target), "same shape"),
        (lambda: log_lira(gaps[0], members, target), "n_models, n_samples"),
        (lambda: log_lira(gaps, members, target[:2]), "each of the 6 samples"),
        (lambda: log_lira(gaps[:0], members[:0], target), "empty"),
        (lambda: log_lira(gaps, members, target, "pooled"), "'per-sample', 'global', 'shrunk'"),
        (lambda: attack_success_rate(gaps, members, "x"), "unknown variance"),
        (lambda: counterfactual(broken, members), "NaN or infinite"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="bool"):
        log_lira(gaps, gaps, target)
