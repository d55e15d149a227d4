"""How many models memorised a sample, against a slow loop over `log_lira`."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.memorization import log_lira, support


def made(m: int = 24, n: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gaps and members of `m` models; a third of the samples is memorised more or less."""
    rng = np.random.default_rng(seed)
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    effect = np.where(np.arange(n) % 3 == 0, rng.uniform(2, 8, n), 0.0)
    return rng.normal(3.0, 1.0, (m, n)) + effect * members, members


def slowly(gaps: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Log-LiRA of each model as the target, NaN for what it did not train on."""
    found = np.full(gaps.shape, np.nan)
    for model, own in enumerate(members):
        others = np.arange(len(gaps)) != model
        shadows = gaps[others][:, own], members[others][:, own]
        found[model, own] = log_lira(*shadows, gaps[model, own], "shrunk")
    return found


def test_it_is_a_loop_over_log_lira_to_the_ninth_digit():
    gaps, members = made()
    slow = slowly(gaps, members)
    found = support(gaps, members)
    np.testing.assert_array_equal(found.memorized, (slow >= 4).sum(axis=0))
    np.testing.assert_array_equal(found.per_model, (slow >= 4).sum(axis=1))
    np.testing.assert_array_equal(found.models, members.sum(axis=0))
    assert found.memorized.sum() == found.per_model.sum() > 50
    near = slow[np.abs(slow - 4) < 3]
    for value in near[:4]:  # just below a value it counts, just above it does not
        below, above = (
            support(gaps, members, value + by).memorized.sum() for by in (-1e-9, 1e-9)
        )
        assert (below, above) == ((slow >= value).sum(), (slow > value).sum())


def test_below_nine_models_a_side_there_is_no_count():
    gaps, members = made(m=20)
    members[:, 0] = np.arange(20) < 8
    members[:, 1] = np.arange(20) < 9
    members[:, 2] = np.arange(20) < 12
    members[:, 3] = True
    found = support(gaps, members)
    assert np.isnan(found.memorized[[0, 2, 3]]).all()
    assert np.isfinite(found.memorized[1])
    assert found.models[:4].tolist() == [8, 9, 12, 20]
    # fitted on all of them
    slow = slowly(gaps, members)[:, np.isfinite(found.memorized)]
    np.testing.assert_array_equal(found.per_model, (slow >= 4).sum(axis=1))
    for none in (support(*made(m=17)), support([[1.0, 2.0]], [[True, False]])):
        assert np.isnan(none.memorized).all()
        assert np.isnan(none.per_model).all()


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_how_many_truly_are_is_held_against_simulated_truth(share):
    """Where nothing is memorised, nearly all that counts passed η by chance."""
    rng, n, m = np.random.default_rng(1), 800, 24
    members = np.argsort(rng.random((m, n)), axis=0) < m // 2
    deviation = np.exp(rng.normal(0, 0.35, n))
    effect = deviation * np.where(rng.random(n) < share, 3.5, 0.2)
    gaps = rng.normal(size=(m, n)) * deviation + effect * members
    true = (gaps**2 - (gaps - effect) ** 2) / (2 * deviation**2) >= 4
    found = support(gaps, members)
    counted, truly = found.per_model.mean(), found.truly_per_model.mean()
    assert truly == pytest.approx((true & members).sum() / m, 0.2, 0.5)
    if not share:
        assert truly < counted / 2
    assert np.isnan(support(*made(m=17)).truly_per_model).all()


def test_equal_gaps_are_not_memorised():
    gaps, members = made()
    gaps[:, 0] = 7.0
    assert support(gaps, members).memorized[0] == 0
    assert support(gaps, members, 0).memorized[0] == members[:, 0].sum()
    assert support(np.full(gaps.shape, 7.0), members).memorized.sum() == 0
