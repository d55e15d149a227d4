"""Mahalanobis score: distance of each representation to all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular

from memowidgets.checks import to_numpy, whole_number
from memowidgets.metrics.arrays import (
    Array,
    Floats,
    Frame,
    checked_features,
    refuse_rows,
    row_chunks,
)
from memowidgets.vocabulary import Note

_EXACT_UP_TO = 4096  # features; with more, only leading components are computed
_OVERSAMPLING = 16
_BLOCKS = 6  # of a Krylov space, each half as wide as there are components to find
_SINGULAR = 1e-10  # relative to the largest variance; float32 features resolve no less
_REPORTED = np.errstate(over="ignore", invalid="ignore")  # an error names the row


class Mahalanobis:
    """Minus the Mahalanobis distance to the distribution of all training representations.

    Parameters
    ----------
    n_components : int
        Number of leading principal components. min(n_components, d, n // 5) are kept, but at
        least 1. With n − 1 components all distances within the sample would be equal.

    Attributes
    ----------
    n_components_ : int
        Number of components that were kept.
    mean_ : (d,) float64
        Mean representation.
    ridge_ : float
        Value added to the variances if the covariance is singular, else 0.
    warnings_ : tuple of Note
        A note if a ridge was needed.

    Notes
    -----
    The distribution is global, not one per class (the paper's section on threat models). The
    distances are computed with a Cholesky factor of the covariance (ddof = 0) of the kept
    components. Leave-one-out distances are a monotone function of them, so their ROC is the same.
    Above 4096 features the components come from a randomised block Krylov space with a fixed seed.
    Where the variances of many components are nearly equal, they are then approximate.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> X[7] = 9.0
    >>> int(Mahalanobis().fit(X).score_samples(X).argmin())
    7
    """

    n_components_: int
    mean_: Floats
    ridge_: float
    warnings_: tuple[Note, ...]

    def __init__(self, n_components: int = 500) -> None:
        self.n_components = whole_number("n_components", n_components, 1)

    @_REPORTED
    def fit(self, X: Any, y: object = None) -> Mahalanobis:  # noqa: ARG002 - as in scikit-learn
        """Learn the distribution of the representations.

        Parameters
        ----------
        X : (n_samples, n_features) array_like or torch tensor
            Representations, at least two rows.
        y : ignored
            Accepted for compatibility with scikit-learn.

        Returns
        -------
        Mahalanobis
            This object.

        Raises
        ------
        ValueError
            If X is not a table of finite numbers, has one row, or all its rows are equal.
        """
        features = checked_features(X)
        n, d = features.shape
        if n < 2:
            raise ValueError("X has a single row; a distribution needs at least two")
        sample = to_numpy(features[np.linspace(0, n - 1, min(n, 1024)).astype(np.int64)])
        if not np.isfinite(sample).all():
            refuse_rows(features)
        frame = self._frame = Frame.fitting(sample.astype(np.float64), features)
        total: Floats = np.zeros(d)
        for start, stop in row_chunks(n, 8 * d):
            total += to_numpy(frame.rows(features, start, stop)).sum(axis=0, dtype=np.float64)
        if not np.isfinite(total).all():
            refuse_rows(features)
        centre = total / n
        kept = max(1, min(self.n_components, d, n // 5))
        if kept == d:
            axes: Floats = np.eye(d)
            covariance = _covariance(features, frame, centre, None)
        elif d <= max(_EXACT_UP_TO, _BLOCKS * _block_width(kept)):
            leading = [d - kept, d - 1]
            whole = _covariance(features, frame, centre, None)
            axes = np.asarray(eigh(whole, subset_by_index=leading)[1][:, ::-1])
            covariance = np.asarray(axes.T @ whole @ axes)  # a second pass would give the same
        else:
            axes = _leading(features, frame, centre, kept)
            covariance = _covariance(features, frame, centre, axes)
        self.ridge_, self.warnings_ = _ridge(covariance)
        factor = cholesky(covariance + self.ridge_ * np.eye(kept), lower=True)
        # with the factor's inverse in the components, a row takes one product and no solution
        self._whitening = np.ascontiguousarray(solve_triangular(factor, axes.T, lower=True).T)
        self._centre, self.n_components_ = centre, kept
        shift = 0.0 if frame.shift is None else to_numpy(frame.shift)
        self.mean_ = centre * frame.scale + shift
        return self

    @_REPORTED
    def score_samples(self, X: Any) -> Floats:
        """Return minus the distance of each sample.

        Parameters
        ----------
        X : (n_samples, n_features) array_like or torch tensor
            Representations with as many features as the fitted ones.

        Returns
        -------
        (n_samples,) float64
            Scores of at most 0. A low score means that memorisation is likely.
        """
        if not hasattr(self, "_whitening"):
            raise ValueError("this Mahalanobis is not fitted yet; call fit first")
        features = checked_features(X)
        if features.shape[1] != len(self._centre):
            raise ValueError(
                f"X has {features.shape[1]} features, but the fitted one had {len(self._centre)}"
            )
        result = np.empty(features.shape[0])
        for start, stop in row_chunks(features.shape[0], 12 * features.shape[1]):
            rows = _centred(features, self._frame, self._centre, start, stop)
            white = rows @ self._whitening
            result[start:stop] = -np.sqrt(np.einsum("ij,ij->i", white, white))
        if not np.isfinite(result).all():
            refuse_rows(features, result)
        return result


def _centred(X: Array, frame: Frame, centre: Floats, start: int, stop: int) -> Floats:
    return np.asarray(to_numpy(frame.rows(X, start, stop)) - centre, dtype=np.float64)


def _covariance(X: Array, frame: Frame, centre: Floats, axes: Floats | None) -> Floats:
    """Return the covariance (ddof = 0) of the features, or of their coordinates along `axes`."""
    size = X.shape[1] if axes is None else axes.shape[1]
    total: Floats = np.zeros((size, size))
    for start, stop in row_chunks(X.shape[0], 16 * X.shape[1]):
        rows = _centred(X, frame, centre, start, stop)
        if axes is not None:
            rows = np.asarray(rows @ axes)
        total += rows.T @ rows
    return np.asarray(total / X.shape[0])


def _block_width(kept: int) -> int:
    return kept // 2 + _OVERSAMPLING


def _leading(X: Array, frame: Frame, centre: Floats, kept: int) -> Floats:
    """Return an orthonormal basis (d, kept) of the leading components, by block Krylov iteration.

    The blocks are kept, and the components are found in the span of all of them. The last block
    alone would take far more passes where variances are nearly equal. All steps but the last use
    float32: the span need not be accurate, because the covariance in it is computed in float64.
    """
    shape, middle = (X.shape[1], _block_width(kept)), centre.astype(np.float32)
    block = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    blocks = []
    for _ in range(_BLOCKS):
        image = np.zeros(shape, dtype=np.float32)
        for start, stop in row_chunks(X.shape[0], 8 * X.shape[1]):
            rows = to_numpy(frame.rows(X, start, stop)) - middle
            image += rows.T @ (rows @ block)
        block = np.linalg.qr(image)[0]
        blocks.append(block)
    span = np.asarray(np.linalg.qr(np.hstack(blocks).astype(np.float64))[0])
    rotation = eigh(_covariance(X, frame, centre, span))[1][:, ::-1]
    return np.asarray(span @ rotation[:, :kept])


def _ridge(covariance: Floats) -> tuple[float, tuple[Note, ...]]:
    values = np.linalg.eigvalsh(covariance)
    if values[-1] <= 0:
        raise ValueError("all rows of X are equal: their distribution has no width")
    ridge = _SINGULAR * float(values[-1])
    if values[0] > ridge:
        return 0.0, ()
    flat = int((values <= ridge).sum())
    said = f"{flat} of {len(values)} components have no variance"
    added = f"a ridge of {_SINGULAR:g} of the largest variance was added"
    return ridge, (Note("ridge", f"{said}: {added}", flat=flat),)
