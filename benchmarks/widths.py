"""PSMI's errors, and what its standard errors cover, at twenty widths and on long axes.

    python -m benchmarks widths

Prints the tables behind docs/measurements.md. Errors are against plain means over many independent
directions. All seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Namespace, Row, rms
from memowidgets.metrics import PSMI

Floats = NDArray[np.float64]
WIDTHS = (1, 2, 3, 16, 64, 255, 256, 257, 269, 331)
WIDTHS += (384, 509, 512, 768, 1031, 2048, 2053, 3001, 4096, 4097)
SIGNAL, NOISE = 3, 0.02  # columns, and the deviation of all others
LONGER, SIZES = (1, 100, 1e3, 1e4, 1e5), ((16, 2), (16, 6), (64, 4))
N, SEEDS = 300, range(12)
_DIRECTIONS, _REFERENCES = 8192, range(1000, 1008)
_HEAD = "| spread | RMS error | standard error | covers |\n" + "|---" * 5 + "|"


def rows(_: Namespace) -> list[Row]:
    """Print the tables; nothing of them is in the table of performance."""
    print(f"| features, the last {SIGNAL} with the signal {_HEAD}")
    for d in WIDTHS:
        print(f"| {d} | {_judged(*in_the_last_columns(d))} |", flush=True)
    print(f"\n| one column longer {_HEAD}")
    for times in LONGER:
        for d, n_classes in SIZES:
            found = _judged(*with_a_long_axis(d, n_classes, times))
            shape = f"{times:g} times, d = {d}, {n_classes} classes"
            print(f"| {shape} | {found} |", flush=True)
    return []


def in_the_last_columns(d: int) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return three classes that differ in the last columns; 5 % of the labels are wrong."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 3
    X = NOISE * rng.normal(size=(N, d))
    last = X[:, -SIGNAL:]
    last[:] = rng.normal(size=last.shape) + 2 * rng.normal(size=(3, last.shape[1]))[y]
    return X.astype(np.float32), np.where(rng.random(N) < 0.05, rng.permutation(y), y)


def with_a_long_axis(
    d: int, n_classes: int, times: float
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Return Gaussian classes whose first column is so many times as long as the others."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(N) % n_classes)
    X = rng.normal(size=(N, d)) + 3 * rng.normal(size=(n_classes, d))[y] / np.sqrt(d)
    X[:, 0] *= times
    return X.astype(np.float32), y


def _judged(X: NDArray[np.float32], y: NDArray[Any]) -> str:
    """Return the scores' spread, their errors as they are and as said, and what is covered."""
    references = [
        PSMI(_DIRECTIONS, "plain", random_state=seed).fit(X, y).score_samples(X, y)
        for seed in _REFERENCES
    ]
    true = np.mean(references, axis=0)
    unsure = np.std(references, axis=0, ddof=1) / np.sqrt(len(references))
    fitted = [PSMI(random_state=seed).fit(X, y) for seed in SEEDS]
    scored = np.array([f.score_samples(X, y, return_std=True) for f in fitted])
    off, said = scored[:, 0] - true, scored[:, 1]
    rounding = 1e-6  # one feature has no other error
    covers = np.mean(np.abs(off) < 1.96 * np.hypot(said, unsure) + rounding)
    return f"{true.std():.2f} | {rms(off):.5f} | {rms(said):.5f} | {covers:.2f}"
