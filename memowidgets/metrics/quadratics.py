"""Exact means, over directions, of a ratio and of the logarithm of quadratic forms."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma

from memowidgets.metrics.arrays import Floats

_STEP = 0.25  # in log t: the trapezoid rule is exact to rounding for these analytic integrands
_LOW, _HIGH = -40.0, 80.0


def mean_ratios(eigenvalues: Floats, tail: float, multiplicity: int) -> Floats:
    """Return E[(vᵀθ)² / θᵀΣθ] for each eigenvector v of Σ, over θ uniform on the unit sphere.

    Parameters
    ----------
    eigenvalues : (k,) float64
        Leading eigenvalues of Σ, positive.
    tail : float
        Eigenvalue of all other directions, positive.
    multiplicity : int
        Number of other directions, at least 1.

    Returns
    -------
    (k + 1,) float64
        M_j = ∫₀^∞ (1 + 2tλ_j)⁻¹ Π_k (1 + 2tλ_k)^(−1/2) dt. The last is for one direction of the
        tail. Σ_j λ_j M_j over all eigenvalues is 1.

    Examples
    --------
    >>> mean_ratios(np.array([1.0, 1.0]), 1.0, 2).round(6)
    array([0.25, 0.25, 0.25])
    """
    values = np.append(eigenvalues, tail)
    size = _size(eigenvalues, tail, multiplicity)
    t, log_product = _integrand(values / size, multiplicity)
    weights = _STEP * t * np.exp(log_product)
    return np.asarray((weights / (1 + 2 * t * values[:, None] / size)).sum(axis=1) / size)


def mean_log(eigenvalues: Floats, tail: float, multiplicity: int) -> float:
    """Return E[log θᵀΣθ] over directions θ uniform on the unit sphere.

    Parameters
    ----------
    eigenvalues, tail, multiplicity
        As for `mean_ratios`.

    Returns
    -------
    float
        ∫₀^∞ (e⁻ᵗ − Π_k (1 + 2tλ_k)^(−1/2)) / t dt, the mean for Gaussian θ, minus E[log ‖θ‖²].

    Examples
    --------
    >>> bool(np.isclose(mean_log(np.array([3.0, 3.0]), 3.0, 4), np.log(3.0)))
    True
    """
    size = _size(eigenvalues, tail, multiplicity)
    t, log_product = _integrand(np.append(eigenvalues, tail) / size, multiplicity)
    gaussian = _STEP * float((np.exp(-t) - np.exp(log_product)).sum())
    dimension = len(eigenvalues) + multiplicity
    return gaussian + float(np.log(size) - digamma(dimension / 2) - np.log(2))


def _size(eigenvalues: Floats, tail: float, multiplicity: int) -> float:
    """Return the trace. In units of the trace, the integrands are concentrated near t = 1."""
    return float(eigenvalues.sum() + multiplicity * tail)


def _integrand(values: Floats, multiplicity: int) -> tuple[Floats, Floats]:
    """Return a grid of t, even in log t, and the logarithm of Π (1 + 2tλ)^(−1/2) on it."""
    t = np.exp(np.arange(_LOW, _HIGH, _STEP))
    counts = np.ones(len(values))
    counts[-1] = multiplicity
    return t, -0.5 * (counts @ np.log1p(2 * t * values[:, None]))
