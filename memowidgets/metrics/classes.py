"""Mean and variance of each class's projections and its mean row, in one pass over the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import is_tensor, to_numpy
from memowidgets.metrics.arrays import Array, Floats, Ints, like, namespace

_BLOCK = 256  # directions per step: with a few rows they fit in a core's cache
_RESOLVED = 1e-10  # least variance of a class, relative to squared distances between classes
_LEAST_SIZE = 1e-9  # least variance of a class in the controls, relative to the largest one
_PRODUCT = 2**18  # BLAS splits larger products over threads, which is slower here


class ClassSums:
    """Sums over the samples of each class, of deviations from a point near the class mean.

    Parameters
    ----------
    near : (C, d) float32
        Approximate mean row of each class. Deviations from it are small, so float32 can sum them.
    onto : (width, d) float32
        Directions that rows are projected onto.
    """

    def __init__(self, near: Array, onto: Array) -> None:
        (n_classes, d), width = near.shape, len(onto)
        self._origin = near @ onto.T
        self._one_hot = np.eye(n_classes, dtype=np.float32)
        self._first, self._second = np.zeros((n_classes, width)), np.zeros((n_classes, width))
        self._rows, self._lengths = np.zeros((n_classes, d)), np.zeros(n_classes)
        self._longest: list[tuple[float, int]] = [(0.0, 0)] * n_classes
        self.counts = np.zeros(n_classes)

    def add_projections(self, projected: Array, codes: Ints) -> None:
        """Add the projections (n, width) of samples whose class indices are `codes`."""
        self.counts += np.bincount(codes, minlength=len(self.counts))
        member, places = like(projected, self._one_hot[:, codes]), like(projected, codes)
        for left in range(0, projected.shape[1], _BLOCK):
            self._add_block(projected, member, places, slice(left, left + _BLOCK))

    def _add_block(self, projected: Array, member: Array, places: Array, block: slice) -> None:
        origin = self._origin[:, block]
        step = max(_PRODUCT // (_BLOCK * len(self.counts)), 16)
        if is_tensor(projected):
            step = len(places)
        for start in range(0, len(places), step):
            rows = slice(start, start + step)
            deviation = projected[rows, block] - origin[places[rows]]
            self._first[:, block] += to_numpy(member[:, rows] @ deviation)
            deviation *= deviation
            self._second[:, block] += to_numpy(member[:, rows] @ deviation)

    def add_rows(self, rows: Array, codes: Ints, start: int) -> None:
        """Add the rows (n, d) from row `start` on, and their squared lengths."""
        member = like(rows, self._one_hot[:, codes])
        lengths = namespace(rows).einsum("nd,nd->n", rows, rows)
        self._rows += to_numpy(member @ rows)
        self._lengths += to_numpy(member @ lengths)
        found = to_numpy(lengths).astype(np.float64)
        for c in np.unique(codes):
            row = int(np.where(codes == c, found, -1.0).argmax())
            self._longest[c] = max(self._longest[c], (float(found[row]), start + row))

    def finite(self) -> bool:
        """Return whether everything that was added is finite."""
        return bool(np.isfinite(self._first).all() and np.isfinite(self._second).all())

    def mean(self) -> Floats:
        """Return the mean projection (C, width) of each class."""
        return np.asarray(to_numpy(self._origin) + self._first / self.counts[:, None])

    def variance(self) -> Floats:
        """Return the variance (C, width; ddof = 0) of each class's projections."""
        shift = self._first / self.counts[:, None]
        return np.maximum(self._second / self.counts[:, None] - shift**2, 0)

    def centres(self) -> Floats:
        """Return the mean row (C, d) of each class."""
        return np.asarray(self._rows / self.counts[:, None])

    def resolved(self) -> bool:
        """Return whether float32 resolves each class's variance at its distance from the others.

        If not, distances to the other classes are mostly rounding errors. Controls are made of
        such distances, and these errors are far above the standard errors that they give.
        """
        away = self.centres() - self.counts @ self.centres() / self.counts.sum()
        traces = np.maximum(self.traces(), _LEAST_SIZE * self.traces().max())
        return bool(traces.min() >= _RESOLVED * (away**2).sum(axis=1).max())

    def dominant(self, fewest: int) -> Ints:
        """Return the rows that are longer, squared, than all others of their class together.

        Classes with fewer than `fewest` rows are left out.
        """
        pairs = zip(self._longest, self._lengths, self.counts, strict=True)
        rows = [row for (one, row), every, n in pairs if n >= fewest and 2 * one > every > 0]
        return np.array(sorted(rows), dtype=np.int64)

    def traces(self) -> NDArray[np.float64]:
        """Return the total variance (C,) of each class's rows."""
        return np.asarray(self._lengths / self.counts - (self.centres() ** 2).sum(axis=1))
