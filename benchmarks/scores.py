"""Scores, AUC and log-LiRA against published packages and the bare work that they need."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psmi as published
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.metrics import roc_auc_score

from benchmarks.measure import Namespace, Row, interleaved, peak_mb, rms
from memowidgets.evaluation import roc
from memowidgets.memorization import log_lira
from memowidgets.metrics import PSMI, Mahalanobis

SIZES = [(512, 10, "≥ 10×", "≥ 8×", "≤ 4×"), (4096, 4, "≥ 4×", "≥ 6×", "≤ 3×")]
N = 10_000
FEW, PLAIN = 256, 2000  # directions
SEEDS = range(4)


def features(
    n: int, d: int, n_classes: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return isotropic Gaussian classes in float32; 5 % of the labels are wrong."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += (
        3
        * rng.standard_normal((n_classes, d), dtype=np.float32)[y]
        / np.float32(np.sqrt(d))
    )
    return X, np.where(rng.random(n) < 0.05, rng.integers(n_classes, size=n), y)


def ours(X: np.ndarray, y: np.ndarray, method: str = "control-variates") -> np.ndarray:
    return scored(PSMI(PLAIN if method == "plain" else FEW, method), X, y)


def scored(psmi: PSMI, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return psmi.fit(X, y).score_samples(X, y)


def theirs(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return published.PSMI(n_estimators=2000).fit_transform(X, y)[0]


def long_run(
    X: np.ndarray, y: np.ndarray, directions: int = 16_384, seed: int = 99
) -> np.ndarray:
    """Return a reference whose error is an eighth of that of 256 directions."""
    return PSMI(directions, random_state=seed).fit(X, y).score_samples(X, y)


def psmi(_: Namespace) -> list[Row]:
    np.random.seed(0)  # noqa: NPY002 - the published package draws from it
    return [row for size in SIZES for row in _one_size(*size)] + _errors() + _memory()


def _errors() -> list[Row]:
    """Compare errors of 256 corrected directions and of the default with 2000 plain ones."""
    found = []
    for name, (X, y) in _data_sets().items():
        expected = np.mean(
            [long_run(X, y, seed=1000 + seed) for seed in range(4)], axis=0
        )

        def error(
            X: np.ndarray = X, y: np.ndarray = y, expected: Any = expected, **how: Any
        ) -> Any:
            made = [PSMI(**how, random_state=seed).fit(X, y) for seed in SEEDS]
            errors = [rms(one.score_samples(X, y) - expected) for one in made]
            return float(np.sqrt(np.mean(np.square(errors)))), made[0].n_directions_

        plain, few = error(method="plain")[0], error(n_directions=FEW)[0]
        default, m = error()
        shape = f"{name}; n = {len(X)}, d = {X.shape[1]}, {len(np.unique(y))} classes"
        for what, one in (
            (f"{FEW} directions", few),
            (f"the default ({m} directions)", default),
        ):
            work = f"RMS error of {what} against {PLAIN} plain ones; {shape}"
            texts = (
                f"{1e3 * one:.2f}e-3",
                f"{1e3 * plain:.2f}e-3",
                f"{one / plain:.2f}×",
            )
            found.append(Row(work, *texts, ""))
    return found


def _data_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    far = rng.normal(size=(300, 16)) + 3 * y[:, None]
    scaled = np.arange(1, 577) ** -0.5
    state_labels = np.arange(1500) % 4
    states = rng.normal(size=(1500, 576)) * scaled
    states += 3 * rng.normal(size=(4, 576))[state_labels] / 24
    digits, digit_labels = load_digits(return_X_y=True)
    table, outcomes = load_breast_cancer(return_X_y=True)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    return {
        "two far classes": (far, y),
        "isotropic classes": features(600, 64, 10),
        "decaying spectrum": (states, state_labels),
        "digits, pixels": (digits, digit_labels),
        "breast cancer": (table, outcomes),
    }


def _one_size(
    d: int, n_classes: int, of_256: str, of_default: str, of_plain: str
) -> list[Row]:
    X, y = features(N, d, n_classes)
    theta = np.random.default_rng(1).standard_normal((2000, d), dtype=np.float32)
    default = PSMI()
    few, many, peer = interleaved(
        lambda: ours(X, y),
        lambda: scored(default, X, y),
        lambda: theirs(X, y),
        repeats=5,
    )
    plain, product = interleaved(
        lambda: ours(X, y, "plain"), lambda: X @ theta.T, repeats=5
    )
    expected = long_run(X, y)
    errors = rms(ours(X, y) - expected), rms(theirs(X, y) - expected)
    shape = f"n = {N}, d = {d}, {n_classes} classes"
    return [
        Row(
            f"PSMI, 256 control-variate directions, against `psmi` 0.2.0 with 2000; {shape}",
            f"{few:.3f} s",
            f"{peer:.2f} s",
            f"{peer / few:.1f}× faster",
            of_256,
        ),
        Row(
            f"the default of PSMI ({default.n_directions_} directions) against the same; {shape}",
            f"{many:.3f} s",
            f"{peer:.2f} s",
            f"{peer / many:.1f}× faster",
            of_default,
        ),
        Row(
            f"its RMS error on isotropic features; {shape}",
            f"{1e3 * errors[0]:.2f}e-3",
            f"{1e3 * errors[1]:.2f}e-3",
            f"{errors[0] / errors[1]:.2f}×",
            "",
        ),
        Row(
            f'"plain", 2000 directions, against the bare product X·Θᵀ; {shape}',
            f"{plain:.2f} s",
            f"{product:.2f} s",
            f"{plain / product:.2f}×",
            of_plain,
        ),
    ]


def _memory() -> list[Row]:
    cases = [
        (10_000, 512, 10, "control-variates"),
        (10_000, 512, 10, "plain"),
        (10_000, 4096, 4, "control-variates"),
        (1_000_000, 64, 10, "control-variates"),
    ]
    found = []
    for n, d, n_classes, method in cases:
        X, y = features(n, d, n_classes)
        directions = 4e-6 * d * (2000 if method == "plain" else 256)
        peak = peak_mb(lambda X=X, y=y, method=method: ours(X, y, method))
        work = f"memory in addition to X, the directions and the result; n = {n}, d = {d}, {method}"
        peak -= directions + 16e-6 * n
        found.append(
            Row(work, f"{peak:.0f} MB", "160 MB", f"{peak / 160:.2f}×", "≤ 160 MB")
        )
    return found


def large(_: Namespace) -> list[Row]:
    """Measure PSMI and Mahalanobis on many rows against the bare products that they need."""
    n, d, n_classes = 100_000, 768, 20
    X, y = features(n, d, n_classes)
    theta = np.random.default_rng(1).standard_normal((FEW, d), dtype=np.float32)

    def covariance() -> np.ndarray:
        total, step = np.zeros((d, d)), 2048
        for start in range(0, n, step):
            rows = X[start : start + step].astype(np.float64)
            total += rows.T @ rows
        return total

    times = interleaved(
        lambda: ours(X, y),
        lambda: X @ theta.T,
        lambda: Mahalanobis().fit(X).score_samples(X),
        covariance,
        repeats=3,
    )
    shape = f"n = {n}, d = {d}, {n_classes} classes"
    works = (
        (
            f"PSMI, {FEW} control-variate directions, against their bare product X·Θᵀ",
            "≤ 8×",
        ),
        ("Mahalanobis, 500 components, against the product XᵀX in float64", "≤ 3×"),
    )
    return [
        Row(f"{work}; {shape}", f"{a:.2f} s", f"{b:.2f} s", f"{a / b:.1f}×", goal)
        for (work, goal), a, b in zip(works, times[::2], times[1::2], strict=True)
    ] + [_many_classes()]


def _many_classes() -> Row:
    d, n_classes, default = 64, 1000, PSMI()
    X, y = features(N, d, n_classes)
    (seconds,) = interleaved(lambda: scored(default, X, y), repeats=1)
    work = f"the default of PSMI ({default.n_directions_} directions)"
    shape = f"n = {N}, d = {d}, {n_classes} classes"
    return Row(f"{work}; {shape}", f"{seconds:.1f} s", goal="≤ 20 s")


D, LAYERS = 576, 30


def layers(_: Namespace) -> list[Row]:
    X, y = features(N, D, 4)

    def score(X: np.ndarray) -> np.ndarray:
        return PSMI().fit(X, y).score_samples(X, y)

    with tempfile.TemporaryDirectory() as path:
        files = [Path(path) / f"{layer}.npy" for layer in range(LAYERS)]
        for file in files:
            np.save(file, X)
        many, one = interleaved(
            lambda: [score(np.load(file, mmap_mode="r")) for file in files],
            lambda: [score(X) for _ in range(3)],
            repeats=3,
        )
    one /= 3
    work = f"PSMI of {LAYERS} layers from disk against one in memory; n = {N}, d = {D}"
    return [Row(work, f"{many:.2f} s", f"{one:.3f} s", f"{many / one:.1f}×", "≤ 30×")]


PAIRS = 1_000_000


def auc(_: Namespace) -> list[Row]:
    rng = np.random.default_rng(0)
    truth = rng.random(PAIRS) < 0.01
    scores = rng.normal(size=PAIRS) - truth
    ours, peer = interleaved(
        lambda: roc(scores, truth).auc_interval,
        lambda: roc_auc_score(truth, -scores),
        repeats=9,
    )
    return [
        Row(
            "AUC with Newcombe's interval, 1 M samples, against `roc_auc_score`",
            f"{ours:.3f} s",
            f"{peer:.3f} s",
            f"{ours / peer:.2f}×",
            "≤ 1.5×",
        )
    ]


MODELS, SAMPLES = 128, 1_000_000


def lira(_: Namespace) -> list[Row]:
    rng = np.random.default_rng(0)
    gaps = rng.standard_normal((MODELS, SAMPLES), dtype=np.float32)
    members = rng.random((MODELS, SAMPLES), dtype=np.float32) < 0.5
    target = rng.standard_normal(SAMPLES, dtype=np.float32)
    given = (gaps.nbytes + members.nbytes + target.nbytes) / 1e6
    return [
        _compared(gaps, members, target, name, given)
        for name in ("per-sample", "shrunk")
    ]


def _compared(
    gaps: np.ndarray,
    members: np.ndarray,
    target: np.ndarray,
    variance: str,
    given: float,
) -> Row:
    def ours() -> None:
        log_lira(gaps, members, target, variance)

    def moments() -> None:
        gaps.mean(0)
        gaps.var(0)

    seconds, limit = interleaved(ours, moments, repeats=3)
    memory = given + peak_mb(ours)
    return Row(
        f'log-LiRA, "{variance}", {MODELS} shadow models × 1 M samples, against `gaps.mean(0); '
        "gaps.var(0)`",
        f"{seconds:.2f} s, {memory:.0f} MB with its {given:.0f} MB of input",
        f"{limit:.2f} s",
        f"{seconds / limit:.2f}×",
        "≤ 2×, ≤ 1200 MB",
    )
