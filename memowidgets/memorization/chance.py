"""False alarms of log-LiRA: how many samples count as memorised if nothing is memorised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from memowidgets.memorization.density import Densities, check_sides
from memowidgets.memorization.gaps import Floats, Side, checked_models, moments
from memowidgets.memorization.variance import checked_variance, fewest_models, fitted_prior

_SIMULATED = 20_000  # number of samples; the target's gap is integrated out exactly


@dataclass(frozen=True)
class ByChance:
    """Simulated samples that are not memorised, with the fits that the shadow models give.

    Attributes
    ----------
    inside, outside : (means, variances), each (n,) float64
        Mean and variance of the fitted Gaussians.
    deviation : (n,) float64
        True standard deviation of each sample's gaps, inside and outside. Their true mean is 0.
    """

    inside: tuple[Floats, Floats]
    outside: tuple[Floats, Floats]
    deviation: Floats

    @classmethod
    def of(
        cls, shadow_gaps: ArrayLike, shadow_members: ArrayLike, variance: str = "shrunk"
    ) -> ByChance:
        """Simulate shadow models for samples that are not memorised.

        Parameters
        ----------
        shadow_gaps : (n_models, n_samples) array_like
            Logit gaps. Only the differences of their variance between samples are used.
        shadow_members : (n_models, n_samples) array_like of bool
            Whether each shadow model trained on each sample. The simulation uses the same counts.
        variance : {"per-sample", "global", "shrunk"}
            As in `log_lira`.
        """
        checked_variance(variance)
        if variance == "hierarchical":
            raise ValueError(
                'the simulation has no prior for the mean, so it cannot be "hierarchical": '
                "`hierarchical_probability` says how many of the samples above η to believe"
            )
        found = moments(*checked_models(shadow_gaps, shadow_members, "shadow_gaps"))
        check_sides(found)
        fewest = np.minimum(found.inside.count, found.outside.count)
        usable = np.flatnonzero(fewest >= fewest_models(variance))
        rng = np.random.default_rng(0)
        chosen = usable[rng.permutation(np.arange(_SIMULATED) % len(usable))]
        prior = fitted_prior(found.outside)
        freedom = np.inf if prior is None else prior[0]
        deviation = np.ones(_SIMULATED)
        if np.isfinite(freedom):
            deviation = np.sqrt(freedom / rng.chisquare(freedom, size=_SIMULATED))
        inside, outside = (
            _side(rng, side.count[chosen], deviation) for side in (found.inside, found.outside)
        )
        fitted = Densities.fit(inside, outside, variance)
        return cls(*fitted.gaussians(), deviation)

    def share(self, eta: float) -> float:
        """Return the share of samples whose log-LiRA is at least `eta`."""
        (mean_in, var_in), (mean_out, var_out) = self.inside, self.outside
        square = 0.5 / var_out - 0.5 / var_in
        linear = mean_in / var_in - mean_out / var_out
        constant = 0.5 * np.log(var_out / var_in) - eta
        constant += 0.5 * mean_out**2 / var_out - 0.5 * mean_in**2 / var_in
        return float(_above_zero(square, linear, constant, self.deviation).mean())


def _side(rng: np.random.Generator, count: Floats, deviation: Floats) -> Side:
    """Draw the moments of `count` gaps directly, without drawing the gaps."""
    mean = deviation * rng.normal(size=len(count)) / np.sqrt(count)
    squares = np.where(count > 1, rng.chisquare(np.maximum(count - 1, 1)), 0.0)
    return Side(count, mean, deviation**2 * squares)


def _above_zero(square: Floats, linear: Floats, constant: Floats, deviation: Floats) -> Floats:
    """Return the probability that square · g² + linear · g + constant ≥ 0, g ~ N(0, deviation²)."""
    discriminant = linear**2 - 4 * square * constant
    real = discriminant >= 0
    root = np.sqrt(np.where(real, discriminant, 0))
    q = -0.5 * (linear + np.where(linear < 0, -root, root))
    with np.errstate(divide="ignore", invalid="ignore"):
        roots = np.sort([q / square, constant / q], axis=0) / deviation
        low, high = ndtr(roots)
    outside = np.where(real, low + 1 - high, 1.0)
    between = np.where(real, high - low, 0.0)
    return np.nan_to_num(np.where(square >= 0, outside, between))
