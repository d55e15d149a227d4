"""Texts as data: labels of any form, duplicates together, canaries from a seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from memowidgets.data import TextDataset
from memowidgets.training.design import draw_design

TEXTS = [f"message {i}" for i in range(60)]
LABELS = ["cash", "card", "loan"] * 20


def test_strings_become_sorted_classes():
    data = TextDataset.from_texts(TEXTS, LABELS)
    assert data.class_names == ("card", "cash", "loan")
    assert [data.class_names[label] for label in data.labels] == LABELS
    as_series = TextDataset.from_texts(TEXTS, pd.Series(LABELS, dtype="category"))
    np.testing.assert_array_equal(as_series.labels, data.labels)


def test_class_names_fix_the_order():
    data = TextDataset.from_texts(TEXTS, LABELS, ["loan", "cash", "card"])
    assert [data.class_names[label] for label in data.labels] == LABELS
    assert data.class_names == ("loan", "cash", "card")


def test_duplicates_stay_on_one_side_of_every_split():
    data = TextDataset.from_texts(TEXTS[:30] * 2, LABELS)
    assert "30 duplicates" in repr(data)
    design = draw_design(data, "half", 0.2, seed=0)
    sides = [design.members, design.held_out, np.setdiff1d(design.pool, design.members)]
    sides += [design.pool[design.shadow_members(0, shadow)] for shadow in range(3)]
    for side in sides:
        counts = np.bincount(side % 30, minlength=30)
        assert set(counts.tolist()) <= {0, 2}
        assert len(side)


def test_canaries_get_a_wrong_label_and_never_the_same_text_twice():
    plain = TextDataset.from_texts(TEXTS, LABELS)
    planted = plain.with_canaries(20, seed=1).with_canaries(40, seed=2)
    assert planted.canaries.all()
    assert (planted.labels != plain.labels).all()
    once = plain.with_canaries(20, seed=1)
    np.testing.assert_array_equal(once.labels != plain.labels, once.canaries)
    assert (once.labels != plain.with_canaries(20, seed=2).labels).any()
    assert once.take([3, 5]).canaries.tolist() == once.canaries[[3, 5]].tolist()
    for wrong, message in (((61,), "61 canaries do not fit into 60"), ((1, "ood"), "mislabelled")):
        with pytest.raises(ValueError, match=message):
            plain.with_canaries(*wrong)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "", "c"], [0, 1, 0], "row 1: the text is empty"),
        (["a", "  ", "c"], [0, 1, 0], "row 1: the text is empty"),
        (["a", None, "c"], [0, 1, 0], "row 1: the text is missing"),
        (["a", float("nan"), "c"], [0, 1, 0], "row 1: the text is missing"),
        (["a", "b\ud800", "c"], [0, 1, 0], "row 1: .* surrogate"),
        (["a", "b", "c"], ["x", None, "y"], "1 of 3 labels are missing, the first in row 1"),
        (["a", "b", "c"], [0, np.nan, 1], "1 of 3 labels are missing, the first in row 1"),
        (["a", "b", "c"], pd.Series([0, pd.NA, 1], dtype="Int64"), "the first in row 1"),
        (["a", "b", "c"], ["x", 1, "y"], "differs is in row 1"),
        (["a", "b", "c"], ["x", "x", "x"], "a classifier needs at least two classes"),
        (["a", "b", "c"], [0, 1], "3 texts but 2 labels"),
        (["a", "b", "c"], [0, 1, -1], "row 2 is -1"),
        (TEXTS, TEXTS, "each of the 60 labels is a different string"),
    ],
)
def test_bad_input_gets_one_clear_sentence(texts, labels, message):
    with pytest.raises(ValueError, match=message):
        TextDataset.from_texts(texts, labels)


def test_an_unseen_class_is_named():
    with pytest.raises(ValueError, match="row 2 is 'loan', which is not one of the 2 class_names"):
        TextDataset.from_texts(TEXTS, LABELS, ["cash", "card"])


def test_a_text_given_as_a_label_is_not_quoted():
    with pytest.raises(ValueError, match="a text of 60 characters") as error:
        TextDataset.from_texts(["a", "b"], ["x" * 60, "y"], ["y", "z"])
    assert "xxx" not in str(error.value)


def test_a_class_that_never_occurs_is_said_once_with_the_fix():
    with pytest.warns(UserWarning, match="never occur in the labels: 0; number the cl") as said:
        TextDataset.from_texts(["a", "b", "c"], [1, 2, 3])
    assert len(said) == 1
    with pytest.warns(UserWarning, match="1 of 3 classes never .*: z; leave them out of class_n"):
        TextDataset.from_texts(["a", "b"], ["x", "y"], ["x", "y", "z"])


def _csv(tmp_path, lines):
    path = tmp_path / "messages.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_csv_file_gives_texts_and_says_how_to_read_it_again(tmp_path):
    path = _csv(tmp_path, ["id,text,category", '7,"lost, or stolen",card', "9,no money,cash"])
    data = TextDataset.from_csv(path, label="category")
    assert data.texts == ("lost, or stolen", "no money")
    assert data.class_names == ("card", "cash")
    assert data.ids.tolist() == ["7", "9"]
    again = getattr(TextDataset, data.source["loader"].split(".")[1])(**data.source["arguments"])
    assert again.content_hashes() == data.content_hashes()
    assert again.source == data.source
    assert TextDataset.from_csv(path, "category", "text", ids="text").ids[1] == "no money"


def test_numbers_in_a_csv_file_are_numbers_unless_they_are_names(tmp_path):
    path = _csv(tmp_path, ["text,label", *(f"message {i},{i % 11}" for i in range(22))])
    assert TextDataset.from_csv(path).labels.tolist() == [i % 11 for i in range(22)]
    named = TextDataset.from_csv(path, class_names=[str(10 - i) for i in range(11)])
    assert named.labels.tolist() == [10 - i % 11 for i in range(22)]


@pytest.mark.parametrize(
    ("lines", "arguments", "message"),
    [
        (["text,label", "a,x", ",y"], {}, "line 3: the text is empty|line 3: the text is missing"),
        (["text,label", "a,x", "b,"], {}, "1 of 2 labels are missing, the first in .*line 3"),
        (
            ["text,category", "a,x"],
            {},
            "no column 'label'; its columns: 'text', 'category'.*label=",
        ),
        (["words,label", "a,x"], {}, "no column 'text'.*text="),
        (["text,label", "a,x", "b,x"], {}, "all 2 samples have the label 0 .'x'"),
        (["text,label", "a,x", "a,y"], {}, "all 2 texts are equal"),
        (["text,label", "a,x", "b,y"], {"class_names": ["x", "z"]}, "line 3 is 'y', which is not"),
        (["text,label", "a,x", "b,y"], {"ids": "key"}, "no column 'key'.*ids="),
        (["text,label,id", "a,x,1", "b,y,"], {}, "line 3: the id is missing"),
        (["text,label", "a,x", "b,y,z"], {}, "line 3: 3 cells, but the first line has 2"),
        (["text,text", "a,x"], {}, "two columns have the name 'text'"),
        (["text,label"], {}, "no row below its header"),
    ],
)
def test_a_bad_csv_file_gets_one_clear_sentence(tmp_path, lines, arguments, message):
    with pytest.raises(ValueError, match=message):
        TextDataset.from_csv(_csv(tmp_path, lines), **arguments)


def test_a_jsonl_file_gives_texts(tmp_path):
    path = tmp_path / "messages.jsonl"
    path.write_text('{"t": "a\u2028b", "y": 1}\n{"t": "c", "y": 0}\n', encoding="utf-8")
    data = TextDataset.from_jsonl(path, text="t", label="y", class_names=["no", "yes"])
    assert data.texts[0] == "a\u2028b"
    assert data.labels.tolist() == [1, 0]
    assert data.source["arguments"]["class_names"] == ["no", "yes"]
    path.write_text('{"t": "a", "y": 1}\n{"t": "c"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"1 of 2 labels are missing, the first in .*line 2"):
        TextDataset.from_jsonl(path, text="t", label="y")


def test_texts_of_numpy_become_plain_ones():
    data = TextDataset.from_texts(np.array(["a", "b"]), ["x", "y"])
    assert {type(text) for text in data.texts} == {str}
