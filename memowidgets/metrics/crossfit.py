"""Cross-fitted regression on control variates: each fold uses the slopes of the other folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memowidgets.metrics.arrays import Array

FOLDS = 4
_ROUNDING = 1e-6  # relative to a control's mean square; smaller variances are rounding errors
_RIDGE = 1e-6  # relative to a control's variance; keeps slopes finite for collinear controls


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
        The slopes come from the other folds, so fitting them biases neither result.
    """
    a = moments.own.shape[1]
    constant = a
    controls = [i for i in range(1, a + moments.mixed.shape[2]) if i != constant]
    expected = [means[i - 1] if i < a else 0.0 for i in controls]
    slopes = _slopes(moments, constant, controls)
    return _mean_and_error(moments, constant, controls, expected, slopes)


def plain(moments: Moments) -> tuple[Array, Array]:
    """Return the mean of each sample's values and its standard error, without controls."""
    return _mean_and_error(moments, moments.own.shape[1], [], [], [])


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
    0 there and gets the slope 0. The small ridge handles controls that others explain.
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
