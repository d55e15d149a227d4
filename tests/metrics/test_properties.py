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
    np.testing.assert_allclose(
        scores_of(X[order], renamed, method="plain"), expected, atol=1e-4
    )
