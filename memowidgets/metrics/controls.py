"""Control variates of PSMI: quadratic forms whose mean over all directions is known exactly.

A control variate is a quantity that resembles the value of interest and whose mean is known.
Subtracting it removes most of the random error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics.arrays import Array, Floats, Ints, like, namespace
from memowidgets.metrics.projections import FEW_CLASSES
from memowidgets.metrics.quadratics import mean_log, mean_ratios

COMPONENTS = 16
SHARED_COMPONENTS = 32
_OVERSAMPLING = 8
_POWER_STEPS = 2
_JITTER = np.float32(1e-5)  # keeps columns linearly independent for rows of few dimensions
_LEAST_TAIL = 1e-3  # relative to the mean variance
_LEAST_SIZE = 1e-9  # least trace of a class, relative to the largest one


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
        traces = np.maximum(traces, _LEAST_SIZE * traces.max() or 1.0)
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
        """Reshape projections (n, bases · k) onto all components to (n, bases, k)."""
        n_classes, k = self.coordinates.shape
        return projected.reshape(len(projected), n_bases(n_classes), k)

    def means(self, rows: Array, along: Array, codes: Array) -> Array:
        """Return exact means (controls, n) of the samples' own controls, ordered as in `Moments`.

        Parameters
        ----------
        rows : (n, d) float32
            Representations.
        along : (n, bases, k) float32
            Coordinates of the rows along the components.
        codes : (n,) int
            Index of each sample's class.
        """
        xp = namespace(rows)
        lengths = xp.einsum("nd,nd->n", rows, rows)
        cross = xp.asarray(rows @ self.centres.T, dtype=xp.float64)
        distances = (xp.asarray(lengths, dtype=xp.float64)[:, None] - 2 * cross) + self.squared
        tail = self.ratios[:, -1]
        weighed = distances * tail
        excess = self.ratios[:, :-1] - tail[:, None]
        for basis in range(along.shape[1]):
            sharing = slice(None) if along.shape[1] == 1 else slice(basis, basis + 1)
            weights, centres = excess[sharing], self.coordinates[sharing]
            u = xp.asarray(along[:, basis], dtype=xp.float64)
            squares = u**2 @ weights.T - 2 * u @ (weights * centres).T
            weighed[:, sharing] += squares + (weights * centres**2).sum(1)
        if len(self.ratios) <= FEW_CLASSES:
            return weighed.T
        own = weighed[like(rows, np.arange(len(codes))), codes]
        return xp.stack([own, weighed.mean(1), 0 * own])


def n_bases(n_classes: int) -> int:
    """Return the number of component sets: one per class, or a single one for many classes."""
    return n_classes if n_classes <= FEW_CLASSES else 1


def components(sample: NDArray[np.float32], codes: Ints) -> NDArray[np.float32]:
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
    return np.stack([_leading(sample[codes == c], k) for c in range(n_classes)])


def _leading(rows: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Compute leading components by randomised subspace iteration with a fixed seed."""
    rng = np.random.default_rng(0)
    width = min(k + _OVERSAMPLING, rows.shape[1])
    basis = rng.standard_normal((rows.shape[1], width), dtype=np.float32)
    noise = _JITTER * basis
    for _ in range(_POWER_STEPS):
        image = rows.T @ (rows @ basis)
        image /= np.abs(image).max() + np.float32(1e-30)
        basis = _orthonormal(image + noise).astype(np.float32)
    small = (rows @ basis).astype(np.float64)
    rotation = np.linalg.eigh(small.T @ small)[1][:, ::-1][:, :k]
    return np.asarray((basis @ rotation.astype(np.float32)).T)


def _orthonormal(columns: NDArray[np.float32]) -> Floats:
    """Return an orthonormal basis of the columns' span, computed by a few large products.

    Each of the many small steps of a Householder factorisation would wait for all threads, which
    is slow on a busy machine. The second round corrects the rounding errors of the first.
    """
    basis = columns.astype(np.float64)
    for _ in range(2):
        values, vectors = np.linalg.eigh(basis.T @ basis)
        basis = basis @ (vectors / np.sqrt(np.maximum(values, 1e-300)))
    return basis
