"""What no function of the room takes for gaps, masks, or settings; moments without a model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from memowidgets.memorization import (
    attack_success_rate,
    counterfactual,
    log_lira,
    probability_memorized,
    rmia,
    support,
)
from memowidgets.memorization.gaps import moments
from tests.memorization.test_lira import made

GAPS, MEMBERS, TARGET = made(m=12, n=9)
BROKEN = np.where(
    np.arange(9) == 2, np.where(np.arange(12)[:, None] == 4, np.nan, GAPS), GAPS
)


@pytest.mark.parametrize(
    ("call", "facts"),
    [
        (
            lambda: log_lira(BROKEN, MEMBERS, TARGET),
            r"shadow_gaps .*1 of 12.*model 4, column 2",
        ),
        (lambda: rmia(GAPS * np.inf, MEMBERS, TARGET), "NaN or infinite"),
        (lambda: log_lira(GAPS * 1e200, MEMBERS, TARGET), r"shadow_gaps .* \de\+20"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET * 1e200), r"target_gaps .* \de\+20"),
        (lambda: log_lira(GAPS, MEMBERS, np.full(9, np.nan)), "9 of 9 .* row 0"),
        (lambda: support(GAPS, MEMBERS[:, :3]), r"\(12, 9\) and \(12, 3\)"),
        (lambda: log_lira(GAPS[0], MEMBERS, TARGET), "n_models, n_samples"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET[:2]), "each of the 9 samples"),
        (lambda: log_lira(GAPS[:0], MEMBERS[:0], TARGET), r"\(0, 9\)"),
        (lambda: log_lira(GAPS, MEMBERS, TARGET, "pooled"), "'global', 'shrunk'"),
        (
            lambda: attack_success_rate(GAPS, MEMBERS, "x"),
            "'per-sample', 'global', 'shrunk'",
        ),
        (lambda: support(GAPS, MEMBERS, np.nan), "eta must be"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, gamma=0), "gamma .* 0"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, np.arange(9) < 1), "two or more"),
        (lambda: rmia(GAPS, MEMBERS, TARGET, np.ones(4, bool)), "9 samples"),
        (
            lambda: probability_memorized(TARGET, TARGET**2, np.nan),
            "eta must be a number",
        ),
        (lambda: probability_memorized([1.0], [1.0, 2.0]), "same shape"),
        (lambda: probability_memorized([1.0], [-1.0]), "0 or more"),
        (
            lambda: probability_memorized([1.0, 2.0], [1.0, 1.0], score=[np.nan, 1.0]),
            "one finite",
        ),
        (
            lambda: probability_memorized([1.0, 2.0], [1.0, 1.0], score=[1.0]),
            "one finite",
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
        lambda mask: support(GAPS, mask),
        lambda mask: rmia(GAPS, mask, TARGET),
        lambda mask: rmia(GAPS, MEMBERS, TARGET, mask[0]),
    ],
)
def test_masks_must_be_masks(call, dtype):
    with pytest.raises(TypeError, match="bool, but has dtype"):
        call(MEMBERS.astype(dtype))


def test_a_side_without_a_model_has_the_moments_of_the_others():
    gaps = np.random.default_rng(0).normal(size=(5, 6))
    present = np.arange(5)[:, None] < np.arange(6)  # of 0 to 5 models
    both = moments(gaps, present)
    assert both.inside.mean[0] == both.outside.mean[5] == 0
    found = both.inside.without(gaps, present)
    for model in range(5):
        rest = present & (np.arange(5) != model)[:, None]
        for sample in range(6):
            own = gaps[rest[:, sample], sample]
            expected = (
                [len(own), own.mean(), len(own) * own.var()] if len(own) else [0, 0, 0]
            )
            parts = found.count, found.mean, found.squares
            seen = [part[model, sample] for part in parts]
            assert seen == pytest.approx(expected, abs=1e-12)


def test_names_of_models_and_samples_are_compared_where_they_can_be():
    gaps = pd.DataFrame(GAPS, columns=[f"s{i}" for i in range(9)])
    expected = counterfactual(GAPS, MEMBERS)
    twice = ["s0", "s0", *gaps.columns[2:]]
    # a default index names nothing, and repeated names pair where they are equal
    for columns in ((gaps.columns, gaps.columns), (gaps.columns, None), (twice, twice)):
        own, other = (
            pd.DataFrame(values, columns=names)
            for values, names in zip((GAPS, MEMBERS), columns, strict=True)
        )
        np.testing.assert_allclose(counterfactual(own, other), expected)
    for names in ([f"other {i}" for i in range(9)], ["s0"] * 9):
        with pytest.raises(ValueError, match=r"gaps\.columns, such as '.+' for 's\d'"):
            counterfactual(gaps, pd.DataFrame(MEMBERS, columns=names))
    for wrong in (
        pd.DataFrame(MEMBERS, columns=gaps.columns[::-1]),
        pd.DataFrame(MEMBERS, index=np.arange(12)[::-1]),
    ):
        with pytest.raises(ValueError, match=r"gaps\.(columns|index) in another order"):
            counterfactual(gaps, wrong)
