"""The same numbers on both sides, of one score and of several; and what the page gets of them."""

from __future__ import annotations

import base64
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets import report
from memowidgets.evaluation import clopper_pearson, compare, roc
from memowidgets.evaluation.intervals import SortedScores
from memowidgets.evaluation.scored import STATUSES, AgainstClass, Scored
from memowidgets.teaching.playgrounds import front_end
from memowidgets.vocabulary import percent
from memowidgets.widgets.explored import (
    Compared,
    Judged,
    asked_rule,
    checked_scores,
    packed_errors,
    packed_floats,
    packed_scores,
    packed_truth,
)
from memowidgets.widgets.widget import page_script, script


def text(part):
    return base64.b64encode(part).decode() if isinstance(part, bytes) else part


def on_wire(scores, memorized=None, errors=None):
    of = SortedScores.of(scores)
    packed = {
        **packed_scores(of),
        **packed_truth(memorized, of),
        **packed_errors(errors, of),
    }
    return {name: text(part) for name, part in packed.items()}


def in_front_end_words(point):
    return {
        "flagged": point.flagged,
        "found": point.found,
        "flaggedOnly": point.flagged_only,
        "missed": point.missed,
        "leftAlone": point.left_alone,
    }


def around(scores):
    """At, just below and just above each of some numbers."""
    near = [scores, np.nextafter(scores, -np.inf), np.nextafter(scores, np.inf)]
    return np.unique(near).tolist()


JOINED = {name: script(name) for name in ("explorer", "inspector", "dashboard")}
JOINED |= {name: front_end(name) for name in ("watch", "psmi", "lira", "theorem")}
JOINED["report"] = page_script(Path(report.__file__).parent / "static" / "report.js")


@pytest.mark.parametrize("text", JOINED.values(), ids=JOINED)
def test_the_joined_module_is_one_without_imports(node, text, tmp_path):
    file = tmp_path / "joined.mjs"
    file.write_text(text)
    subprocess.run([node, "--check", file], check=True, capture_output=True)
    assert not re.search(
        r"^import|@param|@typedef", text, re.MULTILINE
    )  # types are for readers
    assert not re.search("</script|<!--", text)  # a page may hold it


close_floats = st.builds(
    lambda base, steps: float(base + steps * np.spacing(np.float64(base))),
    st.sampled_from([-1.0, 0.1, 0.3, 1e6]),
    st.integers(-3, 3),
)
any_scores = st.one_of(
    close_floats, st.integers(-5, 5).map(float), st.floats(-1e9, 1e9, allow_nan=False)
)


gaps_near_eta = st.one_of(
    st.builds(lambda steps: float(4 + steps * np.spacing(4.0)), st.integers(-2, 2)),
    st.builds(lambda steps: float(4.1 + steps * np.spacing(4.1)), st.integers(-2, 2)),
    st.sampled_from([np.inf, -np.inf, 0.5]),
    st.floats(-20, 20, allow_nan=False, width=32),
)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(any_scores, gaps_near_eta), min_size=2, max_size=40))
def test_both_sides_count_the_same_wherever_eta_stands(ask, rows):
    scores, gaps = (np.array(column) for column in zip(*rows, strict=True))
    packed, wide = packed_floats(gaps[SortedScores.of(scores).order])
    finite = gaps[np.isfinite(gaps)]
    for eta in {4.0, 4.1, *around(finite[:3])}:
        memorized = gaps >= eta
        question = {
            "wire": on_wire(scores),
            "logLira": text(packed),
            "wide": wide,
            "eta": eta,
        }
        taus = around(scores)
        found = ask("moved", **question, taus=taus)
        both = [int((memorized & (scores <= tau)).sum()) for tau in taus]
        assert [counts["found"] for counts in found["counts"]] == both
        if memorized.all() or not memorized.any():
            assert found["auc"] is None
            continue
        evaluation = roc(scores, memorized)
        counts = [in_front_end_words(evaluation.at(tau)) for tau in taus]
        assert found["counts"] == counts
        wire = on_wire(scores, memorized)
        assert ask("counts", wire=wire, taus=taus) == counts
        for auc in (found["auc"], ask("auc", wire=wire)):
            assert auc["area"] == pytest.approx(evaluation.auc, rel=1e-12, abs=1e-15)
            assert auc["interval"] == pytest.approx(
                evaluation.auc_interval, rel=1e-9, abs=1e-9
            )


log_lira_or_none = st.one_of(st.just(np.nan), gaps_near_eta.filter(np.isfinite))
IN_COUNTS = {"flagged only": "flaggedOnly", "left alone": "leftAlone"}


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(any_scores, log_lira_or_none, st.integers(0, 2)), min_size=1
    )
)
def test_both_sides_call_each_sample_the_same(ask, rows):
    scores, gaps, labels = (np.array(column) for column in zip(*rows, strict=True))
    found = Scored(np.arange(len(rows)), scores, log_lira=gaps, labels=labels)
    judged = [None if np.isnan(gap) else gap for gap in gaps.tolist()]
    for on_axis, rule in ((found, float), (found.against_class, AgainstClass)):
        columns = {
            "scores": on_axis.scores.tolist(),
            "positions": found.positions.tolist(),
        }
        taus = [*around(on_axis.scores[:3]), -1.0]
        standings = [{"tau": tau, "eta": 4.1} for tau in taus]
        for one, more in (
            (found, {"log_lira": judged}),
            (replace(found, log_lira=None), {}),
        ):
            answers = ask("statuses", columns=columns | more, standings=standings)
            for tau, answer in zip(taus, answers, strict=True):
                words, flags = one.status(rule(tau), 4.1), one.flagged(rule(tau))
                assert answer == [[*both] for both in zip(words, flags, strict=True)], (
                    tau
                )
        if np.isnan(gaps).any():
            continue
        for tau, counts in zip(
            taus,
            ask("counts", wire=on_wire(on_axis.scores, gaps >= 4.1), taus=taus),
            strict=True,
        ):
            words = found.status(rule(tau), 4.1).tolist()
            for name in STATUSES:
                assert counts[IN_COUNTS.get(name, name)] == words.count(name)
            there = found.counts(rule(tau), 4.1)
            assert (there["flagged"], there["found"]) == (
                counts["flagged"],
                counts["found"],
            )
    assert found.flagged("class").tolist() == found.flagged(AgainstClass(-1.0)).tolist()


def undecided(scores, errors, tau):
    return int(((scores - 2 * errors < tau) & (tau < scores + 2 * errors)).sum())


@pytest.mark.parametrize("n", [1, 40, 70_000])
def test_both_sides_call_the_same_samples_undecided(ask, n):
    rng = np.random.default_rng(n)
    scores = rng.normal(size=n).round(2)
    errors = rng.gamma(2, 0.01, n) * (rng.random(n) < 0.9)
    packed = packed_errors(errors, SortedScores.of(scores))
    levels = np.frombuffer(packed["levels"])
    sent = levels[np.searchsorted(levels, errors)]
    taus = around(scores[:20])
    found = ask("undecided", wire=on_wire(scores, errors=errors), taus=taus)
    assert found == [undecided(scores, sent, tau) for tau in taus]
    exact = [undecided(scores, errors, tau) for tau in taus]
    if n < 65_536:
        assert found == exact
    else:  # each error counts as the next of 256 levels
        assert all(mine >= true for mine, true in zip(found, exact, strict=True))
        positive = errors > 0
        assert (sent[positive] / errors[positive]).max() < 1.1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=60),
    st.integers(1, 80),
    st.floats(0.001, 1),
)
def test_what_is_asked_for_flags_what_python_does(ask, scores, count, share):
    scored = checked_scores(scores)
    asks = [{"count": count}, {"share": share}, {"share": 0.1}, {"share": 0.5}]
    found = ask("asked", wire=on_wire(np.array(scores)), all=asks)
    for asked, (tau, said) in zip(asks, found, strict=True):
        _, wanted = scored.on(asked_rule(asked, 0.0))
        assert tau == wanted, asked
        many = min(count, len(scores))
        flagged = int((np.array(scores) <= tau).sum())
        if "count" in asked and flagged > many:
            assert ("there are" if count > len(scores) else "tie") in said


def test_a_score_is_offered_its_own_threshold_and_its_classes(ask):
    scores = np.random.default_rng(3).normal(size=40)
    labels = np.arange(40) % 3
    lowest = [
        ["20", "score", {"count": 20}, None],
        ["a tenth", "score", {"share": 0.1}, None],
    ]
    own = ["τ = −4", "score", {}, -4]
    by_class = ["by class", "class", {}, -1]
    for natural, classes, more in (
        (-4.0, labels, [own, by_class]),
        (None, labels, [by_class]),
        (-4.0, None, [own]),
        (None, None, []),
    ):
        scored = checked_scores(scores, natural=natural, labels=classes)
        for shown in (
            [scored, scored.against_class] if classes is not None else [scored]
        ):
            wire = {name: text(part) for name, part in Judged.of(shown).data.items()}
            assert ask("ways", wire=wire) == lowest + more


def test_a_budget_is_read_as_people_write_it(ask):
    read = {
        "20": {"count": 20},
        " 1 200 ": {"count": 1200},
        "10 %": {"share": 0.1},
        "0,5%": {"share": 0.005},
        "100%": {"share": 1},
    }
    read |= dict.fromkeys(["", "0", "-3", "2.5", "101 %", "0 %", "a tenth", "1e3"])
    assert ask("readAsked", texts=list(read)) == list(read.values())


def test_both_sides_write_a_share_the_same(ask):
    ends = [0.0, 1e-5, 0.0009, 0.001, 0.0031, 0.0225, 0.0245, 0.1]
    middle = [0.125, 0.135, 0.756, 0.9]
    shares = [*ends, *middle, *(1 - share for share in ends)]
    written = [percent(share).replace(" ", "\N{NO-BREAK SPACE}") for share in shares]
    assert ask("percents", shares=shares) == written


def test_intervals_are_exact(ask):
    cases = [(k, n) for n in (1, 2, 7, 40, 900) for k in {0, 1, n // 3, n - 1, n}]
    cases += [(3, 1_000_000), (500_000, 1_000_000), (999_990, 1_000_000)]
    for (k, n), (low, high) in zip(cases, ask("intervals", cases=cases), strict=True):
        wanted = clopper_pearson(k, n)
        assert low == pytest.approx(wanted[0], rel=1e-6, abs=1e-12), (k, n)
        assert high == pytest.approx(wanted[1], rel=1e-6, abs=1e-12), (k, n)


def test_a_score_takes_less_than_ten_bytes_on_the_wire():
    rng = np.random.default_rng(0)
    scores, memorized = rng.normal(size=200_000), rng.random(200_000) < 0.01
    pairs = np.concatenate([scores[:100_000]] * 2)
    for kind in (
        scores,
        scores.round(3),
        scores.astype(np.float32).astype(float),
        pairs,
    ):
        of = SortedScores.of(kind)
        errors = packed_errors(rng.gamma(2, 0.01, 200_000), of)
        wire = {**packed_scores(of), **packed_truth(memorized, of), **errors}
        assert (
            sum(len(part) for part in wire.values() if isinstance(part, bytes))
            < 2_000_000
        )


def test_log_lira_is_sent_as_fine_as_it_must_be():
    exact = np.array([4.0, -1.5, np.inf])
    assert packed_floats(exact) == (exact.astype(np.float32).tobytes(), False)
    assert packed_floats(np.array([4.1])) == (np.array([4.1]).tobytes(), True)


# ---------------------------------------------------------------- several scores at one budget


PARTS = ([True, True], [True, False], [False, True], [False, False])


TIED = st.lists(
    st.tuples(*[st.sampled_from([0.1, 0.1 + 1e-17, 0.3, -2.5])] * 2, st.booleans()),
    min_size=1,
)


@settings(max_examples=60, deadline=None)
@given(TIED, st.data())
def test_the_page_counts_what_python_does_at_every_budget_whatever_ties(
    ask, rows, data
):
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
        assert there == {
            "flagged": part,
            "n": wanted.sum(),
            "found": (wanted & memorized).sum(),
        }
    for scores, counts, area, mask in zip(
        (a, b), shown["counts"], shown["areas"], flagged, strict=True
    ):
        assert counts["flagged"] == mask.sum() >= min(budget, n)
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
    found = Compared.of(
        Scored.of_all(np.arange(6.0)), memorized, [Scored.of_all(-np.arange(6.0))]
    )
    assert len(found.evaluations) == (2 if n_memorized == 1 else 0)
    assert "interval" not in found.said(["PSMI", "Loss"])


def test_the_sentence_has_the_paired_interval_and_which_score_finds_more():
    rng = np.random.default_rng(0)
    memorized = np.arange(200) < 40
    good, poor, like = rng.normal(size=(3, 200)) - memorized * [[2.0], [0.3], [2.0]]
    for other, word in ((poor, "A finds more than B"), (like, "cannot tell A from B")):
        said = Compared.of(Scored.of_all(good), memorized, [Scored.of_all(other)]).said(
            ["A", "B"]
        )
        assert word in said
        turned = Compared.of(
            Scored.of_all(other), memorized, [Scored.of_all(good)]
        ).said(["B", "A"])
        assert turned.startswith(said[: said.index(" (")]) == (other is poor)
        for number in compare(roc(good, memorized), roc(other, memorized)).interval:
            assert f"{abs(number):.2f}" in said
