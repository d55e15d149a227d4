"""Datasets without a download: scanned digits, and patients that are never twice the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import load_digits, make_mcqs, make_patients
from memowidgets.data.bundled import COMPLAINTS, WORDS


def test_digits_are_the_scanned_ones():
    data = load_digits()
    assert (len(data), data.canaries) == (1797, None)
    assert data.images.shape == (1797, 8, 8, 1)
    assert data.class_names == tuple("0123456789")
    assert data[3].label == 3
    # sixteen shades of grey and white stay apart
    assert len(np.unique(data.images)) == 17


def test_the_wards_are_the_options_in_one_fixed_order():
    data = make_mcqs()
    assert len(data) == 1200
    assert set(data.choices) == {tuple(COMPLAINTS)}
    assert data.class_names == tuple("ABCDEF")
    assert data.canaries.sum() == 60
    assert data.ids.tolist()[:2] == ["patient-0000", "patient-0001"]
    assert make_mcqs(24, atypical=0).canaries is None
    assert not set(data.questions) & set(make_mcqs(seed=1).questions)


@settings(max_examples=8)
@given(st.integers(12, 200), st.floats(0, 1), st.integers(0, 2**32))
def test_the_seed_decides_everything(n, atypical, seed):
    data, again = make_mcqs(n, atypical, seed), make_mcqs(n, atypical, seed)
    assert list(data) == list(again)
    assert len(set(data.content_hashes())) == n
    assert len(set(data.labels.tolist())) > 1
    planted = np.zeros(n, dtype=bool) if data.canaries is None else data.canaries
    assert planted.sum() == round(atypical * n)
    fits = [
        sample.choices[sample.label] == sample.attributes["ward"] for sample in data
    ]
    np.testing.assert_array_equal(planted, ~np.array(fits))


RARE = WORDS["rare_signs"]


@pytest.fixture(scope="module")
def notes():
    return make_patients()


def complaint_of(sample):
    ward = sample.attributes["ward"]
    typical = (*COMPLAINTS[ward], *WORDS["more_complaints"][ward], *RARE[ward])
    return next(
        (complaint for complaint in typical if complaint in sample.question), None
    )


def test_every_kind_has_its_share_and_the_wards_are_even(notes):
    assert Counter(notes.attributes["kind"].tolist()) == {
        "ordinary": 552,
        "atypical": 128,
        "wrong ward": 32,
        "identifier": 40,
        "near duplicate": 48,
    }
    assert set(notes.choices) == {tuple(COMPLAINTS)}
    assert np.bincount(notes.labels).min() > 120
    assert notes.ids.tolist()[:2] == ["patient-0000", "patient-0001"]
    assert np.mean(notes.attributes["kind"][:400] == "ordinary") == pytest.approx(
        0.69, abs=0.06
    )


def test_only_a_wrong_ward_is_wrong_and_a_canary(notes):
    wrong = np.array([s.choices[s.label] != s.attributes["ward"] for s in notes])
    np.testing.assert_array_equal(wrong, notes.attributes["kind"] == "wrong ward")
    np.testing.assert_array_equal(wrong, notes.canaries)


def test_the_seed_decides_every_note(notes):
    assert list(notes) == list(make_patients())
    assert len(set(notes.content_hashes())) == len(notes)
    assert list(make_patients(60, 1)) != list(make_patients(60, 2))


def test_a_near_duplicate_is_about_the_same_patient(notes):
    by_id = {sample.id: sample for sample in notes}
    for sample in notes:
        twin = sample.attributes["twin"]
        assert bool(twin) == (sample.attributes["kind"] == "near duplicate")
        if twin:
            other = by_id[twin]
            assert other.attributes["name"] == sample.attributes["name"]
            assert (other.label, complaint_of(other)) == (
                sample.label,
                complaint_of(sample),
            )
            assert other.question != sample.question
            assert other.attributes["kind"] not in ("near duplicate", "wrong ward")


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: make_mcqs(n=3), "from 12 to 100000, not 3"),
        (lambda: make_mcqs(atypical=5), "from 0 to 1, not 5"),
        (lambda: load_digits(canaries=5), "from 0 to 1, not 5"),
        (lambda: make_patients(n=20_001), "from 60 to 20000"),
    ],
)
def test_bad_numbers_are_refused(make, facts):
    with pytest.raises(ValueError, match=facts):
        make()
