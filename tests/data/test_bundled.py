"""Datasets without a download: scanned digits, and patients that are never twice the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import load_digits, make_mcqs
from memowidgets.data.bundled import COMPLAINTS


def test_digits_are_the_scanned_ones():
    data = load_digits()
    assert (len(data), data.canaries) == (1797, None)
    assert data.images.shape == (1797, 8, 8, 1)
    assert data.class_names == tuple("0123456789")
    assert data[3].label == 3
    assert len(np.unique(data.images)) == 17  # sixteen shades of grey and white stay apart


def test_wrong_labels_of_digits_are_drawn_evenly_from_the_others():
    shift = (load_digits(canaries=1.0).labels - load_digits().labels) % 10
    counts = np.bincount(shift, minlength=10)
    assert counts[0] == 0
    assert counts[1:].min() > 150


def test_the_wards_are_the_options_in_one_fixed_order():
    data = make_mcqs()
    assert len(data) == 1200
    assert set(data.choices) == {tuple(COMPLAINTS)}
    assert data.class_names == tuple("ABCDEF")
    assert data.canaries.sum() == 60
    assert data.ids.tolist()[:2] == ["patient-0000", "patient-0001"]
    assert make_mcqs(24, atypical=0).canaries is None
    assert not set(data.questions) & set(make_mcqs(seed=1).questions)


@settings(max_examples=15)
@given(st.integers(12, 200), st.floats(0, 1), st.integers(0, 2**32))
def test_the_seed_decides_everything(n, atypical, seed):
    data, again = make_mcqs(n, atypical, seed), make_mcqs(n, atypical, seed)
    assert list(data) == list(again)
    assert data.duplicates().count == 0
    assert len(set(data.labels.tolist())) > 1
    planted = np.zeros(n, dtype=bool) if data.canaries is None else data.canaries
    assert planted.sum() == round(atypical * n)
    fits = [sample.choices[sample.label] == sample.attributes["ward"] for sample in data]
    np.testing.assert_array_equal(planted, ~np.array(fits))


def test_a_patient_has_complaints_of_the_fitting_ward_alone():
    for sample in make_mcqs():
        wards = {
            ward
            for ward, complaints in COMPLAINTS.items()
            if any(complaint in sample.question for complaint in complaints)
        }
        assert wards == {sample.attributes["ward"]}
        assert sample.attributes["name"] in sample.question
        assert sample.attributes["age"] in sample.question


def test_wards_wordings_and_lengths_vary_and_the_words_are_few():
    data = make_mcqs()
    assert np.bincount(data.labels[~data.canaries]).min() > 170
    openings = {question.split()[0] in ("For", "Patient") for question in data.questions}
    assert openings == {True, False}
    words = [re.findall(r"\w+|[^\w\s]", prompt) for prompt in data.prompts()]
    assert 200 < len(set().union(*words)) < 320
    assert max(map(len, words)) < 40


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: make_mcqs(n=3), "from 12 to 100000, not 3"),
        (lambda: make_mcqs(n=200_000), "from 12 to 100000"),
        (lambda: make_mcqs(n=20.5), "a whole number"),
        (lambda: make_mcqs(atypical=5), "from 0 to 1, not 5"),
        (lambda: make_mcqs(atypical=float("nan")), "from 0 to 1"),
        (lambda: load_digits(canaries=5), "from 0 to 1, not 5"),
    ],
)
def test_bad_numbers_are_refused(make, facts):
    with pytest.raises(ValueError, match=facts):
        make()
