"""Generated patients: reproducible, learnable, never twice the same."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.data import make_mcqs
from memowidgets.data.bundled import _COMPLAINTS


def test_the_wards_are_the_options_in_one_fixed_order():
    data = make_mcqs()
    assert len(data) == 1200
    assert len(set(data.choices)) == 1
    assert data[0].choices == tuple(_COMPLAINTS)
    assert data.class_names == tuple("ABCDEF")
    assert data.canaries.sum() == 60
    assert data.ids.tolist()[:2] == ["patient-0000", "patient-0001"]


@settings(max_examples=15)
@given(st.integers(12, 200), st.floats(0, 1), st.integers(0, 2**32))
def test_the_seed_decides_everything(n, atypical, seed):
    data, again = make_mcqs(n, atypical, seed), make_mcqs(n, atypical, seed)
    assert [data[i] for i in range(n)] == [again[i] for i in range(n)]
    assert data.duplicates().count == 0
    assert len(set(data.labels.tolist())) > 1
    planted = np.zeros(n, dtype=bool) if data.canaries is None else data.canaries
    assert planted.sum() == round(atypical * n)
    fits = [sample.choices[sample.label] == sample.attributes["ward"] for sample in data]
    np.testing.assert_array_equal(planted, ~np.array(fits))
    assert make_mcqs(**data.source["arguments"]).content_hashes() == data.content_hashes()


def test_other_seeds_give_other_patients():
    assert not set(make_mcqs(seed=0).questions) & set(make_mcqs(seed=1).questions)


def test_without_atypical_patients_there_are_no_canaries():
    assert make_mcqs(24, atypical=0).canaries is None


def test_a_patient_has_complaints_of_the_fitting_ward_alone():
    for sample in make_mcqs():
        wards = {
            ward
            for ward, complaints in _COMPLAINTS.items()
            if any(complaint in sample.question for complaint in complaints)
        }
        assert wards == {sample.attributes["ward"]}
        assert sample.attributes["name"] in sample.question
        assert sample.attributes["age"] in sample.question


def test_wards_wordings_and_lengths_vary_and_the_words_are_few():
    data = make_mcqs()
    clean = data.labels[~data.canaries]
    assert np.bincount(clean).min() > 170
    assert {question.split()[0] in ("For", "Patient") for question in data.questions} == {
        True,
        False,
    }
    words = {word for prompt in data.prompts() for word in re.findall(r"\w+|[^\w\s]", prompt)}
    assert 200 < len(words) < 320
    assert max(len(re.findall(r"\w+|[^\w\s]", prompt)) for prompt in data.prompts()) < 40


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 3}, "from 12 to 100000, not 3"),
        ({"n": 200_000}, "from 12 to 100000"),
        ({"n": 20.5}, "a whole number"),
        ({"atypical": 5}, "a share, must be a number from 0 to 1, not 5"),
        ({"atypical": float("nan")}, "a share, must be a number from 0 to 1"),
    ],
)
def test_bad_numbers_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_mcqs(**arguments)
