"""Several scores of the same samples at one budget, in Python and on the page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.evaluation import compare, roc
from memowidgets.evaluation.intervals import SortedScores
from memowidgets.evaluation.scored import Scored
from memowidgets.widgets.explored import Compared
from tests.widgets.test_front_end import text

PARTS = ([True, True], [True, False], [False, True], [False, False])


TIED = st.lists(
    st.tuples(*[st.sampled_from([0.1, 0.1 + 1e-17, 0.3, -2.5])] * 2, st.booleans()), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(TIED, st.data())
def test_the_page_counts_what_python_does_at_every_budget_whatever_ties(ask, rows, data):
    a, b, memorized = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    budget = data.draw(st.integers(1, n))
    found = Compared.of(Scored.of_all(a), memorized, [Scored.of_all(b)])
    flagged = [scores <= SortedScores.of(scores).flagging(budget) for scores in (a, b)]
    wire = found.wire
    shown = ask(
        what="compared", n=n, budget=budget, ranks=[text(each) for each in wire["ranks"]],
        bits=text(wire["bits"]),
    )  # fmt: skip
    for part, there in zip(PARTS, shown["parts"], strict=True):
        wanted = (flagged[0] == part[0]) & (flagged[1] == part[1])
        chosen = found.part({"budget": budget, "flagged": part})
        assert chosen.tolist() == np.flatnonzero(wanted).tolist()
        assert there == {"flagged": part, "n": wanted.sum(), "found": (wanted & memorized).sum()}
    for scores, counts, area, mask in zip(
        (a, b), shown["counts"], shown["areas"], flagged, strict=True
    ):
        assert counts["flagged"] == mask.sum() <= budget
        assert counts["found"] == (mask & memorized).sum()
        if found.evaluations:
            assert area == pytest.approx(roc(scores, memorized).auc, abs=1e-12)


def test_samples_that_lack_a_score_are_left_out_and_counted():
    first = Scored.of_all(np.array([3.0, 1.0, 2.0, 5.0]))
    other = Scored(np.array([3, 1, 0]), np.array([0.3, 0.1, np.nan]))
    found = Compared.of(first, None, [other])
    assert found.positions.tolist() == [1, 3]
    assert found.ranks.tolist() == [[1, 2], [1, 2]]
    assert found.left_out == 2
    assert found.said(["PSMI", "Loss"]).startswith("2 samples")
    assert found.wire["bits"] is None
    with pytest.raises(ValueError, match="no sample in common"):
        Compared.of(first, None, [Scored(np.array([2]), np.array([np.nan]))])


@pytest.mark.parametrize("n_memorized", [0, 1, 6])
def test_one_class_has_no_roc_and_one_sample_of_a_kind_no_interval(n_memorized):
    memorized = np.arange(6) < n_memorized
    found = Compared.of(Scored.of_all(np.arange(6.0)), memorized, [Scored.of_all(-np.arange(6.0))])
    assert len(found.evaluations) == (2 if n_memorized == 1 else 0)
    assert "interval" not in found.said(["PSMI", "Loss"])


def test_the_sentence_has_the_paired_interval_and_whether_it_includes_0():
    rng = np.random.default_rng(0)
    memorized = np.arange(200) < 40
    good, poor, like = rng.normal(size=(3, 200)) - memorized * [[2.0], [0.3], [2.0]]
    for other, word in ((poor, "leaves out 0"), (like, "includes 0")):
        said = Compared.of(Scored.of_all(good), memorized, [Scored.of_all(other)]).said(["A", "B"])
        assert word in said
        for number in compare(roc(good, memorized), roc(other, memorized)).interval:
            assert f"{abs(number):.2f}" in said
