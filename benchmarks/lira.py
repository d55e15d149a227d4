"""Log-LiRA of many samples, against the mean and variance of their gaps as a lower limit."""

from __future__ import annotations

import numpy as np

from benchmarks.measure import Namespace, Row, interleaved, peak_mb
from memowidgets.memorization import log_lira

MODELS, SAMPLES = 128, 1_000_000


def rows(_: Namespace) -> list[Row]:
    rng = np.random.default_rng(0)
    gaps = rng.standard_normal((MODELS, SAMPLES), dtype=np.float32)
    members = rng.random((MODELS, SAMPLES), dtype=np.float32) < 0.5
    target = rng.standard_normal(SAMPLES, dtype=np.float32)
    given = (gaps.nbytes + members.nbytes + target.nbytes) / 1e6
    return [_compared(gaps, members, target, name, given) for name in ("per-sample", "shrunk")]


def _compared(
    gaps: np.ndarray, members: np.ndarray, target: np.ndarray, variance: str, given: float
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
