"""What the gaps of one side say of a density, against drawn truths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from memowidgets.memorization.densities import Density

GAPS, MEAN, MODELS, VARIANCE = np.array([0.5, 4.0]), 1.0, 3.0, 2.0


def known(freedom):
    every = MEAN, MODELS, np.nan, VARIANCE, freedom
    return Density(*(np.full(2, value) for value in every))


@pytest.mark.parametrize("freedom", [7.0, np.inf])
def test_the_log_density_has_the_moments_of_drawn_truths(freedom):
    rng, times = np.random.default_rng(0), (400_000, 1)
    variance = np.full(times, VARIANCE)
    if np.isfinite(freedom):
        variance *= freedom / rng.chisquare(freedom, size=times)
    drawn = norm.logpdf(GAPS, rng.normal(MEAN, np.sqrt(variance / MODELS)), np.sqrt(variance))
    mean, spread = known(freedom).log_known(GAPS)
    np.testing.assert_allclose(mean, drawn.mean(axis=0) + 0.5 * np.log(2 * np.pi), rtol=0.02)
    np.testing.assert_allclose(spread, drawn.var(axis=0), rtol=0.03)
