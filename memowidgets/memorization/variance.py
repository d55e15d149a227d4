"""Estimates of a sample's variance on one side: per sample, global, and shrunk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, digamma
from threadpoolctl import ThreadpoolController

from memowidgets.memorization.gaps import Floats, Side

OwnMean = Literal["per-sample", "global", "shrunk"]  # the mean is that of the sample's own gaps
Variance = Literal["per-sample", "global", "shrunk", "hierarchical"]
FEWEST_MODELS = 8  # models on a side for a reliable per-sample variance
FLOOR = 1e-6  # relative to the pooled variance
_FIT_ON = 5_000  # samples; enough to fit the two numbers of the prior


def checked_variance(variance: object) -> None:
    """Raise if `variance` is unknown."""
    if not isinstance(variance, str) or variance not in get_args(Variance):
        known = ", ".join(repr(name) for name in get_args(Variance))
        raise ValueError(f"unknown variance {variance!r}; valid are {known}")


def pooled(side: Side) -> float:
    """Return the variance (ddof = 0) of the within-sample residuals of all samples."""
    return float(side.squares.sum() / max(side.count.sum(), 1.0))


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
        freedom = np.maximum(self.freedom + side.count - 1, 0.0)
        none = np.zeros_like(side.squares)
        scale = np.divide(self.squares + side.squares, freedom, out=none, where=freedom > 0)
        return np.asarray(scale), freedom


def estimate(side: Side, variance: str) -> Estimate:
    """Return the estimate of this side's variances, fitted on all its samples."""
    if variance == "per-sample":
        return Estimate()
    prior = fitted_prior(side) if variance == "shrunk" else None
    if prior is None:
        return Estimate(shared=pooled(side))
    freedom, scale = prior  # the posterior mean divides by count − 1 + freedom − 2
    return Estimate(squares=freedom * scale, count=freedom - 3, freedom=freedom)


def fewest_models(variance: str) -> int:
    """Return the number of models that a side needs; a single gap has no variance of its own."""
    return 2 if variance == "per-sample" else 1


def floor(inside: Side, outside: Side) -> float:
    """Return the least variance of either side: relative to the pooled one, and above 0."""
    squares = inside.squares.sum() + outside.squares.sum()
    within = squares / max(inside.count.sum() + outside.count.sum(), 1.0)
    largest = max(np.abs(inside.mean).max(), np.abs(outside.mean).max(), 1e-100)
    rounding = (float(np.finfo(np.float32).eps) * largest) ** 2  # float32 would be 0 here
    return float(max(FLOOR * within, rounding))


@cache
def libraries() -> ThreadpoolController:
    """Return the control of threads; a fit of few parameters is faster with one."""
    return ThreadpoolController()


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
    with libraries().limit(limits=1):  # with two parameters, threads only wait for each other
        best = minimize(minus_log_likelihood, [1.0, -0.5], jac=True, bounds=bounds).x
    return 2 + float(np.exp(best[0])), float(typical * np.exp(best[1]))
