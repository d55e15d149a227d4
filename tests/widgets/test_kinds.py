"""The kinds of samples that the inspector shows: texts and rows of tables; one place knows them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.data import TableDataset, TextDataset
from memowidgets.data.dataset import kind_of
from memowidgets.widgets import SampleInspector
from memowidgets.widgets.samples import UsualValues
from tests.widgets.page import page_of

N = 40
NAMES = [f"intent {chr(97 + i % 26)}{i}" for i in range(77)]


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 2, N),
            "ward": rng.choice(["A", "B"], N, p=[0.9, 0.1]),
            "pressure": rng.normal(120, 5, N),
            "label": np.arange(N) % 2,
        }
    )


@pytest.fixture
def table():
    values = frame()
    values.loc[4, "age"] = 90.0
    values.loc[6, "pressure"] = np.nan
    with pytest.warns(UserWarning, match="1 value is missing"):
        return TableDataset.from_frame(values).with_canaries(3)


def test_every_kind_is_told_apart_in_one_place(table):
    texts = TextDataset.from_texts(["a", "b"], [0, 1])
    question = {"question": "Why?", "choices": ["a", "b"], "answer": 0}
    for samples, kind in (
        (np.zeros((2, 4, 4)), "pixels"), (mw.data.load_digits(), "image"), (texts, "text"),
        (["a"], "text"), ([{"text": "a"}], "record"), ([question], "question"), (table, "row"),
        (mw.data.make_mcqs(12), "question"), ([{"age": 3}], None), ([3], None),
    ):  # fmt: skip
        assert kind_of(samples) == kind


def test_the_value_farthest_from_its_class_comes_first(table):
    of = UsualValues(table.columns, table.labels).of
    assert of(4)[0].name == "age"
    assert of(4)[0].value == "90"
    own = table.columns["age"][table.labels == table.labels[4]]
    assert float(of(4)[0].usual) == pytest.approx(np.median(own), rel=1e-3)
    missing = of(6)[0]  # one of about twenty lacks it: some four standard deviations
    assert (missing.name, missing.value) == ("pressure", "")


def test_a_rare_category_is_as_far_as_its_frequency_says():
    wards = np.array(["A"] * 99 + ["B"], dtype=object)
    ages = np.concatenate([np.arange(99.0), [49.5 + 9 * np.arange(99).std()]])
    of = UsualValues({"age": ages, "ward": wards}, None).of
    # √99 ≈ 9.9 against less than 9
    assert [value.name for value in of(99)] == [
        "ward",
        "age",
    ]
    assert of(99)[0].usual == "A"
    assert [value.name for value in of(0)] == ["age", "ward"]


def test_a_constant_or_empty_class_is_no_problem():
    columns = {
        "a": np.array([1.0, 1.0, np.nan]),
        "b": np.array([None, None, "x"], dtype=object),
    }
    found = UsualValues(columns, np.array([0, 0, 1])).of
    assert [(v.value, v.usual) for v in found(0)] == [("1", "1"), ("", "missing")]
    assert [(v.value, v.usual) for v in found(2)] == [("", "missing"), ("x", "x")]


def test_a_row_travels_as_text_with_its_label_and_the_likeliest_classes(table):
    probabilities = np.tile([0.7, 0.3], (N, 1))
    inspector = SampleInspector(table, np.zeros(N), probabilities=probabilities)
    content = page_of(inspector)
    item = content["items"][4]
    assert content["kind"] == "table"
    assert item["values"][0] == {
        "name": "age",
        "value": "90",
        "usual": item["values"][0]["usual"],
    }
    assert item["label"] == str(table.labels[4])
    [item] = page_of(inspector, open=4)["open"]
    likeliest = [
        (one["name"], one["probability"], one["label"]) for one in item["likeliest"]
    ]
    assert likeliest == [
        ("0", 0.7, table.labels[4] == 0),
        ("1", 0.3, table.labels[4] == 1),
    ]
    assert [one["canary"] for one in content["items"]] == table.canaries[:24].tolist()
    found = page_of(inspector, search="age: 90")
    assert [one["position"] for one in found["items"]] == [4]
    assert "anonymise" not in content["decisions"]["choices"]
    assert "Only texts" in content["decisions"]["refused"]["anonymise"]


def test_a_text_travels_with_five_likeliest_of_many_classes():
    texts = TextDataset.from_texts(
        [f"text {i}" for i in range(77)], np.arange(77), NAMES
    )
    probabilities = np.random.default_rng(0).dirichlet(np.ones(77), 77)
    texts = texts.with_canaries(5)
    inspector = SampleInspector(texts, np.zeros(77), probabilities=probabilities)
    content = page_of(inspector, open=3)
    [item] = content["open"]
    best = np.argsort(-probabilities[3])[:5]
    assert texts.labels[3] not in best
    assert [one["name"] for one in item["likeliest"]] == [
        NAMES[i] for i in [*best, texts.labels[3]]
    ]
    assert [one["label"] for one in item["likeliest"]] == [False] * 5 + [True]
    assert sum(one["canary"] for one in content["items"]) > 0


def test_a_frame_is_shown_as_a_table_and_one_of_questions_as_questions():
    inspector = SampleInspector(frame().assign(when=pd.Timestamp(0)), np.zeros(N))
    item = page_of(inspector)["items"][0]
    assert {value["name"] for value in item["values"]} == {
        "age",
        "ward",
        "pressure",
        "when",
    }
    assert item["label"] == "0"
    records = [{"question": "Why?", "choices": ["a", "b"], "answer": 0}]
    inspector = SampleInspector(pd.DataFrame(records))
    assert page_of(inspector)["kind"] == "mcq"
    audit = mw.Audit.from_arrays(
        frame()["label"], frame()[["age", "pressure"]], samples=frame()
    )
    assert isinstance(audit.data, TableDataset)
    assert list(audit.data.columns) == ["age", "ward", "pressure"]
