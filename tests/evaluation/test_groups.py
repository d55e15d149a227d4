"""Rows that come in groups: the members of several models, pooled."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.evaluation import compare, roc
from memowidgets.evaluation.groups import Groups


def made(n=300, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.2
    return rng.normal(size=n) - 1.2 * truth, truth


def width(interval):
    return interval[1] - interval[0]


def test_a_resample_is_the_curve_of_the_rows_that_it_draws():
    scores, truth = made(80)
    scores = np.round(scores, 1)  # ties
    names = np.random.default_rng(1).integers(25, size=80)
    groups = Groups.read(names, 80)
    areas = groups.areas(scores, truth)
    for draw, area in zip(groups.draws[:40], areas[:40], strict=True):
        rows = np.repeat(np.arange(80), draw[groups.of_row].astype(int))
        assert area == pytest.approx(roc(scores[rows], truth[rows]).auc, abs=1e-12)


def test_rows_alone_in_their_group_have_about_the_usual_intervals():
    scores, truth = made(600)
    alone, plain = roc(scores, truth, groups=np.arange(600)), roc(scores, truth)
    assert alone.auc == plain.auc
    assert alone.auc_interval == pytest.approx(plain.auc_interval, abs=0.01)
    here, there = alone.at(-0.5), plain.at(-0.5)
    assert (here.hits, here.false_alarms) == (there.hits, there.false_alarms)
    assert here.tpr_interval == pytest.approx(there.tpr_interval, abs=0.03)
    assert here.fpr_interval == pytest.approx(there.fpr_interval, abs=0.03)
    assert here.flagged_interval == pytest.approx(there.flagged_interval, abs=0.03)
    assert here.precision_interval == pytest.approx(there.precision_interval, abs=0.04)


def test_copies_of_a_row_tell_nothing_new():
    scores, truth = made()
    once = roc(scores, truth, groups=np.arange(300))
    often = roc(np.tile(scores, 9), np.tile(truth, 9), groups=np.tile(np.arange(300), 9))
    fooled = roc(np.tile(scores, 9), np.tile(truth, 9))
    assert often.auc_interval == pytest.approx(once.auc_interval, abs=1e-12)
    assert often.at(0).tpr_interval == pytest.approx(once.at(0).tpr_interval, abs=1e-12)
    assert width(often.auc_interval) == pytest.approx(3 * width(fooled.auc_interval), rel=0.15)


def test_intervals_cover_the_truth_where_rows_depend_on_each_other():
    """Samples of a lasting difficulty, in 12 models each; their AUC in the long run."""
    rng = np.random.default_rng(5)

    def pooled(n):
        truth = np.repeat(rng.random(n) < 0.3, 12)
        lasting = np.repeat(rng.normal(size=n), 12)
        scores = lasting + 0.3 * rng.normal(size=12 * n) - truth
        return scores, truth, np.repeat(np.arange(n), 12)

    scores, truth, _ = pooled(40_000)
    expected = roc(scores, truth).auc
    covered = naive = 0
    for _ in range(60):
        scores, truth, names = pooled(80)
        low, high = roc(scores, truth, groups=names).auc_interval
        covered += low <= expected <= high
        low, high = roc(scores, truth).auc_interval
        naive += low <= expected <= high
    assert covered >= 51  # of 60: the 1 % quantile at 95 % is 53; percentiles are a little narrow
    assert naive < 40


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


def test_two_scores_are_compared_by_the_same_draws():
    scores, truth = made()
    worse = scores + np.random.default_rng(2).normal(size=300)
    names = np.arange(300) // 2
    found = compare(roc(scores, truth, groups=names), roc(worse, truth, groups=names))
    paired = compare(roc(scores, truth), roc(worse, truth))
    assert found.difference == paired.difference
    assert width(found.interval) == pytest.approx(width(paired.interval), rel=0.25)
    with pytest.raises(ValueError, match="groups= to both"):
        compare(roc(scores, truth, groups=names), roc(worse, truth))


def test_the_band_holds_the_curve():
    scores, truth = made()
    found = roc(scores, truth, groups=np.arange(300) // 2)
    band = found.band()
    inside = np.interp(band.fpr, found.roc.fpr, found.roc.tpr)
    assert ((band.tpr_low <= inside + 0.02) & (inside - 0.02 <= band.tpr_high)).all()


def test_names_of_samples_will_do():
    scores, truth = made(60)
    names = [f"image {i % 20}" for i in range(60)]
    found = roc(scores, truth, groups=names)
    assert "60 rows of 20 samples" in found.warnings[0]
    assert found.with_warnings("more").groups is found.groups


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (np.zeros(60), "all rows are of one group"),
        (np.zeros((60, 1)), r"each of the 60 rows, but has shape \(60, 1\)"),
        (np.arange(59), r"each of the 60 rows, but has shape \(59,\)"),
    ],
)
def test_what_is_no_group_is_refused(groups, said):
    with pytest.raises(ValueError, match=said):
        roc(*made(60), groups=groups)


def test_groups_need_a_certain_truth():
    scores, truth = made(60)
    with pytest.raises(ValueError, match="groups= and probability="):
        roc(scores, truth, truth * 0.9, groups=np.arange(60))
