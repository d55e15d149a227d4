"""The two densities of LiRA, and their standard errors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from memowidgets.memorization.gaps import Floats, Mask, Moments, Side, Table, blocks
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

    def errors(
        self, target: Floats, gaps: Table, members: Mask, early: Table | None = None
    ) -> Floats:
        """Return the jackknife standard error of `ratio(target)`, leaving out one model at a time.

        The two sides are independent, so their variances add. The values that all samples share
        (the prior, the pooled variance, the floor) stay fixed, because one model hardly changes
        them.
        """
        del early  # only "hierarchical" has covariates
        variance = np.zeros(len(target))
        for columns in blocks(gaps):
            table, inside = gaps[:, columns].astype(np.float64), members[:, columns]
            goal = target[columns]
            side = self.outside.at(columns)
            variance[columns] = jackknife(
                self._outside(goal, side.without(table, ~inside)), ~inside, side.count
            )
            if not self.offline:
                side = self.inside.at(columns)
                variance[columns] += jackknife(
                    self._inside(goal, side.without(table, inside)), inside, side.count
                )
        few = self.outside.count <= self.fewest
        if not self.offline:
            few |= self.inside.count <= self.fewest
        return np.where(few, np.nan, np.sqrt(variance))

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


def jackknife(left_out: Floats, present: Mask, count: Floats) -> Floats:
    """Return the variance of an estimate from its values with one present model left out."""
    mean = np.where(present, left_out, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(present, left_out - mean, 0.0) ** 2).sum(axis=0)
    return np.asarray(squares * (count - 1) / np.maximum(count, 1))
