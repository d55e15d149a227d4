"""The interval of one AUC: it holds its level where DeLong's does not, and always has a width."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.intervals import (
    CASES,
    SIGHT,
    crossed,
    drawn,
    evaluated,
    hard_and_easy,
    observed,
    simulated,
)
from memowidgets.evaluation import clopper_pearson, compare, roc
from memowidgets.evaluation.intervals import newcombe, of_difference

# Studies that are simulated, many of them only in a release check.
REPLICATES = pytest.mark.parametrize(
    "n", [200, pytest.param(1000, marks=pytest.mark.slow)]
)


def hanley_mcneil(area, positives, negatives):
    """The variance as it is printed, with both sizes inside the bracket replaced by their mean."""
    mean = (positives + negatives) / 2
    both_right, both_wrong = area / (2 - area), 2 * area**2 / (1 + area)
    terms = (mean - 1) * (both_right - area**2) + (mean - 1) * (both_wrong - area**2)
    return (area * (1 - area) + terms) / (positives * negatives)


@pytest.mark.parametrize(
    ("area", "positives", "negatives"),
    [(0.85, 35, 965), (0.5, 1, 4), (0.98, 20, 20), (0.1, 3, 9)],
)
def test_each_limit_is_one_standard_score_away(area, positives, negatives):
    for limit in newcombe(area, positives, negatives):
        distance = abs(area - limit) / np.sqrt(
            hanley_mcneil(limit, positives, negatives)
        )
        assert distance == pytest.approx(norm.ppf(0.975), abs=1e-9)


def binormal(n, area, positives, negatives, seed):
    """Scores of n studies in which the true AUC is `area`."""
    rng = np.random.default_rng(seed)
    truth = np.arange(positives + negatives) < positives
    shift = np.sqrt(2) * norm.ppf(area)
    return rng.normal(size=(n, len(truth))) - shift * truth, truth


@pytest.mark.parametrize(
    ("area", "positives", "negatives"),
    [(0.85, 35, 965), (0.95, 35, 965), (0.95, 35, 265), (0.98, 20, 980)],
)
@REPLICATES
def test_95_percent_intervals_cover_95_percent(n, area, positives, negatives):
    """DeLong's Wald interval covers .92, .88, .89 and .79 here; chance moves 1000 by .007."""
    studies, truth = binormal(n, area, positives, negatives, seed=positives + negatives)
    intervals = np.array([roc(scores, truth).auc_interval for scores in studies])
    covered = np.mean((intervals[:, 0] <= area) & (area <= intervals[:, 1]))
    assert (0.945 if n == 1000 else 0.93) <= covered <= 0.995


@pytest.mark.parametrize(
    ("case", "positives"),
    [  # a release check has all; docs/limits.md: what nobody saw is not covered
        pytest.param(case, positives, marks=pytest.mark.slow if positives != 35 else ())
        for case, positives in product(CASES, (5, 15, 35, 300))
        if positives >= 35 or "hidden" not in case
    ],
)
def test_intervals_cover_easy_and_hard_positives(case, positives):
    """Newcombe's alone covers .84 to .92 of the mixtures, DeLong's difference .66 to .95."""
    aucs, studies = CASES[case][-1], 200
    covered = np.zeros((2, 2))
    for turn, same in enumerate((0.3, 0.9)):
        for seed in range(studies):
            a, b, truth = drawn(seed, case, positives, same)
            one, other = roc(a, truth), roc(b, truth)
            for row, (low, high), true in (
                (0, one.auc_interval, aucs[0]),
                (1, compare(one, other).interval, aucs[0] - aucs[1]),
            ):
                covered[row, turn] += low - 1e-12 <= true <= high + 1e-12
    assert (covered[0].mean() / studies) >= (0.92 if positives == 5 else 0.91)
    assert (covered[1] / studies >= 0.9).all()  # chance moves a share by .015


def test_a_comparison_agrees_with_its_interval_and_carries_notes():
    for seed in range(40):
        a, b, truth = drawn(seed, "half obvious, .85 and .75", 15, 0.9)
        found = compare(roc(a, truth), roc(b, truth))
        low, high = found.interval
        assert low < found.difference < high
        assert (found.p_value < 0.05) == (low > 0 or high < 0)
        assert np.sign(found.z) == np.sign(found.difference)
    assert any("15 samples are memorised" in note for note in found.warnings)
    many = drawn(0, "of one kind, .85 and .80", 300, 0.9)
    assert compare(roc(many[0], many[2]), roc(many[1], many[2])).warnings == ()


@pytest.mark.slow
@pytest.mark.parametrize("targets", [2, 3, 5])
def test_few_targets_cover(targets):
    """The bootstrap of 2 targets covers .83 of differences, of 3 .91."""
    large = crossed(99, 400, 2000, 0.4)
    true = [roc(score, large[2]).auc for score in large[:2]]
    covered = np.zeros(2)
    for seed in range(60):
        a, b, truth, sample, target = crossed(seed, targets, 150, 0.4)
        one, other = (
            roc(score, truth, groups=sample, models=target) for score in (a, b)
        )
        assert any(
            f"only {targets} models" in note for note in compare(one, other).warnings
        )
        for row, (low, high), value in (
            (0, one.auc_interval, true[0]),
            (1, compare(one, other).interval, true[0] - true[1]),
        ):
            covered[row] += low <= value <= high
    assert (covered >= 53).all()  # the 1 % quantile at 95 % of 60


def test_few_targets_are_wider_than_the_bootstrap():
    a, b, truth, sample, target = crossed(0, 3, 300, 0.4)
    one, other = (roc(score, truth, groups=sample, models=target) for score in (a, b))
    areas = [found.groups.areas(found.scores, truth) for found in (one, other)]
    found = compare(one, other)
    assert found.interval[1] - found.interval[0] > 2 * 1.96 * np.std(
        areas[0] - areas[1], ddof=1
    )
    left_out = [
        roc(a[target != t], truth[target != t], groups=sample[target != t]).auc
        for t in range(3)
    ]
    np.testing.assert_allclose(
        one.groups.without_each_model(a, truth), left_out, atol=2e-3
    )
    assert any("only 3 models" in note for note in found.warnings)
    a, _, truth, sample, target = crossed(0, 8, 300, 0.4)
    many = roc(a, truth, groups=sample, models=target)
    assert not any("only" in note for note in many.warnings if "models:" in note)


def test_the_bias_that_its_own_simulation_shows_is_that_of_the_auc_for_true_labels():
    """Ten other studies: with it 1.00 are covered, without it .10."""
    *_, true, score = simulated(1, 99, 100_000, "Gaussian", SIGHT[".998"])
    area, found = roc(score, true >= 4).auc, []
    for seed in range(6):
        made = simulated(8, seed, 1000, "Gaussian", SIGHT[".998"])
        values, errors, _, score = observed(*made)
        found.append(evaluated(values, errors, score, 8))
    assert np.mean([one.true_area.bias for one in found]) < -0.005
    covered = np.array(
        [
            [low <= area <= high for low, high in of]
            for of in (
                [one.true_auc_interval for one in found],
                [one.true_area.unbiased_interval for one in found],
            )
        ]
    )
    with_it, without = covered.sum(axis=1)
    assert with_it >= 5
    assert without <= 3


@pytest.mark.slow
@pytest.mark.parametrize(("m", "fewest"), [(4, 7), (16, 13)])
def test_the_difference_for_the_true_labels_covers_where_that_of_the_labels_does_not(
    m, fewest
):
    """24 other studies: .58 and .08 at 4 shadow models, .92 and .92 at 16."""
    *_, true, a, b = hard_and_easy(1, 99, 100_000, "Gaussian")
    difference = roc(a, true >= 4).auc - roc(b, true >= 4).auc
    covered, wrong = np.zeros((2, 2))
    for seed in range(16):
        values, errors, _, *both = observed(*hard_and_easy(m, seed, 1000, "Gaussian"))
        found = compare(*(evaluated(values, errors, each, m) for each in both))
        intervals = found.true_interval, found.interval
        covered += [low <= difference <= high for low, high in intervals]
        wrong += [high < 0 for _, high in intervals]
    assert covered[0] >= max(fewest, covered[1] + 1)
    assert wrong[0] <= wrong[1] / 2


@pytest.mark.parametrize(
    ("count", "total"), [(3, 2), (-1, 2), (np.nan, 2), (0, np.inf), (0, -1)]
)
def test_what_is_no_share_is_refused(count, total):
    with pytest.raises(ValueError, match="must be a"):
        clopper_pearson(count, total)
    assert clopper_pearson(0, 0) == (0, 1)


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


@pytest.mark.parametrize("correlation", [-0.5, 0.0, 0.9])
def test_the_interval_of_a_difference_is_mover(correlation):
    """Zou and Donner's limits, with the distances of each interval's limits from its AUC."""
    low, high = of_difference((0.9, 0.8), ((0.8, 0.95), (0.7, 0.88)), correlation)
    down = 0.1**2 + 0.08**2 - 2 * correlation * 0.1 * 0.08
    up = 0.05**2 + 0.1**2 - 2 * correlation * 0.05 * 0.1
    assert (low, high) == pytest.approx((0.1 - np.sqrt(down), 0.1 + np.sqrt(up)))
    assert of_difference((0.0, 1.0), ((0.0, 0.9), (0.1, 1.0)), 0.0)[0] == -1
    assert of_difference((1.0, 0.0), ((0.1, 1.0), (0.0, 0.9)), 0.0)[1] == 1
