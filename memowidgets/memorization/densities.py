"""The two densities of LiRA: their variances, their ratio and its standard error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma, polygamma

from memowidgets.checks import warn_user
from memowidgets.cores import one_thread_each
from memowidgets.memorization.gaps import Floats, GapMoments, Mask, Side

Variance = Literal["per-sample", "global", "shrunk"]
FEWEST_MODELS = 8  # models on a side for a reliable per-sample variance
FLOOR = 1e-6  # relative to the pooled variance
_FIT_ON = 5_000  # samples; enough to fit the two numbers of the prior


def check_variance(variance: object) -> None:
    """Raise if a variance is unknown."""
    if not isinstance(variance, str) or variance not in get_args(Variance):
        known = ", ".join(map(repr, get_args(Variance)))
        raise ValueError(f"unknown variance {variance!r}; valid are {known}")


@dataclass(frozen=True)
class Estimate:
    """Estimated variance: (squares + prior squares) / (count + prior count), or one for all.

    Attributes
    ----------
    squares, count : float
        Prior information from the other samples: squared deviations of this many models.
    shared : float or None
        Common variance of all samples, or None.
    freedom : float
        Degrees of freedom of the prior.
    """

    squares: float = 0.0
    count: float = 0.0
    shared: float | None = None
    freedom: float = 0.0

    def of(self, side: Side) -> Floats:
        """Return each sample's variance on this side, before any floor."""
        if self.shared is not None:
            return np.full_like(side.squares, self.shared)
        squares, models = self.squares + side.squares, self.count + side.count
        none = np.zeros_like(side.squares)  # a sample without models has none, apart from rounding
        return np.asarray(np.divide(squares, models, out=none, where=models > 0))

    def posterior(self, side: Side) -> tuple[Floats, Floats]:
        """Return scale and degrees of freedom of what is known of each sample's variance.

        The scale is 0 where nothing is known. A common variance has infinite degrees.
        """
        if self.shared is not None:
            return np.full_like(side.squares, self.shared), np.full_like(side.squares, np.inf)
        freedom = self.freedom + side.count - 1
        none = np.zeros_like(side.squares)
        scale = np.divide(self.squares + side.squares, freedom, out=none, where=freedom > 0)
        return np.asarray(scale), freedom


def estimate(side: Side, variance: str) -> Estimate:
    """Return the estimate of this side's variances, fitted on all its samples."""
    if variance == "per-sample":
        return Estimate()
    prior = fitted_prior(side) if variance == "shrunk" else None
    if prior is None:
        return Estimate(shared=float(side.squares.sum() / max(side.count.sum(), 1.0)))
    freedom, scale = prior  # the posterior mean divides by count − 1 + freedom − 2
    return Estimate(squares=freedom * scale, count=freedom - 3, freedom=freedom)


def floor(inside: Side, outside: Side) -> float:
    """Return the least variance of either side: relative to the pooled one, and above 0."""
    squares = inside.squares.sum() + outside.squares.sum()
    within = squares / (inside.count.sum() + outside.count.sum())
    largest = max(np.abs(inside.mean).max(), np.abs(outside.mean).max(), 1e-100)
    rounding = (float(np.finfo(np.float32).eps) * largest) ** 2  # float32 would be 0 here
    return float(max(FLOOR * within, rounding))


def fitted_prior(side: Side) -> tuple[float, float] | None:
    """Return degrees of freedom (> 2) and scale of the prior, by marginal likelihood.

    Given the prior, squares / (count − 1) is the scale times an F-distributed variable. The
    result is None if no sample has two models that differ.
    """
    usable = (side.count > 1) & (side.squares > 0)
    if not usable.any():
        return None
    step = -(-int(usable.sum()) // _FIT_ON)
    seen = side.count[usable][::step] - 1
    squares = side.squares[usable][::step]
    typical = squares.sum() / seen.sum()

    def minus_log_likelihood(parameters: Floats) -> tuple[float, Floats]:
        above, scale = np.exp(parameters)
        freedom = 2 + above
        odds = squares / (freedom * typical * scale)
        both, log_share = seen + freedom, np.log1p(odds)
        terms = seen / 2 * np.log(odds) - both / 2 * log_share - betaln(seen / 2, freedom / 2)
        by_scale = both / 2 * odds / (1 + odds) - seen / 2
        by_freedom = by_scale / freedom + (digamma(both / 2) - digamma(freedom / 2) - log_share) / 2
        gradient = np.array([above * by_freedom.mean(), by_scale.mean()])
        return float(-terms.mean()), -gradient

    bounds = [(-4.0, 9.0), (-20.0, 5.0)]
    with one_thread_each():  # with two parameters, threads only wait for each other
        best = minimize(minus_log_likelihood, [1.0, -0.5], jac=True, bounds=bounds).x
    return 2 + float(np.exp(best[0])), float(typical * np.exp(best[1]))


@dataclass(frozen=True)
class Known:
    """What is known of the mean and variance of one side: normal–inverse-gamma.

    Attributes
    ----------
    mean, strength : (n,) float64
        Mean, and the number of gaps that it is worth (κ).
    variance, freedom : (n,) float64
        Scale of the variance, and its degrees of freedom (ν), which may be infinite.
    """

    mean: Floats
    strength: Floats
    variance: Floats
    freedom: Floats

    def log_density(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the log density of each gap."""
        square, strength = (gaps - self.mean) ** 2 / self.variance, self.strength
        with np.errstate(divide="ignore", invalid="ignore"):
            half, finite = self.freedom / 2, np.isfinite(self.freedom)
            shift = np.where(finite, digamma(half) - np.log(half), 0.0)
            mean = 0.5 * (shift - np.log(self.variance) - square - 1 / strength)
            variance = polygamma(1, half) / 4 + (square**2 / 2 - square) / self.freedom
            variance += square / strength + 0.5 / strength**2
        return np.asarray(mean), np.asarray(variance)


@dataclass(frozen=True)
class Densities:
    """Gaussians of every sample, whose means are those of its own gaps.

    Attributes
    ----------
    inside, outside : Side
        Moments of the gaps on each side.
    spread_in, spread_out : Estimate
        Estimates of each side's variances.
    least : float
        Least variance of either side.
    fewest : int
        Number of models that a side needs.
    """

    inside: Side
    outside: Side
    spread_in: Estimate
    spread_out: Estimate
    least: float
    fewest: int

    @classmethod
    def fit(cls, inside: Side, outside: Side, variance: str) -> Densities:
        """Fit both sides; `check_variance` has seen `variance`."""
        return cls(
            inside,
            outside,
            estimate(inside, variance),
            estimate(outside, variance),
            floor(inside, outside),
            2 if variance == "per-sample" else 1,  # a single gap has no variance of its own
        )

    def gaussians(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the mean and variance of each sample, inside and outside."""
        return (
            (self.inside.mean, np.maximum(self.spread_in.of(self.inside), self.least)),
            (self.outside.mean, np.maximum(self.spread_out.of(self.outside), self.least)),
        )

    def known(self) -> tuple[Known, Known]:
        """Return what each side's gaps and the prior of the variance say."""
        found = []
        pairs = (self.inside, self.spread_in), (self.outside, self.spread_out)
        for side, spread in pairs:
            variance, freedom = spread.posterior(side)
            found.append(Known(side.mean, side.count, np.maximum(variance, self.least), freedom))
        return found[0], found[1]

    @property
    def defined(self) -> Mask:
        """Samples that have enough models on each side."""
        return np.minimum(self.inside.count, self.outside.count) >= self.fewest

    def ratio(self, gaps: Floats) -> Floats:
        """Return the log-LiRA of each sample's gap, NaN where it is not defined."""
        inside, outside = self.gaussians()
        found = log_density(gaps, *inside) - log_density(gaps, *outside)
        return np.where(self.defined, found, np.nan)

    def errors(self, target: Floats) -> Floats:
        """Return the standard error of `ratio(target)`, NaN where that is not defined.

        It is the root mean square distance of `ratio` from what the true means and variances
        would give, which have the posterior that each side's gaps say.
        """
        value = self.ratio(target)
        (one, one_variance), (other, other_variance) = (
            side.log_density(target) for side in self.known()
        )
        return np.asarray(np.sqrt(one_variance + other_variance + (one - other - value) ** 2))


def check_sides(found: GapMoments, variance: str) -> None:
    """Raise if no sample has two models on each side; warn where a variance needs more."""
    inside, outside = found.inside.count, found.outside.count
    fewest = np.minimum(inside, outside)
    few = int(((fewest > 0) & (fewest < FEWEST_MODELS)).sum())
    if fewest.max() >= 2:
        if few and variance == "per-sample":
            warn_user(
                f"{few} of {len(fewest)} samples have fewer than {FEWEST_MODELS} shadow models "
                "inside or outside, so their per-sample variance is unreliable; use "
                'variance="shrunk"'
            )
        return
    best = int(fewest.argmax())
    raise ValueError(
        f"every sample has fewer than two shadow models on a side (the best, sample {best}, is in "
        f"{inside[best]:.0f} and out of {outside[best]:.0f}). Train more shadow models, each on a "
        "random half of the samples"
    )


def log_density(gaps: Floats, mean: Floats, variance: Floats) -> Floats:
    """Return the log of the Gaussian density, without the constant that cancels."""
    return np.asarray(-0.5 * (np.log(variance) + (gaps - mean) ** 2 / variance))
