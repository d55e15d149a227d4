"""Both sides of a sample together: how likely its true log-LiRA is at least η."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.special import ndtr

from memowidgets.memorization.density import log_density
from memowidgets.memorization.gaps import Floats, Mask, Models
from memowidgets.memorization.hierarchical import Hierarchical, Posterior, in_order

FEWEST_MODELS = 6  # with fewer, too little is left when two are left out
_PAIRS, _MODELS = 16, 32  # that are left out
_SAMPLES = 5_000  # enough for three numbers
_HIGHEST = 0.95
_SEED = 0
_DRAWS = 7  # log2 of the number of quasi-random draws
_BLOCK = 4096  # samples per step


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
        normal, shares = norm.ppf(draws[:, :1]), (draws[:, 1], draws[:, 2])
        found = np.empty(len(target))
        for start in range(0, len(target), _BLOCK):
            part = slice(start, start + _BLOCK)
            found[part] = _by_draws(self.at(part), target[part], eta, normal, shares)
        return found


def _by_draws(
    joint: Joint, gap: Floats, eta: float, normal: Floats, shares: tuple[Floats, Floats]
) -> Floats:
    seen = joint.inside.seeing(gap)
    within = np.maximum(_drawn(seen, shares[0]), joint.least)
    without = np.maximum(_drawn(joint.outside, shares[1]), joint.least)
    mean = seen.mean + np.sqrt(within / seen.strength) * normal
    # log-LiRA is at least η where the gap is this many deviations from the outside mean
    squared = 2 * (eta - log_density(gap, mean, within)) - np.log(without)
    far = np.sqrt(np.maximum(squared, 0.0) * without)
    centre, spread = joint.outside_given(mean, within, without)
    beyond = ndtr((gap - far - centre) / spread) + ndtr((centre - gap - far) / spread)
    return np.asarray(np.where(squared <= 0, 1.0, beyond).mean(axis=0))


def _drawn(of: Posterior, shares: Floats) -> Floats:
    """Return quantiles of each sample's variance, (n_draws, n)."""
    from scipy.stats import chi2

    freedoms, which = np.unique(of.freedom, return_inverse=True)
    table: Floats = np.asarray(chi2.ppf(shares[:, None], freedoms))
    return np.asarray(of.squares / table[:, which])
