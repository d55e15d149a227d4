"""The report as JSON, with a published schema."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.report.content import Decided
from memowidgets.report.record import Record
from memowidgets.report.words import paragraphs

if TYPE_CHECKING:
    from memowidgets.evaluation import OperatingPoint
    from memowidgets.report.content import Content, Scored

__all__ = ["SCHEMA_VERSION", "as_json", "schema"]

SCHEMA_VERSION = 1  # goes up when a field changes its meaning, comes or goes
_FILE = Path(__file__).parent / "schema.json"
_RATES = ("tpr", "fpr", "precision")


@cache
def _schema_text() -> str:
    return _FILE.read_text("utf-8")


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of ``audit.json``.

    Examples
    --------
    >>> schema()["properties"]["version"]["const"] == SCHEMA_VERSION
    True
    """
    return dict(json.loads(_schema_text()))


def as_json(content: Content) -> str:
    """Return the report as JSON, with null for NaN and infinity."""
    return json.dumps(_finite(_described(content)), indent=1, allow_nan=False) + "\n"


def _described(content: Content) -> dict[str, Any]:
    return {
        "kind": "memowidgets-report",
        "version": SCHEMA_VERSION,
        "created": content.created,
        "name": content.name,
        "facts": dict(content.facts),
        "numbers": dict(content.numbers),
        "layers": list(content.layers),
        "seed": content.seed,
        "training": dict(content.training),
        "versions": {name: dict(found) for name, found in content.versions.items()},
        "checkpoints": [dict(row) for row in content.checkpoints],
        "prediction": None if content.scored is None else _prediction(content, content.scored),
        "truth": _truth(content),
        "decisions": {
            "all": content.decided(flagged=False),
            "flagged": content.decided(flagged=True),
        },
        "samples": _samples(content),
        "figures": [{"name": f.name, "caption": f.caption} for f in content.figures],
        "warnings": list(content.cautions),
        "missing": [{"what": m.what, "why": m.why} for m in content.missing],
        "words": paragraphs(content),
        "record": _record(content),
    }


def _record(content: Content) -> dict[str, Any]:
    """Return the record to file: texts, and the digests."""
    found = Record.of(content)
    return {
        "statement": found.statement,
        "audited": [{"name": name, "text": text} for name, text in found.audited],
        "method": [{"name": name, "text": text} for name, text in found.method],
        "digests": [dataclasses.asdict(digest) for digest in content.digests],
        "found": [{"name": n, "value": v, "interval": i or None} for n, v, i in found.found],
        "judgement": found.judgement,
        "decided": found.decisions,
        "limits": list(found.limits),
    }


def _prediction(content: Content, scored: Scored) -> dict[str, Any]:
    return {
        "score": scored.metric,
        "title": scored.title,
        "layer": scored.layer or None,
        "checkpoint": scored.checkpoint,
        "tau": content.tau,
        "n": len(scored.scores),
        "flagged": int(content.flagged.sum()),
        "flagged_share": float(content.flagged.mean()),
        "flagged_interval": list(content.flagged_interval),
        "undecided": content.undecided,
    }


def _truth(content: Content) -> dict[str, Any] | None:
    scored = content.scored
    if scored is None or not scored.judged.any():
        return None
    found: dict[str, Any] = {
        "by": "log-LiRA",
        "eta": content.eta,
        "n": int(scored.judged.sum()),
        "memorized": int(scored.memorized(content.eta).sum()),
        "memorized_but_wrong": scored.memorized_but_wrong(content.eta),
        "auc": None,
        "auc_interval": None,
        "at_tau": None,
        "notes": [],
    }
    if content.evaluation is not None and content.point is not None:
        found |= {
            "auc": content.evaluation.auc,
            "auc_interval": list(content.evaluation.auc_interval),
            "at_tau": _at(content.point),
            "notes": list(content.evaluation.warnings),
        }
    return found


def _at(point: OperatingPoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: int(getattr(point, name)) for name in ("hits", "false_alarms", "missed", "clear")
    }
    for name in _RATES:
        interval = getattr(point, f"{name}_interval")
        found[name] = getattr(point, name)
        found[f"{name}_interval"] = None if interval is None else list(interval)
    return found


def _samples(content: Content) -> list[dict[str, Any]] | None:
    """Return the flagged members with their ids, if samples are included."""
    scored = content.scored
    if content.samples is None or scored is None:
        return None
    rows = [int(row) for row in content.by_risk if content.flagged[row]]
    return [_sample(content, scored, row) for row in rows]


def _sample(content: Content, scored: Scored, row: int) -> dict[str, Any]:
    position = int(scored.positions[row])
    name = content.ids[position]
    made = content.decisions.get(name, Decided())
    label = None if scored.labels is None else int(scored.labels[row])
    known = label is not None and 0 <= label < len(content.class_names)
    return {
        "id": name,
        "position": position,
        "score": float(scored.scores[row]),
        "error": None if scored.errors is None else float(scored.errors[row]),
        "log_lira": None if scored.log_lira is None else float(scored.log_lira[row]),
        "label": content.class_names[label] if known and label is not None else None,
        "canary": None if content.canaries is None else bool(content.canaries[position]),
        "answered_rightly": None if scored.right is None else bool(scored.right[row]),
        "decision": made.decision,
        "note": made.note,
    }


def _finite(value: Any) -> Any:
    """Replace NaN and infinity by None, and NumPy numbers by Python's."""
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
