"""How many are truly memorised: the probability of each sample, behind log-LiRA and its errors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from memowidgets.checks import check_finite, real_number, real_numbers
from memowidgets.memorization.gaps import Floats, Mask

Ints = NDArray[np.int64]

_TRUE_VALUES = 200  # grid points of the prior
_OBSERVED = 600  # bins of observed values; bounds the work for many samples
# samples in the group with the lowest scores; each next one has twice as many
_SMALLEST = 50
_STEPS_IN_A_GROUP = 10
_STEPS = 30  # EM steps; stopping early keeps the prior smooth
_BANDWIDTH = 0.5  # in arsinh(log-LiRA), so half of a large value
_FREEDOM = 3.0  # degrees of freedom of Student's t: log-LiRA's noise has long tails
# of Student's t, relative to the standard errors around a value: see Notes
_SCALE = 0.8
_LEAST_ERROR = 1e-3  # relative to the typical error
_REDRAWN = 16  # times that labels are drawn from the mixture


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
        How rare large true values are is then estimated in groups of samples with similar scores:
        the 50 with the lowest ones, the 100 above them, and so on, each twice as large as the one
        before. Pass the score that you evaluate against these probabilities. Without it, an
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
    observed = _Observed.of(log_lira, errors, score)
    return observed.probability(real_number("eta", eta))


def redrawn_truths(
    log_lira: ArrayLike,
    errors: ArrayLike,
    eta: float = 4.0,
    score: ArrayLike | None = None,
) -> list[tuple[Mask, Floats]]:
    """Draw who is truly memorised, and say what `probability_memorized` would make of it.

    Each time, true values are drawn from the distribution that `probability_memorized` estimates,
    noise is added to them, and the probabilities are estimated anew from the sums. So the
    probabilities can be compared with the truth that they are about.

    Parameters
    ----------
    log_lira, errors, eta, score
        As for `probability_memorized`.

    Returns
    -------
    list of ((n_samples,) bool, (n_samples,) float64)
        16 draws with a fixed seed: who is truly memorised, and the probabilities. Both are False
        or NaN where an input is NaN.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> observed = np.append(np.zeros(970), np.full(30, 9.0)) + rng.normal(size=1000)
    >>> drawn = redrawn_truths(observed, np.ones(1000))
    >>> len(drawn), round(np.mean([truth.sum() for truth, _ in drawn]))
    (16, 28)
    """
    observed = _Observed.of(log_lira, errors, score)
    eta = real_number("eta", eta)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(_REDRAWN):
        true, observed_then = observed.redrawn(rng)
        draws.append((true >= eta, observed_then.probability(eta)))
    return draws


@dataclass(frozen=True, eq=False)
class _Observed:
    """Values with errors, and the mixture behind those that are in doubt.

    Attributes
    ----------
    values : (n,) float64
        NaN where nothing is known.
    doubtful : (n,) bool
        Which have an error.
    mixture : _Mixture or None
        None if no value has an error.
    """

    values: Floats
    doubtful: Mask
    mixture: _Mixture | None

    @classmethod
    def of(
        cls, log_lira: ArrayLike, errors: ArrayLike, score: ArrayLike | None
    ) -> _Observed:
        """Check all three, and fit the mixture."""
        values = real_numbers(log_lira, "log_lira").astype(np.float64)
        spread = real_numbers(errors, "errors").astype(np.float64)
        if values.shape != spread.shape:
            raise ValueError(
                "log_lira and errors must have the same shape, but have "
                f"{values.shape} and {spread.shape}"
            )
        if (spread < 0).any():
            raise ValueError("errors must be 0 or more")
        for name, one in (("log_lira", values), ("errors", spread)):
            there = np.where(np.isnan(one), 0.0, one)
            check_finite(there, name, "NaN stands for a missing value")
        groups = _groups(score, values.shape)
        values = np.where(np.isnan(spread), np.nan, values)
        doubtful: Mask = ~np.isnan(values) & (spread > 0)
        mixture = None
        if doubtful.any():
            noise = _Noise.of(values[doubtful], spread[doubtful])
            mixture = _Mixture.fit(noise, values[doubtful], groups[doubtful])
        return cls(values, doubtful, mixture)

    def probability(self, eta: float) -> Floats:
        """Return the probability of a true value of at least η; NaN where nothing is known."""
        sure = (self.values >= eta).astype(np.float64)
        probability = np.where(np.isnan(self.values), np.nan, sure)
        if self.mixture is not None:
            probability[self.doubtful] = self.mixture.probability(eta)
        return probability

    def redrawn(self, rng: np.random.Generator) -> tuple[Floats, _Observed]:
        """Return true values that are drawn, and what would be known of them."""
        true = self.values.copy()
        if self.mixture is None:
            return true, self
        true[self.doubtful], mixture = self.mixture.redrawn(rng)
        return true, replace(self, mixture=mixture)


@dataclass(frozen=True, eq=False)
class _Noise:
    """What is observed given a true value.

    Attributes
    ----------
    edges : (bins + 1,) float64
        Of the bins of observed values, in arsinh(log-LiRA).
    grid : (true values,) float64
        True values, in arsinh(log-LiRA).
    spread : (true values,) float64
        Scale of Student's t around each.
    likelihood : (bins, true values) float64
        Density at a bin's centre given each true value, up to a factor a bin.
    """

    edges: Floats
    grid: Floats
    spread: Floats
    likelihood: Floats

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> _Noise:
        """Estimate the noise from the errors of the samples near each value."""
        heights = np.arcsinh(values)
        edges = np.linspace(heights.min() - 1e-9, heights.max() + 1e-9, _OBSERVED + 1)
        centres = _centres(edges)
        grid = np.linspace(edges[0], edges[-1], _TRUE_VALUES)
        bins = np.searchsorted(edges, heights, side="right") - 1
        counts = np.bincount(bins, minlength=_OBSERVED)
        squares = np.bincount(bins, errors**2, minlength=_OBSERVED).astype(np.float64)
        spread = _smooth_errors(grid, centres, counts, squares) * _SCALE
        distance = (np.sinh(centres)[:, None] - np.sinh(grid)) / spread
        log_density = -(_FREEDOM + 1) / 2 * np.log1p(distance**2 / _FREEDOM)
        log_density = log_density - np.log(spread)
        # the largest of a bin is 1, so that none underflows
        likelihood = np.exp(log_density - log_density.max(axis=1, keepdims=True))
        return cls(edges, grid, spread, likelihood)


@dataclass(frozen=True, eq=False)
class _Mixture:
    """Distribution of the true values in each group of samples, and the noise around them.

    Attributes
    ----------
    noise : _Noise
    heights : (n,) float64
        Observed values, in arsinh(log-LiRA).
    bins : (n,) int64
        Bin of each.
    groups : (n,) int64
        Group of each.
    priors : (groups, true values) float64
        Probability of each true value in each group.
    """

    noise: _Noise
    heights: Floats
    bins: Ints
    groups: Ints
    priors: Floats

    @classmethod
    def fit(cls, noise: _Noise, values: Floats, groups: Ints) -> _Mixture:
        """Estimate the distributions by EM; those of groups start from the common one."""
        heights = np.arcsinh(values)
        at = np.searchsorted(noise.edges, heights, side="right") - 1
        bins = at.clip(0, _OBSERVED - 1)
        counts = np.bincount(bins, minlength=_OBSERVED)
        start = np.full(_TRUE_VALUES, 1 / _TRUE_VALUES)
        shared = _prior(noise.likelihood, counts, start, _STEPS)
        priors = np.tile(shared, (int(groups.max()) + 1, 1))
        if len(priors) > 1:
            for group in np.unique(groups):
                counts = np.bincount(bins[groups == group], minlength=_OBSERVED)
                steps = _STEPS_IN_A_GROUP
                priors[group] = _prior(noise.likelihood, counts, shared, steps)
        return cls(noise, heights, bins, groups, priors)

    def probability(self, eta: float) -> Floats:
        """Return the probability of a true value of at least η; it rises in each group."""
        probability = np.empty(len(self.heights))
        high = np.sinh(self.noise.grid) >= eta
        centres = _centres(self.noise.edges)
        for group in np.unique(self.groups):
            rows = self.groups == group
            counts = np.bincount(self.bins[rows], minlength=_OBSERVED)
            some = counts > 0
            weights = self.noise.likelihood[some] * self.priors[group]
            above = weights[:, high].sum(axis=1)
            below = weights[:, ~high].sum(axis=1)
            share = above / (above + below)
            rising = isotonic_regression(share, weights=counts[some]).x
            probability[rows] = np.interp(self.heights[rows], centres[some], rising)
        return probability

    def redrawn(self, rng: np.random.Generator) -> tuple[Floats, _Mixture]:
        """Return true values that are drawn, and the mixture that would be fitted to them."""
        up_to = np.cumsum(self.priors, axis=1)
        up_to /= up_to[:, -1:]
        uniform = rng.random(len(self.heights))
        places = np.empty_like(self.bins)
        for group in np.unique(self.groups):
            rows = self.groups == group
            places[rows] = np.searchsorted(up_to[group], uniform[rows], side="right")
        true = np.sinh(self.noise.grid[places])
        noise = self.noise.spread[places] * rng.standard_t(_FREEDOM, len(true))
        return true, _Mixture.fit(self.noise, true + noise, self.groups)


def _centres(edges: Floats) -> Floats:
    return np.asarray((edges[1:] + edges[:-1]) / 2)


def _groups(score: ArrayLike | None, shape: tuple[int, ...]) -> Ints:
    """Return groups of samples with similar scores, from 0; one group without a score.

    They are fine where scores are low, because most of the memorised samples are there.
    """
    if score is None:
        return np.zeros(shape, dtype=np.int64)
    scores = real_numbers(score, "score").astype(np.float64)
    if scores.shape != shape or not np.isfinite(scores).all():
        raise ValueError("score must hold one finite number for each sample")
    starts = [0]
    size = _SMALLEST
    while starts[-1] + 2 * size <= scores.size:  # what is left is no smaller
        starts.append(starts[-1] + size)
        size *= 2
    _, value, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts + 1) / 2  # of equal scores, from 0
    return np.searchsorted(starts, mean_rank[value], side="right") - 1


def _prior(
    likelihood: Floats, counts: NDArray[Any], start: Floats, steps: int
) -> Floats:
    """Return the distribution of true values behind the counts of the bins, by EM from a start."""
    some = counts > 0
    seen = likelihood[some]
    shares = counts[some] / counts.sum()
    prior = start
    for _ in range(steps):
        surprise = shares / (seen @ prior)
        prior = prior * (seen.T @ surprise)
    return prior


def _smooth_errors(
    at: Floats, centres: Floats, counts: NDArray[Any], squares: Floats
) -> Floats:
    """Return the root mean square of the errors of the samples near each height."""
    some = counts > 0
    distance = (at[:, None] - centres[some]) / _BANDWIDTH
    log_weight = -0.5 * distance**2
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    mean = (weight @ squares[some]) / (weight @ counts[some])
    typical = squares.sum() / counts.sum()
    return np.asarray(np.sqrt(np.maximum(mean, _LEAST_ERROR**2 * typical)))
