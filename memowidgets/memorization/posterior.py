"""Probability that a sample is truly memorised, in two ways.

Both estimate the same: the probability that log-LiRA from infinitely many shadow models is at least
η. One knows only the values and their errors, the other knows the shadow models' gaps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtr

from memowidgets.checks import check_finite, real_number, real_numbers
from memowidgets.memorization.densities import log_density
from memowidgets.memorization.gaps import Floats, Mask, Models
from memowidgets.memorization.hierarchical import Hierarchical, Posterior, in_order
from memowidgets.memorization.lira import Judged

_TRUE_VALUES = 200  # grid points of the prior
_OBSERVED = 600  # bins of observed values; bounds the work for many samples
_BINS, _SMALLEST_BIN = 10, 50  # number of groups by score, and their least size
_STEPS_IN_A_BIN = 10
_STEPS = 30  # EM steps; stopping early keeps the prior smooth
_BANDWIDTH = 0.5  # in arsinh(log-LiRA), so half of a large value
_FREEDOM = 3.0  # degrees of freedom of Student's t: log-LiRA's noise has long tails
_SCALE = 0.8  # of Student's t, relative to the standard errors around a value: see Notes
_LEAST_ERROR = 1e-3  # relative to the typical error
FEWEST_MODELS = 6  # with fewer, too little is left when two are left out
_PAIRS, _MODELS = 16, 32  # that are left out
_SAMPLES = 5_000  # enough for three numbers
_HIGHEST = 0.95
_SEED = 0
_DRAWS = 7  # log2 of the number of quasi-random draws
_BLOCK = 4096  # samples per step


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


def hierarchical_probability(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    eta: float = 4.0,
    *,
    early_gaps: ArrayLike | None = None,
    judged: ArrayLike | None = None,
) -> Floats:
    """Return the probability that each sample's true log-LiRA is at least η, from the gaps.

    This is the posterior probability under the model of ``log_lira(variance="hierarchical")``. It
    estimates the same as `probability_memorized`, which takes values and errors of any variance
    and assumes no form of the distribution, but does not know what the gaps of both sides say.

    Parameters
    ----------
    shadow_gaps, shadow_members, target_gaps, early_gaps, judged
        As in `log_lira`. The target must have trained on the judged samples.
    eta : float
        Threshold on log-LiRA from which on a sample is memorised.

    Returns
    -------
    (n_samples,) float64
        Probabilities from 0 to 1. Their sum is the expected number of memorised samples. NaN where
        log-LiRA is not defined.

    Raises
    ------
    ValueError, TypeError
        As `log_lira`, or if η is NaN.

    Notes
    -----
    The true log-LiRA is the one at the true means and variances of both sides, which have
    normal–inverse-gamma posteriors (see `log_lira`). The target trained on the sample, so its gap
    counts as one more gap inside. The prior says how rare large values are.

    What is unusual about a sample is so on both sides, so the errors of both means are correlated.
    From six shadow models on, the correlation is measured: two models at a time are left out, and
    their gaps are compared with the posteriors without them.

    The outside mean is integrated exactly, the other three parameters over 128 quasi-random draws
    with a fixed seed, so equal input gives equal output. The model assumes Gaussian gaps; `python
    -m benchmarks hierarchical` measures on recorded audits how far the probabilities are right.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> members = rng.random((16, 500)) < 0.5
    >>> effect = np.append(np.full(25, 5.0), np.zeros(475))
    >>> gaps = rng.normal(size=(16, 500)) + effect * members
    >>> probability = hierarchical_probability(gaps, members, effect)
    >>> bool(probability[:25].min() > 0.8), bool(probability[25:].max() < 0.1)
    (True, True)
    """
    eta = real_number("eta", eta)
    given = Judged.checked(
        shadow_gaps, shadow_members, target_gaps, "hierarchical", "online", early_gaps, judged
    )
    pool, fits = given.pool, given.fits
    assert isinstance(fits, Hierarchical)  # noqa: S101 - for the type checker
    assert isinstance(pool.fits, Hierarchical)  # noqa: S101
    together = correlation(pool.fits, pool.models)
    found = Joint(*fits.posteriors(), together, fits.least).probability(given.target, eta)
    found = np.where(given.equal, float(eta <= 0), found)
    return np.where(fits.defined, found, np.nan)


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
    return np.asarray(below * bins // max(given.size, 1), dtype=np.int64)


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
        of_value = np.searchsorted(edges, heights, side="right").clip(1, _OBSERVED) - 1
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
    """Return the root mean square of the errors of the samples near each height."""
    distance = (at[:, None] - centres[counts > 0]) / _BANDWIDTH
    near = -0.5 * distance**2
    near = np.exp(near - near.max(axis=1, keepdims=True))
    mean = (near @ squares[counts > 0]) / (near @ counts[counts > 0])
    typical = squares.sum() / counts.sum()
    return np.asarray(np.sqrt(np.maximum(mean, _LEAST_ERROR**2 * typical)))


def correlation(fits: Hierarchical, models: Models) -> float:
    """Return the correlation of the errors of both sides' means.

    What is unusual about a sample is so on both sides. To see by how much, two models at a time
    are left out, with the priors as they are. Their own noise is independent. So the product of
    their distances from the means is that of the means' errors, in expectation. It is measured
    with two models fewer than there are, and taken to fall as one over the number of models.

    Parameters
    ----------
    fits : Hierarchical
        Fits of the samples.
    models : Models
        What they were fitted to.
    """
    if len(models.gaps) < FEWEST_MODELS:
        return 0.0
    sums, counts = np.zeros(3), np.zeros(3)
    for products in _left_out(fits, models):
        sums += [part.sum() for part in products]
        counts += [part.size for part in products]
    if not counts.all():
        return 0.0
    inside, outside, both = sums / counts
    found = both / np.sqrt(max(inside, 1.0) * max(outside, 1.0))
    return float(np.clip(found, -_HIGHEST, _HIGHEST)) * (1 - 2 / len(models.gaps))


def _left_out(fits: Hierarchical, models: Models) -> Iterator[list[Floats]]:
    """Yield products of two models' distances: both inside, both outside, one on each side."""
    rows = in_order(fits.inside, fits.outside)
    rows = rows[:: max(1, -(-len(rows) // _SAMPLES))]
    some, few = fits.at(rows), models.at(rows)
    gaps = few.gaps.astype(np.float64)
    early = None if few.early is None else few.early.astype(np.float64)
    pairs = list(combinations(few.order(_SEED)[:_MODELS].tolist(), 2))
    for pair in pairs[:: -(-len(pairs) // _PAIRS)]:
        left = some
        for model in pair:
            own = None if early is None else early[model]
            left = left.without(gaps[model], few.members[model], own)
        yield _products(left, gaps[list(pair)], few.members[list(pair)])


def _products(left: Hierarchical, gaps: Floats, members: Mask) -> list[Floats]:
    """Return the products of a pair; `gaps` and `members` are (2, n), of its models."""
    away = []
    for one in left.posteriors():
        variance = np.maximum(one.squares / (one.freedom - 2), left.least)
        away.append((gaps - one.mean) / np.sqrt(variance / one.strength))
    inside, outside = away
    known = left.defined
    both, neither = known & members.all(axis=0), known & ~members.any(axis=0)
    first, second = known & members[0] & ~members[1], known & members[1] & ~members[0]
    return [
        inside[0, both] * inside[1, both],
        outside[0, neither] * outside[1, neither],
        np.append(inside[0, first] * outside[1, first], outside[0, second] * inside[1, second]),
    ]


@dataclass(frozen=True)
class Joint:
    """Posterior of both sides' means and variances; the errors of the means are correlated.

    Attributes
    ----------
    inside, outside : Posterior
        Of each side.
    correlation : float
        Of the errors of both means.
    least : float
        Least variance.
    """

    inside: Posterior
    outside: Posterior
    correlation: float
    least: float

    def at(self, columns: slice) -> Joint:
        """Return the posterior of some of the samples."""
        return replace(self, inside=self.inside.at(columns), outside=self.outside.at(columns))

    def outside_given(self, mean: Floats, within: Floats, without: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the outside mean.

        Parameters
        ----------
        mean, within : (…, n) float64
            Mean and variance inside.
        without : (…, n) float64
            Variance outside.
        """
        spread = np.sqrt(without / self.outside.strength)
        away = (mean - self.inside.mean) / np.sqrt(within / self.inside.strength)
        centre = self.outside.mean + self.correlation * spread * away
        return centre, spread * np.sqrt(1 - self.correlation**2)

    def probability(self, target: Floats, eta: float) -> Floats:
        """Return the probability that each sample's true log-LiRA is at least η.

        The target trained on each sample, so its own gap is one more gap inside. The outside mean
        is integrated exactly, the rest over quasi-random draws.
        """
        from scipy.stats import norm, qmc

        draws = qmc.Sobol(3, seed=_SEED).random_base2(_DRAWS)
        normal, one_side, other_side = norm.ppf(draws[:, :1]), draws[:, 1], draws[:, 2]
        found = np.empty(len(target))
        for start in range(0, len(target), _BLOCK):
            part = slice(start, start + _BLOCK)
            joint, gap = self.at(part), target[part]
            seen = joint.inside.seeing(gap)
            within = np.maximum(_drawn(seen, one_side), joint.least)
            without = np.maximum(_drawn(joint.outside, other_side), joint.least)
            mean = seen.mean + np.sqrt(within / seen.strength) * normal
            # log-LiRA is at least η where the gap is this many deviations from the outside mean
            squared = 2 * (eta - log_density(gap, mean, within)) - np.log(without)
            far = np.sqrt(np.maximum(squared, 0.0) * without)
            centre, spread = joint.outside_given(mean, within, without)
            beyond = ndtr((gap - far - centre) / spread) + ndtr((centre - gap - far) / spread)
            found[part] = np.where(squared <= 0, 1.0, beyond).mean(axis=0)
        return found


def _drawn(of: Posterior, shares: Floats) -> Floats:
    """Return quantiles of each sample's variance, (n_draws, n)."""
    from scipy.stats import chi2

    freedoms, which = np.unique(of.freedom, return_inverse=True)
    table: Floats = np.asarray(chi2.ppf(shares[:, None], freedoms))
    return np.asarray(of.squares / table[:, which])
