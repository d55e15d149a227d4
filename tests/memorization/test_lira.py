"""Log-LiRA and its standard error against scipy, simulated truth and in hard cases."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from benchmarks.intervals import world
from memowidgets.memorization import attack_success_rate, log_lira
from memowidgets.memorization.densities import VARIANCES, fitted_prior
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
    np.testing.assert_allclose(
        log_lira(gaps, members, target), by_scipy(gaps, members, target)
    )


def test_global_uses_the_residuals_of_all():
    gaps, members, target = made()
    densities = []
    for mask in (members, ~members):
        sides = [g[m] for g, m in zip(gaps.T, mask.T, strict=True)]
        spread = np.concatenate([side - side.mean() for side in sides]).std()
        densities.append(norm.logpdf(target, [side.mean() for side in sides], spread))
    expected = densities[0] - densities[1]
    np.testing.assert_allclose(log_lira(gaps, members, target, "global"), expected)


def test_shrunk_lies_between():
    many = made(2000, 30)
    np.testing.assert_allclose(
        log_lira(*many, "shrunk"), log_lira(*many), rtol=0.1, atol=0.05
    )
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
            name: np.mean(
                np.abs(log_lira(gaps, members, target, name) - exact).clip(max=20)
            )
            for name in VARIANCES
        }
    assert errors["shrunk"] < min(errors["per-sample"], errors["global"])


def test_the_prior_is_found():
    rng = np.random.default_rng(0)
    n, m, freedom, scale = 20_000, 10, 6.0, 2.0
    variance = freedom * scale / rng.chisquare(freedom, size=n)
    gaps = rng.normal(size=(2 * m, n)) * np.sqrt(variance)
    found = fitted_prior(
        moments(gaps, np.arange(2 * m)[:, None] % 2 == np.zeros(n)).inside
    )
    assert found == pytest.approx((freedom, scale), rel=0.08)


@pytest.mark.parametrize("variance", VARIANCES)
def test_samples_of_one_side_without_a_spread_or_far_out(variance):
    gaps, members, target = made()
    members[:, 0], members[:, 1] = True, False
    gaps[:, 2] = 1.25
    gaps[:, 3] = np.where(members[:, 3], 3.0, -3.0)  # no spread on either side
    target[3:7] = [3.0, 1e4, -1e4, 500.0]
    found, errors = log_lira(gaps, members, target, variance, return_std=True)
    assert np.isnan([found[:2], errors[:2]]).all()
    assert np.isfinite([found[2:], errors[2:]]).all()
    assert found[2] == errors[2] == 0
    assert found[3] > 4
    step_0 = np.broadcast_to(gaps[0], gaps.shape)
    for same in (step_0, 0 * gaps):  # a head of zeros
        assert (log_lira(same, members, target, variance)[2:] == 0).all()


def test_shift_and_scale_do_not_matter():
    gaps, members, target = made()
    for variance, (scale, shift) in product(VARIANCES, [(7, 3), (1e-6, 0)]):
        one = log_lira(gaps, members, target, variance)
        other = log_lira(
            gaps * scale + shift, members, target * scale + shift, variance
        )
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def halves(rng, m, n):
    return np.argsort(rng.random((m, n)), axis=0) < m // 2


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_standard_error_is_the_spread_over_repetitions(variance):
    rng = np.random.default_rng(0)
    m, n, times = 48, 400, 150
    effect, spread = rng.random(n) * 2, 0.5 + rng.random(n)
    target = rng.normal(size=n) * spread + effect
    values, errors = [], []
    for _ in range(times):
        members = halves(rng, m, n)
        gaps = rng.normal(size=(m, n)) * spread + effect * members
        found, error = log_lira(gaps, members, target, variance, return_std=True)
        values.append(found)
        errors.append(error)
    ratio = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0)
    assert 0.9 < np.median(ratio) < 1.2
    least = 0.65 if variance == "global" else 0.7  # it takes its variance to be known
    assert np.quantile(ratio, 0.02) > least


def drawn_posterior(rng, gaps, times=200_000):
    """Means and variances that one side's own gaps allow, without a prior."""
    variance = ((gaps - gaps.mean()) ** 2).sum() / rng.chisquare(
        len(gaps) - 1, size=times
    )
    return rng.normal(gaps.mean(), np.sqrt(variance / len(gaps))), np.sqrt(variance)


def test_the_standard_error_is_the_distance_from_drawn_truths():
    gaps, members, target = made(m=40, n=5)
    found, errors = log_lira(gaps, members, target, return_std=True)
    rng = np.random.default_rng(0)
    for column in range(5):
        own, member = gaps[:, column], members[:, column]
        inside, outside = (
            drawn_posterior(rng, own[side]) for side in (member, ~member)
        )
        truth = norm.logpdf(target[column], *inside) - norm.logpdf(
            target[column], *outside
        )
        distance = np.sqrt(np.mean((truth - found[column]) ** 2))
        assert errors[column] == pytest.approx(distance, rel=0.02)


@pytest.mark.parametrize("m", [4, 8, 16, 32])
def test_standard_errors_cover_where_samples_are_memorised(m):
    """The jackknife covered .55, .67, .76, .84."""
    covered = []
    for seed in range(3):
        gaps, members, target, true = world(seed, m)
        found, errors = log_lira(gaps, members, target, "shrunk", return_std=True)
        rows = true > 1
        covered.append(np.abs(found - true)[rows] <= 1.96 * errors[rows])
    assert 0.9 <= np.concatenate(covered).mean() <= 0.99


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-20, 1e-6, 1.0, 1e6, 1e20]),
    st.floats(-1e3, 1e3),
)
def test_single_precision_loses_nothing(seed, scale, shift):
    rng = np.random.default_rng(seed)
    gaps, members = rng.normal(size=(24, 40)) + shift, halves(rng, 24, 40)
    short = (gaps * scale).astype(np.float32)
    target = rng.normal(size=40).astype(np.float32) * scale + shift * scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memowidgets.memorization.gaps._MANY", 0)
        one, double = (
            log_lira(g, members, target, "global") for g in (short, short.astype(float))
        )
    other = log_lira(short.astype(np.float64), members, target, "global")
    np.testing.assert_array_equal(double, other)
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_blocks_do_not_show():
    gaps, members, target = made(m=40, n=30_000)
    whole = log_lira(gaps, members, target)
    parts = [log_lira(gaps[:, i::7], members[:, i::7], target[i::7]) for i in range(7)]
    for i, part in enumerate(parts):
        np.testing.assert_allclose(whole[i::7], part, rtol=1e-6)


def test_the_target_among_its_shadows_is_refused():
    gaps, members, _ = made()
    for kept in (gaps, gaps.astype(np.float32)):  # saved gaps may be rounded
        with pytest.raises(
            ValueError, match=r"\(row\) 7 has exactly the target's gaps"
        ):
            log_lira(kept, members, gaps[7])
    alike = np.broadcast_to(gaps[0], gaps.shape)  # step 0: all models are one
    assert (log_lira(alike, members, gaps[0]) == 0).all()


def test_too_few_shadows():
    gaps, members, target = made(m=3, n=9)
    for variance in VARIANCES:
        with pytest.raises(ValueError, match="fewer than two shadow models on a side"):
            log_lira(gaps, members, target, variance)
    with pytest.raises(ValueError, match="fewer than two shadow models on a side"):
        attack_success_rate(gaps, members)


def test_a_warning_counts_samples_with_few_models_on_either_side():
    gaps, members, target = made(m=12, n=9)
    for inside in (1, 4, 8):
        members[:] = np.arange(12)[:, None] < inside
        members[:, 0] = np.arange(12) < 4
        with pytest.warns(
            UserWarning, match="9 of 9 samples .* inside or outside.*shrunk"
        ):
            found = log_lira(gaps, members, target, "per-sample")
        assert np.isnan(found[1:]).all() == (inside == 1)
        assert np.isfinite(log_lira(gaps, members, target, "shrunk")).all()
