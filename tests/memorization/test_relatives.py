"""Attack success, counterfactual memorisation and RMIA against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.memorization import (
    attack_success_rate,
    counterfactual,
    rmia,
)
from tests.memorization.test_lira import VARIANCES, by_scipy, halves, made


def by_definition(gaps, members, target, population, gamma):
    likelihood, own = 1 / (1 + np.exp(-gaps)), 1 / (1 + np.exp(-target))
    general = [
        (p[~m].mean() + p[m].mean()) / 2
        for p, m in zip(likelihood.T, members.T, strict=True)
    ]
    ratio = own / np.array(general)
    found = []
    for x in range(len(target)):
        others = [z for z in np.flatnonzero(population) if z != x]
        found.append(np.mean([ratio[x] / ratio[z] >= gamma for z in others]))
    return found


def attacked(gaps, members):
    right = np.zeros(gaps.shape)
    for model in range(len(gaps)):
        rest = np.arange(len(gaps)) != model
        ratio = by_scipy(gaps[rest], members[rest], gaps[model])
        right[model] = (ratio > 0) == members[model]
    return right.mean(axis=0)


def test_attack_leaves_the_attacked_model_out():
    gaps, members, _ = made(m=20, n=30)
    np.testing.assert_allclose(
        attack_success_rate(gaps, members), attacked(gaps, members)
    )


def test_attack_has_no_rate_without_both_sides():
    gaps, members, _ = made(m=20, n=5)
    members[:, 0], members[:, 1] = True, False
    for found in (attack_success_rate(gaps, members), counterfactual(gaps, members)):
        assert np.flatnonzero(np.isnan(found)).tolist() == [0, 1]


def test_counterfactual_is_a_difference_of_means():
    gaps, members, _ = made(n=4)
    expected = [
        g[m].mean() - g[~m].mean() for g, m in zip(gaps.T, members.T, strict=True)
    ]
    np.testing.assert_allclose(counterfactual(gaps, members), expected)


def test_attack_on_noise_is_a_coin_toss():
    rng = np.random.default_rng(1)
    gaps, members = rng.normal(size=(64, 4000)), halves(rng, 64, 4000)
    for variance in VARIANCES:
        rate = attack_success_rate(gaps, members, variance)
        error = rate.std() / np.sqrt(len(rate))
        assert abs(rate.mean() - 0.5) < 3 * error + 0.002


@pytest.mark.parametrize("gamma", [0.7, 1.0, 1.1, 1.5])
def test_rmia_is_the_formula(gamma):
    gaps, members, target = made(m=20, n=60)
    for population in (np.arange(60) % 3 == 0, np.ones(60, dtype=bool)):
        expected = by_definition(gaps, members, target, population, gamma)
        given = None if population.all() else population
        np.testing.assert_allclose(rmia(gaps, members, target, given, gamma), expected)


def test_an_rmia_needs_a_model_on_each_side():
    gaps, members, target = made(m=20, n=60)
    members[:, :3] = np.arange(20)[:, None] < [0, 19, 20]
    assert np.flatnonzero(np.isnan(rmia(gaps, members, target))).tolist() == [0, 2]


def test_far_gaps_have_an_rmia():
    gaps, members, target = made(m=20, n=60)
    target[:2], gaps[:, 3] = [1e5, -1e5], -1e5
    found = rmia(gaps, members, target)
    assert np.isfinite(found).all()
    assert found[0] > found[1]


def test_an_attack_needs_enough_models_on_each_side():
    for m, inside in ((4, 2), (5, 3), (5, 2)):  # of 5, one side alone could be attacked
        gaps, members, _ = made(m=m, n=9)
        members[:] = np.arange(m)[:, None] < inside
        with (
            pytest.warns(UserWarning, match="shrunk"),
            pytest.raises(ValueError, match="too few"),
        ):
            attack_success_rate(gaps, members, "per-sample")
    assert np.isfinite(attack_success_rate(gaps, members, "shrunk")).all()
