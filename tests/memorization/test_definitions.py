"""Offline LiRA, standard errors, RMIA, attack success on noise; and what is refused."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, spearmanr

from memowidgets.memorization import (
    attack_success_rate,
    counterfactual,
    log_lira,
    probability_memorized,
    rmia,
)
from tests.memorization.test_lira import made

VARIANCES = ("per-sample", "global", "shrunk")


def halves(rng, m, n):
    return np.argsort(rng.random((m, n)), axis=0) < m // 2


def test_offline_is_the_tail_outside():
    gaps, members, target = made()
    out = [(g[~m].mean(), g[~m].std()) for g, m in zip(gaps.T, members.T, strict=True)]
    expected = [-norm.logsf(t, *fit) for t, fit in zip(target, out, strict=True)]
    np.testing.assert_allclose(log_lira(gaps, members, target, mode="offline"), expected)


def test_offline_needs_no_model_inside():
    gaps, members, target = made()
    members[:, 0], members[:, 1] = False, True
    found = log_lira(gaps, members, target, "shrunk", mode="offline")
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
    nobody = np.zeros_like(members)
    assert np.isfinite(log_lira(gaps, nobody, target, "global", mode="offline")).all()
    with pytest.raises(ValueError, match="fewer than two shadow models outside"):
        log_lira(gaps, ~nobody, target, mode="offline")


def test_offline_stays_finite_far_out():
    gaps, members, target = made()
    target[:2] = [1e6, -1e6]
    found = log_lira(gaps, members, target, mode="offline")
    assert found[0] > 1e6
    assert found[1] == 0


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_the_standard_error_is_the_spread_over_repetitions(variance, mode):
    rng = np.random.default_rng(0)
    m, n, times = 48, 400, 150
    effect, spread = rng.random(n) * 2, 0.5 + rng.random(n)
    target = rng.normal(size=n) * spread + effect
    values, errors = [], []
    for _ in range(times):
        members = halves(rng, m, n)
        gaps = rng.normal(size=(m, n)) * spread + effect * members
        found, error = log_lira(gaps, members, target, variance, mode, return_std=True)
        values.append(found)
        errors.append(error)
    ratio = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0)
    assert 0.9 < np.median(ratio) < 1.2
    least = 0.65 if variance == "global" else 0.7  # it takes its variance to be known
    assert np.quantile(ratio, 0.02) > least


def drawn_posterior(rng, gaps, times=200_000):
    """Means and variances that one side's own gaps allow, without a prior."""
    variance = ((gaps - gaps.mean()) ** 2).sum() / rng.chisquare(len(gaps) - 1, size=times)
    return rng.normal(gaps.mean(), np.sqrt(variance / len(gaps))), np.sqrt(variance)


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_the_standard_error_is_the_distance_from_drawn_truths(mode):
    gaps, members, target = made(m=40, n=5)
    found, errors = log_lira(gaps, members, target, mode=mode, return_std=True)
    rng = np.random.default_rng(0)
    for column in range(5):
        own, member = gaps[:, column], members[:, column]
        inside, outside = (drawn_posterior(rng, own[side]) for side in (member, ~member))
        if mode == "offline":
            truth, tolerance = -norm.logsf(target[column], *outside), 0.1  # to first order
        else:
            truth = norm.logpdf(target[column], *inside) - norm.logpdf(target[column], *outside)
            tolerance = 0.02
        distance = np.sqrt(np.mean((truth - found[column]) ** 2))
        assert errors[column] == pytest.approx(distance, rel=tolerance)


def with_truth(m, seed, n=2000, memorised=0.05):
    """Gaussian gaps with heavy-tailed spreads, early gaps, and the log-LiRA of the true moments."""
    rng = np.random.default_rng(seed)
    base, outside = rng.normal(1, 2, n), np.sqrt(8 / rng.chisquare(8, n))
    inside = outside * np.exp(0.2 * rng.normal(size=n))
    effect = np.where(rng.random(n) < memorised, 1 + rng.gamma(4, 1, n), 0.2 * rng.random(n))
    members, noise = halves(rng, m, n), rng.normal(size=(m, n))
    gaps = base + np.where(members, effect + inside * noise, outside * noise)
    early = 0.7 * base + 0.5 * effect + 0.6 * rng.normal(size=(m, n))
    target = base + effect + inside * rng.normal(size=n)
    true = norm.logpdf(target, base + effect, inside) - norm.logpdf(target, base, outside)
    return gaps, members, target, early, true


@pytest.mark.parametrize(
    ("variance", "m", "least"),
    [
        *(("shrunk", m, 0.9) for m in (4, 8, 16, 32)),
        ("hierarchical", 4, 0.75),  # the prior of the mean hides too much
        *(("hierarchical", m, 0.87) for m in (8, 16, 32)),
    ],
)
def test_standard_errors_cover_where_samples_are_memorised(variance, m, least):
    """The jackknife covered .55, .67, .76, .84 (shrunk), and .11, .19, .39, .55 (hierarchical)."""
    covered = []
    for seed in range(3):
        gaps, members, target, early, true = with_truth(m, seed)
        more = {"early_gaps": early} if variance == "hierarchical" else {}
        found, errors = log_lira(gaps, members, target, variance, return_std=True, **more)
        rows = true > 1
        covered.append(np.abs(found - true)[rows] <= 1.96 * errors[rows])
    assert least <= np.concatenate(covered).mean() <= 0.99


def test_certain_and_undefined_errors():
    gaps, members, target = made(m=40, n=6)
    members[:, 0] = True
    gaps[:, 1] = 2.5
    members[:, 2] = np.arange(40) < 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        values, errors = log_lira(gaps, members, target, return_std=True)
    assert np.isnan(values[0])
    assert values[1] == errors[1] == 0
    assert np.isnan(errors[0])
    assert np.isfinite(errors[2:]).all()
    assert np.isfinite(values[2:]).all()
    probability = probability_memorized(values, errors)
    assert probability[1] == 0
    assert np.isnan(probability[0])
    assert ((probability[2:] >= 0) & (probability[2:] <= 1)).all()


def test_attack_on_noise_is_a_coin_toss():
    rng = np.random.default_rng(1)
    gaps, members = rng.normal(size=(64, 4000)), halves(rng, 64, 4000)
    for variance in VARIANCES:
        rate = attack_success_rate(gaps, members, variance)
        error = rate.std() / np.sqrt(len(rate))
        assert abs(rate.mean() - 0.5) < 3 * error + 0.002


def by_definition(gaps, members, target, population, gamma):
    likelihood, own = 1 / (1 + np.exp(-gaps)), 1 / (1 + np.exp(-target))
    general = [
        (p[m].mean() + p[~m].mean()) / 2 for p, m in zip(likelihood.T, members.T, strict=True)
    ]
    ratio = own / np.array(general)
    found = []
    for x in range(len(target)):
        others = [z for z in np.flatnonzero(population) if z != x]
        found.append(np.mean([ratio[x] / ratio[z] >= gamma for z in others]))
    return found


@pytest.mark.parametrize("gamma", [0.7, 1.0, 1.5])
def test_rmia_is_the_formula(gamma):
    gaps, members, target = made(m=20, n=60)
    population = np.arange(60) % 3 == 0
    found = rmia(gaps, members, target, population, gamma)
    np.testing.assert_allclose(found, by_definition(gaps, members, target, population, gamma))
    everyone = np.ones(60, dtype=bool)
    found = rmia(gaps, members, target, gamma=gamma)
    np.testing.assert_allclose(found, by_definition(gaps, members, target, everyone, gamma))


def test_offline_rmia_uses_the_models_outside():
    gaps, members, target = made(m=20, n=60)
    changed = np.where(members, gaps + 3, gaps)
    one, other = (rmia(g, members, target, mode="offline", gamma=1.1) for g in (gaps, changed))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, rmia(gaps, members, target, gamma=1.1))


def test_definitions_agree_on_what_is_memorised():
    gaps, members, _ = made(m=60, n=500, effect=6.0)
    target = gaps[0]
    gaps, members, present = gaps[1:], members[1:], members[0]
    score = rmia(gaps, members, target, ~present, gamma=1.5)
    assert spearmanr(score[present], counterfactual(gaps, members)[present]).statistic > 0.3


def test_far_gaps_have_an_rmia():
    gaps, members, target = made(m=20, n=60)
    target[:2], gaps[:, 3] = [1e5, -1e5], -1e5
    for mode in ("online", "offline"):
        found = rmia(gaps, members, target, mode=mode)
        assert np.isfinite(found).all()
        assert found[0] > found[1]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-20, 1e-6, 1.0, 1e6, 1e20]), st.floats(-1e3, 1e3))
def test_single_precision_loses_nothing(seed, scale, shift):
    rng = np.random.default_rng(seed)
    gaps, members = rng.normal(size=(24, 40)) + shift, halves(rng, 24, 40)
    short = (gaps * scale).astype(np.float32)
    target = rng.normal(size=40).astype(np.float32) * scale + shift * scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memowidgets.memorization.gaps._MANY", 0)
        one = log_lira(short, members, target, "global")
    other = log_lira(short.astype(np.float64), members, target, "global")
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_blocks_do_not_show():
    gaps, members, target = made(m=40, n=30_000)
    whole = log_lira(gaps, members, target)
    parts = [log_lira(gaps[:, i::7], members[:, i::7], target[i::7]) for i in range(7)]
    for i, part in enumerate(parts):
        np.testing.assert_allclose(whole[i::7], part, rtol=1e-6)


def test_the_target_among_its_shadows_is_refused():
    gaps, members, _ = made()
    with pytest.raises(ValueError, match=r"\(row\) 7 has exactly the target's gaps"):
        log_lira(gaps, members, gaps[7])
    alike = np.broadcast_to(gaps[0], gaps.shape)  # step 0: all models are one
    assert (log_lira(alike, members, gaps[0]) == 0).all()


def test_too_few_shadows():
    gaps, members, target = made(m=3, n=9)
    for variance in VARIANCES:
        with pytest.raises(ValueError, match="fewer than two shadow models on a side"):
            log_lira(gaps, members, target, variance)
    with pytest.raises(ValueError, match="fewer than two shadow models on a side"):
        attack_success_rate(gaps, members)
    gaps, members, target = made(m=12, n=9)
    members[:, 0] = np.arange(12) == 0
    with pytest.warns(UserWarning, match="shrunk"):
        assert np.isnan(log_lira(gaps, members, target)[0])
    assert np.isfinite(log_lira(gaps, members, target, "shrunk")[0])


def test_masks_must_be_masks():
    gaps, members, target = made(m=12, n=9)
    calls = (
        lambda mask: log_lira(gaps, mask, target),
        lambda mask: attack_success_rate(gaps, mask),
        lambda mask: counterfactual(gaps, mask),
        lambda mask: rmia(gaps, mask, target),
    )
    for call in calls:
        for mask in (members.astype(int), members.astype(float), members.astype(str)):
            with pytest.raises(TypeError, match="must be bool, but has dtype"):
                call(mask)
    with pytest.raises(TypeError, match="population must be bool"):
        rmia(gaps, members, target, np.arange(9))


def test_bad_input():
    gaps, members, target = made(m=12, n=9)
    cases = [
        (lambda: log_lira(gaps, members, target, mode="both"), "'online', 'offline'"),
        (lambda: rmia(gaps, members, target, mode="x"), "'online', 'offline'"),
        (lambda: rmia(gaps, members, target, gamma=0), "gamma must be above 0"),
        (lambda: rmia(gaps, members, target, a=2), "a must be a number from 0 to 1"),
        (lambda: rmia(gaps, members, target, np.arange(9) < 1), "needs two or more"),
        (lambda: rmia(gaps, members, target, np.ones(4, bool)), "mask over the 9 samples"),
        (lambda: rmia(gaps * np.inf, members, target), "NaN or infinite"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()


def test_an_attack_needs_enough_models_on_each_side():
    gaps, members, _ = made(m=4, n=9)
    members[:] = np.arange(4)[:, None] < 2
    with pytest.warns(UserWarning, match="shrunk"), pytest.raises(ValueError, match="too few"):
        attack_success_rate(gaps, members, "per-sample")
    gaps, members, _ = made(m=5, n=9)
    members[:] = np.arange(5)[:, None] < 3
    with pytest.warns(UserWarning, match="shrunk"), pytest.raises(ValueError, match="too few"):
        attack_success_rate(gaps, members, "per-sample")  # members alone could be attacked
    assert np.isfinite(attack_success_rate(gaps, members, "shrunk")).all()


def test_offline_looks_at_the_models_outside_alone():
    gaps, members, target = made(m=12, n=9)
    members[:] = np.arange(12)[:, None] < 2
    log_lira(gaps, members, target, "per-sample", "offline")  # ten outside are enough
    members[:] = np.arange(12)[:, None] < 8
    with pytest.warns(UserWarning, match="9 of 9 samples have fewer than 8 shadow models outside"):
        log_lira(gaps, members, target, "per-sample", "offline")


def test_a_target_among_its_shadows_is_refused_though_they_are_rounded():
    gaps, members, _ = made()
    with pytest.raises(ValueError, match=r"\(row\) 3 has exactly the target's gaps"):
        log_lira(gaps.astype(np.float32), members, gaps[3])
