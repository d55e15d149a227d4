"""What must hold of PSMI for any data (hypothesis)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memowidgets.metrics import PSMI
from tests.metrics import reference

worlds = st.builds(
    reference.made,
    n=st.integers(30, 90),
    d=st.integers(2, 12),
    n_classes=st.sampled_from([2, 3]),
    seed=st.integers(0, 10_000),
    separation=st.floats(0.5, 4),
    decay=st.floats(0, 1),
)
few = settings(max_examples=15, deadline=None, derandomize=True)


def scores_of(X, y, m=128, method="control-variates"):
    return PSMI(m, method).fit(X, y).score_samples(X, y)


@few
@given(worlds)
def test_sign_does_not_matter(world):
    X, y = world
    np.testing.assert_allclose(scores_of(-X, y), scores_of(X, y), atol=1e-4)


@few
@given(worlds, st.integers(0, 1000))
def test_order_of_samples_and_names_and_order_of_classes_do_not_matter(world, seed):
    X, y = world
    order = np.random.default_rng(seed).permutation(len(y))
    expected = scores_of(X, y, method="plain")[order]
    renamed = np.array(["z", "m", "a"])[y[order]]
    np.testing.assert_allclose(scores_of(X[order], renamed, method="plain"), expected, atol=1e-4)


@few
@given(worlds)
def test_order_of_features_does_not_bias(world):
    X, y = world
    one, error = PSMI(512).fit(X, y).score_samples(X, y, return_std=True)
    other, other_error = PSMI(512).fit(X[:, ::-1], y).score_samples(X[:, ::-1], y, return_std=True)
    assert np.mean(np.abs(one - other) < 4 * np.hypot(error, other_error) + 1e-3) > 0.9


@few
@given(worlds)
def test_more_directions_do_not_bias(world):
    X, y = world
    expected = reference.psmi(X, y, reference.directions(5_000, X.shape[1], seed=11))
    for m in (128, 512):
        found, error = PSMI(m).fit(X, y).score_samples(X, y, return_std=True)
        assert np.mean(np.abs(found - expected) < 4 * error + 0.02) > 0.9


@few
@given(worlds)
def test_rows_that_are_repeated_score_the_same(world):
    X, y = world
    twice = scores_of(np.concatenate([X, X]), np.concatenate([y, y]), method="plain")
    np.testing.assert_allclose(twice[: len(y)], twice[len(y) :], atol=1e-6)
    np.testing.assert_allclose(twice[: len(y)], scores_of(X, y, method="plain"), atol=1e-4)


@few
@given(worlds)
def test_mirrored_data_score_the_same_on_both_sides(world):
    X, y = world
    both = np.concatenate([X - X.mean(axis=0), X.mean(axis=0) - X])
    scores = scores_of(both, np.concatenate([y, y]), method="plain")
    np.testing.assert_allclose(scores[: len(y)], scores[len(y) :], atol=1e-4)
