"""The Python side of the inspector: pages, filters, kinds of samples, and what it keeps secret."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from memowidgets.data import ImageDataset
from memowidgets.widgets import SampleInspector
from memowidgets.widgets.pages import Rows
from tests.widgets.fake_source import digit_like, hostile_questions, scores_like_psmi


def page(inspector, **asked):
    """What the front end would get."""
    question = {"type": "page", "request": "r", "page": 0, "filter": "all", "sort": "order"}
    return inspector._answer({**question, **asked})


@pytest.fixture
def digits():
    images, labels = digit_like(200)
    scores, errors, log_lira = scores_like_psmi(200)
    data = ImageDataset.from_arrays(images, labels)
    widget = SampleInspector(
        data, scores, log_lira >= 4, errors=errors, log_lira=log_lira, title="PSMI, last"
    )
    yield widget
    widget.close()


def test_pages_are_sorted_filtered_and_counted(digits):
    scores, _, log_lira = scores_like_psmi(200)
    content, buffers = page(digits, filter="flagged", sort="risk")
    flagged = np.flatnonzero(scores <= 0)
    assert content["total"] == len(flagged)
    wanted = flagged[np.argsort(scores[flagged])][:24]
    assert [item["position"] for item in content["items"]] == wanted.tolist()
    counts = content["counts"]
    assert counts["hit"] == int(((scores <= 0) & (log_lira >= 4)).sum())
    assert counts["hit"] + counts["false alarm"] == counts["flagged"]
    assert counts["hit"] + counts["false alarm"] + counts["missed"] + counts["clear"] == 200
    assert len(buffers[0]) == 64 * len(content["items"])
    assert content["scoreName"] == "PSMI"


def test_images_are_sent_as_they_are(digits):
    images, _ = digit_like(200)
    content, buffers = page(digits, page=1)
    for item in content["items"]:
        start = item["image"]["offset"]
        sent = np.frombuffer(buffers[0][start : start + 64], np.uint8).reshape(8, 8)
        assert np.array_equal(sent, images[item["position"]])


def test_a_page_too_far_is_the_last_one(digits):
    content, _ = page(digits, page=99)
    assert (content["page"], content["pages"]) == (8, 9)
    assert len(content["items"]) == 8


def test_a_class_narrows_the_counts_too(digits):
    _, labels = digit_like(200)
    content, _ = page(digits, label=3)
    assert content["total"] == content["counts"]["all"] == int((labels == 3).sum())


def test_what_the_page_asks_wrongly_is_put_right(digits):
    content, _ = page(digits, filter="nonsense", sort="nonsense", page=-5)
    assert content["page"] == 0
    assert content["total"] == content["counts"]["flagged"]


@pytest.mark.parametrize(
    ("trait", "words"),
    [("filter", "unknown filter 'x'; valid here: 'flagged', 'hit'"), ("sort", "unknown sort 'x'")],
)
def test_unknown_names_list_the_valid_ones(digits, trait, words):
    with pytest.raises(ValueError, match=words):
        setattr(digits, trait, "x")


def test_selecting_is_kept_in_python(digits):
    digits._hear(None, {"type": "select", "position": 7}, [])
    assert digits.selected == 7
    assert "selected" not in digits.get_state()
    with pytest.raises(ValueError, match="0 to 199"):
        digits.selected = 200


def test_no_sample_is_in_the_state():
    records, names = hostile_questions()
    widget = SampleInspector(records, ids=names)
    page(widget)
    state = json.dumps(widget.get_state(), default=repr)
    assert "wobbling" not in state
    assert names[0] not in state
    bundle = json.dumps(widget._repr_mimebundle_()[0])
    assert "wobbling" not in bundle
    widget.close()


def test_long_texts_are_cut_and_halves_of_characters_replaced():
    records, _ = hostile_questions()
    widget = SampleInspector(records)
    content, _ = page(widget)
    json.dumps(content).encode("utf-8")
    "".join(item["text"] for item in content["items"]).encode("utf-8")
    long = next(item for item in content["items"] if item["text"].startswith("WWW"))
    assert len(long["text"]) + long["hidden"] == 1_000_000
    widget.close()


@pytest.mark.parametrize(
    ("samples", "kind"),
    [
        (np.zeros((3, 4, 5)), "image"),
        (np.zeros((3, 4, 5, 3), np.uint8), "image"),
        (["a", "b", "c"], "text"),
        (pd.Series(["a", "b", "c"]), "text"),
        ([{"question": "q", "choices": ["x", "y"], "answer": 1}] * 3, "mcq"),
    ],
)
def test_samples_of_many_kinds(samples, kind):
    widget = SampleInspector(samples, [0.1, -0.2, 0.3])
    content, _ = page(widget, sort="risk")
    assert content["kind"] == kind
    assert [item["position"] for item in content["items"]] == [1, 0, 2]
    widget.close()


def test_search_looks_through_questions_and_choices():
    records = [{"question": f"number {i}", "choices": ["Yes", "No"], "answer": 0} for i in range(9)]
    widget = SampleInspector(records)
    assert page(widget, search="NUMBER 4")[0]["total"] == 1
    assert page(widget, search="yes")[0]["total"] == 9
    assert page(widget, search="none such")[0]["total"] == 0
    assert widget.filter == "all"
    widget.close()


def test_options_show_label_and_probability():
    record = {"question": "q", "choices": ["x", "y", "z"], "answer": 1}
    widget = SampleInspector([record], probabilities=[[0.2, 0.7, 0.1]])
    item = page(widget)[0]["items"][0]
    assert [option["label"] for option in item["options"]] == [False, True, False]
    assert item["options"][1]["probability"] == 0.7
    widget.close()


def test_an_update_that_brings_truth_brings_its_filters():
    widget = SampleInspector(["a", "b", "c"])
    assert widget.filter == "all"
    widget.update([0.1, -0.1, 0.4])
    assert (widget.filter, widget.sort) == ("flagged", "risk")
    widget.update([0.1, -0.1, 0.4], [True, False, False])
    widget.filter = "missed"
    assert page(widget, filter="missed")[0]["total"] == 1
    widget.update([0.1, -0.1, 0.4])
    assert widget.filter == "flagged"
    widget.close()


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "words"),
    [
        (([],), {}, ValueError, "samples is empty"),
        (([3.5],), {}, TypeError, "cannot show samples of type float"),
        ((7,), {}, TypeError, "a length and an order"),
        ((np.zeros((2, 3)),), {}, ValueError, "images must have the shape"),
        ((["a", "b"], [1.0]), {}, ValueError, "1 entries for 2 samples"),
        ((["a", "b"], [1.0, np.nan]), {}, ValueError, "first in row 1"),
        ((["a", "b"], None, [True, False]), {}, ValueError, "memorized without scores"),
        ((["a"],), {"ids": ["x", "y"]}, ValueError, "2 ids for 1 samples"),
        ((["a"], [0.0]), {"positions": [3]}, ValueError, "between 0 and 0"),
        ((["a"],), {"labels": [0.5]}, TypeError, "labels must be integers"),
        ((["a"],), {"probabilities": [[np.nan]]}, ValueError, "first is row 0"),
        ((["a"],), {"filter": "hit"}, ValueError, "valid here: 'all'"),
    ],
)
def test_bad_input_is_named(arguments, keywords, error, words):
    with pytest.raises(error, match=words):
        SampleInspector(*arguments, **keywords)


def test_orders_are_stable_and_put_the_unknown_last():
    rows = Rows(
        np.arange(4),
        scores=np.array([1.0, 0.0, 0.0, 2.0]),
        log_lira=np.array([1.0, np.nan, 5.0, 2.0]),
        labels=np.array([1, 0, 1, -1]),
        probabilities=np.array([[0.1, 0.9], [0.6, 0.4], [0.8, 0.2], [0.5, 0.5]]),
    )
    assert rows.order("risk").tolist() == [1, 2, 0, 3]
    assert rows.order("log-lira").tolist() == [2, 3, 0, 1]
    assert rows.order("disagreement").tolist() == [2, 1, 0, 3]
    with pytest.raises(ValueError, match="unknown sort"):
        rows.order("x")
    with pytest.raises(ValueError, match="needs ground truth"):
        rows.mask("hit", 0.0)
