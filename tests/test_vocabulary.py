"""Notes survive what happens to an Evaluation, and numbers are written in one way."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from memowidgets.evaluation import compare, roc
from memowidgets.vocabulary import Note, percent


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda note: pickle.loads(pickle.dumps(note))]
)
def test_a_note_is_the_same_after_a_copy(copied):
    note = Note("few others", "only 3 samples are not memorised", n=3)
    again = copied(note)
    assert (again, again.key, again.numbers) == (note, "few others", {"n": 3})
    assert json.loads(json.dumps([again])) == [str(note)]


def test_a_note_keeps_its_key_and_numbers_under_another_name_of_the_positives():
    found = roc([0.0, 1.0, 2.0, 3.0, 4.0], [1, 0, 1, 0, 0], positives="planted")
    assert [(note.key, note.numbers["n"]) for note in found.warnings] == [
        ("few memorised", 2),
        ("few others", 3),
    ]
    assert all("planted" in note for note in found.warnings)
    other = Note("not learned", "a sample is memorised by chance")
    said = compare(found.with_warnings(other), found).warnings
    assert said == found.warnings  # what both scores share, each once, and nothing else


def test_a_share_is_whole_in_the_middle_and_has_a_decimal_near_the_ends():
    shares = {
        0.0999: "10 %",
        0.1: "10 %",
        0.9: "90 %",
        0.95: "95 %",
        0.999: "99.9 %",
        1: "100 %",
    }
    assert {share: percent(share) for share in shares} == shares
