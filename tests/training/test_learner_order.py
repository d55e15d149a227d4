"""The order of an epoch in which texts of similar length are in the same batch."""

from __future__ import annotations

import numpy as np
import pytest

from memowidgets.training.learner import epoch_order


def shares_of_padding(order, lengths, size):
    batches = [lengths[order[i : i + size]] for i in range(0, len(order), size)]
    return 1 - lengths.sum() / sum(batch.max() * len(batch) for batch in batches)


@pytest.mark.parametrize("n", [1, 5, 16, 17, 100, 3000, 3007])
def test_every_sample_occurs_once_and_the_seed_decides_the_order(n):
    lengths = np.random.default_rng(0).geometric(0.05, size=2 * n)
    members = np.arange(0, 2 * n, 2)
    first, again = (epoch_order(members, lengths, 16, np.random.default_rng(3)) for _ in range(2))
    other = epoch_order(members, lengths, 16, np.random.default_rng(4))
    np.testing.assert_array_equal(np.sort(first), members)
    np.testing.assert_array_equal(first, again)
    assert n == 1 or (first != other).any()


def test_batches_have_samples_of_similar_length_and_are_not_in_order_of_length():
    lengths = np.random.default_rng(0).geometric(0.05, size=3000)
    order = epoch_order(np.arange(3000), lengths, 16, np.random.default_rng(0))
    plain = epoch_order(np.arange(3000), None, 16, np.random.default_rng(0))
    assert shares_of_padding(order, lengths, 16) < 0.1
    assert shares_of_padding(plain, lengths, 16) > 0.4
    means = lengths[order[:2992]].reshape(-1, 16).mean(axis=1)
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_the_last_smaller_batch_is_random():
    lengths = np.arange(1000)
    rests = [
        epoch_order(np.arange(1000), lengths, 16, np.random.default_rng(seed))[992:]
        for seed in range(50)
    ]
    assert abs(np.mean(rests) - 499.5) < 4 * 1000 / np.sqrt(12 * 400)


def test_without_lengths_the_order_is_that_of_earlier_versions():
    members = np.arange(100, 200)
    expected = np.random.default_rng(7).permutation(members)
    order = epoch_order(members, None, 16, np.random.default_rng(7))
    np.testing.assert_array_equal(order, expected)
