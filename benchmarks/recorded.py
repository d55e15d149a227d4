"""What the recorded audits say, checkpoint by checkpoint: the numbers that the pages quote."""

from __future__ import annotations

import memowidgets as mw
from benchmarks.measure import Namespace, Row

VARIANCES = ("shrunk", "per-sample", "global")
ETA = 4.0


def rows(_: Namespace) -> list[Row]:
    """The audit of SmolLM2: every checkpoint, and who is memorised by each variance."""
    audit = mw.open_recorded("mmlu-field-smollm2")
    counts = {v: int((audit.log_lira(variance=v) >= ETA).sum()) for v in VARIANCES}
    said = ", ".join(f"{count} ({variance})" for variance, count in counts.items())
    found = [Row(f"members of SmolLM2's audit that are memorised, of {len(audit.members)}", said)]
    return [*found, *(_checkpoint(audit, name) for name in audit.checkpoints.index[1:])]


def _checkpoint(audit: mw.Audit, name: str) -> Row:
    psmi, loss = (audit.evaluate(metric, checkpoint=name) for metric in ("psmi", "loss"))
    drop, accuracy = audit.checkpoints.loc[name, ["drop", "test_accuracy"]]
    point = psmi.at(0.0)
    return Row(
        f"SmolLM2 at {name.replace('-', ' ')}, drop {drop:.3f}, held-out accuracy {accuracy:.2f}: "
        "AUC of PSMI; of the loss; τ = 0",
        _with_interval(psmi.auc, psmi.auc_interval),
        _with_interval(loss.auc, loss.auc_interval),
        f"TPR {_with_interval(point.tpr, point.tpr_interval)}, "
        f"FPR {_with_interval(point.fpr, point.fpr_interval)}",
    )


def _with_interval(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"
