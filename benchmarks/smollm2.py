"""RMS error of PSMI on hidden states of SmolLM2: 256 directions against 2000 plain ones."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import psmi as published

from benchmarks import states
from benchmarks.measure import Namespace, Row, left_out, rms
from memowidgets.metrics import PSMI

SEEDS = range(1, 9)
WORK = "RMS error on SmolLM2's states, 256 directions against 2000 plain ones"


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.mmlu is None:
        return [left_out(WORK, "needs --smollm2 FOLDER and --mmlu FILE")]
    folder = arguments.states or Path(tempfile.gettempdir()) / "memowidgets-states"
    representations, y = states.load(folder, arguments.smollm2, arguments.mmlu)
    return [row for layer, X in representations.items() for row in _one_layer(layer, X, y)]


def _one_layer(layer: int, X: np.ndarray, y: np.ndarray) -> list[Row]:
    long = [PSMI(8192, random_state=s).fit(X, y).score_samples(X, y) for s in range(100, 108)]
    expected = np.mean(long, axis=0)
    runs = [PSMI(256, random_state=s).fit(X, y).score_samples(X, y, return_std=True) for s in SEEDS]
    plain = [PSMI(method="plain", random_state=s).fit(X, y).score_samples(X, y) for s in SEEDS]
    np.random.seed(0)  # noqa: NPY002 - the published package draws from it
    peer = published.PSMI(n_estimators=2000).fit_transform(X, y)[0]
    error = rms([scores - expected for scores, _ in runs])
    plain_error = rms([scores - expected for scores in plain])
    covered = np.mean([np.abs(scores - expected) < 1.96 * e for scores, e in runs])
    shape = f"layer {layer}, n = {len(X)}, d = {X.shape[1]}, {len(np.unique(y))} classes"
    return [
        Row(
            f"{WORK}; {shape}",
            f"{1e3 * error:.2f}e-3",
            f"{1e3 * plain_error:.2f}e-3 (`psmi`: {1e3 * rms(peer - expected):.2f}e-3)",
            f"{error / plain_error:.2f}×",
            "≤ 1.2× (aim 1.0×)",
        ),
        Row(f"share of 95 % intervals that cover; {shape}", f"{covered:.3f}", "", "", ".91 to .98"),
    ]
