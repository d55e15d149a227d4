"""Control variates of PSMI: quadratic forms whose mean over all directions is known exactly.

A control variate is a quantity that resembles the value of interest and whose mean is known.
Subtracting it removes most of the random error. The slopes of that regression are cross-fitted:
each fold of directions uses those of the other folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import digamma

from memowidgets.checks import to_numpy
from memowidgets.metrics.arrays import Array, Floats, Ints, like, namespace

COMPONENTS = 16
FEW_CLASSES = 8  # with more classes, classes do not have controls of their own
SHARED_COMPONENTS = 32
_OVERSAMPLING = 8
_POWER_STEPS = 2
_JITTER = 1e-5  # keeps columns linearly independent for rows of few dimensions
_LEAST_TAIL = 1e-3  # relative to the mean variance
LEAST_SIZE = 1e-9  # least trace of a class, relative to the largest one
_STEP = 0.25  # in log t: the trapezoid rule is exact to rounding for these analytic integrands
_LOW, _HIGH = -40.0, 80.0
_ROUNDING = 1e-6  # relative to a control's mean square; smaller variances are rounding errors
_RIDGE = 1e-4  # relative to a control's variance; well above the rounding of float32 sums


@dataclass(frozen=True)
class Shapes:
    """Compressed covariance of each class: leading components, and one variance for the rest.

    Attributes
    ----------
    variances : (C, k) float64
        Variances of each class along its components.
    tails : (C,) float64
        Variance of each class along every other direction.
    multiplicity : int
        Number of other directions.
    """

    variances: Floats
    tails: Floats
    multiplicity: int

    @classmethod
    def of(cls, variances: Floats, traces: Floats, counts: Floats, d: int) -> Shapes:
        """Compute the tails from what the components leave of the trace, with a floor.

        The rows of a small class span few dimensions, so the floor is 1 / counts of the mean
        variance. With a lower one the ratio is huge along the few directions that are nearly
        orthogonal to all rows, and slopes from a few hundred directions are then wrong.
        """
        multiplicity = d - variances.shape[1]
        traces = np.maximum(traces, LEAST_SIZE * traces.max() or 1.0)
        least = np.maximum(1 / counts, _LEAST_TAIL) * traces / d
        rest = (traces - variances.sum(axis=1)) / multiplicity
        return cls(np.maximum(variances, least[:, None]), np.maximum(rest, least), multiplicity)

    def forms(self, squares: Floats) -> Floats:
        """Return θᵀΣ̃θ from the squared coordinates (bases, k, m) of unit directions θ."""
        excess = self.variances - self.tails[:, None]
        return np.asarray((excess[:, None] @ squares)[:, 0] + self.tails[:, None])

    def mean_ratios(self) -> Floats:
        """Return the exact M (C, k + 1) of `quadratics.mean_ratios`; the tail comes last."""
        pairs = zip(self.variances, self.tails, strict=True)
        return np.stack([mean_ratios(v, float(t), self.multiplicity) for v, t in pairs])

    def mean_logs(self) -> Floats:
        """Return the exact mean (C,) of log θᵀΣ̃θ."""
        pairs = zip(self.variances, self.tails, strict=True)
        return np.array([mean_log(v, float(t), self.multiplicity) for v, t in pairs])


@dataclass(frozen=True)
class Controls:
    """Values from which the means of any sample's ratio controls are computed.

    Attributes
    ----------
    centres : (C, d) array
        Mean representation of each class.
    squared : (C,) array
        Squared length of each mean.
    coordinates : (C, k) array
        Coordinates of each class's mean along its components.
    ratios : (C, k + 1) array
        `Shapes.mean_ratios`.
    """

    centres: Array
    squared: Array
    coordinates: Array
    ratios: Array

    @classmethod
    def of(cls, centres: Floats, coordinates: Floats, shapes: Shapes) -> Controls:
        """Create the controls of classes with these mean rows and covariances."""
        squared = (centres**2).sum(axis=1)
        return cls(centres.astype(np.float32), squared, coordinates, shapes.mean_ratios())

    def along(self, projected: Array) -> Array:
        """Reshape projections (bases · k, n) onto all components to (bases, k, n)."""
        n_classes, k = self.coordinates.shape
        return projected.reshape(n_bases(n_classes), k, projected.shape[1])

    def means(self, rows: Array, along: Array, codes: Array) -> Array:
        """Return exact means (controls, n) of the samples' own controls, ordered as in `Moments`.

        Parameters
        ----------
        rows : (n, d) float32
            Representations.
        along : (bases, k, n) float32
            Coordinates of the rows along the components.
        codes : (n,) int
            Index of each sample's class.
        """
        xp = namespace(rows)
        lengths = xp.asarray(xp.einsum("nd,nd->n", rows, rows), dtype=xp.float64)
        cross = xp.asarray(self.centres @ rows.T, dtype=xp.float64)
        distances = (lengths - 2 * cross) + self.squared[:, None]
        tail = self.ratios[:, -1:]
        weighed = distances * tail
        excess = self.ratios[:, :-1] - tail
        for basis in range(len(along)):
            sharing = slice(None) if len(along) == 1 else slice(basis, basis + 1)
            weights, centres = excess[sharing], self.coordinates[sharing]
            u = xp.asarray(along[basis], dtype=xp.float64)
            squares = weights @ u**2 - 2 * (weights * centres) @ u
            weighed[sharing] += squares + (weights * centres**2).sum(1)[:, None]
        if len(self.ratios) <= FEW_CLASSES:
            return weighed
        own = weighed[codes, like(rows, np.arange(len(codes)))]
        return xp.stack([own, weighed.mean(0), 0 * own])


def n_bases(n_classes: int) -> int:
    """Return the number of component sets: one per class, or a single one for many classes."""
    return n_classes if n_classes <= FEW_CLASSES else 1


def components(sample: Array, codes: Ints) -> Array:
    """Return orthonormal leading components of rows that are centred on their class mean.

    They need not be accurate, because the controls' means are exact for any orthonormal basis.

    Returns
    -------
    (C, k, d) float32
        One set per class. Above 8 classes the shape is (1, k, d): one set for all classes.
    """
    n_classes = int(codes.max()) + 1
    if n_bases(n_classes) == 1:
        return _leading(sample, min(SHARED_COMPONENTS, sample.shape[1] - 1))[None]
    k = min(COMPONENTS, sample.shape[1] - 1)
    classes = [sample[like(sample, codes == c)] for c in range(n_classes)]
    return namespace(sample).stack([_leading(rows, k) for rows in classes])


def _leading(rows: Array, k: int) -> Array:
    """Compute leading components by randomised subspace iteration with a fixed seed."""
    rng = np.random.default_rng(0)
    width = min(k + _OVERSAMPLING, rows.shape[1])
    basis = like(rows, rng.standard_normal((rows.shape[1], width), dtype=np.float32))
    noise, xp = _JITTER * basis, namespace(rows)
    for _ in range(_POWER_STEPS):
        image = rows.T @ (rows @ basis)
        image /= abs(image).max() + 1e-30
        basis = xp.asarray(_orthonormal(image + noise), dtype=xp.float32)
    small = xp.asarray(rows @ basis, dtype=xp.float64)
    rotation = np.linalg.eigh(to_numpy(small.T @ small))[1][:, ::-1][:, :k]
    return (basis @ like(rows, rotation.astype(np.float32))).T


def _orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the columns' span, computed by a few large products.

    Each of the many small steps of a Householder factorisation would wait for all threads, which
    is slow on a busy machine. The second round corrects the rounding errors of the first.
    """
    xp = namespace(columns)
    basis = xp.asarray(columns, dtype=xp.float64)
    for _ in range(2):
        values, vectors = np.linalg.eigh(to_numpy(basis.T @ basis))
        basis = basis @ like(basis, vectors / np.sqrt(np.maximum(values, 1e-300)))
    return basis


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


@dataclass
class Moments:
    """Sums of products of variables over each fold's directions, for each sample.

    The first variables belong to a sample: its value f and then its controls. The other variables
    are common to all samples: the constant 1, and then the common controls, whose mean is 0.

    Attributes
    ----------
    own : (FOLDS, a, a, n) float64
        Products of the sample's variables with each other (upper triangle).
    mixed : (FOLDS, a, z, n) float64
        Products of the sample's variables with the common ones.
    common : (FOLDS, z, z) float64
        Products of the common variables with each other.
    """

    own: Array
    mixed: Array
    common: Array

    def product(self, i: int, j: int) -> Any:
        """Return the sums (FOLDS, n) of the product of variables i and j, counted own first."""
        a = self.own.shape[1]
        i, j = min(i, j), max(i, j)
        if j < a:
            return self.own[:, i, j]
        if i < a:
            return self.mixed[:, i, j - a]
        return self.common[:, i - a, j - a][:, None]


def corrected(moments: Moments, means: Array) -> tuple[Array, Array]:
    """Return each sample's mean after regression on the controls, and its standard error.

    Parameters
    ----------
    moments : Moments
        Moments of f, the sample's controls, the constant 1, and the common controls.
    means : (controls, n) float64
        Exact means of the sample's controls.

    Returns
    -------
    mean, error : (n,) float64
        The slopes come from the other folds, so fitting them biases neither result. Where the
        plain mean has the smaller error, as it has where all directions agree, it is returned.
    """
    a = moments.own.shape[1]
    constant = a
    controls = [i for i in range(1, a + moments.mixed.shape[2]) if i != constant]
    expected = [means[i - 1] if i < a else 0.0 for i in controls]
    slopes = _slopes(moments, constant, controls)
    mean, error = _mean_and_error(moments, constant, controls, expected, slopes)
    simple, its_error = plain(moments)
    xp, helps = namespace(mean), error < its_error
    return xp.where(helps, mean, simple), xp.where(helps, error, its_error)


def plain(moments: Moments) -> tuple[Array, Array]:
    """Return the mean of each sample's values and its standard error, without controls."""
    return _mean_and_error(moments, moments.own.shape[1], [], [], [])


def shifted(moments: Moments) -> tuple[Array, Array]:
    """Return each sample's mean of values on the grids of a plane, and its standard error.

    The common variables are 1 and the directions' widths. Directions of a grid are not
    independent, but the grids of different folds are.
    """
    means = moments.product(0, 2) / moments.product(1, 2)
    mean = means.mean(0)
    return mean, (((means - mean) ** 2).mean(0) / (len(means) - 1)) ** 0.5


def _slopes(moments: Moments, constant: int, controls: list[int]) -> list[Any]:
    """Return the slope (FOLDS, n) of f on each control, estimated on the other folds."""

    def elsewhere(i: int, j: int) -> Any:
        sums = moments.product(i, j)
        return sums.sum(0) - sums

    count = elsewhere(constant, constant)
    sums = {i: elsewhere(i, constant) for i in [0, *controls]}

    def covariance(i: int, j: int) -> Any:
        return elsewhere(i, j) / count - sums[i] * sums[j] / count**2

    def inverse_deviation(i: int) -> Any:
        least = _ROUNDING * elsewhere(i, i) / count + _ROUNDING**2
        variance = covariance(i, i)
        return variance.clip(_ROUNDING**2) ** -0.5 * (variance > least)

    matrix = [[covariance(i, j) for j in controls[: row + 1]] for row, i in enumerate(controls)]
    units = [inverse_deviation(i) for i in controls]
    return _solved(matrix, [covariance(0, i) for i in controls], units)


def _solved(lower: list[list[Any]], right: list[Any], units: list[Any]) -> list[Any]:
    """Solve many small symmetric systems at once by Cholesky; their entries are arrays.

    `units` are the inverse standard deviations of the controls. A control that does not vary has
    0 there and gets the slope 0. The ridge bounds slopes on controls that others explain.
    """
    factor: list[list[Any]] = []
    solution: list[Any] = []
    for i, unit in enumerate(units):
        row: list[Any] = []
        for j in range(i):
            rest = sum(row[k] * factor[j][k] for k in range(j))
            row.append((lower[i][j] * unit * units[j] - rest) / factor[j][j])
        left = 1 + _RIDGE + 0 * unit - sum(entry**2 for entry in row)
        row.append(left.clip(_RIDGE) ** 0.5)
        factor.append(row)
        solution.append((right[i] * unit - sum(row[k] * solution[k] for k in range(i))) / row[i])
    for i in reversed(range(len(right))):
        below = sum(factor[k][i] * solution[k] for k in range(i + 1, len(right)))
        solution[i] = (solution[i] - below) / factor[i][i]
    return [unit * entry for unit, entry in zip(units, solution, strict=True)]


def _mean_and_error(
    moments: Moments, constant: int, controls: list[int], expected: list[Any], slopes: list[Any]
) -> tuple[Array, Array]:
    count = moments.product(constant, constant).sum()
    offset = sum((s * e for s, e in zip(slopes, expected, strict=True)), start=0.0)
    weights = {0: 1.0, constant: offset} | {
        i: -slope for i, slope in zip(controls, slopes, strict=True)
    }
    total = sum(w * moments.product(i, constant) for i, w in weights.items()).sum(0)
    squares = sum(
        w * v * moments.product(i, j) for i, w in weights.items() for j, v in weights.items()
    ).sum(0)
    mean = total / count
    freedom = max(float(count) - 1 - len(controls), 1.0)
    variance = (squares / count - mean**2).clip(0) / freedom
    return mean, variance**0.5
