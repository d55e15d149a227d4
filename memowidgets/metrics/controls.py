"""Control variates of PSMI: log densities of Gaussians, whose mean over directions is known.

A control variate is a quantity that resembles the value of interest and whose mean is known.
Subtracting it removes most of the random error. Here it is the value itself as it would be if not
only each class but also all rows together were Gaussian along every direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from memowidgets.checks import to_numpy
from memowidgets.cores import on_all_cores, one_thread_each
from memowidgets.metrics.arrays import Array, Floats, like, namespace

COMPONENTS = 32  # leading ones, where a decomposition of each class would take too long
_OVERSAMPLING = 8
_POWER_STEPS = 2
_JITTER = 1e-5  # keeps columns linearly independent for rows of few dimensions
_LEAST_TAIL = 1e-3  # relative to the mean variance
_LEAST = 1e-6, 1e-12  # variance to add, relative to the trace of a class and of all rows
_DECOMPOSED = 2**31  # classes · d³, for which the decompositions of all classes take .6 s
_CACHED = 512  # features
_STEP = 0.25  # in log t: the trapezoid rule is exact to rounding for these analytic integrands
_LOW, _HIGH = -40.0, 80.0


@dataclass(frozen=True)
class Spread:
    """Mean and covariance of some rows, or of their coordinates along a basis.

    Attributes
    ----------
    centre : (d,) float64
        Mean of the rows.
    covariance : (k, k) float64
        Covariance (ddof = 0) of the coordinates; k is d without a basis.
    trace : float
        Total variance of the rows.
    count : int
        Number of rows.
    longest : int
        Which row has more than half of the sum of squared deviations; −1 if none has.
    near : (d,) float32
        A point near the mean.
    """

    centre: Floats
    covariance: Floats
    trace: float
    count: int
    longest: int
    near: Array

    @classmethod
    def of(cls, chunks: Iterable[Array], near: Array, basis: Array | None) -> Spread:
        """Sum over chunks of rows (n, d), as deviations from a point (d,) near their mean."""
        first, second, squares = np.zeros(1), np.zeros((1, 1)), []
        for rows in chunks:
            away = rows - near
            along = away if basis is None else away @ basis.T
            first = first + to_numpy(away.sum(0)).astype(np.float64)
            second = second + to_numpy(along.T @ along).astype(np.float64)
            squares.append(to_numpy(namespace(away).einsum("nd,nd->n", away, away)))
        lengths = np.concatenate(squares).astype(np.float64)
        shift = np.asarray(first / len(lengths))
        coordinates = shift if basis is None else to_numpy(basis) @ shift
        covariance = second / len(lengths) - np.outer(coordinates, coordinates)
        top = int(lengths.argmax())
        longest = top if 2 * lengths[top] > lengths.sum() else -1
        trace = float(lengths.mean() - shift @ shift)
        return cls(to_numpy(near) + shift, covariance, trace, len(lengths), longest, near)

    @classmethod
    def joined(cls, spreads: Sequence[Spread], share: Floats, basis: Array | None) -> Spread:
        """Return the spread of all rows, to which each class contributes its share."""
        count, centres = sum(one.count for one in spreads), np.stack([s.centre for s in spreads])
        away = centres - share @ centres
        trace = share @ (np.array([one.trace for one in spreads]) + (away**2).sum(axis=1))
        along = away if basis is None else away @ to_numpy(basis).T
        covariance = (along.T * share) @ along
        for weight, one in zip(share, spreads, strict=True):
            covariance += weight * one.covariance
        return cls(share @ centres, covariance, float(trace), count, -1, spreads[0].near)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian in all dimensions, with the exact mean over directions of its log density.

    Attributes
    ----------
    centre : (d,) float32
        Its mean.
    basis : (k, d) float32
        Orthonormal axes of its covariance.
    variances : (k,) float64
        Variance along each axis.
    tail : float
        Variance along every direction that is orthogonal to all axes.
    ratios : (k + 1,) float32
        Mean of θ_j² / θᵀΣθ for each axis, and for a direction orthogonal to all.
    log : float
        Mean of log θᵀΣθ.
    """

    centre: Array
    basis: Array
    variances: Floats
    tail: float
    ratios: Array
    log: float

    @classmethod
    def of(cls, spread: Spread, basis: Array | None, least: float) -> Gaussian:
        """Create one from the spread of some rows; `least` is above 0.

        Without a basis, it has all of the covariance and a variance that is added everywhere, so
        that float32 can resolve it. With one, it has a single variance along all other directions.
        The rows of a small class span few dimensions, so the floor is then 1 / rows of the mean
        variance. With a lower one the ratio is huge along the few directions that are nearly
        orthogonal to all rows, and slopes from a few hundred directions are then wrong.
        """
        d, least = len(spread.centre), max(_LEAST[0] * spread.trace, least)
        if basis is None:
            variances, axes = np.linalg.eigh(spread.covariance)
            variances, tail = variances.clip(0) + least, least
            basis = like(spread.near, np.ascontiguousarray(axes.T, dtype=np.float32))
        else:
            trace = max(spread.trace, d * least)
            floor = max(1 / spread.count, _LEAST_TAIL) * trace / d
            variances = spread.covariance.diagonal()
            tail = max((trace - float(variances.sum())) / (d - len(variances)), floor)
            variances = np.maximum(variances, floor)
        ratios, log = exact_means(variances, tail, d - len(variances))
        centre, ratios = (like(basis, one.astype(np.float32)) for one in (spread.centre, ratios))
        return cls(centre, basis, variances, tail, ratios, log)

    def forms(self, squares: Floats) -> Floats:
        """Return θᵀΣθ (m,) from squared coordinates (k, m) of unit directions along the basis."""
        return np.asarray((self.variances - self.tail) @ squares + self.tail)

    def mean_log_density(self, rows: Array) -> Array:
        """Return the exact mean (n,) of −½ log θᵀΣθ − ½ (θᵀ(x − μ))² / θᵀΣθ for rows (n, d)."""
        away = rows - self.centre
        along = away @ self.basis.T
        found = (along * along) @ (self.ratios[:-1] - self.ratios[-1])
        found += self.ratios[-1] * namespace(rows).einsum("nd,nd->n", away, away)
        return -0.5 * (found + self.log)


@dataclass(frozen=True)
class Gaussians:
    """Gaussians of each class and of all rows, whose log densities are controls.

    Attributes
    ----------
    each : tuple of Gaussian
        One for each class.
    total : Gaussian
        That of all rows.
    share : (C,) float64
        Share of each class in the latter: 0 if a single row has most of the class's variance, for
        that would hide all others.
    whole : bool
        Whether they have the covariance of the rows, or that of leading components.
    """

    each: tuple[Gaussian, ...]
    total: Gaussian
    share: Floats
    whole: bool

    @classmethod
    def of(cls, spreads: Sequence[Spread], basis: Array | None) -> Gaussians:
        """Create them from the spread of each class along a basis."""
        counts = np.array([one.count for one in spreads])
        plain = np.array([one.longest < 0 for one in spreads])
        share = counts * plain if plain.any() else counts
        share = share / share.sum()
        total = Spread.joined(spreads, share, basis)
        least = max(_LEAST[1] * total.trace, 1e-30)
        *each, last = on_all_cores(lambda one: Gaussian.of(one, basis, least), [*spreads, total])
        return cls(tuple(each), last, share, basis is None)

    def controls(
        self, mean: Floats, variance: Floats, along: Callable[[Array], Array]
    ) -> dict[str, Array]:
        """Return the tables of the controls, by their names in `Tables`.

        Parameters
        ----------
        mean, variance : (C, m) float64
            Of the projections of each class on m directions.
        along : callable
            Projects rows (n, d) on these directions.
        """
        middle = self.share @ mean
        if self.whole:
            total = self.share @ (variance + (mean - middle) ** 2)
            least = [one.tail for one in (*self.each, self.total)]
            forms = np.append(variance, total[None], axis=0) + np.array(least)[:, None]
        else:
            squares = to_numpy(along(self.total.basis)).T.astype(np.float64) ** 2
            forms = np.stack([one.forms(squares) for one in (*self.each, self.total)])
        control = np.stack([-0.5 / forms, -0.5 * np.log(forms)]).astype(np.float32)[..., None]
        centre = middle.astype(np.float32)[None, :, None]
        return {"control": control[:, :-1], "total": np.concatenate([centre, control[:, -1]])}

    def means(self, rows: Array, places: dict[int, slice]) -> Array:
        """Return the exact means (2, n) of both controls of samples, sorted by class."""
        xp, total = namespace(rows), self.total.mean_log_density(rows)
        own = [self.each[c].mean_log_density(rows[here]) for c, here in places.items()]
        return xp.stack([xp.concatenate(own) - total, total])


def exact_means(eigenvalues: Floats, tail: float, multiplicity: int) -> tuple[Floats, float]:
    """Return the exact means over unit directions θ of θ_j² / θᵀΣθ and of log θᵀΣθ.

    Both are integrals over t: the first of Π (1 + 2tλ)^(−1/2) / (1 + 2tλ_j), the second of
    (e⁻ᵗ − Π (1 + 2tλ)^(−1/2)) / t for Gaussian θ, minus E[log ‖θ‖²].

    Parameters
    ----------
    eigenvalues : (k,) float64
        Leading eigenvalues of Σ.
    tail : float
        All others.
    multiplicity : int
        Number of the others.

    Returns
    -------
    ratios : (k + 1,) float64
        For each eigenvalue; the last is for the tail.
    log : float
        Mean logarithm.

    Examples
    --------
    >>> ratios, log = exact_means(np.array([3.0, 3.0]), 3.0, 4)
    >>> ratios.round(3), bool(np.isclose(log, np.log(3.0)))
    (array([0.056, 0.056, 0.056]), True)
    """
    size = float(eigenvalues.sum() + multiplicity * tail)  # the integrands are then near t = 1
    values = np.append(eigenvalues, tail) / size
    t = np.exp(np.arange(_LOW, _HIGH, _STEP))
    factors = 1 + 2 * t * values[:, None]
    logs = np.log(factors)
    log_product = -0.5 * (logs[:-1].sum(axis=0) + multiplicity * logs[-1])
    ratios = _STEP * ((t * np.exp(log_product)) / factors).sum(axis=1) / size
    gaussian = _STEP * float((np.exp(-t) - np.exp(log_product)).sum())
    dimension = len(eigenvalues) + multiplicity
    return ratios, gaussian + float(np.log(size) - digamma(dimension / 2) - np.log(2))


def common_basis(sample: Array, n_classes: int) -> Array | None:
    """Return leading components (k, d) of all rows; None if each class has its own, all d.

    Parameters
    ----------
    sample : (n, d) float32
        Some rows.
    n_classes : int
        Number of classes.
    """
    d = sample.shape[1]
    whole = (n_classes + 1) * d**2 * max(d, _CACHED) <= _DECOMPOSED
    return None if whole else leading(sample - sample.mean(0))


def leading(rows: Array) -> Array:
    """Return leading components (k, d) of centred rows, by randomised subspace iteration.

    They need not be accurate, because the means are exact for any orthonormal basis.
    """
    rng, d = np.random.default_rng(0), rows.shape[1]
    k = min(COMPONENTS, d - 1)
    width = min(k + _OVERSAMPLING, d)
    basis = like(rows, rng.standard_normal((d, width), dtype=np.float32))
    noise, xp = _JITTER * basis, namespace(rows)
    for _ in range(_POWER_STEPS):
        image = rows.T @ (rows @ basis)
        image /= abs(image).max() + 1e-30
        columns = xp.asarray(image + noise, dtype=xp.float64)
        with one_thread_each():  # many small steps, each of which would wait for all threads
            basis = xp.asarray(xp.linalg.qr(columns)[0], dtype=xp.float32)
    small = xp.asarray(rows @ basis, dtype=xp.float64)
    rotation = np.linalg.eigh(to_numpy(small.T @ small))[1][:, ::-1][:, :k]
    return (basis @ like(rows, rotation.astype(np.float32))).T
