"""Curves, intervals and rules against scikit-learn, scipy and brute force; uncertain labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest, norm
from sklearn.metrics import roc_auc_score, roc_curve

from memowidgets.evaluation import clopper_pearson, compare, roc
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.intervals import SortedScores, TrueArea, bias_of, of_area
from memowidgets.vocabulary import Note


def made(n=400, share=0.15, seed=0, digits=None):
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < share
    scores = rng.normal(size=n) - 1.2 * truth
    return (scores if digits is None else scores.round(digits)), truth


def kernel(scores, truth):
    """(positives, negatives): 1 where the positive scores lower, a half for ties."""
    difference = scores[~truth][None] - scores[truth][:, None]
    return (difference > 0) + 0.5 * (difference == 0)


def delong(*pairs):
    """AUCs and their covariance, in O(n²)."""
    kernels = [kernel(*pair) for pair in pairs]
    positives = np.cov([k.mean(axis=1) for k in kernels]) / kernels[0].shape[0]
    negatives = np.cov([k.mean(axis=0) for k in kernels]) / kernels[0].shape[1]
    return np.array([k.mean() for k in kernels]), positives + negatives


@pytest.mark.parametrize("digits", [None, 1, 0])
def test_an_auc_and_its_interval_by_the_error_of_delong(digits):
    scores, truth = made(digits=digits)
    for kinds in (truth, np.arange(len(scores)) < 2):
        found, ((auc,), variance) = roc(scores, kinds), delong((scores, kinds))
        assert found.auc == pytest.approx(roc_auc_score(kinds, -scores), abs=1e-12)
        expected = of_area(auc, kinds.sum(), (~kinds).sum(), float(np.sqrt(variance)))
        assert found.auc_interval == pytest.approx(expected)


@pytest.mark.parametrize("digits", [None, 1])
def test_paired_comparison(digits):
    one, truth = made(digits=digits)
    other = (one + np.random.default_rng(5).normal(size=len(one))).round(1)
    result = compare(roc(one, truth), roc(other, truth))
    aucs, covariance = delong((one, truth), (other, truth))
    error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert result.difference == pytest.approx(aucs[0] - aucs[1], abs=1e-12)
    # never surer than DeLong's
    assert 0 < result.z / (result.difference / error) <= 1 + 1e-9
    assert result.p_value == pytest.approx(2 * norm.sf(abs(result.z)))
    low, high = result.interval
    assert (
        max(result.difference - low, high - result.difference)
        >= norm.ppf(0.975) * error
    )
    assert (low > 0 or high < 0) == (result.p_value < 0.05)
    same = compare(roc(one, truth), roc(one, truth))
    assert (same.difference, same.z, same.p_value) == (0, 0, 1)


def test_a_comparison_takes_two_of_each_kind_and_no_fewer():
    scores, few = np.arange(6.0), np.arange(6) < 2
    found = compare(roc(scores, few), roc(-scores, few))
    assert (found.auc_a, found.auc_b, found.difference) == (1, 0, 1)
    for truth in (few & (scores > 0), ~few | (scores > 0)):
        with pytest.raises(ValueError, match="at least two"):
            compare(roc(scores, truth), roc(-scores, truth))


@pytest.mark.parametrize("digits", [None, 1])
def test_curve(digits):
    scores, truth = made(digits=digits)
    curve = roc(scores, truth).roc
    fpr, tpr, thresholds = roc_curve(truth, -scores, drop_intermediate=False)
    np.testing.assert_allclose(curve["fpr"], fpr)
    np.testing.assert_allclose(curve["tpr"], tpr)
    np.testing.assert_allclose(curve["tau"], -thresholds)
    assert tuple(curve.iloc[0]) == (0, 0, -np.inf)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40),
    st.floats(-4, 4),
)
def test_counts_at_any_threshold(pairs, tau):
    scores, truth = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    if truth.all() or not truth.any():
        return
    flagged = scores <= tau
    point = roc(scores, truth).at(tau)
    assert (point.flagged, point.flagged_share) == (flagged.sum(), flagged.mean())
    assert point.found == (flagged & truth).sum()
    assert point.flagged_only == (flagged & ~truth).sum()
    assert point.found + point.missed == truth.sum()
    assert point.left_alone + point.flagged_only == (~truth).sum()
    assert (point.precision is None) == (point.flagged == 0)
    assert roc(scores, truth).auc == pytest.approx(roc_auc_score(truth, -scores))


def test_rates_and_their_intervals():
    scores, truth = made()
    point = roc(scores, truth).at(-1.0)
    assert point.tpr == point.found / truth.sum()
    assert point.precision == point.found / point.flagged
    for (low, high), found, n in [
        (point.tpr_interval, point.found, truth.sum()),
        (point.fpr_interval, point.flagged_only, (~truth).sum()),
        (point.precision_interval, point.found, point.flagged),
    ]:
        exact = binomtest(int(found), int(n)).proportion_ci(0.95, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    assert roc(scores, truth).at(-np.inf).flagged == 0
    for k in range(10):
        exact = binomtest(k, 9).proportion_ci(0.95, "exact")
        assert clopper_pearson(k, 9) == pytest.approx((exact.low, exact.high), abs=1e-9)


@pytest.mark.parametrize("digits", [None, 1])
def test_rules(digits):
    evaluation = roc(*made(digits=digits))
    curve = evaluation.roc
    tau = evaluation.threshold("youden")
    assert evaluation.at(tau).tpr - evaluation.at(tau).fpr == pytest.approx(
        (curve["tpr"] - curve["fpr"]).max()
    )
    tau = evaluation.threshold("tpr>=0.75")
    assert (
        evaluation.at(tau).tpr >= 0.75 > evaluation.at(np.nextafter(tau, -np.inf)).tpr
    )
    tau = evaluation.threshold("fpr <= 1 %")
    following = curve["tau"][curve["tau"] > tau].min()
    assert evaluation.at(tau).fpr <= 0.01 < evaluation.at(following).fpr
    assert evaluation.threshold("fpr≤0.01") == tau
    tau = evaluation.threshold("flagged<=.05")
    assert evaluation.at(tau).flagged_share <= 0.05
    assert evaluation.threshold("flagged<=0") == -np.inf
    assert evaluation.threshold("tpr>=0") == -np.inf
    assert evaluation.threshold("fpr<=1") == curve["tau"].max()
    assert evaluation.threshold("fpr<=1e-3") <= evaluation.threshold("fpr<=0.01")
    for number in (0.01, np.float64(0.01), np.float32(0.01)):
        assert (
            evaluation.tpr_at_fpr(number)
            == evaluation.at(evaluation.threshold("fpr<=0.01")).tpr
        )
    for rule in ("best", "tpr<=0.5", "fpr<=2", "fpr<=", "", 0.5):
        with pytest.raises(ValueError, match="youden"):
            evaluation.threshold(rule)


def test_few_samples_of_a_kind_are_said_with_their_name():
    scores, truth = made(400)
    assert roc(scores, truth).warnings == ()
    assert [len(roc(scores, np.arange(400) < n).warnings) for n in (19, 20)] == [1, 0]
    for name, few in (
        ("memorised", truth[:60]),
        ("planted", scores[:60] < np.sort(scores[:60])[1]),
    ):
        found = roc(scores[:60], few, positives=name)
        (note,) = found.warnings
        assert (note.key, note.numbers) == ("few memorised", {"n": few.sum()})
        assert note.startswith(f"only {few.sum()} ")
        assert f"{name}: " in note
        assert f"{few.sum()} of 60 samples {name}" in repr(found)
    more = found.with_warnings(
        Note("not learned", "not learned yet"), Note("other", "and another")
    )
    assert more.warnings == ("not learned yet", "and another", note)
    assert more.auc == found.auc


def test_series_of_the_same_samples_in_other_orders_are_refused():
    scores, truth = made(50)
    ids = [f"sample-{i}" for i in range(50)]
    values, labels = pd.Series(scores, ids), pd.Series(truth, ids)
    expected = roc(scores, truth).auc
    with pytest.raises(ValueError, match=r"memorized.*loc\[scores\.index\]"):
        roc(values.sort_values(), labels)
    assert roc(values, labels).auc == expected
    assert (
        roc(values.sort_values(), labels.reindex(values.sort_values().index)).auc
        == expected
    )
    assert roc(values, pd.Series(truth)).auc == expected


def test_bad_input():
    scores, truth = made(50)
    broken = scores.copy()
    broken[[7, 9]] = np.nan
    cases = [
        (lambda: roc(broken, truth), "2 of .* are NaN or infinite, the first in row 7"),
        (lambda: roc(scores, np.ones(50, dtype=bool)), "undefined: every sample"),
        (lambda: roc(scores, np.zeros(50, dtype=bool)), "undefined: no sample"),
        (lambda: roc(scores, truth[:9]), "equal length"),
        (lambda: roc([], []), "one number for each"),
        (lambda: roc(scores, truth).at(np.nan), "tau.* number, not nan"),
        (lambda: compare(roc(scores, truth), roc(scores, ~truth)), "same truth"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
    for truth_of_numbers in (scores, None):
        with pytest.raises(TypeError, match="bool"):
            roc(scores, truth_of_numbers)
    with pytest.raises(TypeError, match=r"tau.* 'youden'"):
        roc(scores, truth).at("youden")


def true_area(scores, probability):
    found = TrueArea(SortedScores.of(scores), probability)
    return found.auc, found.interval


def probable(n=600, seed=0):
    rng = np.random.default_rng(seed)
    evidence = rng.normal(-3, 3, size=n)
    probability = expit(evidence)
    return rng.normal(size=n) - 0.4 * evidence, probability


@pytest.mark.parametrize("n", [600, 9000])  # steps of many scores are merged
def test_certain_labels_change_nothing(n):
    scores, probability = probable(n)
    truth = probability > 0.5
    auc, interval = true_area(scores, truth.astype(float))
    hard = roc(scores, truth)
    assert auc == pytest.approx(hard.auc, abs=1e-12)
    assert interval == pytest.approx(hard.auc_interval, abs=0.02)


def test_nobody_makes_a_pair_with_themselves():
    scores, probability = np.array([1.0, 2.0, 2.0]), np.array([0.5, 0.5, 0.25])
    pairs = wins = 0.0
    for i in range(3):
        for j in range(3):
            if i != j:
                weight = probability[i] * (1 - probability[j])
                pairs += weight
                wins += weight * (
                    (scores[i] < scores[j]) + 0.5 * (scores[i] == scores[j])
                )
    assert true_area(scores, probability)[0] == pytest.approx(wins / pairs)


def test_the_interval_is_that_of_drawn_samples_with_their_labels():
    """Half of the memorised samples are obvious, so it is wider than Newcombe's."""
    rng, areas, i = np.random.default_rng(1), [], np.arange(300)
    probability = np.where(i < 60, 0.9, 0.02)
    scores = rng.normal(size=300) + np.select([i < 30, i < 60], [-8, 2])
    weights = probability, 1 - probability
    for _ in range(1000):
        kinds = [rng.choice(scores, round(w.sum()), p=w / w.sum()) for w in weights]
        areas.append((kinds[0][:, None] < kinds[1]).mean())
    low, high = np.quantile(areas, [0.025, 0.975]) - np.mean(areas)
    auc, interval = true_area(scores, probability)
    assert interval == pytest.approx((auc + low, auc + high), abs=0.01)
    scores, probability = probable(300)
    _, doubtful = true_area(scores, np.where(probability > 0.5, 0.7, 0.05))
    assert np.ptp(doubtful) > np.ptp(roc(scores, probability > 0.5).auc_interval)


def test_of_uncertain_labels_both_aucs_are_given_and_the_surer_first():
    scores, probability = probable()
    hard, soft = roc(scores, probability > 0.5), true_area(scores, probability)
    for n, first in ((63, "AUC for the true labels"), (64, "AUC given these labels")):
        found = hard.with_truly(Truly(9.0, n, probability))
        assert (found.true_auc, found.true_auc_interval) == soft
        assert next(iter(found.areas)) == first
    for unknown in (hard, hard.with_truly(Truly(0.0, 8, 0 * probability))):
        assert unknown.true_auc is unknown.true_auc_interval is None


def with_truth(n_shadows, bias=0.0, seed=0):
    """Two scores of the same samples, and labels of which nobody is sure."""
    scores, probability = probable()
    others = scores + np.random.default_rng(seed).normal(size=len(scores))
    return [
        roc(each, probability > 0.5).with_truly(
            Truly(9.0, n_shadows, probability, lambda: bias)
        )
        for each in (scores, others)
    ]


def test_the_interval_for_the_true_labels_is_widened_by_the_bias_alone():
    plain = with_truth(32)[0]
    low, high = plain.true_auc_interval
    for bias, expected in ((-0.02, (low, high + 0.02)), (0.02, (low - 0.02, high))):
        found = with_truth(32, bias)[0]
        assert found.true_auc == plain.true_auc
        assert found.true_auc_interval == pytest.approx(expected)
    assert with_truth(32, -1.0)[0].true_auc_interval == (low, 1)


def test_the_bias_is_the_mean_distance_from_the_truth():
    scores = np.arange(6.0)
    lowest, all_alike = np.arange(6) < 2, np.full(6, 1 / 3)
    assert bias_of(scores, [(lowest, lowest * 1.0)]) == 0
    drawn = [(lowest, all_alike), (lowest, lowest * 1.0)]
    assert bias_of(scores, drawn) == pytest.approx(-0.25)
    nobody = [(lowest & False, all_alike), (~(lowest & False), all_alike)]
    assert bias_of(scores, nobody) == 0


def test_a_comparison_has_the_difference_for_the_true_labels_from_the_same_draws():
    one, other = with_truth(32)
    found = compare(one, other)
    assert found.true_difference == one.true_auc - other.true_auc
    low, high = found.true_interval
    assert low < found.true_difference < high
    apart = np.hypot(np.ptp(one.true_auc_interval), np.ptp(other.true_auc_interval))
    assert high - low < 0.9 * apart  # their noise is shared
    same = compare(one, with_truth(32)[0])
    assert same.true_difference == 0
    assert same.true_interval == pytest.approx((0, 0), abs=0.02)  # each is skewed
    assert compare(other, one).true_interval == pytest.approx((-high, -low), abs=0.005)
    biased, unbiased = with_truth(32, -0.03)[0], other
    assert compare(biased, unbiased).true_interval == pytest.approx((low, high + 0.03))


@pytest.mark.parametrize(
    ("n_shadows", "is_tested", "first"),
    [
        (15, False, "AUC for the true labels"),
        (16, True, "AUC for the true labels"),
        (63, True, "AUC for the true labels"),
        (64, True, "AUC given these labels"),
    ],
)
def test_the_surer_difference_leads_and_few_shadow_models_test_nothing(
    n_shadows, is_tested, first
):
    found = compare(*with_truth(n_shadows))
    assert (found.p_value is not None) == (found.z is not None) == is_tested
    assert next(iter(found.differences)) == first
    assert repr(found).index(first) < 40
    assert ("p = " in repr(found)) == is_tested


def test_labels_without_errors_have_one_difference_and_a_test():
    one, other = (roc(of.scores, of.memorized) for of in with_truth(32))
    found = compare(one, other)
    assert list(found.differences) == ["AUC"]
    assert found.p_value is not None
    assert found.true_difference is found.true_interval is None


def test_a_curve_that_is_written_to_changes_no_later_one():
    evaluation = roc(*made())
    first = evaluation.roc
    expected = first.copy()
    first.loc[:, :] = 0.0
    pd.testing.assert_frame_equal(evaluation.roc, expected)
