"""A run to break, twins that differ from it in one thing each, and what is asked of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import memowidgets as mw
from tests.training.small import Inline, tiny_data

TRAINING = mw.TrainingConfig(epochs=3, batch_size=8, lr=2e-2, precision="float32")
SHADOWS = 8
LAST = "epoch-3"


data = tiny_data


def begun(path: Path, samples: Any = None, seed: int = 0) -> mw.Audit:
    """A run as its owner makes it, or goes on with it."""
    how = {"training": TRAINING, "seed": seed, "device": "cpu", "held_out": None}
    samples = data() if samples is None else samples
    return mw.Audit(mw.models.ConvNet(4), samples, path, **how)


def made(path: Path, samples: mw.data.ImageDataset, seed: int = 0) -> Path:
    """Train a run: target, passes, scores, shadow models, two of them in the target's place."""
    audit = begun(path, samples, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rare classes
        audit.train(stop_at_drop=0.1)
        audit.train()
        fill(audit)
        audit.run_references(2, Inline())
        for checkpoint in (1, 2, 3):
            audit.score("psmi", checkpoint=checkpoint)
        for target in (1, 2):
            audit.as_target(target).score("psmi")
    audit.decision_log.decide([str(audit.members[0])], "remove")
    return path


def fill(audit: mw.Audit, n: int = SHADOWS) -> None:
    audit.run_shadows(n, Inline(), keep_forward=True)


def opened(path: Path) -> mw.Audit:
    """A run with its data and model."""
    return mw.Audit.open(path, data=data(), model=mw.models.ConvNet(4), device="cpu")


# Each answer can be held against the whole run's.

Answer = list[np.ndarray]


def _evaluate(audit: mw.Audit) -> Answer:
    found = audit.evaluate("psmi", checkpoint="final", eta=0.5)
    canaries = audit.evaluate("loss", truth="canaries")
    return [np.array([found.auc, found.n_memorized, canaries.auc, canaries.n])]


def _as_target(audit: mw.Audit) -> Answer:
    return [
        _values(audit.as_target(2).score("psmi")),
        _values(audit.as_target(1).log_lira()),
    ]


def _trace(audit: mw.Audit) -> Answer:
    csl = [audit.score("csl", checkpoint=at) for at in (2, "final")]
    return [_values(one) for one in (*csl, audit.as_target(1).score("csl"))]


QUESTIONS: dict[str, Callable[[mw.Audit], Answer]] = {
    "checkpoints": lambda audit: [audit.checkpoints.to_numpy(dtype=float)],
    "score": lambda audit: [
        _values(audit.score("psmi", checkpoint=at)) for at in (2, "final")
    ],
    "log_lira": lambda audit: [_values(audit.log_lira())],
    "evaluate": _evaluate,
    "trace": _trace,
    "reference": lambda audit: [_values(audit.score("reference"))],
    "as_target": _as_target,
    "decisions": lambda audit: [audit.decisions.to_numpy(dtype=str)],
}


def _values(series: Any) -> np.ndarray:
    """Values in the order of the ids, and who has one."""
    ordered = series.sort_index()
    place = [int(name.rsplit("-", 1)[-1]) for name in ordered.index]
    return np.array([place, ordered.to_numpy()])


def same(first: Answer, second: Answer) -> bool:
    """Whether two answers are equal, up to what float32 leaves of a pass that is made again."""
    return all(_same(one, other) for one, other in zip(first, second, strict=True))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype.kind in "US":
        return bool(np.array_equal(a, b))
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True))
