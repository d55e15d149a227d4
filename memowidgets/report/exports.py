"""The two files of a report: the page, and its numbers as JSON with a schema."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.data.dataset import writable
from memowidgets.evaluation import clopper_pearson
from memowidgets.files import fill, replacement_of
from memowidgets.report import words
from memowidgets.report.page import as_page

if TYPE_CHECKING:
    from memowidgets.evaluation.scored import Scored
    from memowidgets.report.content import Content


SCHEMA_VERSION = 8  # goes up when a field changes its meaning, comes or goes
# what whoever signs fills in
_SIGN_OFF = ("release", "reason", "audited_by", "reviewed_by", "date")
_AT_TAU = (
    *("found", "flagged_only", "missed", "left_alone", "tpr", "tpr_interval"),
    *("fpr", "fpr_interval", "precision", "precision_interval"),
)


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of ``audit.json``.

    Examples
    --------
    >>> schema()["properties"]["version"]["const"] == SCHEMA_VERSION
    True
    """
    return dict(json.loads(Path(__file__).with_name("schema.json").read_text("utf-8")))


def as_json(content: Content) -> str:
    """Return the numbers of the report as JSON, with null for NaN and infinity."""
    return json.dumps(_finite(_as_dict(content)), indent=1, allow_nan=False) + "\n"


def _as_dict(content: Content) -> dict[str, Any]:
    return {
        "kind": "memowidgets-report",
        "version": SCHEMA_VERSION,
        "created": content.created,
        "name": content.name,
        "facts": content.facts,
        "numbers": content.numbers,
        "layers": content.layers,
        "seed": content.seed,
        "trained_by": content.trained_by,
        "training": content.training,
        "earlier_training": [
            {"from_step": step, "settings": settings}
            for step, settings in content.earlier
        ],
        "versions": content.versions,
        "checkpoints": content.checkpoints,
        "prediction": None
        if content.scored is None
        else _prediction(content, content.scored),
        "truth": _truth(content),
        "headline": words.headline(content),
        "how_sure": words.sure(content),
        "decisions": _decisions(content),
        "residual_risk": _residual_risk(content),
        "limits": words.limits(content),
        "next_steps": words.next_steps(content),
        "sign_off": dict.fromkeys(_SIGN_OFF),
        "figures": {figure.name: figure.caption for figure in content.figures},
        "warnings": [note.sentence for note in content.cautions],
        "missing": content.missing,
        "digests": [dataclasses.asdict(digest) for digest in content.digests],
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
        "undecided": None
        if scored.errors is None
        else int(scored.close(content.tau).sum()),
    }


def _truth(content: Content) -> dict[str, Any] | None:
    if content.n_memorized is None:
        return None
    evaluation = content.evaluation
    point = content.point
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
        "at_tau": point and {name: getattr(point, name) for name in _AT_TAU},
        "notes": [note.sentence for note in evaluation.warnings] if evaluation else [],
    }


def _decisions(content: Content) -> dict[str, Any]:
    """Return what was decided, by whom and when: of members by their number, never by an id."""
    flagged = set(content.flagged_ids)
    made = [
        {
            "member": position,
            "flagged": content.ids[position] in flagged,
            "decision": one.decision,
            "by": one.by,
            "at": one.at,
        }
        for position, one in content.made.items()
    ]
    return {
        "all": content.decided(flagged=False),
        "flagged": content.decided(flagged=True),
        "looked_at": content.n_looked_at,
        "people": [person._asdict() for person in content.people],
        "made": made,
    }


def _residual_risk(content: Content) -> dict[str, Any]:
    is_known = content.n_memorized is not None
    return {
        "of": "memorized" if is_known else "flagged",
        "n": int(content.at_stake.sum()),
        "to_be_changed": content.n_changed,
        "in_words": words.residual_risk(content),
    }


def _finite(value: object) -> Any:
    """Return a value as JSON has it, with None for NaN and infinity."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def checked_targets(
    path: str | os.PathLike[str], *, overwrite: bool
) -> tuple[Path, Path]:
    """Return the paths of the page and of its JSON file after checking them.

    Raises
    ------
    ValueError
        If the path does not end in ``.html``, or lies in a run directory.
    FileNotFoundError
        If its folder is not there.
    FileExistsError
        If one of the two is there and may not be overwritten, or is not a file.
    """
    page = writable(path, overwrite=overwrite)
    suffix = page.suffix.lower()
    if suffix == ".pdf":
        instead = page.with_suffix(".html").name
        raise ValueError(
            f"the report is a page, which becomes {page.name!r} when it is printed: write "
            f"{instead!r}, open it in a browser, and print it to a PDF."
        )
    if suffix not in (".html", ".htm"):
        raise ValueError(
            f"the report is a page: its path must end in .html, not {page.name!r}"
        )
    return page, writable(page.with_suffix(".json"), overwrite=overwrite)


def write(
    content: Content, path: str | os.PathLike[str], *, overwrite: bool = False
) -> Path:
    """Write the page, and the ``.json`` file beside it.

    Both are written to temporary names and renamed, the page last. With samples in it, the page is
    readable by its owner alone.

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
        If they cannot be written; then both are as they were before.
    """
    page, numbers = checked_targets(path, overwrite=overwrite)
    mode = 0o666 if content.samples is None else 0o600
    with replacement_of(page, mode) as shown, replacement_of(numbers, mode) as counted:
        fill(shown, as_page(content).encode("utf-8", "replace"))
        fill(counted, as_json(content).encode("utf-8", "replace"))
    return page
