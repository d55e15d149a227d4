"""Numbers of the recorded audits at every checkpoint, which the pages quote."""

from __future__ import annotations

import pandas as pd

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from benchmarks.recorded_cifar import METRICS, tables

VARIANCES = ("shrunk", "per-sample", "global")
ETA = 4.0
EARLY = ("psmi", "loss", "logit_gap", "csl", "psmi+csl")


def rows(_: Namespace) -> list[Row]:
    """Return every checkpoint of the texts, and the paper's table for the vision network."""
    texts = {"SmolLM2 on MMLU": "mmlu-field-smollm2", "SmolLM2 on Banking77": "banking77-smollm2"}
    return [row for title, name in texts.items() for row in _texts(title, name)] + _cifar()


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


def _texts(title: str, name: str) -> list[Row]:
    """Return every checkpoint, and the number of memorised samples by variance."""
    audit = mw.open_recorded(name)
    counts = {v: int((audit.log_lira(variance=v) >= ETA).sum()) for v in VARIANCES}
    said = ", ".join(f"{count} ({variance})" for variance, count in counts.items())
    found = [Row(f"{title}: members that are memorised, of {len(audit.members)}", said)]
    compared = audit.compare(EARLY, checkpoints="all")
    return [*found, *(_checkpoint(title, audit, compared, c) for c in audit.checkpoints.index[1:])]


def _checkpoint(title: str, audit: mw.Audit, compared: pd.DataFrame, name: str) -> Row:
    table = compared[compared["checkpoint"] == name]
    aucs = [
        f"{row.metric} {_with_interval(row.auc, (row.auc_low, row.auc_high))}"
        for row in table.itertuples()
    ]
    psmi = audit.evaluate("psmi", checkpoint=name)
    drop, accuracy = audit.checkpoints.loc[name, ["drop", "test_accuracy"]]
    point = psmi.at(0.0)
    return Row(
        f"{title} at {name.replace('-', ' ')}, drop {drop:.3f}, held-out accuracy {accuracy:.2f}: "
        "AUC; τ = 0",
        ", ".join(aucs),
        "",
        f"TPR {_with_interval(point.tpr, point.tpr_interval)}, "
        f"FPR {_with_interval(point.fpr, point.fpr_interval)}",
    )


def _with_interval(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} ({interval[0]:.2f} to {interval[1]:.2f})"
