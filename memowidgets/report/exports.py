"""The three files of a report: Markdown for a pull request, JSON with its schema, and the page."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import UNDECIDED
from memowidgets.files import check_outside_runs, checked_path, fill, replaced
from memowidgets.report.page import as_page
from memowidgets.report.words import (
    STATEMENT,
    Section,
    Table,
    audited,
    limits,
    method,
    paragraphs,
    record,
    sections,
    without_calls,
)
from memowidgets.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memowidgets.evaluation import OperatingPoint
    from memowidgets.report.content import Content, Scored


_MARKS = re.compile(r"([\\`*_{}\[\]()<>#|~!$&^]|(?<=[a-z]):(?=//)|(?<=www)\.)", re.IGNORECASE)
_AT_THE_START = re.compile(r"^(\d*)([-+=:]|(?<=\d)[.)](?=\s|$))")
_CALLS = re.compile(r"([@#])")  # GitHub looks for names and numbers after backslashes are gone
_JOINER = "\N{WORD JOINER}"
_MOST_CHARACTERS = 300


def escaped(text: str, most: int | None = _MOST_CHARACTERS) -> str:
    r"""Escape a text for one line of Markdown.

    Control characters show as their numbers, breaks as spaces; every mark that Markdown or HTML
    would take for its own gets a backslash, and what follows ``@`` or ``#`` is joined by a
    character that nobody sees, so that it calls no one.

    Examples
    --------
    >>> print(escaped("a|b <script>"))
    a\|b \<script\>
    >>> print(escaped("\x1b[31m"))
    ⟨U+001B⟩\[31m
    """
    plain = visible(text)
    cut = plain if most is None or len(plain) <= most else f"{plain[: most - 1]}…"
    marked = _AT_THE_START.sub(r"\1\\\2", _MARKS.sub(r"\\\1", cut))
    return _CALLS.sub(rf"\1{_JOINER}", marked)


def as_markdown(content: Content, page: str) -> str:
    """Return the report as Markdown. `page` is the file name of the HTML page."""
    parts = [
        f"# Memorisation audit of {escaped(content.name)}",
        *_record(content),
        *(part for section in sections(content) for part in _section(section)),
        (
            f"The page with the moving threshold: `{page.replace('`', '')}`. Written on "
            f"{content.created[:10]}."
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _sentence(text: str) -> str:
    """Escape a sentence of ours that may contain a user's name, but keep its punctuation."""
    marked = re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", visible(text))
    return _CALLS.sub(rf"\1{_JOINER}", marked)


def _record(content: Content) -> list[str]:
    """Return the fields to file: what was found, what the owner says, or an empty line."""
    rows = []
    for entry in record(content).values():
        said = [*map(_sentence, entry.said), escaped(entry.given or "", most=None)]
        lines = [f"{_LINE} {label}".rstrip() for label in entry.lines]
        rows.append((entry.title, "<br>".join(filter(None, [*said, *lines]))))
    return ["## Record to file", _sentence(STATEMENT), _table(("", ""), rows)]


_LINE = "\\_" * 24


def _section(section: Section) -> list[str]:
    parts = [f"## {section.title}"]
    for part in chain(*section.columns):
        if isinstance(part, str):
            parts.append(_sentence(part))
        elif isinstance(part, Table):
            parts += [f"### {escaped(part.caption)}"] if part.caption else []
            columns = part.few or range(len(part.rows[0]))
            head = [part.head[i] if part.head else "" for i in columns]
            parts.append(_table(head, [[escaped(row[i]) for i in columns] for row in part.rows]))
        else:
            parts.append("\n".join(f"- {escaped(text)}" for text in part))
    return parts


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


SCHEMA_VERSION = 2  # goes up when a field changes its meaning, comes or goes
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
        "words": paragraphs(content),
        "record": _record_parts(content),
    }


def _record_parts(content: Content) -> dict[str, Any]:
    """Return the record to file, with what it rests on."""
    return {
        "statement": STATEMENT,
        "fields": {
            name: {"title": entry.title, "said": list(entry.said), "given": entry.given}
            for name, entry in record(content).items()
        },
        "audited": [{"name": name, "text": text} for name, text in audited(content)],
        "method": [{"name": name, "text": text} for name, text in method(content)],
        "digests": [dataclasses.asdict(digest) for digest in content.digests],
        "limits": list(limits(content)),
    }


def _prediction(content: Content, scored: Scored) -> dict[str, Any]:
    return {
        "score": scored.metric,
        "title": scored.title,
        "layer": scored.layer or None,
        "checkpoint": scored.checkpoint,
        "rule": "class" if content.by_class else None,
        "tau": None if content.by_class else content.tau,
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
            "at_tau": _at_tau(content.point),
            "notes": [without_calls(text) for text in content.evaluation.warnings],
        }
    return found


def _at_tau(point: OperatingPoint) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: int(getattr(point, name)) for name in ("hits", "false_alarms", "missed", "clear")
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
        "canary": None if content.canaries is None else bool(content.canaries[position]),
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


def checked_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path, Path]:
    """Return the paths of the page, the Markdown and the JSON file after checking them.

    Raises
    ------
    ValueError
        If the path does not end in ``.html``, or lies in a run directory.
    FileNotFoundError
        If its folder is not there.
    FileExistsError
        If one of the three is there and may not be overwritten, or is no file.
    """
    page = checked_path(path).absolute()
    if page.suffix.lower() not in _ENDINGS:
        raise ValueError(f"the report is a page: its path must end in .html, not {page.name!r}")
    if not page.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {page.parent}: make it first")
    check_outside_runs(page.parent)
    targets = page, page.with_suffix(".md"), page.with_suffix(".json")
    for target in targets:
        if not os.path.lexists(target):
            continue
        if not target.is_file():
            raise FileExistsError(f"{target} is there and is no file: choose another path")
        if not overwrite:
            raise FileExistsError(
                f"{target} is there already: choose another path, or pass overwrite=True"
            )
    return targets


def write(content: Content, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write the page, and the ``.md`` and ``.json`` files beside it.

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
    page, markdown, machine = checked_targets(path, overwrite=overwrite)
    texts = {
        page: as_page(content),
        markdown: as_markdown(content, page.name),
        machine: as_json(content),
    }
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
