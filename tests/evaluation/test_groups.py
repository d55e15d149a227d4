"""Pooled models: rows that share a sample, or a model, depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from memowidgets.evaluation import clopper_pearson, compare, roc
from memowidgets.evaluation.intervals import Groups, Jackknife, newcombe


def made(n=300, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.2
    return rng.normal(size=n) - 1.2 * truth, truth


def width(interval):
    return interval[1] - interval[0]


def test_rows_alone_in_their_group_have_about_the_usual_intervals():
    scores, truth = made(600)
    alone, plain = roc(scores, truth, groups=np.arange(600)), roc(scores, truth)
    assert alone.auc == plain.auc
    assert alone.auc_interval == pytest.approx(plain.auc_interval, abs=0.01)
    here, there = alone.at(-0.5), plain.at(-0.5)
    assert (here.found, here.flagged_only) == (there.found, there.flagged_only)
    for name in ("tpr", "fpr", "precision"):
        one, other = (getattr(point, f"{name}_interval") for point in (here, there))
        assert one == pytest.approx(other, abs=0.04)


def test_copies_of_a_row_tell_nothing_new():
    scores, truth = made()
    once = roc(scores, truth, groups=np.arange(300))
    often = roc(
        np.tile(scores, 9), np.tile(truth, 9), groups=np.tile(np.arange(300), 9)
    )
    fooled = roc(np.tile(scores, 9), np.tile(truth, 9))
    assert often.auc_interval == pytest.approx(once.auc_interval, abs=1e-12)
    assert often.at(0).tpr_interval == pytest.approx(once.at(0).tpr_interval, abs=1e-12)
    assert width(often.auc_interval) == pytest.approx(
        3 * width(fooled.auc_interval), rel=0.15
    )


def test_many_scores_are_merged_without_moving_the_interval():
    scores, truth = made(9000)
    names = np.arange(9000) // 3
    interval = roc(scores, truth, groups=names).auc_interval
    exact = [
        roc(scores[rows], truth[rows]).auc
        for draw in Groups.read(names, 9000).draws[:200]
        for rows in [np.repeat(np.arange(9000), np.repeat(draw, 3).astype(int))]
    ]
    assert interval == pytest.approx(np.quantile(exact, [0.025, 0.975]), abs=2e-3)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({"groups": np.zeros(60)}, "all rows are of one group"),
        (
            {"groups": np.zeros((60, 1))},
            r"each of the 60 rows, but has shape \(60, 1\)",
        ),
        ({"models": np.arange(60)}, "models= also needs groups="),
        (
            {"groups": np.arange(60), "models": np.arange(59)},
            r"models .* 60 rows, .* \(59,\)",
        ),
        ({"groups": [None, *range(59)]}, "groups .* 1 of 60 rows.* row 0"),
    ],
)
def test_what_is_no_group_is_refused(names, said):
    with pytest.raises(ValueError, match=said):
        roc(*made(60), **names)


def crossed(n_samples=60, n_models=8, seed=0, of_models=0.0):
    """Rows of every sample under every model; `of_models`: how much the models' AUCs differ."""
    rng = np.random.default_rng(seed)
    samples = np.repeat(np.arange(n_samples), n_models)
    models = np.tile(np.arange(n_models), n_samples)
    truth = np.repeat(rng.random(n_samples) < 0.3, n_models)
    gain = 1 + of_models * rng.normal(size=n_models)[models]
    lasting = 0.5 * rng.normal(size=n_samples)[samples]
    return lasting + rng.normal(size=len(truth)) - gain * truth, truth, samples, models


@pytest.mark.parametrize("by_model", [False, True])
def test_a_resample_is_the_curve_of_the_rows_that_it_draws(by_model):
    """A row is there as often as its sample, times its model."""
    scores, truth, samples, models = crossed(20, 4)
    scores = np.round(scores, 1)  # ties
    groups = Groups.read(samples, len(scores), models if by_model else None)
    areas = groups.areas(scores, truth)
    for i in range(40):
        times = groups.draws[i][samples]
        times = times * groups.model_draws[i][models] if by_model else times
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


@pytest.mark.parametrize("n", [30, 60])  # few memorised samples, and more than a few
def test_a_rate_of_0_or_1_has_a_width(n):
    _, truth, samples, models = crossed(n, 6)
    scores = -truth.astype(float)
    found = roc(scores, truth, groups=samples, models=models)
    positives, negatives = (
        len(np.unique(samples[truth])),
        len(np.unique(samples[~truth])),
    )
    assert (found.auc, found.auc_interval[1]) == (1, 1)
    assert found.auc_interval[0] == newcombe(1, positives, negatives)[0]
    point = found.at(-0.5)
    assert (point.tpr, point.fpr) == (1, 0)
    assert point.tpr_interval == clopper_pearson(positives, positives)
    assert point.fpr_interval == clopper_pearson(0, negatives)
    assert point.precision_interval == clopper_pearson(positives, positives)
    nothing = found.at(-2)
    assert nothing.precision_interval is None
    assert (
        compare(found, roc(-scores, truth, groups=samples, models=models)).p_value == 0
    )


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
    assert one.warnings[1].key == "few models"


def test_two_scores_are_compared_by_the_same_draws_of_both():
    scores, truth, samples, models = crossed(seed=4)
    worse = scores + np.random.default_rng(2).normal(size=len(scores))
    both = [roc(s, truth, groups=samples, models=models) for s in (scores, worse)]
    found = compare(*both)
    areas = [one.groups.areas(one.scores, truth) for one in both]
    error = np.std(areas[0] - areas[1], ddof=1)
    left_out = Jackknife.of(
        np.subtract(*(one.groups.without_each_model(one.scores, truth) for one in both))
    )
    reach = max(norm.ppf(0.975) * error, left_out.reach)
    expected = found.difference - reach, found.difference + reach
    assert found.interval == pytest.approx(expected)
    p_value = 2 * norm.sf(abs(found.difference) / error)
    assert found.p_value == pytest.approx(
        max(p_value, left_out.p_value(found.difference))
    )
    assert found.z == pytest.approx(
        np.sign(found.difference) * norm.isf(found.p_value / 2)
    )
    same = compare(both[0], both[0])
    assert (same.difference, same.z, same.p_value) == (0, 0, 1)
    for other in (
        {},
        {"groups": samples},
        {"groups": samples, "models": models[::-1]},
        {"groups": models, "models": samples},
    ):
        for pair in (
            (both[0], roc(worse, truth, **other)),
            (roc(worse, truth, **other), both[0]),
        ):
            with pytest.raises(ValueError, match="different samples or models"):
                compare(*pair)


def test_two_models_say_little_and_an_interval_stays_within_0_and_1():
    scores, truth, samples, models = crossed(60, 2, of_models=1.5)
    assert roc(scores, truth, groups=samples, models=models).auc_interval == (0, 1)
    assert Jackknife.of(np.array([0.1, 0.3])).error == pytest.approx(0.1)


def test_a_distance_at_the_end_of_an_interval_has_the_p_of_its_level():
    left_out = Jackknife.of(np.array([0.1, 0.4, np.nan, 0.2, 0.15]))
    assert left_out.freedom == 3
    assert left_out.p_value(left_out.reach) == pytest.approx(0.05)
    assert left_out.p_value(-left_out.reach) == pytest.approx(0.05)
    assert left_out.p_value(0.0) == pytest.approx(1)
    one = Jackknife.of(np.array([0.3, np.nan]))
    assert (one.reach, one.p_value(0.1)) == (pytest.approx(0, abs=1e-300), 0)
