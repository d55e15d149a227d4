"""Log-LiRA and reference models against the truth that other shadow models give.

- ``variances``: 320 small shadow models on digits. 256 define the truth, and subsets of the other
  64 are compared with it.
- ``references`` prints the AUC of reference models on the recordings. The shadow models at the
  prediction checkpoint serve as these: for each member, some that never saw it. Where log-LiRA is
  the truth, they are among the first sixteen, and log-LiRA is from the other sixteen.
"""

from __future__ import annotations

import tempfile
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from benchmarks.shadows import digits_audit
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization import log_lira

REFERENCE, OTHERS, SUBSETS = 256, 64, 12
COUNTS = (4, 8, 16, 24, 32, 64)
VARIANCES = ("per-sample", "global", "shrunk")


def variances(_: Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory() as path:
        audit = digits_audit(path, epochs=12)
        audit.train()
        audit.run_shadows(REFERENCE + OTHERS, checkpoints="final")
        _, members, gaps, target = member_gaps(audit.evidence)
    truth = log_lira(gaps[:REFERENCE], members[:REFERENCE], target)
    errors = {
        (variance, size): _rank_error(gaps, members, target, truth, variance, size)
        for variance in VARIANCES
        for size in COUNTS
    }
    found = [
        Row(
            f"rank error (1 − Spearman's ρ) of log-LiRA from {size} shadow models on digits, "
            f"against {REFERENCE} others: shrunk; beside it per-sample, global",
            f"{errors['shrunk', size]:.3f}",
            f"{errors['per-sample', size]:.3f}, {errors['global', size]:.3f}",
            f"{errors['shrunk', size] / errors['per-sample', size]:.2f}×",
        )
        for size in COUNTS
    ]
    eight, many = errors["shrunk", 8], errors["per-sample", 24]
    work = (
        "rank error on digits: shrunk from 8 shadow models, against per-sample from 24"
    )
    return [
        *found,
        Row(work, f"{eight:.3f}", f"{many:.3f}", f"{eight / many:.2f}×", "≤ 1×"),
    ]


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
        found.append(
            1 - spearmanr(np.nan_to_num(values)[known], truth[known]).statistic
        )
    return float(np.mean(found))


HALF, DRAWN, NUMBERS = 16, 20, (1, 2, 4)
FREE = ("psmi", "loss", "csl", "psmi+csl")


def references(_: Namespace) -> list[Row]:
    """Print the mean AUC over draws of reference models, beside those of the free scores."""
    print(
        f"| recording, truth | {', '.join(FREE)} | 1, 2, 4 reference models |\n|---|---|---|"
    )
    for name in ("mmlu-field-smollm2", "banking77-smollm2", "cifar10-wrn"):
        audit = mw.open_recorded(name)
        _line(
            audit,
            f"{name}, log-LiRA ≥ 4 by {HALF} other shadow models",
            _log_lira(audit),
            HALF,
        )
        if audit.data.canaries is not None:
            canaries = audit.data.canaries[audit.evidence.member_rows]
            _line(audit, f"{name}, canaries", np.where(canaries, np.inf, -np.inf), None)
    return []


def _line(
    audit: mw.Audit, what: str, truth: NDArray[np.float64], of: int | None
) -> None:
    _, members, gaps, _ = member_gaps(audit.evidence, "prediction")
    members, gaps = members[:of], gaps[:of]
    # others lack models
    kept = ((~members).sum(axis=0) >= max(NUMBERS)) & ~np.isnan(truth)
    memorized = truth[kept] >= 4
    free = [
        mw.evaluation.roc(audit.score(one).to_numpy()[kept], memorized).auc
        for one in FREE
    ]
    found = [_auc(gaps[:, kept], members[:, kept], memorized, n) for n in NUMBERS]
    areas = ", ".join(f"{area:.3f}" for area in found)
    n = f"{memorized.sum()} of {len(memorized)}"
    print(f"| {what} ({n}) | {', '.join(f'{area:.3f}' for area in free)} | {areas} |")


def _log_lira(audit: mw.Audit) -> NDArray[np.float64]:
    _, members, gaps, target = member_gaps(audit.evidence, "final")
    return log_lira(gaps[HALF:], members[HALF:], target, "shrunk")


def _auc(
    gaps: NDArray[np.float32],
    members: NDArray[np.bool_],
    truth: NDArray[np.bool_],
    n: int,
) -> float:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWN):
        order = np.where(members, np.inf, rng.random(members.shape)).argsort(axis=0)[:n]
        scores = np.take_along_axis(gaps, order, axis=0).mean(axis=0)
        found.append(mw.evaluation.roc(scores, truth).auc)
    return float(np.mean(found))
