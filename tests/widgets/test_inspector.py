"""The Python side of the inspector: pages, filters, kinds of samples, and what it keeps secret."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from memowidgets.data import ImageDataset
from memowidgets.decisions import DecisionLog
from memowidgets.evaluation.scored import Scored
from memowidgets.widgets import SampleInspector
from memowidgets.widgets.inspected import Listed, first_of
from tests.widgets.fake_source import (
    detail_of,
    digit_like,
    hostile_questions,
    scores_like_psmi,
)
from tests.widgets.page import page_of, say, say_all
from tests.widgets.private import images, names, questions, spellings


@pytest.fixture
def digits():
    images, labels = digit_like(200)
    scores, errors, log_lira = scores_like_psmi(200)
    data = ImageDataset.from_arrays(images, labels)
    return SampleInspector(
        data,
        scores,
        log_lira >= 4,
        errors=errors,
        log_lira=log_lira,
        title="PSMI, last",
    )


def test_a_search_narrows_the_list_and_leaves_the_counts():
    inspector = SampleInspector(["a bee", "a cow", "a bee"], scores=[-1.0, 0.5, 0.5])
    asked = {"request": "1", "page": 0, "filter": "flagged"}
    found = {
        text: say(inspector, "page", **asked, search=text)
        for text in ("", "bee", "zebra")
    }
    for content in found.values():
        assert content["counts"] == {"flagged": 1, "left alone": 2, "all": 3}
    assert [content["total"] for content in found.values()] == [1, 1, 0]
    named = SampleInspector(
        ["a bee", "a cow"], labels=[0, 1], class_names=["Insect", "mammal"]
    )
    assert [item["position"] for item in page_of(named, search="insect")["items"]] == [
        0
    ]


def test_pages_are_sorted_filtered_and_counted(digits):
    scores, _, log_lira = scores_like_psmi(200)
    asked = {"request": "r", "page": 0, "filter": "flagged", "sort": "risk"}
    [(content, buffers)] = say_all(digits, "page", **asked)
    flagged = np.flatnonzero(scores <= 0)
    assert content["total"] == len(flagged)
    wanted = flagged[np.argsort(scores[flagged])][:24]
    assert [item["position"] for item in content["items"]] == wanted.tolist()
    counts = content["counts"]
    assert counts["found"] == int(((scores <= 0) & (log_lira >= 4)).sum())
    assert counts["found"] + counts["flagged only"] == counts["flagged"]
    assert (
        counts["found"]
        + counts["flagged only"]
        + counts["missed"]
        + counts["left alone"]
        == 200
    )
    assert len(buffers[0]) == 64 * len(content["items"] + content["open"])
    assert content["scoreName"] == "PSMI"


def test_the_first_rows_of_an_order_are_those_of_all_of_it():
    rng = np.random.default_rng(0)
    for n in (0, 1, 1024, 5000):
        order, found = rng.permutation(n), rng.random(n) < 0.02
        for most in (0, 1, 48, n + 1):
            assert (
                first_of(order, found, most).tolist()
                == order[found[order]][:most].tolist()
            )


def test_what_the_page_asks_wrongly_is_put_right(digits):
    content = page_of(digits, filter="nonsense", sort="nonsense", page=-5)
    assert content["page"] == 0
    assert content["total"] == content["counts"]["flagged"]


def test_long_texts_are_cut_and_halves_of_characters_replaced():
    records, _ = hostile_questions()
    widget = SampleInspector(records)
    content = page_of(widget)
    json.dumps(content).encode("utf-8")
    "".join(item["text"] for item in content["items"]).encode("utf-8")
    long = next(item for item in content["items"] if item["text"].startswith("WWW"))
    assert len(long["text"]) + long["hidden"] == 1_000_000


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        (([],), {}, ValueError, "samples is empty"),
        (([3.5],), {}, TypeError, "cannot show samples of type float"),
        ((7,), {}, TypeError, "a length and an order"),
        ((torch.zeros((2, 3)),), {}, ValueError, "images must have the shape"),
        (
            (["a", "b"], [1.0]),
            {},
            ValueError,
            r"each of 2 samples, not of shape \(1,\)",
        ),
        ((["a", "b"], [1.0, np.nan]), {}, ValueError, "first in row 1"),
        ((["a", "b"], None, [True, False]), {}, ValueError, "memorized without scores"),
        ((["a"],), {"ids": ["x", "y"]}, ValueError, "2 ids for 1 samples"),
        ((["a"],), {"labels": [0.5]}, TypeError, "labels must be integers"),
        ((["a"],), {"probabilities": [[np.nan]]}, ValueError, "the first in row 0"),
        ((["a"],), {"filter": "found"}, ValueError, "valid here: 'all'"),
    ],
)
def test_bad_input_is_named(arguments, keywords, error, words):
    with pytest.raises(error, match=words):
        SampleInspector(*arguments, **keywords)


def test_orders_are_stable_and_put_the_unknown_last():
    scored = Scored(
        np.arange(4),
        scores=np.array([1.0, 0.0, 0.0, 2.0]),
        log_lira=np.array([1.0, np.nan, 5.0, 2.0]),
        labels=np.array([1, 0, 1, -1]),
        probabilities=np.array([[0.1, 0.9], [0.6, 0.4], [0.8, 0.2], [0.5, 0.5]]),
    )
    rows = Listed(scored)
    assert rows.order("risk").tolist() == [1, 2, 0, 3]
    assert rows.order("log-lira").tolist() == [2, 3, 0, 1]
    assert rows.order("disagreement").tolist() == [2, 1, 0, 3]
    with pytest.raises(ValueError, match="unknown sort"):
        rows.order("x")
    with pytest.raises(ValueError, match="unknown filter 'found'"):
        rows.mask("found", 0.0)


def test_decisions_filter_and_count(digits):
    positions = [3, 5, 8]
    reply = say(digits, "decide", positions=positions, decision="remove", note="why")
    assert reply["text"] == "3 of 3 samples changed: now to be removed."
    content = page_of(digits, decision="remove")
    assert [item["position"] for item in content["items"]] == positions
    assert content["items"][0]["decision"] == "remove"
    assert (content["total"], content["counts"]["all"]) == (3, 200)
    assert content["byDecision"] == {
        "keep": 0,
        "remove": 3,
        "relabel": 0,
        "undecided": 197,
    }
    assert content["decisions"]["undo"] == 1
    what = ["id", "decision", "note"]
    assert digits.decisions[what].values.tolist() == [
        [str(p), "remove", "why"] for p in positions
    ]
    assert page_of(digits, decision="undecided")["total"] == 197


@pytest.mark.parametrize(
    ("kind", "content", "fact"),
    [
        (
            "decide",
            {"positions": [0], "decision": "anonymise"},
            "valid here: 'keep', 'remove', 'relabel', 'undecided'",
        ),
        ("decide", {"positions": [200], "decision": "keep"}, "no sample at 200"),
        ("decide", {"positions": [0], "decision": "relabel"}, "no class None"),
        ("decide", {"positions": [0], "decision": "relabel", "to": 99}, "no class 99"),
        ("decide", {"positions": ["0"], "decision": "keep"}, "positions[0]"),
        ("page", {"page": 3}, "lacks 'request'"),
        ("page", {"request": "r", "page": "x"}, "page must be a whole number, not 'x'"),
        ("page", {"request": "r", "page": 0, "search": 9}, "search"),
        ("compute", {}, "compute"),
        ("burn", {}, "'burn'"),
    ],
)
def test_a_wrong_message_is_answered_with_what_is_wrong(digits, kind, content, fact):
    refused = say(digits, kind, **content)
    assert not refused["done"]
    assert fact in refused["text"]
    assert digits.decisions.empty


@pytest.mark.parametrize("made", [questions, images])
def test_neither_state_nor_stand_in_gives_anybody_away(made):
    widget = SampleInspector(made(20), np.arange(20.0), ids=names(20), tau=9.0)
    page_of(widget, open=0)
    say(widget, "decide", positions=[1], decision="remove", note="secret note")
    say(widget, "detail", request="r", position=0)
    state = json.dumps(
        [widget.get_state(), widget._repr_mimebundle_()[0]], default=repr
    )
    assert not [word for word in [*spellings(20), "secret"] if word in state]


def test_an_opened_sample_is_whole_and_knows_its_place():
    records = [{"question": f"{i} " + "w" * 6000, "choices": ["x", "y"], "answer": 0, "id": f"p{i}"}
               for i in range(5)]  # fmt: skip
    widget = SampleInspector(records, [0.1, -0.3, 0.5, -0.1, -0.2])
    asked = {"request": "r", "position": 4, "filter": "flagged", "sort": "risk"}
    opened = say(widget, "detail", **asked)
    assert opened["place"] == {"number": 2, "total": 3}
    assert len(opened["item"]["text"]) == 6002
    listed = page_of(widget, open=3)
    assert len(listed["items"][0]["text"]) == 240
    [whole] = listed["open"]
    assert (whole["position"], len(whole["text"])) == (3, 6002)
    assert say(widget, "detail", **{**asked, "position": 2})["place"] is None
    assert say(widget, "detail", **{**asked, "position": 99})["position"] is None
    assert not opened["more"]


def known_later(widget, monkeypatch, position):
    """What the widget says once it is known, after it has said what the sample is."""
    monkeypatch.setattr(
        "memowidgets.widgets.inspector.in_background", lambda job, _name: job()
    )
    asked = {"request": "r", "position": position, "known": True}
    (opened, _), (known, _) = say_all(widget, "detail", **asked)
    assert [one["type"] for one in (opened, known)] == ["opened", "known"]
    assert opened["request"] == known["request"] == "r"
    return known


def test_what_a_source_knows_comes_later(monkeypatch):
    widget = SampleInspector(
        ["first", "second"], detail=lambda i: detail_of(i, 2, 2, 3)
    )
    known = known_later(widget, monkeypatch, 1)["known"]
    assert len(known["scores"]) == 3
    assert known["neighbours"][0]["text"] in ("first", "second")


def test_a_filter_has_the_samples_whose_label_looks_wrong_or_that_are_on_the_line():
    guesses, labels = np.array([0, 1, 1, 0, 2]), np.array([0, 0, 1, 1, -1])
    scores, errors = (
        np.array([0.0, 0.1, 0.5, -0.3, 0.02]),
        np.array([0.1, 0.05, 0.1, 0.2, 0.01]),
    )
    widget = SampleInspector(
        list("abcde"),
        scores,
        labels=labels,
        errors=errors,
        probabilities=np.eye(3)[guesses],
    )
    assert widget._rows.filters == ("flagged", "left alone", "on the line", "all")
    items = page_of(widget, filter="all", tau=0.0)["items"]
    assert {item["position"]: item["suggested"] for item in items} == {
        0: None, 1: 1, 2: None, 3: 0, 4: None,
    }  # fmt: skip
    nearby = np.array([1, 1, 1, 2, 0])  # the model contradicts labels 1 and 3
    widget._rows = replace(
        widget._rows, scored=replace(widget._rows.scored, nearby=nearby)
    )
    content = page_of(widget, filter="label looks wrong", tau=0.0)
    assert [item["position"] for item in content["items"]] == [1]
    assert content["items"][0]["looksWrong"]
    assert content["counts"]["label looks wrong"] == 1
    for tau in (0.0, 0.02, 0.25, 0.7):
        content = page_of(widget, filter="on the line", tau=tau)
        close = set(np.flatnonzero(np.abs(scores - tau) < 2 * errors).tolist())
        assert {item["position"] for item in content["items"]} == close
        assert all(item["uncertain"] for item in content["items"])
        assert content["counts"]["on the line"] == len(close)
    with pytest.raises(ValueError, match="unknown filter"):
        SampleInspector(["a", "b"], [0.1, 0.2], filter="label looks wrong")


def test_a_class_has_the_name_of_a_short_option_and_else_its_letter():
    rows = [
        {"question": "?", "choices": ["heart", "x" * 99], "answer": 0, "id": "p0"},
        {"question": "?", "choices": ["skin", "bone"], "answer": 1, "id": "p1"},
    ]
    widget = SampleInspector(rows, [0.1, 0.2], probabilities=[[0.2, 0.8], [0.9, 0.1]],
                             class_names=["A", "B"], detail=lambda p: detail_of(p, 2))  # fmt: skip
    items = page_of(widget, filter="all")["items"]
    assert [(item["label"], item["guess"]) for item in items] == [
        ("heart", "B"),
        ("bone", "skin"),
    ]
    said = say(widget, "decide", positions=[1], decision="relabel", to=0)
    assert said["text"] == "p1: bone → skin."
    # files name the class as the data do
    assert widget.decisions["to"].tolist() == ["A"]
    assert page_of(widget, filter="all")["items"][1]["to"] == "skin"


def test_options_are_a_questions_own_unless_they_are_the_same_for_all():
    def rows(*each):
        return [{"question": "?", "choices": list(of), "answer": 0} for of in each]

    for asks, made in ((True, rows("ab", "ac")), (False, rows("ab", "ab"))):
        widget = SampleInspector(made, [0.1, 0.2])
        [item] = page_of(widget, filter="all", open=1)["open"]
        assert item["asks"] == asks


def test_a_source_that_fails_says_why(monkeypatch):
    def fails(_position):
        raise OSError("the disk is gone")

    known = known_later(SampleInspector(["first"], detail=fails), monkeypatch, 0)
    assert known["problem"] == "the disk is gone"


def test_two_inspectors_share_a_log_and_a_closed_one_hears_no_more():
    log = DecisionLog()
    one, two = (SampleInspector(["a", "b"], decisions=log) for _ in range(2))
    said = lambda: two.get_state("_decided")["_decided"]  # noqa: E731
    say(one, "decide", positions=[0], decision="keep")
    assert said() == 1
    assert page_of(two)["items"][0]["decision"] == "keep"
    two.close()
    say(one, "decide", positions=[0], decision="remove")
    assert said() == 1


def test_long_class_names_are_cut_and_long_options_say_so():
    long = "x" * 1_000_000
    rows = [
        {"question": "Which?", "choices": ["a", "b" * 50_003], "answer": 0, "id": "1"}
    ]
    with_long = SampleInspector(rows * 3, class_names=["A", long], labels=[1, 0, 1],
                                ids=["1", "2", "3"])  # fmt: skip
    content = page_of(with_long)
    assert len(json.dumps({**content, "open": []})) < 5000
    opened = say(with_long, "detail", request="a", position=0, known=False)["item"]
    for item in (*content["open"], opened):
        option = item["options"][1]
        assert (len(option["text"]), option["hidden"]) == (50_000, 3)


def test_withheld_samples_say_so_once_above_all():
    rows = [{"id": f"q{i}", "label": i % 2, "hint": "data=…"} for i in range(6)]
    widget = SampleInspector(rows, [0.1] * 6)
    content = page_of(widget)
    assert (
        content["notice"] == "The samples are not at hand: open the audit with data=…"
    )
    assert {item["text"] for item in content["items"]} == {""}


def test_a_choice_of_the_page_is_not_sent_back(monkeypatch):
    """It would come while the next choice waits to be saved, and undo it."""
    widget, sent = SampleInspector(["a", "b", "c"]), []
    monkeypatch.setattr(
        type(widget), "_send", lambda _, message, **__: sent.append(message)
    )
    widget.set_state({"selected": 2, "page": 0, "filter": "all", "sort": "order"})
    assert widget.selected == 2
    assert [name for message in sent for name in message["state"]] == []
