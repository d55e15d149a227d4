"""Ranks of the definitions and of groups of samples, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from memowidgets.audit.numbers.definitions import _codes, _ranks, _ranks_of
from memowidgets.memorization.posterior import _BINS, _groups

VALUES = {
    "no ties": np.random.default_rng(0).normal(size=600),
    "many ties": np.random.default_rng(1).integers(-3, 4, size=600) / 2,
    "all the same": np.zeros(600),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_ties_share_their_mean_rank(values):
    table = np.column_stack([values, values[::-1]])
    assert np.array_equal(_ranks(table), rankdata(table, axis=0))
    assert np.array_equal(_ranks(values)[:, 0], rankdata(values))
    rows = np.random.default_rng(2).integers(len(table), size=len(table))
    assert np.array_equal(_ranks_of(_codes(table)[rows]), rankdata(table[rows], axis=0))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_samples_with_the_same_score_are_in_one_group(values):
    expected = ((rankdata(values) - 1) * _BINS // len(values)).astype(int)
    assert np.array_equal(_groups(values, values.shape), expected)
