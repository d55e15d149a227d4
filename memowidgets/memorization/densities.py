"""The two densities of LiRA: their variances, ratio and errors, and whether gaps are Gaussian."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import betaln, digamma, polygamma

from memowidgets.checks import warn_user
from memowidgets.cores import one_thread_each
from memowidgets.memorization.gaps import (
    Floats,
    GapMoments,
    Mask,
    Side,
    checked_models,
    moments,
)
from memowidgets.vocabulary import Note

VARIANCES = ("per-sample", "global", "shrunk")
FEWEST_MODELS = 8  # models on a side for a reliable per-sample variance
FLOOR = 1e-6  # relative to the pooled variance
_FIT_ON = 5_000  # samples; enough to fit the two numbers of the prior
FEWEST_GAPS = 4  # of a sample on a side, for its kurtosis
_FEWEST_KURTOSES = 30
# of a mean excess kurtosis that is named: its least size, and that in standard errors
_PLAIN = 0.3
_SURE = 4.0


def check_variance(variance: object) -> None:
    """Raise if a variance is unknown."""
    if variance not in VARIANCES:
        valid = ", ".join(map(repr, VARIANCES))
        raise ValueError(f"unknown variance {variance!r}; valid are {valid}")


def fitted_prior(side: Side) -> tuple[float, float] | None:
    """Return degrees of freedom (> 2) and scale of the prior, by marginal likelihood.

    Given the prior, squares / (count − 1) is the scale times an F-distributed variable. The
    result is None if no sample has two models that differ.
    """
    usable = (side.count > 1) & (side.squares > 0)
    if not usable.any():
        return None
    step = -(-int(usable.sum()) // _FIT_ON)
    own = side.count[usable][::step] - 1  # degrees of freedom of a sample's own squares
    squares = side.squares[usable][::step]
    typical = squares.sum() / own.sum()

    # of log(freedom - 2) and of the logarithm of the scale in units of the typical one, so that
    # every pair of real numbers is a prior
    def minus_log_likelihood(parameters: Floats) -> tuple[float, Floats]:
        above, scale = np.exp(parameters)
        freedom = 2 + above
        odds = squares / (freedom * typical * scale)
        total = own + freedom
        log_share = np.log1p(odds)
        constant = betaln(own / 2, freedom / 2)
        terms = own / 2 * np.log(odds) - total / 2 * log_share - constant
        by_scale = total / 2 * odds / (1 + odds) - own / 2
        by_constant = (digamma(total / 2) - digamma(freedom / 2) - log_share) / 2
        by_freedom = by_scale / freedom + by_constant
        gradient = np.array([above * by_freedom.mean(), by_scale.mean()])
        return float(-terms.mean()), -gradient

    start = [1.0, -0.5]
    bounds = [(-4.0, 9.0), (-20.0, 5.0)]
    with one_thread_each():  # with two parameters, threads only wait for each other
        best = minimize(minus_log_likelihood, start, jac=True, bounds=bounds).x
    above, scale = np.exp(best)
    return 2 + float(above), float(typical * scale)


@dataclass(frozen=True)
class Density:
    """Gaussian of each sample's gaps on one side, and what is known of its variance.

    Attributes
    ----------
    mean, count : (n,) float64
        Mean gap, and the number of models.
    variance : (n,) float64
        Variance of the Gaussian.
    scale, freedom : (n,) float64
        Scale of the variance's posterior, a scaled inverse χ², and its degrees of freedom, which
        are infinite for a variance that all samples share.
    """

    mean: Floats
    count: Floats
    variance: Floats
    scale: Floats
    freedom: Floats

    @classmethod
    def fit(cls, side: Side, variance: str, least: float) -> Density:
        """Estimate the variances of a side, from all its samples; none is below `least`."""

        def ratio(squares: Floats, n: Floats) -> Floats:
            """Return a variance, which is not defined where n is 0 or less."""
            return np.maximum(squares / np.where(n > 0, n, 1), least)

        if variance == "per-sample":
            freedom = side.count - 1
            own = ratio(side.squares, side.count)  # ddof = 0, as in the paper
            scale = ratio(side.squares, freedom)
            return cls(side.mean, side.count, own, scale, freedom)
        prior = fitted_prior(side) if variance == "shrunk" else None
        if prior is None:
            mean_square = float(side.squares.sum() / max(side.count.sum(), 1.0))
            shared = np.full_like(side.squares, max(mean_square, least))
            unbounded = np.full_like(side.squares, np.inf)
            return cls(side.mean, side.count, shared, shared, unbounded)
        prior_freedom, prior_scale = prior
        squares = prior_freedom * prior_scale + side.squares
        freedom = prior_freedom + side.count - 1
        # the mean of a scaled inverse χ² is its sum of squares over its freedom − 2
        posterior_mean = ratio(squares, freedom - 2)
        scale = ratio(squares, freedom)
        return cls(side.mean, side.count, posterior_mean, scale, freedom)

    def log_of(self, gaps: Floats) -> Floats:
        """Return the log density of each gap, without the constant that cancels."""
        square = (gaps - self.mean) ** 2 / self.variance
        return np.asarray(-0.5 * (np.log(self.variance) + square))

    def log_posterior(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the same by the posterior of its mean and variance."""
        square = (gaps - self.mean) ** 2 / self.scale
        half = self.freedom / 2
        # a side without models divides by 0, and is not defined
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = digamma(half) - np.log(
                half
            )  # of the mean log of a scaled inverse χ²
            shift = np.where(np.isfinite(half), shift, 0.0)
            mean = 0.5 * (shift - np.log(self.scale) - square - 1 / self.count)
            of_variance = (
                polygamma(1, half) / 4 + (square**2 / 2 - square) / self.freedom
            )
            of_mean = square / self.count + 0.5 / self.count**2
            variance = of_variance + of_mean
        return np.asarray(mean), np.asarray(variance)


@dataclass(frozen=True)
class Densities:
    """Gaussians of every sample, whose means are those of its own gaps.

    Attributes
    ----------
    inside, outside : Density
        Those of each side.
    defined : (n,) bool
        Samples that have enough models on each side.
    """

    inside: Density
    outside: Density
    defined: Mask

    @classmethod
    def fit(cls, inside: Side, outside: Side, variance: str) -> Densities:
        """Fit both sides; `check_sides` has seen `variance`."""
        squares = inside.squares.sum() + outside.squares.sum()
        pooled = squares / (inside.count.sum() + outside.count.sum())
        largest = max(np.abs(inside.mean).max(), np.abs(outside.mean).max(), 1e-100)
        # a Python float, because the square of a float32 would be 0 here
        resolution = float(np.finfo(np.float32).eps) * largest
        least = float(max(FLOOR * pooled, resolution**2))
        # a single gap has no variance of its own
        fewest = 2 if variance == "per-sample" else 1
        defined = np.minimum(inside.count, outside.count) >= fewest
        return cls(
            Density.fit(inside, variance, least),
            Density.fit(outside, variance, least),
            defined,
        )

    def ratio(self, gaps: Floats) -> Floats:
        """Return the log-LiRA of each sample's gap, NaN where it is not defined."""
        ratio = self.inside.log_of(gaps) - self.outside.log_of(gaps)
        return np.where(self.defined, ratio, np.nan)

    def errors(self, target: Floats) -> Floats:
        """Return the standard error of `ratio(target)`, NaN where that is not defined.

        It is the root mean square distance of `ratio` from what the true means and variances
        would give, which have the posterior that each side's gaps say.
        """
        inside, variance_inside = self.inside.log_posterior(target)
        outside, variance_outside = self.outside.log_posterior(target)
        distance = inside - outside - self.ratio(target)
        return np.asarray(np.sqrt(variance_inside + variance_outside + distance**2))


def check_sides(sides: GapMoments, variance: str) -> None:
    """Raise if the variance is unknown or no sample has two models on a side; warn of few."""
    check_variance(variance)
    inside = sides.inside.count
    outside = sides.outside.count
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


def excess_kurtosis(
    shadow_gaps: ArrayLike, shadow_members: ArrayLike
) -> tuple[float, float]:
    """Return the mean excess kurtosis of the gaps of a sample on one side, and its standard error.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gaps. Means and variances may differ between samples and sides.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether each shadow model trained on each sample.

    Returns
    -------
    (float, float)
        0 for Gaussian gaps, above 0 for heavy tails or a few far gaps, below 0 for two humps of
        similar size (−2 at the least). NaN with fewer than 30 sides of at least 4 different gaps.

    Notes
    -----
    The estimate of each sample and side is G₂ (Joanes and Gill 1998, The Statistician 47:183-189).
    It is unbiased for Gaussian gaps. With few gaps it is pulled towards 0 for others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(32)[:, None] % 2 == np.zeros(400)
    >>> for gaps in (rng.normal(size=(32, 400)), rng.standard_t(3, size=(32, 400))):
    ...     print(round(excess_kurtosis(gaps, members)[0], 1))
    -0.0
    2.1
    """
    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    sides = moments(gaps, members, "shadow_gaps")
    of_sides = []
    for side, present in ((sides.inside, members), (sides.outside, ~members)):
        away = np.where(present, gaps - side.mean, 0.0)
        fourth = (away**4).sum(axis=0)
        varies = (side.squares > 0) & ~sides.coinciding
        usable = varies & (side.count >= FEWEST_GAPS)
        n = side.count[usable]
        plain = n * fourth[usable] / side.squares[usable] ** 2 - 3
        unbiased = (n - 1) / ((n - 2) * (n - 3)) * ((n + 1) * plain + 6)
        of_sides.append(unbiased)
    every = np.concatenate(of_sides)
    if len(every) < _FEWEST_KURTOSES:
        return np.nan, np.nan
    error = every.std(ddof=1) / np.sqrt(len(every))
    return float(every.mean()), float(error)


def note_on_shape(shadow_gaps: ArrayLike, shadow_members: ArrayLike) -> Note | None:
    """Return a note if the gaps are plainly not Gaussian; None otherwise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(32)[:, None] % 2 == np.zeros(400)
    >>> note_on_shape(rng.normal(size=(32, 400)), members) is None
    True
    >>> humps = rng.choice([-2, 2], size=(32, 400)) + rng.normal(size=(32, 400))
    >>> note_on_shape(humps, members)[:50]
    'the logit gaps of shadow models form two humps (me'
    """
    mean, error = excess_kurtosis(shadow_gaps, shadow_members)
    if not abs(mean) >= max(_PLAIN, _SURE * error):
        return None
    shape = "have heavy tails" if mean > 0 else "form two humps"
    return Note(
        "not Gaussian",
        f"the logit gaps of shadow models {shape} (mean excess kurtosis {mean:.1f}, where Gaussian "
        "gaps have 0): log-LiRA and probabilities assume Gaussian gaps, and can be far from right",
        kurtosis=mean,
    )
