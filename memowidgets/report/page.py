"""The report as one HTML page that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memowidgets.report.packing import packed
from memowidgets.report.record import Record
from memowidgets.report.wire import MOST_SAMPLES, wire
from memowidgets.report.words import paragraphs, rates, settings, share, whole
from memowidgets.visible import visible
from memowidgets.widgets import frontend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from memowidgets.report.content import Content

__all__ = ["as_page", "script", "style"]

_STATIC = Path(__file__).parent / "static"


@cache
def script() -> str:
    """Return the report's modules and those of both widgets as one script."""
    return f'"use strict";\n(() => {{\n{frontend.scripts(_STATIC / "report.js")}\n}})();\n'


@cache
def style() -> str:
    """Return the style sheet of the page and the widgets."""
    return frontend.style(*frontend.STYLES, _STATIC / "report.css")


def as_page(content: Content) -> str:
    """Return the page as HTML.

    Nothing in it that comes from the user's data is markup: what stands in the HTML is escaped,
    and what the script shows lies compressed in a block that no browser runs. The policy at its
    head lets the page run this script and this style alone, and ask for nothing.
    """
    title = f"Memorisation audit of {visible(content.name)}"
    body = "\n".join(
        [
            f"<header><h1>{_text(title)}</h1>",
            (
                f"<p class='mr-when'>written on {_text(content.created[:10])} by memowidgets "
                f"{_text(content.versions.get('report', {}).get('memowidgets', ''))}</p></header>"
            ),
            "<main>",
            *_in_short(content),
            *_warnings(content),
            *_moving(content),
            *_decisions(content),
            *_figures(content),
            *_made(content),
            *_record(content),
            "</main>",
            f"<script type='text/plain' id='mr-data'>{packed(wire(content))}</script>",
            f"<script>{script()}</script>",
        ]
    )
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{_policy()}\">\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='referrer' content='no-referrer'>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        f"<title>{_text(title)}</title>\n<style>{style()}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _policy() -> str:
    return (
        "default-src 'none'; "
        f"script-src '{_digest(script())}'; style-src '{_digest(style())}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _in_short(content: Content) -> list[str]:
    words = "".join(f"<p>{_cell(text)}</p>" for text in paragraphs(content))
    words = words.replace(" %", "\N{NO-BREAK SPACE}%")
    results = rates(content)
    head = ("", "", "95 % interval")
    table = _table(f"At τ = {content.tau:g}", head, results) if results else ""
    return [
        "<section aria-labelledby='short'><h2 id='short'>In short</h2>",
        f"<div class='mr-beside'><div>{words}</div>{table}</div></section>",
    ]


def _warnings(content: Content) -> list[str]:
    if not content.cautions:
        return []
    items = "".join(f"<li>{_cell(text)}</li>" for text in content.cautions)
    return [
        (
            "<section class='mr-warnings' aria-labelledby='warnings'>"
            f"<h2 id='warnings'>Before you trust it</h2><ul>{items}</ul></section>"
        )
    ]


def _moving(content: Content) -> list[str]:
    """Return the elements that will contain the two widgets."""
    if content.scored is None:
        return []
    n, shown = len(content.scored.scores), min(len(content.scored.scores), MOST_SAMPLES)
    which = (
        f"the {whole(shown)} samples most at risk, of {whole(n)}"
        if shown < n
        else f"all {whole(n)} samples"
    )
    what = (
        "They are shown here because the report was asked to include them."
        if content.samples is not None
        else "Numbers only: the report holds no text, no picture, no label and no name of a "
        "sample. Each is called by its place among the members, which the owner of the audit "
        "can look up (audit.members)."
    )
    return [
        (
            "<section aria-labelledby='move'><h2 id='move'>Move the threshold</h2>"
            "<p>Drag the line: everything here follows, the samples below too. Nothing is sent "
            "anywhere.</p><div id='mr-explorer'></div></section>"
        ),
        (
            "<section aria-labelledby='samples'><h2 id='samples'>Samples</h2>"
            f"<p>This list holds {which}. {what}</p><div id='mr-inspector'></div></section>"
        ),
        (
            "<noscript><p class='mr-note'>The threshold moves where scripts may run. The numbers "
            "above stand without.</p></noscript>"
        ),
        "<p class='mr-note' id='mr-problem' role='alert' hidden></p>",
    ]


def _decisions(content: Content) -> list[str]:
    every, flagged = content.decided(flagged=False), content.decided(flagged=True)
    rows = [(name, whole(every[name]), whole(flagged[name])) for name in every]
    return [
        "<section aria-labelledby='decided'><h2 id='decided'>Decisions</h2>",
        _table(f"Flagged: at τ = {content.tau:g}", ("", "members", "flagged"), rows),
        "</section>",
    ]


def _figures(content: Content) -> list[str]:
    if not content.figures:
        return []
    return [
        (
            "<section aria-labelledby='figures'><h2 id='figures'>Figures</h2>"
            "<div id='mr-figures'></div></section>"
        )
    ]


def _made(content: Content) -> list[str]:
    tables = [_table("Settings", (), settings(content))]
    if content.checkpoints:
        columns = ("checkpoint", "epoch", "median loss", "drop", "training", "held out", "")
        rows = [_checkpoint(row) for row in content.checkpoints]
        tables.append(_table("Checkpoints: loss, and accuracy", columns, rows))
    return [
        "<section aria-labelledby='made'><h2 id='made'>How it was made</h2>",
        f"<div class='mr-beside'>{''.join(tables)}</div></section>",
        *_missing(content),
    ]


def _missing(content: Content) -> list[str]:
    if not content.missing:
        return []
    items = "".join(
        f"<li><strong>{_cell(m.what)}</strong>: {_cell(m.why)}</li>" for m in content.missing
    )
    head = "<section aria-labelledby='missing'><h2 id='missing'>What is missing</h2>"
    return [f"{head}<ul>{items}</ul></section>"]


def _record(content: Content) -> list[str]:
    """Return the record to file, which says all again that belongs into it."""
    record = Record.of(content)
    limits = "".join(f"<li>{_cell(text)}</li>" for text in record.limits)
    return [
        "<section class='mr-record' aria-labelledby='record'><h2 id='record'>Record to file</h2>",
        f"<p>{_cell(record.statement)}</p>",
        _table("What was audited", (), record.audited),
        _table("With which method and settings", (), record.method),
        _table("Digests", ("", "SHA-256", "of"), record.digests),
        f"<p>{_cell(record.judgement)}</p>",
        _table("What was found", ("", "", "95 % interval"), record.found) if record.found else "",
        f"<p>{_cell(record.decisions)}</p>",
        _table("What was decided", ("", "members", "flagged"), record.decided),
        f"<p>Limits:</p><ul>{limits}</ul></section>",
    ]


def _checkpoint(row: Any) -> tuple[str, ...]:
    def number(name: str, form: str) -> str:
        value = row.get(name)
        return "–" if value is None or value != value else format(value, form)  # noqa: PLR0124

    drop = row.get("drop")
    return (
        str(row.get("name")),
        number("epoch", "g"),
        number("median_loss", ".3f"),
        "–" if drop is None else share(drop) if drop >= 0 else f"−{share(-drop)}",
        number("train_accuracy", ".3f"),
        number("test_accuracy", ".3f"),
        "chosen by ρ" if row.get("prediction") else "",
    )


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    kind = "mr-scroll mr-numbers" if head else "mr-scroll"
    top = "".join(f"<th scope='col'>{_text(name)}</th>" if name else "<td></td>" for name in head)
    body = "".join(_row(*row) for row in rows)
    return (
        f"<div class='{kind}'><table><caption>{_text(caption)}</caption>"
        f"{f'<thead><tr>{top}</tr></thead>' if top else ''}<tbody>{body}</tbody></table></div>"
    )


def _row(first: str, *rest: str) -> str:
    cells = "".join(f"<td>{_cell(text)}</td>" for text in rest)
    return f"<tr><th scope='row'>{_cell(first)}</th>{cells}</tr>"


def _cell(text: str) -> str:
    return _text(visible(text))


def _text(text: str) -> str:
    return html.escape(text)
