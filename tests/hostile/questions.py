"""What is asked of a run that somebody broke: each answer can be held against the whole run's."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import memowidgets as mw

Answer = dict[str, np.ndarray]
_REPORTED = ("numbers", "seed", "checkpoints", "prediction", "truth", "decisions")


def _checkpoints(audit: mw.Audit, _folder: Path) -> Answer:
    table = audit.checkpoints
    return {name: table[name].to_numpy(dtype=float) for name in table}


def _score(audit: mw.Audit, _folder: Path) -> Answer:
    return {f"psmi at {at}": _values(audit.score("psmi", checkpoint=at)) for at in (2, "final")}


def _log_lira(audit: mw.Audit, _folder: Path) -> Answer:
    return {"log-LiRA": _values(audit.log_lira())}


def _evaluate(audit: mw.Audit, _folder: Path) -> Answer:
    found = audit.evaluate("psmi", checkpoint="final", eta=0.5)
    canaries = audit.evaluate("loss", truth="canaries")
    return {"evaluation": np.array([found.auc, found.n_memorized, canaries.auc, canaries.n])}


def _as_target(audit: mw.Audit, _folder: Path) -> Answer:
    other = audit.as_target(1)
    return {"its psmi": _values(other.score("psmi")), "its log-LiRA": _values(other.log_lira())}


def _trace(audit: mw.Audit, _folder: Path) -> Answer:
    csl = {f"csl at {at}": _values(audit.score("csl", checkpoint=at)) for at in (2, "final")}
    return csl | {"its csl": _values(audit.as_target(1).score("csl"))}


def _reference(audit: mw.Audit, _folder: Path) -> Answer:
    return {"reference": _values(audit.score("reference"))}


def _decisions(audit: mw.Audit, _folder: Path) -> Answer:
    return {"decisions": audit.decisions.to_numpy(dtype=str)}


def _report(audit: mw.Audit, folder: Path) -> Answer:
    page = audit.report(folder / "audit.html", overwrite=True, figures=False)
    content = json.loads(page.with_suffix(".json").read_text())
    for text in [*content["warnings"], *content["missing"].values()]:
        warnings.warn(text, UserWarning, stacklevel=1)  # what the page says counts as said
    return {key: np.array([json.dumps(content[key])]) for key in _REPORTED}


def _fork(audit: mw.Audit, folder: Path) -> Answer:
    fork = audit.fork(folder / "fork", start="prediction")
    fork.train(stop_at_drop=0.0001)
    return {"of the fork": fork.checkpoints.median_loss.to_numpy()}


QUICK: dict[str, Callable[[mw.Audit, Path], Answer]] = {
    "checkpoints": _checkpoints,
    "score": _score,
    "log_lira": _log_lira,
    "evaluate": _evaluate,
    "trace": _trace,
    "reference": _reference,
    "as_target": _as_target,
    "decisions": _decisions,
}
WRITING: dict[str, Callable[[mw.Audit, Path], Answer]] = {"report": _report, "fork": _fork}


def _values(series: Any) -> np.ndarray:
    """Values in the order of the ids, and who has one."""
    ordered = series.sort_index()
    place = [int(name.rsplit("-", 1)[-1]) for name in ordered.index]
    return np.array([place, ordered.to_numpy()])


def same(first: Answer, second: Answer) -> bool:
    """Whether two answers are equal, up to what float32 leaves of a pass that is made again."""
    if first.keys() != second.keys():
        return False
    return all(_same(first[key], second[key]) for key in first)


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "US":
        return bool((a == b).all())
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True))
