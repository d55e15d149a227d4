"""The two densities of LiRA, and their standard errors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, log_ndtr, polygamma

from memowidgets.memorization.gaps import Floats, Mask, Moments, Side
from memowidgets.memorization.variance import (
    FEWEST_MODELS,
    Estimate,
    estimate,
    fewest_models,
    floor,
)

Mode = Literal["online", "offline"]


@dataclass(frozen=True)
class Densities:
    """Fitted Gaussians of every sample.

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
    offline : bool
        Whether only the models outside are used.
    """

    inside: Side
    outside: Side
    spread_in: Estimate
    spread_out: Estimate
    least: float
    fewest: int
    offline: bool = False

    @classmethod
    def fit(cls, inside: Side, outside: Side, variance: str, mode: str = "online") -> Densities:
        """Fit both sides; the caller has checked `variance` and `mode`."""
        return cls(
            inside,
            outside,
            estimate(inside, variance),
            estimate(outside, variance),
            floor(inside, outside),
            fewest_models(variance),
            mode == "offline",
        )

    def at(self, rows: NDArray[np.int64]) -> Densities:
        """Return the fits of some of the samples."""
        return replace(self, inside=self.inside.at(rows), outside=self.outside.at(rows))

    @property
    def defined(self) -> Mask:
        """Samples that have enough models on each side that the mode needs."""
        enough = self.outside.count >= self.fewest
        return enough if self.offline else enough & (self.inside.count >= self.fewest)

    def gaussians(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """Return the mean and variance of each sample, inside and outside."""
        return (
            (self.inside.mean, np.maximum(self.spread_in.of(self.inside), self.least)),
            (self.outside.mean, np.maximum(self.spread_out.of(self.outside), self.least)),
        )

    def ratio(self, gaps: Floats) -> Floats:
        """Return the log-LiRA of each sample's gap, NaN where it is not defined."""
        found = self._outside(gaps, self.outside)
        if not self.offline:
            found = self._inside(gaps, self.inside) - found
        return np.where(self.defined, found, np.nan)

    def errors(self, target: Floats) -> Floats:
        """Return the standard error of `ratio(target)`, NaN where that is not defined.

        It is the root mean square distance of `ratio` from what the true means and variances
        would give, which have the posterior that each side's gaps say.
        """
        outside = Known(
            self.outside.mean, self.outside.count, *self._spread(self.outside, self.spread_out)
        )
        if self.offline:
            return np.where(self.defined, np.sqrt(outside.offline(target)[1]), np.nan)
        inside = Known(
            self.inside.mean, self.inside.count, *self._spread(self.inside, self.spread_in)
        )
        return distance(self.ratio(target), inside.online(target), outside.online(target))

    def _spread(self, side: Side, estimate: Estimate) -> tuple[Floats, Floats]:
        variance, freedom = estimate.posterior(side)
        return np.maximum(variance, self.least), freedom

    def _inside(self, gaps: Floats, side: Side) -> Floats:
        return log_density(gaps, side.mean, np.maximum(self.spread_in.of(side), self.least))

    def _outside(self, gaps: Floats, side: Side) -> Floats:
        variance = np.maximum(self.spread_out.of(side), self.least)
        if self.offline:
            return np.asarray(-log_ndtr((side.mean - gaps) / np.sqrt(variance)))
        return log_density(gaps, side.mean, variance)


def checked_mode(mode: str) -> None:
    """Raise if `mode` is unknown."""
    if mode not in get_args(Mode):
        known = ", ".join(repr(name) for name in get_args(Mode))
        raise ValueError(f"unknown mode {mode!r}; valid are {known}")


def check_sides(found: Moments, *, offline: bool = False) -> None:
    """Raise if no sample has two models on each side that is needed."""
    inside, outside = found.inside.count, found.outside.count
    fewest = outside if offline else np.minimum(inside, outside)
    if fewest.max() >= 2:
        return
    side = "outside" if offline else "on a side"
    best = int(fewest.argmax())
    raise ValueError(
        f"every sample has fewer than two shadow models {side} (the best, sample {best}, is in "
        f"{inside[best]:.0f} and out of {outside[best]:.0f}). Train more shadow models, each on a "
        "random half of the samples"
    )


def warn_if_few(found: Moments, *, offline: bool = False) -> None:
    """Warn about samples with too few models for a variance of their own."""
    inside, outside = found.inside.count, found.outside.count
    fewest = outside if offline else np.minimum(inside, outside)
    few = int(((fewest > 0) & (fewest < FEWEST_MODELS)).sum())
    if few:
        side = "outside" if offline else "inside or outside"
        warnings.warn(
            f"{few} of {len(fewest)} samples have fewer than {FEWEST_MODELS} shadow models "
            f'{side}, so their per-sample variance is unreliable; use variance="shrunk"',
            UserWarning,
            stacklevel=3,
        )


def log_density(gaps: Floats, mean: Floats, variance: Floats) -> Floats:
    """Return the log of the Gaussian density, without the constant that cancels."""
    return np.asarray(-0.5 * (np.log(variance) + (gaps - mean) ** 2 / variance))


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

    def online(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the log density of each gap."""
        square, strength = (gaps - self.mean) ** 2 / self.variance, self.strength
        with np.errstate(divide="ignore", invalid="ignore"):
            half, finite = self.freedom / 2, np.isfinite(self.freedom)
            shift = np.where(finite, digamma(half) - np.log(half), 0.0)
            mean = 0.5 * (shift - np.log(self.variance) - square - 1 / strength)
            variance = polygamma(1, half) / 4 + (square**2 / 2 - square) / self.freedom
            variance += square / strength + 0.5 / strength**2
        return np.asarray(mean), np.asarray(variance)

    def offline(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Return −log of the share above each gap, and its variance to first order."""
        away = (gaps - self.mean) / np.sqrt(self.variance)
        value = -log_ndtr(-away)
        slope = np.exp(value - 0.5 * away**2 - 0.5 * np.log(2 * np.pi))
        with np.errstate(divide="ignore", invalid="ignore"):
            variance = slope**2 * (1 / self.strength + away**2 / (2 * self.freedom))
        return value, np.asarray(variance)


def distance(
    value: Floats, inside: tuple[Floats, Floats], outside: tuple[Floats, Floats]
) -> Floats:
    """Return the root mean square distance of `value` from a difference that is uncertain."""
    away = inside[0] - outside[0] - value
    return np.asarray(np.sqrt(inside[1] + outside[1] + away**2))
