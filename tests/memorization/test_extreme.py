"""Gaps at the edge of what numbers can hold."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.evaluation import roc
from memowidgets.memorization import log_lira

MEMBERS = np.arange(8)[:, None] % 2 == np.zeros(5)


@pytest.mark.parametrize("which", ["shadow_gaps", "target_gaps"])
def test_gaps_whose_squares_have_no_room_are_refused(which):
    gaps = {
        "shadow_gaps": np.random.default_rng(0).normal(size=(8, 5)),
        "target_gaps": np.ones(5),
    }
    gaps[which] = gaps[which] * 1e300
    with pytest.raises(ValueError, match=rf"{which} .*1e\+100"):
        log_lira(gaps["shadow_gaps"], MEMBERS, gaps["target_gaps"])


def test_complex_numbers_are_refused():
    gaps = np.random.default_rng(0).normal(size=(8, 5)) + 1j
    with pytest.raises(TypeError, match="complex"):
        log_lira(gaps, MEMBERS, np.ones(5))
    with pytest.raises(TypeError, match="complex"):
        roc(np.arange(4) * 1j, [True, False, True, False])
