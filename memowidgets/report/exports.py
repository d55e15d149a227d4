"""The two files of a report: the page, and JSON with its schema."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import UNDECIDED
from memowidgets.evaluation import clopper_pearson
from memowidgets.files import check_outside_runs, checked_path, fill, replaced
from memowidgets.report.page import as_page
from memowidgets.report.words import headline, lead, limits, next_steps, sure
from memowidgets.visible import visible

if TYPE_CHECKING:
    from memowidgets.evaluation import OperatingPoint
    from memowidgets.evaluation.scored import Scored
    from memowidgets.report.content import Content


SCHEMA_VERSION = 4  # goes up when a field changes its meaning, comes or goes
_RATES = ("tpr", "fpr", "precision")


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of ``audit.json``.

    Examples
    --------
    >>> schema()["properties"]["version"]["const"] == SCHEMA_VERSION
    True
    """
    return dict(json.loads(Path(__file__).with_name("schema.json").read_text("utf-8")))


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
        "samples": _sample_rows(content),
        "figures": [{"name": f.name, "caption": f.caption} for f in content.figures],
        "warnings": list(content.cautions),
        "missing": [{"what": m.what, "why": m.why} for m in content.missing],
        "words": {
            "headline": headline(content),
            "lead": lead(content),
            "sure": sure(content),
            "next": next_steps(content),
        },
        "digests": [dataclasses.asdict(digest) for digest in content.digests],
        "limits": list(limits(content)),
    }


def _prediction(content: Content, scored: Scored) -> dict[str, Any]:
    n_flagged = int(content.flagged.sum())
    return {
        "score": scored.metric,
        "title": scored.title,
        "layer": scored.layer or None,
        "checkpoint": scored.checkpoint,
        "axis": scored.axis,
        "tau": content.tau,
        "n": len(scored),
        "flagged": n_flagged,
        "flagged_share": n_flagged / len(scored),
        "flagged_interval": clopper_pearson(n_flagged, len(scored)),
        "undecided": None if scored.errors is None else int(scored.close(content.tau).sum()),
    }


def _truth(content: Content) -> dict[str, Any] | None:
    if content.n_memorized is None:
        return None
    evaluation, point = content.evaluation, content.point
    return {
        "by": "log-LiRA",
        "eta": content.eta,
        "n": content.counts["n"],
        "memorized": content.n_memorized,
        "memorized_but_wrong": content.memorized_but_wrong,
        "truly": content.n_truly,
        "auc": evaluation and evaluation.auc,
        "auc_interval": evaluation and evaluation.auc_interval,
        "true_auc": evaluation and evaluation.true_auc,
        "true_auc_interval": evaluation and evaluation.true_auc_interval,
        "at_tau": point and _at_tau(point),
        "notes": evaluation.warnings if evaluation else [],
    }


def _at_tau(point: OperatingPoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        status: int(getattr(point, status))
        for status in ("found", "flagged_only", "missed", "left_alone")
    }
    for name in _RATES:
        interval = getattr(point, f"{name}_interval")
        found[name] = getattr(point, name)
        found[f"{name}_interval"] = None if interval is None else list(interval)
    return found


def _sample_rows(content: Content) -> list[dict[str, Any]] | None:
    """Return the flagged members with their ids, if samples are included."""
    scored = content.scored
    if content.samples is None or scored is None:
        return None
    rows = [int(row) for row in content.by_risk if content.flagged[row]]
    return [_sample(content, scored, row) for row in rows]


def _sample(content: Content, scored: Scored, row: int) -> dict[str, Any]:
    position = int(scored.positions[row])
    name = content.ids[position]
    made = content.decisions.get(name, UNDECIDED)
    label = None if scored.labels is None else int(scored.labels[row])
    known = label is not None and 0 <= label < len(content.class_names)
    return {
        "id": name,
        "position": position,
        "score": float(scored.scores[row]),
        "error": None if scored.errors is None else float(scored.errors[row]),
        "log_lira": None if scored.log_lira is None else float(scored.log_lira[row]),
        "label": content.class_names[label] if known and label is not None else None,
        "canary": None if scored.canaries is None else bool(scored.canaries[row]),
        "answered_rightly": None if scored.right is None else bool(scored.right[row]),
        "decision": made.decision,
        "to": made.to,
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


_ENDINGS = (".html", ".htm")


def checked_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path]:
    """Return the paths of the page and the JSON file after checking them.

    Raises
    ------
    ValueError
        If the path does not end in ``.html``, or lies in a run directory.
    FileNotFoundError
        If its folder is not there.
    FileExistsError
        If one of the two is there and may not be overwritten, or is not a file.
    """
    page = checked_path(path).absolute()
    if page.suffix.lower() not in _ENDINGS:
        raise ValueError(f"the report is a page: its path must end in .html, not {page.name!r}")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {page.parent}: make it first")
    check_outside_runs(page.parent)
    targets = page, page.with_suffix(".json")
    for target in targets:
        if not os.path.lexists(target):
            continue
        if not target.is_file():
            raise FileExistsError(f"{target} is there and is not a file: choose another path")
        if not overwrite:
            raise FileExistsError(
                f"{target} is there already: choose another path, or pass overwrite=True"
            )
    return targets


def write(content: Content, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the page, and the ``.json`` file beside it.

    Each file is written to a temporary name and renamed, the page last. With samples in them
    they are readable by their owner alone.

    Parameters
    ----------
    content : Content
        What to say.
    path : path-like
        Of the page; it ends in ``.html``.
    overwrite : bool
        Whether files that are there are replaced.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    ValueError, FileNotFoundError, FileExistsError
        As `checked_targets`.
    OSError
        If they cannot be written; then all are as they were before.
    """
    page, machine = checked_targets(path, overwrite=overwrite)
    texts = {page: as_page(content), machine: as_json(content)}
    mode = 0o666 if content.samples is None else 0o600
    try:
        with ExitStack() as unfinished:  # left in reverse: the page gets its name last
            for target, text in texts.items():
                temporary = unfinished.enter_context(replaced(target, mode))
                fill(temporary, text.encode("utf-8", "replace"))
            checked_targets(path, overwrite=overwrite)  # another process may have been faster
    except FileExistsError:
        raise
    except OSError as error:
        why = visible(error.strerror or str(error), 200)
        raise OSError(
            f"the report {visible(str(page))} cannot be written ({why}): choose another path, or "
            "make room and make the folder writable"
        ) from error
    return page
