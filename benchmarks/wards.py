"""Generated questions and a small model from scratch with default settings, over three seeds."""

from __future__ import annotations

import tempfile
import warnings

import memowidgets as mw
from benchmarks.measure import Namespace, Row

SEEDS, QUESTIONS, SHADOWS = range(3), 1200, 16


def rows(_arguments: Namespace) -> list[Row]:
    return [row for seed in SEEDS for row in _one_seed(seed)]


def _one_seed(seed: int) -> list[Row]:
    data = mw.data.make_mcqs(QUESTIONS, seed=seed)
    with tempfile.TemporaryDirectory() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rows have what it says
        audit = mw.Audit(mw.models.CausalLM.from_scratch(data), data, path=path, seed=seed)
        audit.train()
        audit.run_shadows(SHADOWS)
        found, accuracy = audit.evaluate("psmi"), audit.checkpoints["test_accuracy"]
        point, prediction = found.at(0.0), audit.prediction
    setting = f"make_mcqs({QUESTIONS}), from_scratch, {SHADOWS} shadow models, seed {seed}"
    at_rho = f"{prediction.record.name}, drop {prediction.drop:.3f}"
    low, high = found.auc_interval
    return [
        Row(
            f"{setting}: held-out accuracy at the end (at ρ)",
            f"{accuracy.iloc[-1]:.3f} ({prediction.record.test_accuracy:.3f})",
            goal="≥ .85",
        ),
        Row(f"{setting}: members memorised", f"{found.n_memorized} of {found.n}", goal="≥ 12"),
        Row(
            f"{setting}: AUC of PSMI at ρ ({at_rho})",
            f"{found.auc:.3f} ({low:.3f} to {high:.3f})",
            goal="lower bound > .75",
        ),
        Row(
            f"{setting}: τ = 0",
            f"TPR {point.tpr:.2f}, FPR {point.fpr:.3f}",
        ),
    ]
