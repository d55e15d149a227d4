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

from memowidgets.evaluation import clopper_pearson, compare, curve, roc
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
def test_auc(digits):
    scores, truth = made(digits=digits)
    evaluation = roc(scores, truth)
    (auc,), variance = delong((scores, truth))
    assert evaluation._ladder.error() == pytest.approx(np.sqrt(variance))
    two = np.arange(len(scores)) < 2
    assert roc(scores, two)._ladder.error() == pytest.approx(np.sqrt(delong((scores, two))[1]))
    assert evaluation.auc == pytest.approx(roc_auc_score(truth, -scores), abs=1e-12)
    assert evaluation.auc == pytest.approx(auc, abs=1e-12)


@pytest.mark.parametrize("digits", [None, 1])
def test_paired_comparison(digits):
    one, truth = made(digits=digits)
    other = (one + np.random.default_rng(5).normal(size=len(one))).round(1)
    result = compare(roc(one, truth), roc(other, truth))
    aucs, covariance = delong((one, truth), (other, truth))
    error = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert result.difference == pytest.approx(aucs[0] - aucs[1], abs=1e-12)
    assert 0 < result.z / (result.difference / error) <= 1 + 1e-9  # never surer than DeLong's
    assert result.p_value == pytest.approx(2 * norm.sf(abs(result.z)))
    low, high = result.interval
    assert max(result.difference - low, high - result.difference) >= norm.ppf(0.975) * error
    assert (low > 0 or high < 0) == (result.p_value < 0.05)
    same = compare(roc(one, truth), roc(one, truth))
    assert (same.difference, same.z, same.p_value) == (0, 0, 1)


def test_a_comparison_takes_two_of_each_kind_and_no_fewer():
    scores = np.arange(6.0)
    few = np.arange(6) < 2
    for truth in (few, ~few):
        found = compare(roc(scores, truth), roc(-scores, truth))
        assert (found.auc_a, found.auc_b, found.difference) in ((1, 0, 1), (0, 1, -1))
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
    assert point.flagged == flagged.sum()
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
        (point.flagged_interval, point.flagged, len(truth)),
        (point.precision_interval, point.found, point.flagged),
    ]:
        exact = binomtest(int(found), int(n)).proportion_ci(0.95, "exact")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    nothing = roc(scores, truth).at(-np.inf)
    assert (nothing.flagged, nothing.found, nothing.flagged_only) == (0, 0, 0)
    lowest = roc([1.0, 2.0], [False, True]).at(1.0)
    assert (lowest.flagged, lowest.found, lowest.flagged_only) == (1, 0, 1)
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
    assert evaluation.at(tau).tpr >= 0.75 > evaluation.at(np.nextafter(tau, -np.inf)).tpr
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
    assert evaluation.tpr_at_fpr(0.01) == evaluation.at(evaluation.threshold("fpr<=0.01")).tpr
    for number in (np.float64(0.01), np.float32(0.01)):
        assert evaluation.tpr_at_fpr(number) == evaluation.at(evaluation.threshold("fpr<=0.01")).tpr
    for rule in ("best", "tpr<=0.5", "fpr<=2", "fpr<=", ""):
        with pytest.raises(ValueError, match="youden"):
            evaluation.threshold(rule)


def test_warnings():
    scores, truth = made(400)
    assert roc(scores, truth).warnings == ()
    assert [len(roc(scores, np.arange(400) < n).warnings) for n in (19, 20)] == [1, 0]
    few = roc(scores[:60], truth[:60])
    assert few.warnings == (f"only {truth[:60].sum()} samples are memorised: intervals are wide",)
    assert few.warnings[0].key == "few memorised"
    more = few.with_warnings(Note("not learned", "not learned yet"), Note("other", "and another"))
    assert more.warnings[1:] == ("not learned yet", "and another")
    assert more.auc == few.auc


def test_series_of_the_same_samples_in_other_orders_are_refused():
    scores, truth = made(50)
    ids = [f"sample-{i}" for i in range(50)]
    values, labels = pd.Series(scores, ids), pd.Series(truth, ids)
    expected = roc(scores, truth).auc
    for wrong in ({"memorized": labels}, {"memorized": None, "probability": labels * 0.8}):
        with pytest.raises(ValueError, match=r"(memorized|probability).*reindex\(scores\.index\)"):
            roc(values.sort_values(), **wrong)
    assert roc(values, labels).auc == expected
    assert roc(values.sort_values(), labels.reindex(values.sort_values().index)).auc == expected
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
        (lambda: roc(scores, truth).at(np.nan), "tau is NaN"),
        (lambda: compare(roc(scores, truth), roc(scores, ~truth)), "same truth"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(TypeError, match="bool"):
        roc(scores, scores)


def probable(n=600, seed=0):
    rng = np.random.default_rng(seed)
    evidence = rng.normal(-3, 3, size=n)
    probability = expit(evidence)
    return rng.normal(size=n) - 0.4 * evidence, probability


def test_certain_labels_change_nothing():
    scores, probability = probable()
    truth = probability > 0.5
    hard, soft = roc(scores, truth), roc(scores, None, truth.astype(float))
    assert soft.auc == pytest.approx(hard.auc, abs=1e-12)
    assert soft.auc_interval == pytest.approx(hard.auc_interval, abs=0.02)
    np.testing.assert_allclose(soft.roc.to_numpy(), hard.roc.to_numpy(), atol=1e-12)
    for tau in (-1.0, 0.0, 1.0):
        for name in ("tpr", "fpr", "precision", "tpr_interval", "fpr_interval", "flagged"):
            one, other = (getattr(e.at(tau), name) for e in (soft, hard))
            assert one == pytest.approx(other, abs=1e-9)
    for rule in ("youden", "tpr>=0.75", "fpr<=0.01", "flagged<=0.05"):
        assert soft.threshold(rule) == hard.threshold(rule)
    np.testing.assert_array_equal(soft.memorized, truth)


def test_expected_counts_are_means_over_drawn_labels():
    scores, probability = probable()
    scores = scores.round(1)  # ties
    soft = roc(scores, None, probability)
    rng = np.random.default_rng(1)
    drawn = [roc(scores, rng.random(len(scores)) < probability) for _ in range(400)]
    assert soft.auc == pytest.approx(np.mean([e.auc for e in drawn]), abs=0.003)
    assert soft.n_memorized == pytest.approx(np.mean([e.n_memorized for e in drawn]), rel=0.01)
    point = soft.at(-1.0)
    assert point.found == pytest.approx(np.mean([e.at(-1.0).found for e in drawn]), rel=0.01)
    assert point.tpr == pytest.approx(np.mean([e.at(-1.0).tpr for e in drawn]), abs=0.005)
    assert point.flagged == drawn[0].at(-1.0).flagged


def test_nobody_makes_a_pair_with_themselves():
    scores, probability = np.array([1.0, 2.0, 2.0]), np.array([0.5, 0.5, 0.25])
    pairs = wins = 0.0
    for i in range(3):
        for j in range(3):
            if i != j:
                weight = probability[i] * (1 - probability[j])
                pairs += weight
                wins += weight * ((scores[i] < scores[j]) + 0.5 * (scores[i] == scores[j]))
    assert roc(scores, None, probability).auc == pytest.approx(wins / pairs)


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
    found = roc(scores, None, probability)
    assert found.auc_interval == pytest.approx((found.auc + low, found.auc + high), abs=0.01)
    scores, probability = probable(300)
    doubtful = roc(scores, None, np.where(probability > 0.5, 0.7, 0.05)).auc_interval
    assert np.ptp(doubtful) > np.ptp(roc(scores, probability > 0.5).auc_interval)


def test_of_uncertain_labels_both_aucs_are_given_and_the_surer_first():
    scores, probability = probable()
    hard, soft = roc(scores, probability > 0.5), roc(scores, None, probability)
    for n, first in ((63, "AUC for the true labels"), (64, "AUC given these labels")):
        found = hard.with_truly(9.0, n, probability)
        assert (found.true_auc, found.true_auc_interval) == (soft.auc, soft.auc_interval)
        assert next(iter(found.areas)) == first
    for unknown in (hard, hard.with_truly(0.0, 8, 0 * probability)):
        assert unknown.true_auc is unknown.true_auc_interval is None


def test_doubt_is_said():
    evaluation = roc(np.arange(9.0), None, [0.0, 0.05, 0.06, 0.5, 0.94, 0.95, 1.0, 1.0, 0.0])
    assert "3 of 9 labels" in evaluation.warnings[0]
    assert "about" in repr(evaluation)
    assert "about" in evaluation._repr_html_()


def test_bad_probabilities():
    scores, probability = probable(20)
    cases = [
        (lambda: roc(scores, None), "memorized=, probability="),
        (lambda: roc(scores, None, probability + 1), "from 0 to 1, but is"),
        (lambda: roc(scores, None, np.full(20, np.nan)), "from 0 to 1, but is nan in row 0"),
        (lambda: roc(scores, None, 2.0 * (np.arange(20) == 3)), "2.* in row 3"),
        (lambda: roc(scores, None, 1.0 - 3 * (np.arange(20) == 3)), "-2.* in row 3"),
        (lambda: roc(scores, None, probability[:3]), "equal length"),
        (lambda: roc(scores, [True], probability), "must hold 20 labels"),
        (lambda: roc(scores, None, probability, scores), "groups= and probability="),
        (lambda: roc(scores, None, np.zeros(20)), "no sample is memorised"),
        (lambda: roc(scores, None, np.ones(20)), "every sample is memorised"),
        (lambda: roc(scores[:1], None, [0.5]), "two samples"),
        (
            lambda: compare(roc(scores, probability > 0.5), roc(scores, None, probability)),
            "certain truth",
        ),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()


@pytest.mark.parametrize("seed", range(50))
def test_a_probability_of_exactly_1_is_no_error(seed):
    """Rounding once made the share of other samples at a score fall below 0."""
    rng = np.random.default_rng(seed)
    scores, probability = probable(200, seed)
    certain = rng.random(200) < 0.1
    evaluation = roc(scores, None, np.where(certain, 1.0, probability))
    low, high = evaluation.auc_interval
    assert 0 <= low < evaluation.auc < high <= 1
    steps = np.diff(evaluation.roc[["fpr", "tpr"]].to_numpy(), axis=0)
    assert (steps >= 0).all()


def test_a_curve_that_is_written_to_changes_no_later_one():
    evaluation = roc(*made())
    first = evaluation.roc
    expected = first.copy()
    first.loc[:, :] = 0.0
    pd.testing.assert_frame_equal(evaluation.roc, expected)


def test_many_steps_are_merged_where_both_kinds_are_frequent():
    scores, truth = made(40_000, share=0.01)
    ladder = roc(scores, truth)._ladder
    assert len(ladder.taus) > 30_000
    for merged, kind in zip(curve._merged(*ladder.steps()), (truth, ~truth), strict=True):
        assert merged.sum() == kind.sum()
        assert merged.max() < max(0.0021 * merged.sum(), 2)
