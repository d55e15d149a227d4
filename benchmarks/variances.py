"""Rank error of log-LiRA by variance and number of shadow models.

320 small shadow models on digits: 256 define the truth, and subsets of the other 64 are compared
with it.
"""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
from scipy.stats import spearmanr

from benchmarks.measure import Namespace, Row
from benchmarks.shadows import digits_audit
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization import log_lira

REFERENCE, OTHERS, SUBSETS = 256, 64, 12
SIZES = (4, 8, 16, 24, 32, 64)
VARIANCES = ("per-sample", "global", "shrunk")


def rows(_: Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as path:
        audit = digits_audit(path, epochs=12)
        audit.train()
        audit.run_shadows(REFERENCE + OTHERS, checkpoints="final")
        _, members, gaps, target = member_gaps(audit.evidence)
    truth = log_lira(gaps[:REFERENCE], members[:REFERENCE], target)
    errors = {
        (variance, size): _rank_error(gaps, members, target, truth, variance, size)
        for variance in VARIANCES
        for size in SIZES
    }
    found = [
        Row(
            f"rank error (1 − Spearman's ρ) of log-LiRA from {size} shadow models on digits, "
            f"against {REFERENCE} others: shrunk; beside it per-sample, global",
            f"{errors['shrunk', size]:.3f}",
            f"{errors['per-sample', size]:.3f}, {errors['global', size]:.3f}",
            f"{errors['shrunk', size] / errors['per-sample', size]:.2f}×",
        )
        for size in SIZES
    ]
    eight, many = errors["shrunk", 8], errors["per-sample", 24]
    work = "rank error on digits: shrunk from 8 shadow models, against per-sample from 24"
    return [*found, Row(work, f"{eight:.3f}", f"{many:.3f}", f"{eight / many:.2f}×", "≤ 1×")]


def _rank_error(
    gaps: np.ndarray,
    members: np.ndarray,
    target: np.ndarray,
    truth: np.ndarray,
    variance: str,
    size: int,
) -> float:
    """Return the mean over subsets; a sample without a value ranks as not memorised."""
    rng, known = np.random.default_rng(0), ~np.isnan(truth)
    found = []
    for _ in range(1 if size == OTHERS else SUBSETS):
        rows = REFERENCE + rng.choice(OTHERS, size, replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about few models
            values = log_lira(gaps[rows], members[rows], target, variance)
        found.append(1 - spearmanr(np.nan_to_num(values)[known], truth[known]).statistic)
    return float(np.mean(found))
