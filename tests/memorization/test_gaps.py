"""What no function of the room takes for gaps, masks, or settings."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.memorization import attack_success_rate, counterfactual, log_lira, rmia
from tests.memorization.test_lira import made

GAPS, MEMBERS, TARGET = made(m=12, n=9)
BROKEN = np.where(np.arange(9) == 2, np.where(np.arange(12)[:, None] == 4, np.nan, GAPS), GAPS)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (lambda: log_lira(BROKEN, MEMBERS, TARGET), r"model \(row\) 4, sample \(column\) 2"),
        (lambda: counterfactual(BROKEN, MEMBERS), "NaN or infinite"),
        (lambda: rmia(GAPS * np.inf, MEMBERS, TARGET), "NaN or infinite"),
        (lambda: log_lira(GAPS, MEMBERS, np.full(9, np.nan)), "9 of 9 .* row 0"),
        (lambda: log_lira(GAPS * 1e300, MEMBERS, TARGET), r"shadow_gaps .*1e\+100"),
        (lambda: log_lira(GAPS, MEMBERS, np.full(9, 1e300)), r"target_gaps .*1e\+100"),
        (lambda: log_lira(GAPS, MEMBERS[:, :3], TARGET), r"\(12, 9\) and \(12, 3\)"),
        (lambda: log_lira(GAPS[0], MEMBERS, TARGET), "n_models, n_samples"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET[:2]), "each of the 9 samples"),
        (lambda: log_lira(GAPS[:0], MEMBERS[:0], TARGET), "empty"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET, "pooled"), "'per-sample', 'global', 'shrunk'"),
        (lambda: attack_success_rate(GAPS, MEMBERS, "x"), "'per-sample', 'global', 'shrunk'"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET, mode="both"), "'online', 'offline'"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, mode="x"), "'online', 'offline'"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, gamma=0), "gamma .* 0"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, a=2), "a must be .* 0 to 1"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, np.arange(9) < 1), "two or more"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, np.ones(4, bool)), "9 samples"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET, judged=[9]), "judged .* 9 samples"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET[:2], judged=[3, 3]), "judged .* 9 samples"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET, early_gaps=GAPS), "hierarchical"),
        (
            lambda: log_lira(GAPS, MEMBERS, TARGET, "hierarchical", early_gaps=GAPS[:3]),
            r"early_gaps .*\(3, 9\)",
        ),
    ],
)
def test_bad_values(call, facts):
    with pytest.raises(ValueError, match=facts):
        call()


@pytest.mark.parametrize("dtype", [int, float, str])
@pytest.mark.parametrize(
    "call",
    [
        lambda mask: log_lira(GAPS, mask, TARGET),
        lambda mask: attack_success_rate(GAPS, mask),
        lambda mask: counterfactual(GAPS, mask),
        lambda mask: rmia(GAPS, mask, TARGET),
        lambda mask: rmia(GAPS, MEMBERS, TARGET, mask[0]),
    ],
)
def test_masks_must_be_masks(call, dtype):
    with pytest.raises(TypeError, match="bool, but has dtype"):
        call(MEMBERS.astype(dtype))
