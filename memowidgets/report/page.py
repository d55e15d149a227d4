"""The report as one HTML page that works offline."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import CHOICES, UNDECIDED
from memowidgets.report import words
from memowidgets.vocabulary import visible, whole
from memowidgets.widgets import widget
from memowidgets.widgets.explored import Judged
from memowidgets.widgets.inspected import Listed
from memowidgets.widgets.items import Items, digits_for, short_title, smaller
from memowidgets.widgets.samples import readable, reader_for
from memowidgets.widgets.standin import dots, time_line
from memowidgets.widgets.timeline import moment_on_wire, narrowed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    from memowidgets.decisions import Decision
    from memowidgets.evaluation.scored import Scored
    from memowidgets.report.content import Content, Figure


LEVEL = 6  # 9 takes twice as long for a hundredth less
_LARGEST = 2e6  # so that its thousandths fit into 32 bits


def pack(content: dict[str, Any]) -> str:
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


def thousandths(values: Floats) -> NDArray[np.int32]:
    """Return the largest whole number of thousandths that is not above each value.

    For every η with at most three decimals, ``value >= η`` is ``thousandths / 1000 >= η``. A page
    gets a third of the bytes that the values themselves would take. Values beyond ±2 000 000 count
    as these.

    Examples
    --------
    >>> thousandths(np.array([4.0, 3.9999, -0.0001])).tolist()
    [4000, 3999, -1]
    """
    values = np.clip(values, -_LARGEST, _LARGEST)
    found = np.floor(values * 1000)
    found -= found / 1000 > values  # the product was rounded
    found += (found + 1) / 1000 <= values
    return found.astype("<i4")


MOST_SAMPLES = 1000


def wire(content: Content) -> dict[str, Any]:
    """Return everything that moves on the page."""
    if content.scored is None:
        return {}
    return {
        "tau": content.tau,
        "eta": content.eta,
        "noun": content.noun,
        "view": dict(content.view),
        "asked": dict(content.asked),
        "time": _in_time(content, content.scored),
        "explorer": _explorer(content, content.scored),
        "inspector": _inspector(content, content.scored),
    }


def _explorer(content: Content, scored: Scored) -> dict[str, Any]:
    """Return the traits that `ThresholdExplorer` sends its page, and log-LiRA."""
    named = replace(scored, title=readable(scored.title), canaries=None)
    if not content.is_judged:
        named = replace(named, log_lira=None)
    judged = Judged(named, content.eta, version=1)
    data = {**judged.data, "axes": [scored.axis]}  # no kernel computes the other
    found: dict[str, Any] = {
        "data": data,
        "truth": judged.wire,
        "late": judged.late(),
        "log_lira": None,
    }
    if judged.scored.log_lira is not None:
        in_order = judged.scored.log_lira[judged.scored.rising.order]
        found["log_lira"] = thousandths(in_order).tobytes()
    return found


def _in_time(content: Content, scored: Scored) -> dict[str, Any] | None:
    """Return the checkpoints with the score of each row there; None where time stands still."""
    if not content.in_time:
        return None
    log_lira = None
    if content.is_judged and scored.log_lira is not None:
        log_lira = thousandths(scored.log_lira).tobytes()
    chosen = content.by_risk[:MOST_SAMPLES]
    return {
        "first": scored.checkpoint,
        "moments": [
            moment_on_wire(at.moment, computed=True, ready=True)
            for at in content.in_time
        ],
        "titles": [readable(at.title) for at in content.in_time],
        "scores": [narrowed(at.scores).tobytes() for at in content.in_time],
        "log_lira": log_lira,
        "listed": chosen.tolist(),
    }


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
    columns |= {
        name: of[chosen].tolist() for name, of in found.items() if of is not None
    }
    if log_lira is not None:
        known = np.where(np.isfinite(log_lira), log_lira, None)  # type: ignore[call-overload]
        columns["log_lira"] = known[chosen].tolist()
    if content.support is not None:
        both = zip(*(of[chosen].tolist() for of in content.support), strict=True)
        columns["support"] = [None if math.isnan(n) else [n, of] for n, of in both]
    shown = content.samples is not None
    if not shown:  # nothing of a sample leaves with the page
        scored = replace(scored, labels=None, probabilities=None)
    rows = Listed(replace(scored, log_lira=log_lira, truth=None), content.eta)
    return {
        "columns": columns,
        "eta": content.eta,
        "digits": digits_for(scored.scores),
        "score_name": readable(short_title(scored.title)),
        "choices": list(CHOICES),
        "filters": list(rows.filters),
        "sorts": list(rows.sorts.items()),
        **_cards(content, rows, chosen, made),
    }


def _cards(
    content: Content,
    rows: Listed,
    chosen: NDArray[np.int64],
    made: list[Decision],
) -> dict[str, Any]:
    """Return the samples themselves, as the dashboard's inspector shows them, if asked for."""
    if content.samples is None:
        return {"kind": "number", "items": None}
    reader = reader_for(content.samples)
    makes = Items(reader, content.class_names, content.ids)
    pixels = bytearray()
    items = [
        makes.item(rows, row, "", decision, pixels)
        for row, decision in zip(chosen.tolist(), made, strict=True)
    ]
    labels = None if rows.scored.labels is None else rows.scored.labels[chosen]
    return {
        "kind": reader.kind,
        "notice": readable(reader.notice),
        "items": [
            {name: item[name] for name in item if name not in _COMPUTED}
            for item in items
        ],
        "pixels": bytes(pixels),
        "labels": None if labels is None else labels.tolist(),
    }


# The page knows these from the columns, or from where τ stands.
_COMPUTED = (
    *(
        "position",
        "status",
        "score",
        "error",
        "uncertain",
        "logLira",
        "right",
        "decision",
    ),
    "canary",
)


_STATIC = Path(__file__).parent / "static"


def as_page(content: Content) -> str:
    """Return the page as HTML.

    Nothing in it that comes from the user's data is markup: what stands in the HTML is escaped,
    and what the script shows lies compressed in a block that no browser runs. The policy at its
    head lets the page run this script and this style alone, and ask for nothing.
    """
    title = _text(f"Memorisation audit of {content.name}")
    body = [
        *_first(content),
        *_list_for_scripts(content),
        *_to_sign(content),
        *_samples(content),
        *_caveats(content),
        *_appendix(content),
    ]
    data = f"<script type='text/plain' id='mr-data'>{pack(wire(content))}</script>"
    style = widget.style(*widget.STYLES, _STATIC / "report.css")
    script = widget.page_script(_STATIC / "report.js")
    return document(
        title, style, script, f"<main>\n{chr(10).join(body)}\n</main>\n{data}"
    )


def document(title: str, style: str, script: str, body: str) -> str:
    """Return a page that runs one script and one style, and can ask for nothing.

    The title and the body are markup.
    """
    policy = (
        "default-src 'none'; "
        f"script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        f"<meta http-equiv='Content-Security-Policy' content=\"{policy}\">\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        "<meta name='referrer' content='no-referrer'>\n"
        "<meta name='color-scheme' content='light dark'>\n"
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _first(content: Content) -> Iterable[str]:
    """Return page one: the result, its figure, what was decided, and how sure it is."""
    yield "<section class='mr-first'>"
    yield (
        f"<header><span>Memorisation audit of {_text(content.name)}</span>"
        f"<time>{_text(content.created[:10])}</time></header>"
    )
    yield f"<h1>{_moving(words.headline(content), 'headline')}</h1>"
    for fact in (words.how_many_truly(content), words.looked_at(content)):
        if fact:
            yield f"<p class='mr-fact'>{_text(fact)}</p>"
    yield f"<p class='mr-lead'>{_text(words.lead(content))}</p>"
    if content.scored is not None:
        yield from _numbers_and_dots(content)
        yield from _decided(content)
    else:
        yield "<div class='mr-two'><div>"
    steps = "".join(f"<li>{_text(step)}</li>" for step in words.next_steps(content))
    yield f"<h2>Do next</h2><ol>{steps}</ol></div></div>"
    yield f"<p class='mr-sure'><b>How sure is this?</b> {_text(words.sure(content))}</p>"
    shown = "No sample is in this file: each is called by its number among the members."
    if content.samples is not None:
        shown = "The samples most at risk are in this file, because it was asked to show them."
    yield f"<footer>{shown} All settings are in the appendix.</footer></section>"


def _moving(text: str, name: str) -> str:
    """Return text of the report's own τ, and a place for what is so where τ is moved to."""
    return (
        f"<span class='mr-written'>{_text(text)}</span>"
        f"<span class='mr-moved' data-says='{name}'></span>"
    )


def _numbers_and_dots(content: Content) -> Iterable[str]:
    """Return the numbers of page one, and its figure: a picture on paper, else the explorer."""
    numbers = [
        f"<div class='mr-{name}'><b>{_moving(whole(n), name)}</b>{_text(of)}</div>"
        for n, of, name in words.key_numbers(content)
    ]
    yield f"<div class='mr-key'>{''.join(numbers)}</div>"
    if content.scored is None:
        return
    drawing = dots(content.scored, content.tau, content.eta)
    truth = " Red: memorised by the finished model, hollow where missed."
    known = content.n_memorized is not None
    said = (
        f"A dot is one of the {_text(content.noun)}, a bar several. Left of τ: flagged."
        f"{truth if known else ''}"
    )
    if content.in_time:
        moments = [at.moment for at in content.in_time]
        drawing = f"{time_line(moments, content.scored.checkpoint)}{drawing}"
        said += " Above: the losses, and the checkpoint (large dot) of these scores."
    yield f"<figure class='mr-dots'>{drawing}<figcaption>{said}</figcaption></figure>"
    yield "<div class='mr-screen' id='mr-explorer'></div>"
    yield (
        "<p class='mr-moved mr-note' role='status'>This is another threshold or time. What was "
        "decided, and what is printed, belongs to what this report was written for. "
        "<button type='button' id='mr-back'>Back to it</button></p>"
    )


def _decided(content: Content) -> Iterable[str]:
    """Return what was decided on the flagged samples, by whom and when."""
    rows = "".join(
        f"<tr><th scope='row'>{word}</th><td>{whole(n)}</td></tr>"
        for word, n in words.decisions(content)
    )
    yield f"<div class='mr-two'><div><h2>What was decided</h2><table>{rows}</table>"
    for said in (words.who_decided(content), words.beside_flagged(content)):
        if said:
            yield f"<p class='mr-by'>{_text(said)}</p>"
    yield "</div><div>"


def _list_for_scripts(content: Content) -> Iterable[str]:
    """Return the element that will contain the list of samples."""
    if content.scored is None:
        return
    n = len(content.scored)
    shown = min(len(content.scored), MOST_SAMPLES)
    which = (
        f"all {whole(n)}"
        if shown == n
        else f"the {whole(shown)} most at risk, of {whole(n)}"
    )
    moves = "τ or time" if content.in_time else "τ"
    yield (
        "<section class='mr-screen'><h2>Samples</h2>"
        f"<p>This list holds {which}. Move {moves} above, and it follows.</p>"
        "<div id='mr-inspector'></div>"
        "<p class='mr-problem' id='mr-problem' role='alert' hidden></p></section>"
    )


def _to_sign(content: Content) -> Iterable[str]:
    """Return what an impact assessment can take over, and what whoever signs fills in."""
    found = _rows(words.assessment(content))
    blank = _rows(words.to_fill_in())
    yield (
        "<section class='mr-assessment'><h2>For a data protection impact assessment</h2>"
        f"<table>{found}</table><h2>To fill in and sign</h2>"
        f"<table class='mr-blank'>{blank}</table></section>"
    )


def _rows(rows: Iterable[words.Row]) -> str:
    return "".join(
        f"<tr><th scope='row'>{_text(name)}</th><td>{_text(text)}</td></tr>"
        for name, text in rows
    )


def _samples(content: Content) -> Iterable[str]:
    """Return the samples most at risk as a table, for paper and where no script runs."""
    table = words.most_at_risk(content)
    if table.rows:
        kind = "mr-numbers" if content.samples is None else "mr-shown"
        kind += " mr-wide" * (len(table.head) > FEW_COLUMNS)
        pictures = (
            None if content.samples is None else _glimpses(content, len(table.rows))
        )
        yield f"<section class='mr-paper {kind}'>{_table(table, pictures)}</section>"


def _glimpses(content: Content, most: int) -> list[str]:
    """Return the picture or the beginning of the text of each of the samples most at risk."""
    if content.scored is None:
        return []
    reader = reader_for(content.samples)
    found = []
    for row in content.by_risk[:most]:
        position = int(content.scored.positions[row])
        card = reader.card(position)
        image = card.image
        if image is None:
            text = card.text or reader.text(position)
            found.append(f"<p>{_text(readable(text), MOST_LETTERS)}</p>")
        else:
            found.append(
                f"<img alt='' src='data:image/png;base64,{_as_png(smaller(image))}'>"
            )
    return found


MOST_LETTERS = 160  # of a text on paper
FEW_COLUMNS = 4  # of a table that stands beside itself on paper


def _as_png(image: NDArray[np.uint8]) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image.squeeze()).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _caveats(content: Content) -> Iterable[str]:
    """Return what a reader must know, what words mean, and what is not said."""
    yield "<section class='mr-caveats'>"
    missing = [f"{what}: {why}" for what, why in content.missing.items()]
    for title, said in (
        ("Before you trust it", words.cautions(content)),
        ("What the words mean", words.definitions(content)),
        ("What this does not say", words.limits(content)),
        ("What is missing", missing),
    ):
        if said:
            items = "".join(f"<li>{_text(text, 400)}</li>" for text in said)
            yield f"<h2>{title}</h2><ul>{items}</ul>"
    yield "</section>"


def _appendix(content: Content) -> Iterable[str]:
    summary = "<summary>Appendix. It is printed if it is open.</summary>"
    yield f"<details class='mr-appendix'>{summary}"
    yield from (
        f"<section>{_table(table)}</section>" for table in words.appendix(content)
    )
    yield from map(_figure, content.figures)
    yield "</details>"


def _figure(figure: Figure) -> str:
    drawing = base64.b64encode(figure.svg.encode()).decode()
    caption = _text(figure.caption)
    return (
        f"<figure class='mr-figure'><img alt='{caption}' "
        f"src='data:image/svg+xml;base64,{drawing}'><figcaption>{caption}</figcaption></figure>"
    )


def _table(table: words.Table, shown: Sequence[str] | None = None) -> str:
    top = "".join(
        f"<th scope='col'>{_text(name)}</th>" if name else "<td></td>"
        for name in table.head
    )
    under = shown or [""] * len(table.rows)
    body = "".join(
        f"<tr><th scope='row'>{_text(first)}{more}</th>"
        f"{''.join(f'<td>{_text(text)}</td>' for text in rest)}</tr>"
        for (first, *rest), more in zip(table.rows, under, strict=True)
    )
    head = f"<thead><tr>{top}</tr></thead>" if top else ""
    inside = f"<table>{head}<tbody>{body}</tbody></table>"
    return f"<h2>{_text(table.title)}</h2><div class='mr-scroll'>{inside}</div>"


def _text(text: str, most: int | None = None) -> str:
    """Return untrusted text as markup that shows it."""
    return html.escape(visible(text, most)).replace(" %", "\N{NO-BREAK SPACE}%")
