"""The report as Markdown, for a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from memowidgets.report.record import Record
from memowidgets.report.words import paragraphs, rates, settings, share, whole
from memowidgets.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memowidgets.report.content import Content

__all__ = ["as_markdown", "escaped"]

_MARKS = re.compile(r"([\\`*_{}\[\]()<>#|~!$&^]|(?<=[a-z]):(?=//)|(?<=www)\.)", re.IGNORECASE)
_AT_THE_START = re.compile(r"^(\d*)([-+=:]|(?<=\d)[.)](?=\s|$))")
_CALLS = re.compile(r"([@#])")  # GitHub looks for names and numbers after backslashes are gone
_JOINER = "\N{WORD JOINER}"
_MOST_CHARACTERS = 300


def escaped(text: str) -> str:
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
    cut = plain if len(plain) <= _MOST_CHARACTERS else f"{plain[: _MOST_CHARACTERS - 1]}…"
    marked = _AT_THE_START.sub(r"\1\\\2", _MARKS.sub(r"\\\1", cut))
    return _CALLS.sub(rf"\1{_JOINER}", marked)


def as_markdown(content: Content, page: str) -> str:
    """Return the report as Markdown. `page` is the file name of the HTML page."""
    parts = [
        f"# Memorisation audit of {escaped(content.name)}",
        *(_sentence(text) for text in paragraphs(content)),
        *_results(content),
        *_warnings(content),
        *_decisions(content),
        *_samples(content),
        *_made(content),
        *_record(content),
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


def _results(content: Content) -> list[str]:
    rows = rates(content)
    if not rows:
        return []
    return [f"## At τ = {content.tau:g}", _table(("", "", "95 % interval"), rows)]


def _warnings(content: Content) -> list[str]:
    if not content.cautions:
        return []
    return ["## Before you trust it", _list(map(escaped, content.cautions))]


def _decisions(content: Content) -> list[str]:
    every, flagged = content.decided(flagged=False), content.decided(flagged=True)
    rows = [(name, whole(every[name]), whole(flagged[name])) for name in every]
    return ["## Decisions", _table(("", "members", "flagged"), rows)]


def _samples(content: Content) -> list[str]:
    """Return the flagged samples with their ids, if samples are included."""
    scored = content.scored
    if content.samples is None or scored is None:
        return []
    rows = [int(row) for row in content.by_risk[:_MOST_SAMPLES] if content.flagged[row]]
    if not rows:
        return []
    names = [content.ids[int(scored.positions[row])] for row in rows]
    made = [content.decisions.get(name) for name in names]
    table = [
        (escaped(name), f"{scored.scores[row]:.4g}", "undecided" if m is None else m.decision)
        for name, row, m in zip(names, rows, made, strict=True)
    ]
    return [f"## The {len(rows)} most at risk", _table(("id", "score", "decision"), table)]


_MOST_SAMPLES = 50


def _made(content: Content) -> list[str]:
    facts = [(escaped(name), escaped(text)) for name, text in settings(content)]
    parts = ["## How it was made", _table(("", ""), facts)]
    if content.checkpoints:
        columns = ("checkpoint", "epoch", "drop", "chosen by ρ")
        parts.append(_table(columns, [_checkpoint(row) for row in content.checkpoints]))
    if content.missing:
        lines = (f"{escaped(m.what)}: {escaped(m.why)}" for m in content.missing)
        parts += ["## What is missing", _list(lines)]
    return parts


def _record(content: Content) -> list[str]:
    record = Record.of(content)
    return [
        "## Record to file",
        _sentence(record.statement),
        "### What was audited",
        _table(("", ""), map(_escaped_all, record.audited)),
        "### Method and settings",
        _table(("", ""), map(_escaped_all, record.method)),
        "### Digests",
        _table(("", "SHA-256", "of"), map(_escaped_all, record.digests)),
        "### What was found",
        _sentence(record.judgement),
        _table(("", "", "95 % interval"), record.found),
        "### What was decided",
        _sentence(record.decisions),
        "### Limits",
        _list(map(escaped, record.limits)),
    ]


def _escaped_all(cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(escaped, cells))


def _checkpoint(row: Any) -> tuple[str, str, str, str]:
    epoch, drop = row.get("epoch"), row.get("drop")
    return (
        escaped(str(row.get("name"))),
        "–" if epoch is None else f"{epoch:g}",
        "–" if drop is None else share(drop) if drop >= 0 else f"{drop:.1%}",
        "yes" if row.get("prediction") else "",
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
