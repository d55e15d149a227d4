"""Numbers of the recorded audits at every checkpoint, which the pages quote."""

from __future__ import annotations

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from benchmarks.recorded_cifar import METRICS, tables

VARIANCES = ("shrunk", "per-sample", "global")
ETA = 4.0


def rows(_: Namespace) -> list[Row]:
    """Return every checkpoint of SmolLM2, and the paper's table for the vision network."""
    return [*_smollm2(), *_cifar()]


def _cifar() -> list[Row]:
    audit = mw.open_recorded("cifar10-wrn")
    found = []
    for of, table in zip(("by the paper's protocol", "by halves"), tables(audit), strict=True):
        for row in table.to_dict("records"):
            scores = [f"{name} {row[name]}" for name in METRICS]
            at = f"TPR {row['TPR at τ = 0']}, FPR {row['FPR at τ = 0']}"
            what = f"CIFAR-10, {row['memorised']}, {row['share']}, {of}: AUC; τ = 0"
            found.append(Row(what, ", ".join(scores), "", at))
    return found


def _smollm2() -> list[Row]:
    """Return every checkpoint, and the number of memorised samples by variance."""
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
