"""Three estimates of a sample's variance on one side: its own, everybody's, and in between."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln
from threadpoolctl import ThreadpoolController

from memowidgets.memorization.gaps import Floats, Side

Variance = Literal["per-sample", "global", "shrunk"]
FEWEST_MODELS = 8  # on a side, for a variance of a sample's own
FLOOR = 1e-6  # of the pooled variance
_FIT_ON = 5_000  # samples are plenty for a prior's two numbers


def checked_variance(variance: str) -> None:
    """Raise unless `variance` is one that we know."""
    if variance not in get_args(Variance):
        known = ", ".join(repr(name) for name in get_args(Variance))
        raise ValueError(f"unknown variance {variance!r}; valid are {known}")


def pooled(side: Side) -> float:
    """Variance (ddof = 0) of the within-sample residuals of all samples."""
    return float(side.squares.sum() / max(side.count.sum(), 1.0))


@dataclass(frozen=True)
class Estimate:
    """A way to a sample's variance: (squares + its squares) / (count + its count), or one for all.

    Attributes
    ----------
    squares, count : float
        What the other samples say, as squared deviations of so many models.
    shared : float or None
        The variance of every sample, where it is one.
    """

    squares: float = 0.0
    count: float = 0.0
    shared: float | None = None

    def of(self, side: Side) -> Floats:
        """Each sample's variance on this side, before any floor."""
        if self.shared is not None:
            return np.full_like(side.squares, self.shared)
        squares, models = self.squares + side.squares, self.count + side.count
        none = np.zeros_like(side.squares)  # of a sample that is in no model, but for rounding
        return np.asarray(np.divide(squares, models, out=none, where=models > 0))


def estimate(side: Side, variance: str) -> Estimate:
    """How the variances of this side are estimated, fitted on all its samples."""
    if variance == "per-sample":
        return Estimate()
    prior = fitted_prior(side) if variance == "shrunk" else None
    if prior is None:
        return Estimate(shared=pooled(side))
    freedom, scale = prior  # the posterior mean has count − 1 + freedom − 2 models
    return Estimate(squares=freedom * scale, count=freedom - 3)


def fewest_models(variance: str) -> int:
    """Models that a side must have for a density: one point has no variance of its own."""
    return 2 if variance == "per-sample" else 1


def floor(inside: Side, outside: Side) -> float:
    """The least variance that either side may have: relative to the pooled one, never 0."""
    squares = inside.squares.sum() + outside.squares.sum()
    within = squares / max(inside.count.sum() + outside.count.sum(), 1.0)
    largest = max(np.abs(inside.mean).max(), np.abs(outside.mean).max(), 1e-100)
    rounding = (np.finfo(np.float32).eps * largest) ** 2
    return float(max(FLOOR * within, rounding))


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def fitted_prior(side: Side) -> tuple[float, float] | None:
    """Degrees of freedom (> 2) and scale of the prior, by marginal likelihood.

    Given the prior, squares / (count − 1) is scale times an F-distributed variable. None where
    no sample has two models, or none of them differ.
    """
    usable = (side.count > 1) & (side.squares > 0)
    if not usable.any():
        return None
    step = -(-int(usable.sum()) // _FIT_ON)
    seen = side.count[usable][::step] - 1
    squares = side.squares[usable][::step]
    typical = squares.sum() / seen.sum()

    def minus_log_likelihood(parameters: Floats) -> float:
        freedom = 2 + np.exp(parameters[0])
        odds = squares / (freedom * typical * np.exp(parameters[1]))
        terms = seen / 2 * np.log(odds) - (seen + freedom) / 2 * np.log1p(odds)
        return float(-(terms - betaln(seen / 2, freedom / 2)).mean())

    bounds = [(-4.0, 9.0), (-20.0, 5.0)]
    with _libraries().limit(limits=1):  # two parameters: threads would only wait for each other
        best = minimize(minus_log_likelihood, [1.0, -0.5], method="L-BFGS-B", bounds=bounds).x
    return 2 + float(np.exp(best[0])), float(typical * np.exp(best[1]))
