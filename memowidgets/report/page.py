"""The report as one HTML page that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import UNDECIDED
from memowidgets.report.content import CHOICES
from memowidgets.report.words import Section, Table, sections
from memowidgets.visible import visible
from memowidgets.vocabulary import whole
from memowidgets.widgets import frontend
from memowidgets.widgets.explored import Judged
from memowidgets.widgets.inspected import Listed, classes_in, valid_filters
from memowidgets.widgets.items import Items, digits_for, short_title
from memowidgets.widgets.samples import readable, reader_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from memowidgets.decisions import Decision
    from memowidgets.evaluation.scored import Scored
    from memowidgets.report.content import Content


LEVEL = 6  # 9 takes twice as long for a hundredth less
_MOST_THOUSANDTHS = 2**31 - 1


def packed(content: dict[str, Any]) -> str:
    """Return values that JSON knows, and bytes among them, as letters that no HTML can end.

    The text is zlib in base64 of four bytes, which say how long the JSON is, the JSON, and all
    bytes. In the JSON, bytes are ``{"$bytes": [start, length]}``. `unpack.js` reads it.
    """
    blobs: list[bytes] = []

    def put_aside(blob: bytes) -> dict[str, list[int]]:
        start = sum(map(len, blobs))
        blobs.append(blob)
        return {"$bytes": [start, len(blob)]}

    head = json.dumps(content, ensure_ascii=True, default=put_aside).encode()
    whole = b"".join([len(head).to_bytes(4, "little"), head, *blobs])
    return base64.b64encode(zlib.compress(whole, LEVEL)).decode()


def thousandths(values: Floats) -> NDArray[np.int32] | None:
    """Return the largest whole number of thousandths that is not above each value.

    For every η with at most three decimals, ``value >= η`` is ``thousandths / 1000 >= η``. A page
    gets a third of the bytes that the values themselves would take.

    Returns
    -------
    array of shape (n,), int32, or None
        None if a value is too large for it, or infinite.

    Examples
    --------
    >>> thousandths(np.array([4.0, 3.9999, -0.0001])).tolist()
    [4000, 3999, -1]
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    if np.abs(values).max() > _MOST_THOUSANDTHS / 1000 - 2:
        return None
    found = np.floor(values * 1000)
    found -= found / 1000 > values  # the product was rounded
    found += (found + 1) / 1000 <= values
    return found.astype("<i4")


MOST_SAMPLES = 1000
MOST_PIXELS = 64  # of a picture's longer side


def wire(content: Content) -> dict[str, Any]:
    """Return everything that moves on the page, and the figures."""
    figures = [
        {"caption": visible(f.caption), "svg": f.svg, "wide": f.is_wide} for f in content.figures
    ]
    found: dict[str, Any] = {"tau": content.tau, "eta": content.eta, "figures": figures}
    if content.scored is not None:
        found["explorer"] = _explorer(content, content.scored)
        found["inspector"] = _inspector(content, content.scored)
    return found


def _explorer(content: Content, scored: Scored) -> dict[str, Any]:
    """Return the traits that `ThresholdExplorer` sends its page, and log-LiRA."""
    judged = Judged.of(replace(scored, title=readable(scored.title), canaries=None), content.eta)
    judged = replace(judged, version=1)
    data = {**judged.data, "axes": [scored.axis]}  # no kernel computes the other
    found = {"data": data, "truth": judged.wire, "late": judged.late(), "log_lira": None}
    if judged.scored.log_lira is not None:
        in_order = judged.sorted.rising(judged.scored.log_lira)
        short = thousandths(in_order)
        values = in_order if short is None else short
        found["log_lira"] = {"values": values.tobytes(), "thousandths": short is not None}
    return found


def _inspector(content: Content, scored: Scored) -> dict[str, Any]:
    """Return the samples most at risk: their numbers in columns, and, if asked for, the samples."""
    chosen = content.by_risk[:MOST_SAMPLES]
    names = [content.ids[int(p)] for p in scored.positions[chosen]]
    made = [content.decisions.get(name, UNDECIDED) for name in names]
    columns: dict[str, Any] = {
        "positions": scored.positions[chosen].tolist(),
        "scores": scored.scores[chosen].tolist(),
        "decisions": [CHOICES.index(m.decision) for m in made],
    }
    log_lira = scored.log_lira if scored.judged.any() else None
    found = {
        "errors": scored.errors,
        "canaries": None if scored.canaries is None else scored.canaries.astype(int),
        "right": None if scored.right is None else scored.right.astype(int),
    }
    columns |= {name: of[chosen].tolist() for name, of in found.items() if of is not None}
    if log_lira is not None:
        known = np.where(np.isfinite(log_lira), log_lira, None)  # type: ignore[call-overload]
        columns["log_lira"] = known[chosen].tolist()
    shown = content.samples is not None
    if not shown:  # nothing of a sample leaves with the page
        scored = replace(scored, labels=None, probabilities=None)
    rows = Listed(replace(scored, log_lira=log_lira))
    known = {"model": rows.looks_wrong is not None, "errors": scored.errors is not None}
    return {
        "columns": columns,
        "digits": digits_for(scored.scores),
        "score_name": readable(short_title(scored.title)),
        "choices": list(CHOICES),
        "filters": list(valid_filters(scores=True, truth=log_lira is not None, **known)),
        "sorts": [(name, rows.sort_label(name)) for name in rows.sorts()],
        **_shown(content, rows, chosen, made),
    }


def _shown(
    content: Content, rows: Listed, chosen: NDArray[np.int64], made: list[Decision]
) -> dict[str, Any]:
    """Return the samples themselves, as the dashboard's inspector shows them, if asked for."""
    if content.samples is None:
        return {"kind": "number", "items": None}
    reader = reader_for(content.samples)
    makes = Items(reader, content.class_names, content.ids, smaller)
    pixels = bytearray()
    items = [
        makes.item(rows, row, "", decision, pixels)
        for row, decision in zip(chosen.tolist(), made, strict=True)
    ]
    labels = None if rows.scored.labels is None else rows.scored.labels[chosen]
    return {
        "kind": reader.kind,
        "notice": readable(reader.notice),
        "items": [{name: item[name] for name in item if name not in _COMPUTED} for item in items],
        "pixels": bytes(pixels),
        "labels": None if labels is None else labels.tolist(),
        "classes": makes.classes(classes_in(labels)),
    }


# The page knows these from the columns, or from where τ stands.
_COMPUTED = (
    *("position", "status", "score", "error", "uncertain", "logLira", "right", "decision"),
    "canary",
)


def smaller(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture whose longer side is at most 64 pixels, each the mean of a square.

    Examples
    --------
    >>> smaller(np.full((100, 130, 3), 7, np.uint8)).shape
    (34, 44, 3)
    """
    height, width, channels = image.shape
    side = -(-max(height, width) // MOST_PIXELS)
    if side == 1:
        return image
    edges = ((0, -height % side), (0, -width % side), (0, 0))
    whole = np.pad(image, edges, mode="edge").astype(np.float32)
    squares = whole.reshape(-(-height // side), side, -(-width // side), side, channels)
    means: NDArray[np.uint8] = squares.mean(axis=(1, 3)).round().astype(np.uint8)
    return means


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
    found = sections(content)
    before = [section.name for section in found].index("decided")
    body = "\n".join(
        [
            f"<header><h1>{_text(title)}</h1>",
            (
                f"<p class='mr-when'>written on {_text(content.created[:10])} by memowidgets "
                f"{_text(content.versions.get('report', {}).get('memowidgets', ''))}</p></header>"
            ),
            "<main>",
            *map(_section, found[:before]),
            *_moving(content),
            *map(_section, found[before:]),
            *_figures(content),
            "</main>",
            f"<script type='text/plain' id='mr-data'>{packed(wire(content))}</script>",
            f"<script>{script()}</script>",
        ]
    )
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{policy(script(), style())}\">\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='referrer' content='no-referrer'>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        f"<title>{_text(title)}</title>\n<style>{style()}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def policy(script: str, style: str) -> str:
    """Return a policy that lets a page run one script and one style, and ask for nothing."""
    return (
        "default-src 'none'; "
        f"script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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
        "can look up."
    )
    return [
        (
            "<section class='mr-screen' aria-labelledby='move'>"
            "<h2 id='move'>Move the threshold</h2>"
            "<p>Drag the line: everything here follows, the samples below too. Nothing is sent "
            "anywhere.</p><div id='mr-explorer'></div></section>"
        ),
        (
            "<section class='mr-screen' aria-labelledby='samples'><h2 id='samples'>Samples</h2>"
            f"<p>This list holds {which}. {what}</p><div id='mr-inspector'></div></section>"
        ),
        (
            "<noscript><p class='mr-note'>The threshold moves where scripts may run. The numbers "
            "above stand without.</p></noscript>"
        ),
        "<p class='mr-note' id='mr-problem' role='alert' hidden></p>",
    ]


def _figures(content: Content) -> list[str]:
    if not content.figures:
        return []
    return [
        (
            "<section class='mr-annex' aria-labelledby='figures'>"
            "<h2 id='figures'>Annex: figures</h2>"
            "<div id='mr-figures'></div></section>"
        )
    ]


def _section(section: Section) -> str:
    columns = ["".join(map(_part, column)) for column in section.columns]
    inside = columns[0]
    if len(columns) > 1:
        beside = "".join(f"<div>{column}</div>" for column in columns if column)
        inside = f"<div class='mr-beside'>{beside}</div>"
    name, kind = section.name, f" class='mr-{section.kind}'" if section.kind else ""
    head = f"<h2 id='{name}'>{_text(section.title)}</h2>"
    return f"<section{kind} aria-labelledby='{name}'>{head}{inside}</section>"


def _part(part: str | tuple[str, ...] | Table) -> str:
    if isinstance(part, str):
        return _paragraph(part)
    if not isinstance(part, Table):
        return f"<ul>{''.join(f'<li>{_cell(text)}</li>' for text in part)}</ul>"
    kind = "mr-scroll mr-numbers" if part.head else "mr-scroll"
    kind += f" mr-{part.kind}" if part.kind else ""
    top = "".join(
        f"<th scope='col'>{_text(name)}</th>" if name else "<td></td>" for name in part.head
    )
    caption = f"<caption>{_text(part.caption)}</caption>" if part.caption else ""
    body = "".join(
        f"<tr><th scope='row'>{_cell(first)}</th>"
        f"{''.join(f'<td>{_cell(text)}</td>' for text in rest)}</tr>"
        for first, *rest in part.rows
    )
    head = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f"<div class='{kind}'><table>{caption}{head}<tbody>{body}</tbody></table></div>"


def _paragraph(text: str) -> str:
    return f"<p>{_cell(text)}</p>".replace(" %", "\N{NO-BREAK SPACE}%")


def _cell(text: str) -> str:
    return _text(visible(text))


def _text(text: str) -> str:
    return html.escape(text)
