"""AUC with Newcombe's interval against scikit-learn's AUC without one."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.measure import Namespace, Row, interleaved
from memowidgets.evaluation import roc

N = 1_000_000


def rows(_: Namespace) -> list[Row]:
    rng = np.random.default_rng(0)
    truth = rng.random(N) < 0.01
    scores = rng.normal(size=N) - truth
    ours, peer = interleaved(
        lambda: roc(scores, truth).auc_interval, lambda: roc_auc_score(truth, -scores), repeats=9
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
