"""What is flagged and what it is called, against loops over plain numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memowidgets.evaluation import below_class, roc
from memowidgets.evaluation.curve import Truly
from memowidgets.evaluation.scored import AgainstClass, LowestShare, Scored

# many are equal
numbers = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))
truths = st.one_of(st.just(np.nan), numbers, st.just(np.inf), st.just(4.0))
rows = st.lists(st.tuples(numbers, truths, st.integers(0, 2)), min_size=1, max_size=30)


def scored(found, **more):
    scores, log_lira, labels = (np.array(column) for column in zip(*found, strict=True))
    return Scored(
        np.arange(len(found)), scores, log_lira=log_lira, labels=labels, **more
    )


def said(flagged, log_lira, eta):
    """What one member is called, in as many words as there are cases."""
    if np.isnan(log_lira):
        return "flagged" if flagged else "left alone"
    if log_lira >= eta:
        return "found" if flagged else "missed"
    return "flagged only" if flagged else "left alone"


def ranked(scores, share):
    """Flagged if fewer scores than the share are lower."""
    most = max(round(share * len(scores)), 1)
    return [sum(other < score for other in scores) < most for score in scores]


@given(rows, numbers, st.floats(0.01, 1), numbers)
def test_each_member_is_flagged_and_called_as_a_loop_says(found, tau, share, eta):
    some = scored(found)
    by_class = below_class(some.scores, some.labels).tolist()
    rules = {
        tau: [score <= tau for score, *_ in found],
        found[0][0]: [score <= found[0][0] for score, *_ in found],
        LowestShare(share): ranked(some.scores.tolist(), share),
        "class": by_class,
        None: ranked(some.scores.tolist(), 0.05),
    }
    for rule, flagged in rules.items():
        assert some.flagged(rule).tolist() == flagged, rule
        words = [
            said(is_in, row[1], eta) for is_in, row in zip(flagged, found, strict=True)
        ]
        assert some.status(rule, eta).tolist() == words, rule
        last = len(found) - 1
        assert bool(some.flagged(rule, last)) == flagged[-1]
        assert str(some.status(rule, eta, last)) == words[-1]
    assert replace(some, natural=0.5).flagged(None).tolist() == [
        row[0] <= 0.5 for row in found
    ]


@given(rows, st.lists(st.booleans(), min_size=30, max_size=30), numbers, numbers)
def test_rows_that_are_picked_out_are_judged_as_among_all(found, mask, tau, eta):
    some = scored(found, doubt=lambda eta: Truly(1.0, 4, np.arange(float(len(found)))))
    keep = np.array(mask[: len(found)])
    picked = some.only(keep)
    on_class = some.against_class.only(keep)
    for rule, one in ((tau, picked), (-1.0, on_class)):
        wanted = tau if one is picked else "class"
        assert one.flagged(rule).tolist() == some.flagged(wanted)[keep].tolist()
        assert one.status(rule, eta).tolist() == some.status(wanted, eta)[keep].tolist()
    assert picked.positions.tolist() == np.flatnonzero(keep).tolist()
    assert picked.doubt(eta).calibrated.tolist() == picked.positions.tolist()
    assert (
        on_class.only(np.zeros(len(picked), dtype=bool)).flagged("class").tolist() == []
    )


@given(rows, numbers, numbers)
def test_members_are_counted_as_they_are_called(found, tau, eta):
    some = scored(found)
    for rule in (tau, "class"):
        words = some.status(rule, eta).tolist()
        counts = {
            "n": len(words),
            "found": words.count("found"),
            "missed": words.count("missed"),
        }
        counts["flagged"] = int(some.flagged(rule).sum())
        counts["flagged_only"] = counts["flagged"] - counts["found"]
        counts["left_alone"] = words.count("left alone")
        assert some.counts(rule, eta) == counts
        nobody = {name: counts[name] for name in ("n", "flagged")}
        nobody["left_alone"] = len(words) - counts["flagged"]
        assert replace(some, log_lira=None).counts(rule, eta) == nobody


def test_scores_within_two_standard_errors_of_tau_are_close():
    scores, errors = (
        np.array([0.0, 0.5, 1.0, 3.0, 3.0]),
        np.array([0.5, 0.3, 0.0, 0.9, 1.1]),
    )
    some = Scored(
        np.arange(5), scores, errors=errors, labels=np.zeros(5, dtype=np.int64)
    )
    assert some.close(1.0).tolist() == [False, True, False, False, True]
    assert some.close(1.0, [1, 3]).tolist() == [True, False]
    assert some.close("class").tolist() == some.against_class.close(-1.0).tolist()
    assert not replace(some, errors=None).close(1.0).any()


def test_a_mask_needs_no_eta_and_a_sample_without_a_score_is_called_nothing():
    truth = np.array([True, False, True])
    some = Scored(np.arange(3), np.array([0.0, 1.0, 2.0]), truth=truth)
    assert some.status(1.0, None).tolist() == ["found", "flagged only", "missed"]
    assert some.status(1.0, 99.0).tolist() == ["found", "flagged only", "missed"]
    alone = replace(some, truth=None, log_lira=np.array([9.0, 9.0, 0.0]))
    assert alone.status(0.0, None).tolist() == ["flagged", "left alone", "left alone"]
    unscored = Scored(np.arange(3), np.full(3, np.nan), truth=truth)
    assert not unscored.is_scored
    assert unscored.status(0.0, 4.0).tolist() == ["", "", ""]


def test_scores_are_evaluated_on_the_members_that_log_lira_knows():
    scores = np.array([-3.0, -1.0, 0.0, 2.0, 5.0])
    log_lira = np.array([9.0, np.nan, 1.0, 8.0, 0.0])
    some = Scored(np.arange(5), scores, log_lira=log_lira)
    known = np.array([0, 2, 3, 4])
    assert (
        some.evaluated(4.0).auc == roc(scores[known], log_lira[known] >= 4).auc == 0.75
    )
    doubtful = replace(
        some, doubt=lambda eta: Truly(1.5, 8, np.array([0.9, np.nan, 0.1, 0.5, 0.0]))
    )
    assert doubtful.evaluated(4.0).n_truly == 1.5
    for nobody in (
        replace(some, log_lira=None),
        replace(some, log_lira=np.full(5, np.nan)),
    ):
        assert nobody.evaluated(4.0) is None
    assert some.evaluated(99.0) is None


def test_the_rule_by_class_needs_classes():
    with pytest.raises(ValueError, match="labels"):
        Scored(np.arange(2), np.arange(2.0)).flagged("class")


def test_scores_against_the_class_are_scores_like_any_other():
    scores, labels = (
        np.array([0.0, 1.0, 1.5, 2.0, 7.0, 9.0, 9.5, 11.0]),
        np.repeat([0, 1], 4),
    )
    log_lira = np.array([9.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0])
    some = Scored(
        np.arange(8),
        scores,
        np.full(8, 0.1),
        log_lira,
        labels,
        title="PSMI, layer 2",
        natural=0.0,
    )
    found = some.against_class
    each = 1.4826 * np.repeat([0.5, 1.0], 4)
    assert found.scores == pytest.approx((scores - np.repeat([1.25, 9.25], 4)) / each)
    assert found.errors == pytest.approx(0.1 / each)
    assert found.title == "PSMI against its class, layer 2"
    assert found.tau == -1.0
    assert found.against_class is found
    assert found.evaluated(4.0).auc == 1.0 > some.evaluated(4.0).auc
    for tau in (-1.0, found.scores[4], 0.3):
        rule = AgainstClass(float(tau))
        assert some.flagged(rule).tolist() == found.flagged(tau).tolist()
        assert some.close(rule).tolist() == found.close(tau).tolist()
