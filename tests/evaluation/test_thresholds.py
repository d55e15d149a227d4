"""Thresholds without ground truth, against a transcription of the rule and on bad input."""

import json
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import memowidgets as mw
from memowidgets.evaluation import below_class, lowest_share
from memowidgets.evaluation.intervals import SortedScores


def test_the_lowest_share():
    scores = np.random.default_rng(0).normal(size=997)
    for share, count in ((0.05, 50), (0.2, 199), (1.0, 997), (1e-9, 1)):
        assert (scores <= lowest_share(scores, share)).sum() == count
    # equal scores are flagged together
    assert lowest_share([1.0, 1.0, 1.0, 2.0], 0.25) == 1.0


def test_below_class_is_the_rule():
    rng = np.random.default_rng(1)
    labels = rng.integers(5, size=400)
    scores = rng.normal(size=400) * (1 + labels) + 10 * labels
    expected = np.zeros(400, dtype=bool)
    for label in range(5):
        own = scores[labels == label]
        deviation = np.median(np.abs(own - np.median(own)))
        expected[labels == label] = own < np.median(own) - 1.4826 * deviation
    assert np.array_equal(below_class(scores, labels), expected)
    assert np.array_equal(
        below_class(scores, np.array(list("abcde"))[labels]), expected
    )
    assert 0.1 < expected.mean() < 0.22
    assert not below_class([1.0, 2.0], [0, 1]).any()


@pytest.mark.parametrize(
    ("scores", "labels", "flagged"),
    [
        pytest.param(
            [5.0, 1.0, 1.0, 1.0], [0, 1, 1, 1], [], id="one of a class, and ties"
        ),
        pytest.param([2.0] * 6, [0, 0, 0, 1, 1, 1], [], id="constant everywhere"),
        pytest.param(
            [1.0, 1.0, 1.0, 1 - 1e-9, 3.0, 4.0, 5.0, -9.0],
            [0] * 4 + [1] * 4,
            [7],
            id="rounding",
        ),
        pytest.param(
            [1.0, 1.0, 1.0, 0.5, 2.0, 9.0], [0] * 4 + [1] * 2, [3], id="one below ties"
        ),
        pytest.param([1.0, 2.0, 5.0, 5.0], [0, 0, 1, 1], [], id="two of a class"),
        pytest.param([1e300, 1e300, 1e300, -1e300], [0] * 4, [3], id="huge"),
    ],
)
def test_below_class_with_ties_and_few_of_a_class(scores, labels, flagged):
    assert np.flatnonzero(below_class(scores, labels)).tolist() == flagged


@pytest.mark.filterwarnings("ignore:.*their scores are inaccurate:UserWarning")
def test_below_class_on_the_recordings_finds_what_zero_misses():
    """METHOD's table, read on the same labels: PSMI by class finds .83, .63 and .42."""
    cases = {"mmlu-field-smollm2": (0.83, 0.14), "banking77-smollm2": (0.63, 0.16)}
    for name, (tpr, fpr) in cases.items():
        audit = mw.open_recorded(name)
        scores = audit.score("psmi")
        memorized = audit.log_lira().reindex(scores.index).to_numpy() >= 4
        known = audit.log_lira().reindex(scores.index).notna().to_numpy()
        found = scores.index.isin(audit.flagged("psmi", tau="class").index)
        assert found[memorized].mean() == pytest.approx(tpr, abs=0.006)
        assert found[known & ~memorized].mean() == pytest.approx(fpr, abs=0.006)


def warnings_of(call, **arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(**arguments)
    return [str(one.message) for one in caught]


@pytest.mark.filterwarnings("ignore:.*their scores are inaccurate:UserWarning")
def test_a_note_says_where_zero_is_strict(tmp_path):
    """The same one wherever a τ is answered; elsewhere a warning would be an error."""
    mmlu = mw.open_recorded("mmlu-field-smollm2")
    assert len(mmlu.flagged()) == len(mmlu.flagged("psmi", tau=0.0)) == 187
    assert not any("τ = 0" in note for note in mmlu.evaluate("psmi").warnings)
    banking = mw.open_recorded("banking77-smollm2")
    said = [warnings_of(banking.flagged), warnings_of(banking.flagged, tau=0.0)]
    dashboard = banking.dashboard()
    dashboard.wait(60)
    banking.report(tmp_path / "a.html", figures=False)
    said += [
        list(banking.evaluate("psmi").warnings),
        dashboard._notes,
        json.loads((tmp_path / "a.json").read_text("utf-8"))["warnings"],
    ]
    dashboard.close()
    (note,) = {note for notes in said for note in notes if "τ = 0" in note}
    assert all(note in notes for notes in said)
    assert all(n in note for n in ("155 of 3\u202f000", "637"))
    (of_zero,) = (one for one in said[2] if one.key == "strict zero")
    assert of_zero.numbers == {"flagged": 155, "by_class": 637}
    with pytest.warns(UserWarning, match="τ = 0"):
        assert note in banking.flagged(tau=0.0).attrs["notes"]
    for chosen in ({"tau": -0.1}, {"tau": "class"}, {"share": 0.05}):
        assert note not in banking.flagged(**chosen).attrs["notes"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lowest_share([]), "one number for each sample"),
        (lambda: lowest_share([1.0, np.nan]), "NaN"),
        (lambda: lowest_share([1.0], 0.0), "share must be above 0"),
        (lambda: lowest_share([1.0], 1.5), "share must be above 0"),
        (lambda: below_class([1.0, 2.0], [0]), "each of 2 scores"),
        (lambda: below_class([1.0, np.inf], [0, 1]), "infinite"),
        (lambda: below_class([1.0, 2.0], [0, np.nan]), "missing.* row 1"),
        (lambda: below_class([1.0, 2.0], [None, "a"]), "missing.* row 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=30), st.integers(1, 35)
)
def test_a_budget_flags_the_lowest_and_all_that_tie_with_them(scores, n):
    tau = SortedScores.of(np.array(scores)).flagging(n)
    flagged = [score for score in scores if score <= tau]
    assert len(flagged) >= min(n, len(scores))
    assert len(flagged) - flagged.count(max(flagged)) < n
    if n <= len(scores):
        assert tau == lowest_share(scores, n / len(scores))
