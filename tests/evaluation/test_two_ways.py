"""Pooled models: rows that share a sample, or a model, depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.evaluation import clopper_pearson, compare, roc
from memowidgets.evaluation.groups import Groups
from memowidgets.evaluation.intervals import newcombe


def crossed(n_samples=60, n_models=8, seed=0, of_models=0.0):
    """Rows of every sample under every model; `of_models`: how much the models' AUCs differ."""
    rng = np.random.default_rng(seed)
    samples = np.repeat(np.arange(n_samples), n_models)
    models = np.tile(np.arange(n_models), n_samples)
    truth = np.repeat(rng.random(n_samples) < 0.3, n_models)
    gain = 1 + of_models * rng.normal(size=n_models)[models]
    lasting = 0.5 * rng.normal(size=n_samples)[samples]
    return lasting + rng.normal(size=len(truth)) - gain * truth, truth, samples, models


def test_a_pair_weighs_the_product_of_its_sample_and_its_model():
    scores, truth, samples, models = crossed(20, 4)
    scores = np.round(scores, 1)  # ties
    groups = Groups.read(samples, len(scores), models)
    areas = groups.areas(scores, truth)
    for i in range(40):
        times = groups.draws[i][samples] * groups.model_draws[i][models]
        rows = np.repeat(np.arange(len(scores)), times.astype(int))
        assert areas[i] == pytest.approx(roc(scores[rows], truth[rows]).auc, abs=1e-12)


def test_a_share_weighs_its_rows_alike():
    scores, truth, samples, models = crossed(120, 4)
    groups = Groups.read(samples, len(scores), models)
    flagged = scores <= 0
    shares = []
    for draw, model_draw in zip(groups.draws, groups.model_draws, strict=True):
        weights = (draw[samples] * model_draw[models])[truth]
        if weights.sum():
            shares.append(weights @ flagged[truth] / weights.sum())
    expected = np.quantile(shares, [0.025, 0.975])
    assert groups.share(flagged, truth) == pytest.approx(expected, abs=1e-12)


def test_intervals_cover_where_models_differ():
    large, truth, _, _ = crossed(2000, 200, seed=99, of_models=0.8)
    expected = roc(large, truth).auc
    two_way = by_sample = 0
    for seed in range(60):
        scores, truth, samples, models = crossed(80, 10, seed, of_models=0.8)
        low, high = roc(scores, truth, groups=samples, models=models).auc_interval
        two_way += low <= expected <= high
        low, high = roc(scores, truth, groups=samples).auc_interval
        by_sample += low <= expected <= high
    assert two_way >= 52  # of 60; the 1 % quantile at 95 % is 53, and 10 models are few
    assert by_sample < 42


def test_a_rate_of_0_or_1_has_a_width():
    _, truth, samples, models = crossed(30, 6)
    scores = -truth.astype(float)
    found = roc(scores, truth, groups=samples, models=models)
    positives, negatives = len(np.unique(samples[truth])), len(np.unique(samples[~truth]))
    assert (found.auc, found.auc_interval[1]) == (1, 1)
    assert found.auc_interval[0] == newcombe(1, positives, negatives)[0]
    point = found.at(-0.5)
    assert (point.tpr, point.fpr) == (1, 0)
    assert point.tpr_interval == clopper_pearson(positives, positives)
    assert point.fpr_interval == clopper_pearson(0, negatives)
    assert point.precision_interval == clopper_pearson(positives, positives)
    nothing = found.at(-2)
    assert nothing.flagged_interval == clopper_pearson(0, 30)
    assert nothing.precision_interval is None


def test_a_rate_near_1_is_no_surer_than_its_distinct_samples():
    truth = np.repeat(np.arange(100) < 40, 6)
    samples, models = np.repeat(np.arange(100), 6), np.tile(np.arange(6), 100)
    scores = np.where(truth, -1.0, 1.0)
    scores[0] = 1.0  # one of 240 positive rows is missed
    low, high = roc(scores, truth, groups=samples, models=models).at(0).tpr_interval
    exact = clopper_pearson(40 * 239 / 240, 40)
    assert low <= exact[0]
    assert high >= exact[1]


def test_the_warning_counts_distinct_samples():
    scores, truth, samples, models = crossed(40, 8, seed=3)
    n = len(np.unique(samples[truth]))
    assert n < 20 < truth.sum()
    notes = roc(scores, truth, groups=samples, models=models).warnings
    assert f"only {n} samples are memorised: intervals are wide" in notes
    assert f"{len(truth)} rows of 40 samples and 8 models" in notes[0]
    assert "by sample and by model" in notes[0]


def test_one_model_is_drawn_by_sample_alone_and_says_so():
    scores, truth, samples, _ = crossed(60, 1)
    one = roc(scores, truth, groups=samples, models=np.zeros(60))
    assert one.auc_interval == roc(scores, truth, groups=samples).auc_interval
    assert "60 rows of 60 samples and 1 model:" in one.warnings[0]
    assert one.warnings[0].endswith("by sample")
    assert "one model" in one.warnings[1]


def test_two_scores_are_compared_by_the_same_draws_of_both():
    scores, truth, samples, models = crossed(seed=4)
    worse = scores + np.random.default_rng(2).normal(size=len(scores))
    both = [roc(s, truth, groups=samples, models=models) for s in (scores, worse)]
    found = compare(*both)
    areas = [one.groups.areas(one.scores, truth) for one in both]
    error = np.std(areas[0] - areas[1], ddof=1)
    assert 0 < abs(found.z) <= abs(found.difference / error) * (1 + 1e-9)  # or the jackknife's
    assert found.interval[1] - found.interval[0] >= 2 * 1.959 * error
    with pytest.raises(ValueError, match="different samples or models"):
        compare(both[0], roc(worse, truth, groups=samples))
    with pytest.raises(ValueError, match="different samples or models"):
        compare(both[0], roc(worse, truth, groups=models, models=samples))


def test_models_without_samples_are_refused():
    scores, truth, samples, models = crossed()
    with pytest.raises(ValueError, match="models= also needs groups="):
        roc(scores, truth, models=models)
    with pytest.raises(ValueError, match=r"models must have one name for each of the 480 rows"):
        roc(scores, truth, groups=samples, models=models[:3])
