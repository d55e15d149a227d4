"""How probable it is that a sample is truly memorised: empirical Bayes over all members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import rankdata

from memowidgets.memorization.gaps import Floats

_TRUE_VALUES = 200  # on the grid of the prior
_OBSERVED = 600  # bins of the observed values, which bound the work for any number of samples
_BINS, _SMALLEST_BIN = 10, 50  # of the score
_STEPS_IN_A_BIN = 10
_STEPS = 30  # of EM: few leave the prior smoother than its maximum-likelihood fit
_BANDWIDTH = 0.5  # of arsinh(log-LiRA): half of a large value's size
_FREEDOM = 3.0  # of Student's t: log-LiRA's noise has longer tails than a Gaussian
_LEAST_ERROR = 1e-3  # of the typical one


def probability_memorized(
    log_lira: ArrayLike,
    errors: ArrayLike,
    eta: float = 4.0,
    score: ArrayLike | None = None,
) -> Floats:
    """How probable it is that the true log-LiRA of each sample is at least η.

    The true value is what infinitely many shadow models would give. Few shadow models make large
    values by chance, and memorised samples are rare, so most samples just above η are not truly
    memorised. The share of true values at each height is estimated from all samples together, and
    each sample's probability follows from it by Bayes' rule.

    Parameters
    ----------
    log_lira, errors : (n_samples,) array_like
        As `log_lira` returns them with ``return_std=True``, in nats: all members of one audit.
        Some hundred are needed to know how rare large values are.
    eta : float
        A sample is memorised from this log-LiRA on.
    score : (n_samples,) array_like, optional
        A score of each sample that owes nothing to the shadow models, such as PSMI or the loss.
        How rare large true values are is then estimated along the score, in up to ten groups of
        equal size. Give the score that is evaluated against these probabilities: without it every
        doubtful sample has the same label whatever its score, which draws the AUC towards 1/2.

    Returns
    -------
    (n_samples,) float64
        From 0 to 1; their sum is the expected number of memorised samples. NaN where either is
        NaN; 0 or 1 for a sample whose error is 0.

    Raises
    ------
    ValueError
        Shapes differ, an error is negative, η is NaN, or a score is not finite.

    Notes
    -----
    The observed value x is taken as the true value θ plus noise of Student's t distribution with
    three degrees of freedom: with few shadow models the noise has long tails. Its scale depends
    on θ alone and is the root mean square of the jackknife errors of samples with x near θ. A
    sample's own error is too noisy, and tied to its own x, to be used directly. The distribution
    of θ has no parametric form: it is fitted by EM on a grid (the nonparametric maximum
    likelihood of Kiefer and Wolfowitz), stopped after a fixed number of steps, which keeps it
    smooth. `tests/memorization/test_posterior.py` holds the result against simulated truth, where
    Φ((x − η) / error), an obvious alternative, is too sure of large values.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> true = np.append(np.zeros(970), np.full(30, 9.0))
    >>> observed = true + rng.normal(size=1000)
    >>> probability = probability_memorized(observed, np.ones(1000))
    >>> round(probability.sum()), bool(probability[:970].max() < 0.01)
    (27, True)
    """
    values, spread = np.asarray(log_lira, np.float64), np.asarray(errors, np.float64)
    if values.shape != spread.shape:
        raise ValueError(
            "log_lira and errors must have the same shape, but have "
            f"{values.shape} and {spread.shape}"
        )
    if (spread < 0).any() or np.isnan(eta):
        raise ValueError("errors must be 0 or more and eta a number")
    groups = _groups(score, values.shape)
    found = np.where(np.isnan(values) | np.isnan(spread), np.nan, (values >= eta).astype(float))
    doubtful = np.isfinite(values) & np.isfinite(spread) & (spread > 0)
    if doubtful.any():
        given = values[doubtful], spread[doubtful], groups[doubtful]
        found[doubtful] = _posterior(*given, eta)
    return found


def _groups(score: ArrayLike | None, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Samples of similar score, from 0; all in one group without a score."""
    if score is None:
        return np.zeros(shape, dtype=np.int64)
    given = np.asarray(score, np.float64)
    if given.shape != shape or not np.isfinite(given).all():
        raise ValueError("score must hold one finite number for each sample")
    bins = max(1, min(_BINS, given.size // _SMALLEST_BIN))
    return np.asarray((rankdata(given) - 1) * bins // max(given.size, 1), dtype=np.int64)


@dataclass(frozen=True)
class _Observed:
    """Values in bins of arsinh(log-LiRA), and the true values on a grid of the same.

    Attributes
    ----------
    heights : (n,) float64
        arsinh of each value.
    centres : (bins,) float64
        Of the bins.
    of_value : (n,) int64
        The bin of each value.
    true : (grid,) float64
        Log-LiRA on the grid.
    likelihood : (bins, grid) float64
        Of each bin's centre given each true value, up to a factor by bin.
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
        of_value = np.searchsorted(edges, heights, side="right").clip(1, _OBSERVED) - 1
        counts = np.bincount(of_value, minlength=_OBSERVED)
        squares = np.bincount(of_value, errors**2, minlength=_OBSERVED).astype(np.float64)
        grid = np.linspace(edges[0], edges[-1], _TRUE_VALUES)
        spread = _smoothed(grid, centres, counts, squares)
        distance = (np.sinh(centres)[:, None] - np.sinh(grid)) / spread
        log_density = -(_FREEDOM + 1) / 2 * np.log1p(distance**2 / _FREEDOM) - np.log(spread)
        likelihood = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        return cls(heights, centres, of_value, np.sinh(grid), likelihood)

    def prior(self, start: Floats, steps: int, rows: NDArray[np.bool_]) -> Floats:
        """Distribution of the true values of some samples, by EM from another one."""
        counts = np.bincount(self.of_value[rows], minlength=_OBSERVED)
        some, found = counts > 0, start
        likelihood, observed = self.likelihood[some], counts[some] / counts.sum()
        for _ in range(steps):
            found = found * (likelihood.T @ (observed / (likelihood @ found)))
        return found

    def above(self, eta: float, prior: Floats, rows: NDArray[np.bool_]) -> Floats:
        """Probability of a true value of at least η, for some samples; it rises with log-LiRA."""
        counts = np.bincount(self.of_value[rows], minlength=_OBSERVED).astype(np.float64)
        some = counts > 0
        weights = self.likelihood[some] * prior
        high = weights[:, self.true >= eta].sum(axis=1)
        low = weights[:, self.true < eta].sum(axis=1)
        rising = isotonic_regression(high / (high + low), weights=counts[some]).x
        return np.asarray(np.interp(self.heights[rows], self.centres[some], rising))


def _posterior(values: Floats, errors: Floats, groups: NDArray[np.int64], eta: float) -> Floats:
    """Probability of a true value of at least η, by a prior of all samples, fitted on by group."""
    observed = _Observed.of(values, errors)
    everybody = np.ones(len(values), dtype=np.bool_)
    uniform = np.full(_TRUE_VALUES, 1 / _TRUE_VALUES)
    shared = observed.prior(uniform, _STEPS, everybody)
    names = np.unique(groups)
    if len(names) == 1:
        return observed.above(eta, shared, everybody)
    found = np.empty(len(values))
    for name in names:
        rows = groups == name
        found[rows] = observed.above(eta, observed.prior(shared, _STEPS_IN_A_BIN, rows), rows)
    return found


def _smoothed(at: Floats, centres: Floats, counts: NDArray[Any], squares: Floats) -> Floats:
    """Root mean square of the errors of the samples near each height."""
    distance = (at[:, None] - centres[counts > 0]) / _BANDWIDTH
    near = -0.5 * distance**2
    near = np.exp(near - near.max(axis=1, keepdims=True))
    mean = (near @ squares[counts > 0]) / (near @ counts[counts > 0])
    typical = squares.sum() / counts.sum()
    return np.asarray(np.sqrt(np.maximum(mean, _LEAST_ERROR**2 * typical)))
