"""Mahalanobis score: distance of each representation to all of them."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from memowidgets.checks import whole_number
from memowidgets.metrics.arrays import (
    Floats,
    GivenRows,
    checked_features,
    refuse_rows,
    row_chunks,
)
from memowidgets.vocabulary import Note

_EXACT_UP_TO = 4096  # features; with more, only leading components are computed
_POWER_STEPS = 5  # fewer miss components whose variances are nearly equal
_EQUAL = 1e-14  # deviation, relative to the mean, that rounding alone can have
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
    The distribution is global, not one per class (the paper's section on threat models). A distance
    is the length of a sample's principal components, each in units of its deviation (ddof = 0).
    Leave-one-out distances are a monotone function of them, so their ROC is the same. Above 4096
    features the components come from scikit-learn's randomised SVD with a fixed seed, which reads
    all rows into memory. Where the variances of many components are nearly equal, they are then
    approximate.

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
    def fit(self, X: object, y: object = None) -> Mahalanobis:  # noqa: ARG002 - as in scikit-learn
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
        total = np.zeros(d)
        squares = np.zeros(d)
        for start, stop in row_chunks(n, 16 * d):
            rows = features[start:stop].exact()
            total += rows.sum(axis=0)
            squares += np.einsum("ij,ij->j", rows, rows)
        if not np.isfinite(squares).all():
            refuse_rows(features)
        self.mean_ = total / n
        k = max(1, min(self.n_components, d, n // 5))
        self.n_components_ = k
        if d <= _EXACT_UP_TO:
            covariance = _covariance(features, self.mean_)
            variances, axes = eigh(covariance, subset_by_index=[d - k, d - 1])
        else:
            variances, axes = _leading_axes(features, self.mean_, k)
        if variances.max() <= _EQUAL**2 * np.square(self.mean_).max():
            raise ValueError("all rows of X are equal: their distribution has no width")
        self.ridge_, self.warnings_ = _ridge(variances)
        self._whitening: Floats = axes / np.sqrt(variances + self.ridge_)
        return self

    @_REPORTED
    def score_samples(self, X: object) -> Floats:
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
        if features.shape[1] != len(self.mean_):
            raise ValueError(
                f"X has {features.shape[1]} features, but the fitted one had {len(self.mean_)}"
            )
        result = np.empty(features.shape[0])
        for start, stop in row_chunks(features.shape[0], 12 * features.shape[1]):
            away = features[start:stop].exact() - self.mean_
            white = away @ self._whitening
            result[start:stop] = -np.sqrt(np.einsum("ij,ij->i", white, white))
        if not np.isfinite(result).all():
            refuse_rows(features, result)
        return result


def _covariance(X: GivenRows, mean: Floats) -> Floats:
    """Return the covariance (ddof = 0) of the features."""
    n, d = X.shape
    total: Floats = np.zeros((d, d))
    for start, stop in row_chunks(n, 16 * d):
        rows = X[start:stop].exact() - mean
        total += rows.T @ rows
    return np.asarray(total / n)


def _leading_axes(X: GivenRows, mean: Floats, k: int) -> tuple[Floats, Floats]:
    """Return the largest variances (k,), and their axes (d, k)."""
    from sklearn.utils.extmath import randomized_svd  # which fewer features do not need

    rows = X.exact() - mean
    size = {"n_components": k, "n_oversamples": k, "n_iter": _POWER_STEPS}
    _, lengths, axes = randomized_svd(rows, **size, random_state=0)
    return lengths**2 / len(rows), axes.T


def _ridge(variances: Floats) -> tuple[float, tuple[Note, ...]]:
    ridge = _SINGULAR * float(variances.max())
    flat = int((variances <= ridge).sum())
    if not flat:
        return 0.0, ()
    sentence = (
        f"{flat} of {len(variances)} components have no variance: a ridge of {_SINGULAR:g} of "
        "the largest variance was added"
    )
    return ridge, (Note("ridge", sentence, flat=flat),)
