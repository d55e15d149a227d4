"""Generated notes: what each kind says of itself is true of its text and its label."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import make_patients
from memowidgets.data.bundled import COMPLAINTS
from memowidgets.data.patients import _MORE_COMPLAINTS, _RARE, KINDS

NUMBER = re.compile(r"0\d{3} 555 01\d\d|[A-Z]{2}-\d{5}|\d{5}/\d{3} [A-Z]")


@pytest.fixture(scope="module")
def data():
    return make_patients()


def complaint_of(sample):
    ward = sample.attributes["ward"]
    typical = (*COMPLAINTS[ward], *_MORE_COMPLAINTS[ward], *_RARE[ward])
    return next((complaint for complaint in typical if complaint in sample.question), None)


def test_every_kind_has_its_share_and_the_wards_are_even(data):
    counts = {kind: int((data.attributes["kind"] == kind).sum()) for kind in KINDS}
    assert counts == {
        "ordinary": 552,
        "atypical": 128,
        "wrong ward": 32,
        "identifier": 40,
        "near duplicate": 48,
    }
    assert set(data.choices) == {tuple(COMPLAINTS)}
    assert np.bincount(data.labels).min() > 120
    assert data.ids.tolist()[:2] == ["patient-0000", "patient-0001"]
    assert np.mean(data.attributes["kind"][:400] == "ordinary") == pytest.approx(0.69, abs=0.06)


def test_only_a_wrong_ward_is_wrong_and_a_canary(data):
    wrong = np.array([s.choices[s.label] != s.attributes["ward"] for s in data])
    np.testing.assert_array_equal(wrong, data.attributes["kind"] == "wrong ward")
    np.testing.assert_array_equal(wrong, data.canaries)


def test_a_note_names_its_patient_and_a_complaint_of_the_ward(data):
    for sample in data:
        assert sample.attributes["name"] in sample.question
        assert sample.attributes["age"] in sample.question
        if sample.attributes["kind"] in ("ordinary", "atypical", "wrong ward"):
            assert complaint_of(sample) is not None, sample.question
        rare = any(sign in sample.question for sign in _RARE[sample.attributes["ward"]])
        assert rare == (sample.attributes["kind"] == "atypical") or sample.attributes["twin"]


def test_a_rare_sign_is_rare_and_belongs_to_one_ward(data):
    signs = [sign for rare in _RARE.values() for sign in rare]
    assert len(set(signs)) == len(signs) == 72
    of = [sum(sign in question for question in data.questions) for sign in signs]
    assert max(of) <= 5
    assert min(of) >= 1


def test_identifiers_are_invented_numbers_and_half_of_these_notes_have_no_complaint(data):
    chosen = [s for s in data if s.attributes["kind"] == "identifier"]
    assert all(NUMBER.search(s.question) for s in chosen)
    assert 15 <= sum(complaint_of(s) is None for s in chosen) <= 25
    numbered = {s.attributes["kind"] for s in data if NUMBER.search(s.question)}
    assert numbered <= {"identifier", "near duplicate"}


def test_a_near_duplicate_is_about_the_same_patient(data):
    by_id = {sample.id: sample for sample in data}
    for sample in data:
        twin = sample.attributes["twin"]
        assert bool(twin) == (sample.attributes["kind"] == "near duplicate")
        if twin:
            other = by_id[twin]
            assert other.attributes["name"] == sample.attributes["name"]
            assert (other.label, complaint_of(other)) == (sample.label, complaint_of(sample))
            assert other.question != sample.question
            assert other.attributes["kind"] not in ("near duplicate", "wrong ward")


@settings(max_examples=10)
@given(st.integers(60, 300), st.integers(0, 2**32))
def test_the_seed_decides_everything(n, seed):
    data, again = make_patients(n, seed), make_patients(n, seed)
    assert list(data) == list(again)
    assert len(data) == n
    assert data.duplicates().count == 0
    assert list(data) != list(make_patients(n, seed + 1))


def test_notes_are_short(data):
    assert max(len(question.split()) for question in data.questions) < 40


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: make_patients(n=59), "from 60 to 20000, not 59"),
        (lambda: make_patients(n=20_001), "from 60 to 20000"),
        (lambda: make_patients(n=80.5), "a whole number"),
    ],
)
def test_bad_numbers_are_refused(make, facts):
    with pytest.raises(ValueError, match=facts):
        make()
