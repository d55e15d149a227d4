"""The hierarchical log-LiRA: its likelihood, its prior, and what it says of simulated truth."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import approx_fprime
from scipy.stats import invgamma, norm, spearmanr

from memowidgets.memorization import (
    attack_success_rate,
    hierarchical_probability,
    log_lira,
    probability_memorized,
)
from memowidgets.memorization.gaps import Models, Side, moments
from memowidgets.memorization.hierarchical import Hierarchical, Prior, _regressed, log_marginal
from memowidgets.memorization.posterior import correlation

BINS, FEWEST = 10, 100


def simulated(m, n, seed, level=1.5, noise=0.3):
    """Gaps, early gaps and target of samples with a level of their own, and the true log-LiRA.

    Variances are log-normal and the effect of training is skewed: neither is what the prior says.
    """
    rng = np.random.default_rng(seed)
    base = rng.normal(2, level, n)
    within, without = np.exp(rng.normal([[0.0], [0.3]], 0.3, (2, n)))
    effect = 0.2 + within * rng.gamma(4.0, 0.3, n)
    members = rng.random((m, n)) < 0.5
    inside = base + effect + within * rng.normal(size=(m, n))
    gaps = np.where(members, inside, base + without * rng.normal(size=(m, n)))
    early = 0.6 * base + noise * rng.normal(size=n) + 0.4 * without * rng.normal(size=(m, n))
    target = base + effect + within * rng.normal(size=n)
    true = norm.logpdf(target, base + effect, within) - norm.logpdf(target, base, without)
    return gaps, members, target, early, true


@pytest.fixture(scope="module")
def given():
    return simulated(8, 1500, 0)


def fit(gaps, members, early=None):
    found = moments(gaps, members)
    looks = None if early is None else moments(early, np.ones_like(members)).inside
    return Hierarchical.fit(found.inside, found.outside, looks, Models(gaps, members, early))


@pytest.mark.parametrize("gaps", [[1.3], [0.2, 1.9, 0.4]])
def test_the_marginal_likelihood_is_the_integral(gaps):
    strength, freedom, scale, centre = 0.7, 5.0, 1.4, 0.5
    gaps = np.array(gaps)

    mean = np.linspace(-25, 25, 1001)[:, None]
    log_variance = np.linspace(-5, 8, 501)
    variance = np.exp(log_variance)
    density = invgamma.pdf(variance, freedom / 2, scale=freedom * scale / 2) * variance
    density = density * norm.pdf(mean, centre, np.sqrt(variance / strength))
    for gap in gaps:
        density *= norm.pdf(gap, mean, np.sqrt(variance))
    integral = trapezoid(trapezoid(density, log_variance, axis=1), mean[:, 0])
    parameters = np.log([strength, freedom - 2, scale])
    parts = len(gaps), ((gaps - gaps.mean()) ** 2).sum(), (gaps.mean() - centre) ** 2
    found, _ = log_marginal(parameters, *(np.array([float(p)]) for p in parts), np.ones((1, 1)))
    assert found == pytest.approx(np.log(integral), abs=1e-4)


def test_the_gradient_is_the_slope():
    rng = np.random.default_rng(0)
    count = rng.integers(1, 9, 40).astype(float)
    parts = count, rng.gamma(2, size=40) * (count > 1), rng.gamma(1, size=40)
    features = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    for at in (np.zeros(5), np.array([-2.0, 1.5, 0.4, -0.3, 0.2])):
        slope = approx_fprime(at, lambda p: log_marginal(p, *parts, features)[0], 1e-6)
        np.testing.assert_allclose(log_marginal(at, *parts, features)[1], slope, atol=1e-5)


def test_the_prior_is_found():
    rng = np.random.default_rng(0)
    n, m, strength, freedom, scale = 20_000, 10, 2.0, 8.0, 1.5
    members = np.arange(2 * m)[:, None] % 2 == np.zeros(n)
    variance = freedom * scale / rng.chisquare(freedom, size=(2, n))
    means = 3 + rng.normal(size=(2, n)) * np.sqrt(variance / strength)
    gaps = rng.normal(size=(2 * m, n)) * np.sqrt(np.where(members, *variance[:, None]))
    gaps += np.where(members, *means[:, None])
    for prior in fit(gaps, members).together:
        found = prior.strength, prior.freedom, np.exp(prior.scales[0])
        assert found == pytest.approx((strength, freedom, scale), rel=0.1)


def test_covariates_that_say_nothing_leave_the_means_of_shrunk():
    rng = np.random.default_rng(0)
    m, n = 8, 4000
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    means = 30 * rng.normal(size=(2, n))  # far apart: the prior has nothing to say of a mean
    gaps = np.where(members, *means[:, None]) + rng.normal(size=(m, n))
    own, noise = moments(gaps, members), rng.normal(size=(m, n))
    posteriors = fit(gaps, members, noise).posteriors()
    for one, side in zip(posteriors, (own.inside, own.outside), strict=True):
        np.testing.assert_allclose(one.mean, side.mean, atol=0.1)
    target = means[0] + rng.normal(size=n)
    values = [
        np.arcsinh(log_lira(gaps, members, target, "hierarchical", early_gaps=noise)),
        np.arcsinh(log_lira(gaps, members, target, "shrunk")),
    ]
    assert np.corrcoef(values)[0, 1] > 0.99


def test_it_is_closer_to_the_truth_than_shrunk(given):
    gaps, members, target, early, true = given
    found = {
        "shrunk": log_lira(gaps, members, target, "shrunk"),
        "alone": log_lira(gaps, members, target, "hierarchical"),
        "with": log_lira(gaps, members, target, "hierarchical", early_gaps=early),
    }
    known = ~np.isnan(found["shrunk"])
    assert known.any()
    rms = {
        name: np.sqrt(np.mean((values.clip(-20, 20) - true.clip(-20, 20))[known] ** 2))
        for name, values in found.items()
    }
    assert rms["with"] < 0.85 * min(rms["shrunk"], rms["alone"])


@pytest.mark.parametrize("m", [4, 8, 32])
def test_the_share_memorised_is_what_is_said(m):
    said, memorized = [], []
    for seed in range(3):
        gaps, members, target, early, true = simulated(m, 12_000, 10 + seed)
        known = (members.sum(axis=0) > 0) & (members.sum(axis=0) < m)
        found = hierarchical_probability(gaps, members, target, 4.0, early_gaps=early)
        assert (np.isnan(found) == ~known).all()
        said.append(found[known])
        memorized.append(true[known] >= 4)
    said, memorized = np.concatenate(said), np.concatenate(memorized)
    bins = np.minimum((said * BINS).astype(int), BINS - 1)
    held = [bins == i for i in range(BINS) if (bins == i).sum() >= FEWEST]
    assert len(held) >= 8
    for one in held:
        assert memorized[one].mean() == pytest.approx(said[one].mean(), abs=0.1)
    assert said.sum() == pytest.approx(memorized.sum(), rel=0.2)


@pytest.mark.parametrize("m", [4, 8])
def test_early_gaps_with_the_same_noise_do_not_make_sure(m):
    """They say where the mean of the gaps is, but not where the true mean is."""
    rng = np.random.default_rng(m)
    n = 4000
    base, members = rng.normal(size=n), rng.random((m, n)) < 0.5
    gaps = base + members + 2 * rng.normal(size=(m, n))
    fitted = fit(gaps, members, gaps + 0.1 * rng.normal(size=(m, n)))
    for one, true in zip(fitted.posteriors(), (base + 1, base), strict=True):
        expected = one.squares / (one.freedom - 2) / one.strength
        missed = (one.mean - true) ** 2
        assert missed[fitted.defined].mean() < 10 * expected[fitted.defined].mean()


def test_the_errors_of_both_means_are_correlated():
    rng = np.random.default_rng(0)
    n, m = 10_000, 8
    members = rng.random((m, n)) < 0.5
    inside, outside = rng.normal(size=(2, n))
    noise = 2 * rng.normal(size=(m, n))
    alike, unlike = outside + members + noise, np.where(members, inside, outside) + noise
    for gaps, low, high in ((alike, 0.5, 0.95), (unlike, -0.1, 0.1)):
        assert low < correlation(fit(gaps, members), Models(gaps, members)) < high
    few = alike[:4], members[:4]
    assert correlation(fit(*few), Models(*few)) == 0


def test_errors_and_share_above_eta_would_not_do(given):
    """The bound above is a real one: Φ((log-LiRA − η) / error) of shrunk breaks it."""
    gaps, members, target, _, true = given
    values, errors = log_lira(gaps, members, target, "shrunk", return_std=True)
    known = ~np.isnan(values + errors)
    said = norm.cdf((values - 4) / errors)[known]
    high = (said > 0.5) & (said < 0.9)
    assert said[high].mean() - (true[known][high] >= 4).mean() > 0.1


def test_the_probability_is_one_and_sharpens_with_models():
    for m, certain in ((8, 0.5), (256, 0.85)):
        gaps, members, target, early, true = simulated(m, 1500, 3)
        found = hierarchical_probability(gaps, members, target, early_gaps=early)
        known = ~np.isnan(found)
        assert ((found[known] >= 0) & (found[known] <= 1)).all()
        assert found[known & (true > 6)].mean() > certain
    for eta, all_are in ((-np.inf, 1.0), (np.inf, 0.0)):
        found = hierarchical_probability(gaps, members, target, eta, early_gaps=early)
        np.testing.assert_array_equal(found[known], all_are)


def test_constant_covariates_are_no_covariates(given):
    gaps, members, target, early, _ = given
    constant = np.full_like(early, 1.25)
    without = log_lira(gaps, members, target, "hierarchical", return_std=True)
    found = log_lira(gaps, members, target, "hierarchical", return_std=True, early_gaps=constant)
    np.testing.assert_array_equal(found, without)
    # one of the two varies: the mean of the early gaps alone
    level = np.broadcast_to(early.mean(axis=0), early.shape)
    half = log_lira(gaps, members, target, "hierarchical", early_gaps=level)
    assert np.isfinite(half[~np.isnan(without[0])]).all()


def test_the_order_of_samples_and_of_calls_does_not_matter(given):
    gaps, members, target, early, _ = given
    order = np.random.default_rng(1).permutation(len(target))
    for ask in (hierarchical_probability, lambda *a, **k: log_lira(*a, "hierarchical", **k)):
        one = ask(gaps, members, target, early_gaps=early)
        np.testing.assert_array_equal(one, ask(gaps, members, target, early_gaps=early))
        other = ask(gaps[:, order], members[:, order], target[order], early_gaps=early[:, order])
        np.testing.assert_allclose(other, one[order], rtol=1e-6, atol=1e-8)


def test_shift_and_scale_do_not_matter(given):
    gaps, members, target, early, _ = given
    one = log_lira(gaps, members, target, "hierarchical", early_gaps=early)
    moved = 7 * gaps + 3, members, 7 * target + 3
    other = log_lira(*moved, "hierarchical", early_gaps=2 * early - 1)
    np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-3)


def test_samples_that_are_not_judged_help_the_prior_only(given):
    gaps, members, target, early, _ = given
    every = log_lira(gaps, members, target, "hierarchical", return_std=True, early_gaps=early)
    rows = np.random.default_rng(2).permutation(len(target))[:40]
    asked = {"return_std": True, "early_gaps": early, "judged": rows}
    some = log_lira(gaps, members, target[rows], "hierarchical", **asked)
    np.testing.assert_allclose(some, [part[rows] for part in every], rtol=1e-9)
    mask = np.isin(np.arange(len(target)), rows)
    chance = hierarchical_probability(gaps, members, target[mask], early_gaps=early, judged=mask)
    whole = hierarchical_probability(gaps, members, target, early_gaps=early)
    np.testing.assert_allclose(chance, whole[mask], rtol=1e-9)


def test_one_model_on_a_side_is_enough(given):
    gaps, members, target, early, _ = given
    members = members.copy()
    members[:, 0], members[:, 1] = np.arange(8) == 3, np.arange(8) != 3
    members[:, 2], members[:, 3] = True, False
    found, errors = log_lira(
        gaps, members, target, "hierarchical", return_std=True, early_gaps=early
    )
    assert np.isfinite(found[:2]).all()
    assert np.isfinite(errors[:2]).all()
    assert np.isnan(found[2:4]).all()
    assert np.isnan(errors[2:4]).all()


def test_few_samples_share_one_mean():
    gaps, members, target, early, _ = simulated(12, 20, 5)
    found = log_lira(gaps, members, target, "hierarchical", early_gaps=early)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, log_lira(gaps, members, target, "hierarchical"))


def test_offline_uses_only_models_outside(given):
    gaps, members, target, early, _ = given
    ask = {"variance": "hierarchical", "mode": "offline"}
    one = log_lira(gaps, members, target, **ask, return_std=True, early_gaps=early)
    # the fit shares samples' counts alone; which models trained on what is not looked at further
    changed = np.where(members, early + 50, early)
    other = log_lira(gaps, members, target, **ask, return_std=True, early_gaps=changed)
    np.testing.assert_allclose(one, other)
    assert np.nanmin(one[0]) >= 0


def test_offline_needs_no_model_inside(given):
    gaps, members, target, early, _ = given
    nobody = np.zeros_like(members)
    shrunk = log_lira(gaps, nobody, target, "shrunk", "offline")
    for covariates in (None, early):
        ask = {"variance": "hierarchical", "mode": "offline", "early_gaps": covariates}
        found, errors = log_lira(gaps, nobody, target, **ask, return_std=True)
        assert (found >= 0).all()
        assert np.isfinite(errors).all()
        assert spearmanr(found, shrunk).statistic > 0.9


def test_equal_gaps_and_far_targets(given):
    gaps, members, target, early, _ = (part.copy() for part in given)
    gaps[:, 3] = 1.25
    target[:3] = [1e4, -1e4, 500.0]
    found = log_lira(gaps, members, target, "hierarchical", early_gaps=early)
    assert found[3] == 0
    assert np.isfinite(found[~np.isnan(found)]).all()
    step_0 = np.broadcast_to(gaps[0], gaps.shape)
    known = ~np.isnan(found)
    still = log_lira(step_0, members, target, "hierarchical", early_gaps=step_0)
    assert (still[known] == 0).all()


def test_global_lira_takes_it(given):
    gaps, members, _, _, _ = given
    rate = attack_success_rate(gaps[:, :200], members[:, :200], "hierarchical")
    assert np.nanmean(rate) > 0.6


def test_both_probabilities_estimate_the_same(given):
    gaps, members, target, early, true = given
    values, errors = log_lira(gaps, members, target, "shrunk", return_std=True)
    by_values = probability_memorized(values, errors)
    by_gaps = hierarchical_probability(gaps, members, target, early_gaps=early)
    known = ~np.isnan(by_values + by_gaps)
    share = (true[known] >= 4).mean()
    brier = [np.mean((p[known] - (true[known] >= 4)) ** 2) for p in (by_values, by_gaps)]
    assert brier[1] <= brier[0] < share * (1 - share)


@pytest.mark.parametrize("known", [0, 1, 5])
def test_gaps_one_by_one_say_what_all_of_them_say(known: int) -> None:
    """A posterior that sees more gaps is that of all of them; its own variance lies between."""
    rng = np.random.default_rng(known)
    gaps, features = rng.normal(3, 2, (7, 4)), np.c_[np.ones(4), rng.normal(size=4)]
    fold = np.array([0, 1, 1, 0])
    prior = Prior(rng.normal(size=(2, 2)), np.array([0.3]), 1.7, 6.5)

    def side(n: int) -> Side:
        seen = gaps[:n]
        mean = seen.sum(axis=0) / max(n, 1)
        return Side(np.full(4, float(n)), mean, ((seen - mean) ** 2).sum(axis=0))

    found = prior.posterior(side(known), features, fold)
    for gap in gaps[known:]:
        found = found.seeing(gap)
    for one, all_at_once in zip(
        vars(found).values(), vars(prior.posterior(side(7), features, fold)).values(), strict=True
    ):
        np.testing.assert_allclose(one, all_at_once)
    variance, freedom = prior.own_variance(side(known), features, 1e-9)
    ends = np.exp(0.3), side(known).squares / max(known - 1, 1)
    weight = prior.freedom / freedom
    np.testing.assert_allclose(freedom, prior.freedom + max(known - 1, 0))
    np.testing.assert_allclose(variance, weight * ends[0] + (1 - weight) * ends[1])


@pytest.mark.parametrize("folds", [1, 2, 3])
def test_the_mean_is_by_least_squares_over_every_gap_of_the_other_folds(folds: int) -> None:
    rng = np.random.default_rng(0)
    features = np.c_[np.ones(30), rng.normal(size=30), np.zeros(30)]
    count, mean, fold = rng.integers(1, 5, 30), rng.normal(size=30), np.arange(30) % folds
    found = _regressed(Side(count.astype(float), mean, np.zeros(30)), features, fold)
    for one in range(folds):
        others = np.flatnonzero(fold != one) if folds > 1 else np.arange(30)
        rows = others.repeat(count[others])
        expected = np.linalg.lstsq(features[rows], mean[rows], rcond=None)[0]
        np.testing.assert_allclose(found[one], expected, atol=1e-9)
