"""Texts: which are refused, and what equal ones mean."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.data import TextDataset
from memowidgets.training.design import ShadowDesign, draw_design


def test_duplicates_stay_on_one_side_of_every_split():
    data = TextDataset.from_texts([f"message {i}" for i in range(30)] * 2, ["a", "b", "c"] * 20)
    assert "30 duplicates" in repr(data)
    design = draw_design(data, "half", 0.2, seed=0)
    sides = [design.members, design.held_out, np.setdiff1d(design.pool, design.members)]
    sides += [design.pool[ShadowDesign().members(design, 0, shadow)] for shadow in range(3)]
    for side in sides:
        counts = np.bincount(side % 30, minlength=30)
        assert set(counts.tolist()) <= {0, 2}
        assert len(side)


@pytest.mark.parametrize(
    ("texts", "error", "facts"),
    [
        (["a", "", "c"], ValueError, "row 1: the text is empty"),
        (["a", None, "c"], ValueError, "row 1: the text is missing"),
        (["a", "b\ud800", "c"], ValueError, "row 1: .*surrogate"),
        (["a", "a", "a"], ValueError, "all 3 texts are equal"),
        (["a", 7, "c"], ValueError, "row 1: .*not 7"),
        ("abc", TypeError, "list of texts, not a single one"),
    ],
)
def test_texts_are_refused_by_their_row(texts, error, facts):
    with pytest.raises(error, match=facts):
        TextDataset.from_texts(texts, [0, 1, 0])


def test_equal_texts_with_different_labels_are_listed():
    texts, labels = ["red", "blue", "red", "blue"], [0, 1, 1, 1]
    with pytest.warns(UserWarning, match=r"2 texts.*p = r") as caught:
        TextDataset.from_texts(texts, labels, ids=["p", "q", "r", "s"])
    assert "q" not in str(caught[0].message).partition(": ")[2]


def test_texts_of_numpy_become_plain_ones():
    data = TextDataset.from_texts(np.array(["a", "b"]), ["x", "y"])
    assert {type(text) for text in data.texts} == {str}


@pytest.mark.parametrize(
    ("words", "facts"),
    [({"9": "x"}, "'9'.*ids"), ({"1": " "}, "'1'.*empty")],
)
def test_new_texts_are_checked_by_their_id(words, facts):
    data = TextDataset.from_texts(["a", "b"], [0, 1])
    assert data.with_texts({"1": "c"}).texts == ("a", "c")
    with pytest.raises(ValueError, match=facts):
        data.with_texts(words)
