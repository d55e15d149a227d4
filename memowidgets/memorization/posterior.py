"""Probability that a sample is truly memorised: that infinitely many shadow models would say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from memowidgets.checks import check_finite, real_number, real_numbers
from memowidgets.memorization.gaps import Floats

_TRUE_VALUES = 200  # grid points of the prior
_OBSERVED = 600  # bins of observed values; bounds the work for many samples
_BINS, _SMALLEST_BIN = 10, 50  # number of groups by score, and their least size
_STEPS_IN_A_BIN = 10
_STEPS = 30  # EM steps; stopping early keeps the prior smooth
_BANDWIDTH = 0.5  # in arsinh(log-LiRA), so half of a large value
_FREEDOM = 3.0  # degrees of freedom of Student's t: log-LiRA's noise has long tails
_SCALE = 0.8  # of Student's t, relative to the standard errors around a value: see Notes
_LEAST_ERROR = 1e-3  # relative to the typical error


def probability_memorized(
    log_lira: ArrayLike,
    errors: ArrayLike,
    eta: float = 4.0,
    score: ArrayLike | None = None,
) -> Floats:
    """Return the probability that each sample's true log-LiRA is at least η.

    The true value is the one that infinitely many shadow models would give. With few shadow
    models, some values are large by chance. Memorised samples are rare, so most samples just
    above η are not truly memorised. The distribution of the true values is estimated from all
    samples together, and each sample's probability follows from it by Bayes' rule.

    Parameters
    ----------
    log_lira, errors : (n_samples,) array_like
        Values for all members of one audit, as `log_lira` returns them with ``return_std=True``, in
        nats. A few hundred are needed to estimate how rare large values are.
    eta : float
        Threshold on log-LiRA from which on a sample is memorised.
    score : (n_samples,) array_like, optional
        Score of each sample that does not depend on the shadow models, such as PSMI or the loss.
        How rare large true values are is then estimated in up to ten groups of equal size, ordered
        by the score. Pass the score that you evaluate against these probabilities. Without it, an
        uncertain sample has the same probability whatever its score, which pulls the AUC towards ½.

    Returns
    -------
    (n_samples,) float64
        Probabilities from 0 to 1. Their sum is the expected number of memorised samples. NaN if
        either input is NaN, and 0 or 1 for a sample whose error is 0.

    Raises
    ------
    ValueError
        If shapes differ, an error is negative, a value or error is infinite, η is NaN, or a score
        is not finite.

    Notes
    -----
    The model is that the observed value x is the true value θ plus noise. The noise has Student's t
    distribution with three degrees of freedom, because it has long tails when shadow models are
    few. Its scale depends on θ alone: .8 times the root mean square of the errors of samples with x
    near θ. This factor was chosen by simulation at 8 to 32 models, and confirmed on other seeds. A
    sample's own error is not used directly: it is too noisy, and it depends on x. The distribution
    of θ is fitted without a parametric form, by EM on a grid (the nonparametric maximum likelihood
    of Kiefer and Wolfowitz). EM stops after a fixed number of steps, which keeps the result smooth.
    `tests/memorization/test_posterior.py` compares the probabilities with simulated truth, where
    the obvious alternative Φ((x − η) / error) gives too high probabilities to large values.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> true = np.append(np.zeros(970), np.full(30, 9.0))
    >>> observed = true + rng.normal(size=1000)
    >>> probability = probability_memorized(observed, np.ones(1000))
    >>> round(probability.sum()), bool(probability[:970].max() < 0.01)
    (28, True)
    """
    given = {"log_lira": log_lira, "errors": errors}
    values, spread = (real_numbers(one, name).astype(np.float64) for name, one in given.items())
    if values.shape != spread.shape:
        raise ValueError(
            "log_lira and errors must have the same shape, but have "
            f"{values.shape} and {spread.shape}"
        )
    if (spread < 0).any():
        raise ValueError("errors must be 0 or more")
    for name, one in (("log_lira", values), ("errors", spread)):
        check_finite(np.where(np.isnan(one), 0.0, one), name, "NaN stands for a missing value")
    eta = real_number("eta", eta)
    groups = _groups(score, values.shape)
    found = np.where(np.isnan(values) | np.isnan(spread), np.nan, (values >= eta).astype(float))
    doubtful = ~np.isnan(values) & (spread > 0)
    if doubtful.any():
        found[doubtful] = _posterior(values[doubtful], spread[doubtful], groups[doubtful], eta)
    return found


def _groups(score: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return groups of samples with similar scores, from 0; one group without a score."""
    if score is None:
        return np.zeros(shape, dtype=np.int64)
    given = real_numbers(score, "score").astype(np.float64)
    if given.shape != shape or not np.isfinite(given).all():
        raise ValueError("score must hold one finite number for each sample")
    bins = max(1, min(_BINS, given.size // _SMALLEST_BIN))
    _, value, equal = np.unique(given, return_inverse=True, return_counts=True)
    below = (np.cumsum(equal) - (equal + 1) / 2)[value]  # ties share their mean rank
    return np.asarray(below * bins // given.size, dtype=np.int64)


@dataclass(frozen=True)
class _Observed:
    """Values in bins of arsinh(log-LiRA), and a grid of true values on the same scale.

    Attributes
    ----------
    heights : (n,) float64
        arsinh of each value.
    centres : (bins,) float64
        Centres of the bins.
    of_value : (n,) int64
        Bin of each value.
    true : (grid,) float64
        Log-LiRA at the grid points.
    likelihood : (bins, grid) float64
        Likelihood of each bin's centre given each true value, up to a factor per bin.
    """

    heights: Floats
    centres: Floats
    of_value: NDArray[np.int64]
    true: Floats
    likelihood: Floats

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> _Observed:
        heights = np.arcsinh(values)
        edges = np.linspace(heights.min() - 1e-9, heights.max() + 1e-9, _OBSERVED + 1)
        centres = (edges[1:] + edges[:-1]) / 2
        of_value = np.searchsorted(edges, heights, side="right") - 1
        counts = np.bincount(of_value, minlength=_OBSERVED)
        squares = np.bincount(of_value, errors**2, minlength=_OBSERVED).astype(np.float64)
        grid = np.linspace(edges[0], edges[-1], _TRUE_VALUES)
        spread = _smoothed(grid, centres, counts, squares) * _SCALE
        distance = (np.sinh(centres)[:, None] - np.sinh(grid)) / spread
        log_density = -(_FREEDOM + 1) / 2 * np.log1p(distance**2 / _FREEDOM) - np.log(spread)
        likelihood = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        return cls(heights, centres, of_value, np.sinh(grid), likelihood)

    def prior(self, start: Floats, steps: int, rows: NDArray[np.bool_]) -> Floats:
        """Return the distribution of some samples' true values, by EM from a starting one."""
        counts = np.bincount(self.of_value[rows], minlength=_OBSERVED)
        some, found = counts > 0, start
        likelihood, observed = self.likelihood[some], counts[some] / counts.sum()
        for _ in range(steps):
            found = found * (likelihood.T @ (observed / (likelihood @ found)))
        return found

    def above(self, eta: float, prior: Floats, rows: NDArray[np.bool_]) -> Floats:
        """Return the probability of a true value of at least η, monotone in log-LiRA."""
        counts = np.bincount(self.of_value[rows], minlength=_OBSERVED).astype(np.float64)
        some = counts > 0
        weights = self.likelihood[some] * prior
        high = weights[:, self.true >= eta].sum(axis=1)
        low = weights[:, self.true < eta].sum(axis=1)
        rising = isotonic_regression(high / (high + low), weights=counts[some]).x
        return np.asarray(np.interp(self.heights[rows], self.centres[some], rising))


def _posterior(values: Floats, errors: Floats, groups: NDArray[np.int64], eta: float) -> Floats:
    """Return the probability of a true value of at least η; priors start from a common one."""
    observed = _Observed.of(values, errors)
    everybody = np.ones(len(values), dtype=np.bool_)
    shared = observed.prior(np.ones(_TRUE_VALUES), _STEPS, everybody)
    names = np.unique(groups)
    if len(names) == 1:
        return observed.above(eta, shared, everybody)
    found = np.empty(len(values))
    for name in names:
        rows = groups == name
        found[rows] = observed.above(eta, observed.prior(shared, _STEPS_IN_A_BIN, rows), rows)
    return found


def _smoothed(at: Floats, centres: Floats, counts: NDArray[Any], squares: Floats) -> Floats:
    """Return the root mean square of the errors of the samples near each height."""
    distance = (at[:, None] - centres[counts > 0]) / _BANDWIDTH
    near = -0.5 * distance**2
    near = np.exp(near - near.max(axis=1, keepdims=True))
    mean = (near @ squares[counts > 0]) / (near @ counts[counts > 0])
    typical = squares.sum() / counts.sum()
    return np.asarray(np.sqrt(np.maximum(mean, _LEAST_ERROR**2 * typical)))
