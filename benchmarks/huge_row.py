"""PSMI where one row is far larger than the others: what goes wrong, and by how much.

    python -m benchmarks huge-row

Prints one table. Errors are against means over stratified directions, which
lie as often nearly orthogonal to the huge row as they are needed there. All seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, logsumexp

from benchmarks.measure import Namespace, Row, rms
from memowidgets.metrics import PSMI
from memowidgets.metrics.projections import independent_directions

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SIZES = ((300, 16, 2), (600, 16, 3), (600, 64, 4))  # samples, features, classes
LARGER, ROW = 1e5, 5
WAYS: tuple[tuple[int, Any], ...] = ((256, "control-variates"), (2000, "plain"))
SEEDS = range(8)
_DECADES = 9  # of the smallest cosine's tail probability
_REFERENCES, _DIRECTIONS, _AT_ONCE = 4, 20_000, 500
_HEAD = (
    "size",
    "directions",
    "samples",
    "mean",
    "RMS error",
    "standard error",
    "in common",
)


def rows(_: Namespace) -> list[Row]:
    """Print the tables; nothing of them is in the table of performance."""
    print("| " + " | ".join([*_HEAD, "largest", "covers"]) + " |")
    print("|---" * (len(_HEAD) + 2) + "|")
    notes = []
    for size in SIZES:
        X, y = made(*size)
        notes.append(_cause(X, y))
        for line in _errors(X, y):
            shape = "n = {}, d = {}, {} classes".format(*size)
            print("| " + " | ".join([shape, *line]) + " |")
    print(
        "\nfloat32 against float64; share of the variance that log |θᵀx| explains; its deviation"
    )
    for size, note in zip(SIZES, notes, strict=True):
        print(size, *note)
    return []


def made(n: int, d: int, n_classes: int) -> tuple[NDArray[np.float32], Ints]:
    """Return Gaussian classes with 5 % of wrong labels, and one huge row."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(n) % n_classes)
    X = rng.normal(size=(n, d)) + 3 * rng.normal(size=(n_classes, d))[y] / np.sqrt(d)
    X[ROW] *= LARGER
    y = np.where(rng.random(n) < 0.05, rng.permutation(y), y)
    return X.astype(np.float32), y


def values(X: NDArray[Any], y: Ints, theta: NDArray[Any]) -> Floats:
    """Return the pointwise values (n, m) along directions, in float64."""
    projected = X.astype(np.float64) @ theta.T.astype(np.float64)
    logs = []
    for c in range(int(y.max()) + 1):
        mine = projected[y == c]
        mean, deviation = mine.mean(axis=0), mine.std(axis=0)
        logs.append(-0.5 * ((projected - mean) / deviation) ** 2 - np.log(deviation))
    share = np.log(np.bincount(y) / len(y))[:, None, None]
    own = np.array(logs)[y, np.arange(len(y))]
    return np.asarray(own - logsumexp(np.array(logs) + share, axis=0))


def stratified(X: NDArray[Any], y: Ints, seed: int) -> Floats:
    """Return PSMI from directions whose cosine with the huge row is stratified.

    Half of the strata are even in the probability of a smaller cosine, half in its logarithm.
    """
    rng = np.random.default_rng(seed)
    d, width = X.shape[1], np.log(10.0) * _DECADES
    grid = np.exp(np.linspace(-width, 0, 400_001))
    places = (np.arange(_DIRECTIONS) + rng.random(_DIRECTIONS)) / _DIRECTIONS
    smaller = np.interp(places, 0.5 * grid + 0.5 * (np.log(grid) / width + 1), grid)
    cosine, weight = (
        np.sqrt(betaincinv(0.5, (d - 1) / 2, smaller)),
        1 / (0.5 + 0.5 / smaller / width),
    )
    axis = X[ROW] / np.linalg.norm(X[ROW].astype(np.float64))
    total = np.zeros(len(y))
    for start in range(0, _DIRECTIONS, _AT_ONCE):
        c, w = cosine[start : start + _AT_ONCE, None], weight[start : start + _AT_ONCE]
        across = rng.normal(size=(_AT_ONCE, d))
        across -= (across @ axis)[:, None] * axis
        across /= np.linalg.norm(across, axis=1)[:, None]
        total += values(X, y, c * axis + np.sqrt(1 - c**2) * across) @ w
    return total / _DIRECTIONS


def _errors(X: NDArray[Any], y: Ints) -> list[list[str]]:
    references = [stratified(X, y, seed) for seed in range(_REFERENCES)]
    true = np.mean(references, axis=0)
    unsure = np.std(references, axis=0, ddof=1) / np.sqrt(_REFERENCES)
    own = (y == y[ROW]) & (np.arange(len(y)) != ROW)
    table = []
    for m, method in WAYS:
        fitted = [PSMI(m, method, random_state=seed).fit(X, y) for seed in SEEDS]
        found, said = np.moveaxis(
            [f.score_samples(X, y, return_std=True) for f in fitted], 1, 0
        )
        for name, those in (("same class", own), ("other classes", y != y[ROW])):
            off, error = (found - true)[:, those], said[:, those]
            covers = np.mean(np.abs(off) < 1.96 * np.hypot(error, unsure[those]))
            numbers = [
                f"{true[those].mean():.2f}",
                f"{rms(off):.4f}",
                f"{rms(error):.4f}",
            ]
            numbers += [
                f"{rms(off.mean(axis=1)):.4f}",
                f"{np.abs(off).max():.3f}",
                f"{covers:.2f}",
            ]
            table.append([f"{m}, {method}", name, *numbers])
    return table


def _cause(X: NDArray[Any], y: Ints) -> tuple[str, ...]:
    """Compare precisions on the same directions, and values with log |θᵀx|."""
    theta = independent_directions(2000, X.shape[1], 0)
    along = values(X, y, theta)
    rounding = np.abs(
        PSMI(2000, "plain").fit(X, y).score_samples(X, y) - along.mean(axis=1)
    ).max()
    own = (y == y[ROW]) & (np.arange(len(y)) != ROW)
    logs = np.log(np.abs(theta @ (X[ROW] / np.linalg.norm(X[ROW]))))
    explained = np.corrcoef(along[own].mean(axis=0), logs)[0, 1] ** 2
    return f"{rounding:.1e}", f"{explained:.2f}", f"{logs.std():.2f}"
