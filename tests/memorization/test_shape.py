"""The note on gaps that are plainly not Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kurtosis

import memowidgets as mw
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization.densities import excess_kurtosis, note_on_shape

SHAPES = {
    "gaussian": lambda rng, size: rng.normal(size=size),
    "tails": lambda rng, size: rng.standard_t(3, size=size),
    "humps": lambda rng, size: (
        rng.choice([-2.0, 2.0], size=size) + 0.7 * rng.normal(size=size)
    ),
}


RECORDED = {"mmlu-field-smollm2": 0.14, "banking77-smollm2": 0.02, "cifar10-wrn": 0.13}


def gaps_of(shape, m, n=1000, seed=0):
    """Gaps whose means and deviations differ between samples and sides."""
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    spread = np.sqrt(6 / rng.chisquare(6, n)) * np.where(members, 0.8, 1.0)
    return 3 * rng.normal(size=n) + 2 * members + spread * SHAPES[shape](
        rng, (m, n)
    ), members


@pytest.mark.parametrize("m", [8, 16, 32, 64])
def test_heavy_tails_and_two_humps_are_found_from_16_models_on_and_gaussians_say_nothing(
    m,
):
    for seed in range(3):
        assert note_on_shape(*gaps_of("gaussian", m, seed=seed)) is None
        if m > 8:
            assert "heavy tails" in note_on_shape(*gaps_of("tails", m, seed=seed))
            assert "two humps" in note_on_shape(*gaps_of("humps", m, seed=seed))


def test_nothing_is_said_of_few_gaps():
    assert note_on_shape(*gaps_of("tails", 32, n=10)) is None
    assert note_on_shape(*gaps_of("tails", 6)) is None
    kurtoses = [excess_kurtosis(*gaps_of("tails", 16, n=n))[0] for n in (14, 15)]
    assert np.isfinite(kurtoses).tolist() == [False, True]  # of 28 and 30 sides
    assert (
        note_on_shape(np.ones((32, 100)), np.arange(32)[:, None] % 2 == np.zeros(100))
        is None
    )


@pytest.mark.parametrize(("name", "kurtosis"), RECORDED.items())
def test_the_recordings_are_gaussian_enough(name, kurtosis):
    _, members, gaps, _ = member_gaps(mw.open_recorded(name).evidence)
    assert excess_kurtosis(gaps, members)[0] == pytest.approx(kurtosis, abs=0.02)
    assert note_on_shape(gaps, members) is None


def test_an_audit_says_so_beside_counts_and_probabilities():
    gaps, members = gaps_of("tails", 32, n=200)
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    logits = np.column_stack([np.zeros(200), gaps[0] + 3]) * (2 * labels[:, None] - 1)
    audit = mw.Audit.from_arrays(
        labels,
        rng.normal(size=(200, 3)),
        logits=logits,
        final_logits=logits,
        shadow_gaps=gaps[1:],
        shadow_members=members[1:],
    )
    eta = float(audit.log_lira().quantile(0.8))
    assert any(
        "heavy tails" in note for note in audit.evaluate("loss", eta=eta).warnings
    )
    with pytest.warns(UserWarning, match="heavy tails"):
        audit.probability_memorized(eta)


@pytest.mark.parametrize("m", [8, 16])  # 4 and 8 a side
def test_the_kurtosis_is_that_of_sides_with_a_spread(m):
    gaps, members = gaps_of("tails", m, n=40)
    flat = int(np.flatnonzero(members[0])[0])
    gaps[members[:, flat], flat] = 1.0  # on one side alone
    gaps[:, flat + 1] = 2.0
    sides = [
        column[side]
        for column, mask in zip(gaps.T, members.T, strict=True)
        for side in (mask, ~mask)
        if np.ptp(column[side])
    ]
    values = kurtosis(sides, axis=1, bias=False)
    expected = values.mean(), values.std(ddof=1) / np.sqrt(len(values))
    assert len(sides) == 77
    assert excess_kurtosis(gaps, members) == pytest.approx(expected)
