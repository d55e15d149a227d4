"""Golden results of two trees are compared value by value."""

from __future__ import annotations

import pytest

from benchmarks.golden import compared, differences


def test_a_planted_difference_is_found():
    old = {"score": {"value": [0.5, 1.0]}, "refused": {"error": "ValueError: n is 3"}}
    assert compared(old, old)[1] == 0
    text, n_different = compared(old, {**old, "refused": {"error": "ValueError: n is 4"}})
    assert n_different == 1
    assert "refused" in text
    assert compared(old, {"score": old["score"]})[1] == 1


@pytest.mark.parametrize(
    ("one", "other", "n"),
    [([1, 2.0], [1, 2.0 + 1e-10], 0), ([1, 2.0], [1, 2.0 + 1e-8], 1), ([1, 2], [1], 1)],
)
def test_what_counts_as_a_difference(one, other, n):
    assert len(list(differences(one, other))) == n
