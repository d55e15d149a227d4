"""AUC of reference models on the recordings: `python -m benchmarks.references`.

The shadow models of a recording at its prediction checkpoint serve as reference models: for each
member, some that never saw it. Where log-LiRA is the truth, they are among the first sixteen, and
log-LiRA is from the other sixteen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import memowidgets as mw
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.memorization import log_lira

HALF, DRAWS, NUMBERS = 16, 20, (1, 2, 4)
FREE = ("psmi", "loss", "csl", "psmi+csl")


def main() -> None:
    """Print the mean AUC over draws of reference models, beside those of the free scores."""
    print(f"| recording, truth | {', '.join(FREE)} | 1, 2, 4 reference models |\n|---|---|---|")
    for name in ("mmlu-field-smollm2", "banking77-smollm2", "cifar10-wrn"):
        audit = mw.open_recorded(name)
        _line(audit, f"{name}, log-LiRA ≥ 4 by {HALF} other shadow models", _log_lira(audit), HALF)
        if audit.data.canaries is not None:
            canaries = audit.data.canaries[audit.evidence.member_rows]
            _line(audit, f"{name}, canaries", np.where(canaries, np.inf, -np.inf), None)


def _line(audit: mw.Audit, what: str, truth: NDArray[np.float64], of: int | None) -> None:
    _, members, gaps, _ = member_gaps(audit.evidence, "prediction")
    members, gaps = members[:of], gaps[:of]
    kept = ((~members).sum(axis=0) >= max(NUMBERS)) & ~np.isnan(truth)  # others lack models
    memorized = truth[kept] >= 4
    free = [mw.evaluation.roc(audit.score(one).to_numpy()[kept], memorized).auc for one in FREE]
    found = [_auc(gaps[:, kept], members[:, kept], memorized, n) for n in NUMBERS]
    areas = ", ".join(f"{area:.3f}" for area in found)
    n = f"{memorized.sum()} of {len(memorized)}"
    print(f"| {what} ({n}) | {', '.join(f'{area:.3f}' for area in free)} | {areas} |")


def _log_lira(audit: mw.Audit) -> NDArray[np.float64]:
    _, members, gaps, target = member_gaps(audit.evidence, "final")
    return log_lira(gaps[HALF:], members[HALF:], target, "shrunk")


def _auc(
    gaps: NDArray[np.float32], members: NDArray[np.bool_], truth: NDArray[np.bool_], n: int
) -> float:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(DRAWS):
        order = np.where(members, np.inf, rng.random(members.shape)).argsort(axis=0)[:n]
        scores = np.take_along_axis(gaps, order, axis=0).mean(axis=0)
        found.append(mw.evaluation.roc(scores, truth).auc)
    return float(np.mean(found))


if __name__ == "__main__":
    main()
