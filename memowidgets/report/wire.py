"""What the page's script gets: the explorer's traits, the inspector's samples and the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import Decision
from memowidgets.report.content import CHOICES, Decided
from memowidgets.report.packing import thousandths
from memowidgets.visible import visible
from memowidgets.widgets.given import Judged, checked_scores
from memowidgets.widgets.items import Items, digits_for, short_title
from memowidgets.widgets.pages import Rows, classes_in, valid_filters
from memowidgets.widgets.samples import readable, reader_for

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.report.content import Content, Scored
    from memowidgets.widgets.samples import Card, SampleReader

__all__ = ["MOST_SAMPLES", "wire"]

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
    title = readable(scored.title)
    given = checked_scores(
        scored.scores, None, title, scored.errors, "", scored.log_lira, scored.natural
    )
    judged = Judged(replace(given, version=1), content.eta)
    others = {name: values[given.counting] for name, values in scored.others.items()}
    found = {"data": judged.given.wire, "truth": judged.wire, "log_lira": None}
    found["late"] = {**judged.late(), "others": judged.compared(others)}
    if given.log_lira is not None:
        in_order = given.sorted.rising(given.log_lira)
        short = thousandths(in_order)
        values = in_order if short is None else short
        found["log_lira"] = {"values": values.tobytes(), "thousandths": short is not None}
    return found


def _inspector(content: Content, scored: Scored) -> dict[str, Any]:
    """Return the samples most at risk: their numbers in columns, and, if asked for, the samples."""
    chosen = content.by_risk[:MOST_SAMPLES]
    names = [content.ids[int(p)] for p in scored.positions[chosen]]
    made = [content.decisions.get(name, Decided()) for name in names]
    columns: dict[str, Any] = {
        "positions": scored.positions[chosen].tolist(),
        "scores": scored.scores[chosen].tolist(),
        "decisions": [CHOICES.index(m.decision) for m in made],
    }
    if scored.errors is not None:
        columns["errors"] = scored.errors[chosen].tolist()
    log_lira = scored.log_lira if scored.judged.any() else None
    if log_lira is not None:
        columns["log_lira"] = [_number(value) for value in log_lira[chosen].tolist()]
    if content.canaries is not None:
        columns["canaries"] = content.canaries[scored.positions[chosen]].astype(int).tolist()
    if scored.right is not None:
        columns["right"] = scored.right[chosen].astype(int).tolist()
    shown = content.samples is not None
    rows = Rows(
        scored.positions,
        scores=scored.scores,
        errors=scored.errors,
        log_lira=log_lira,
        labels=scored.labels if shown else None,
        probabilities=scored.probabilities if shown else None,
    )
    return {
        "columns": columns,
        "digits": digits_for(scored.scores),
        "score_name": readable(short_title(scored.title)),
        "choices": list(CHOICES),
        "filters": list(valid_filters(scores=True, truth=log_lira is not None)),
        "sorts": [(name, rows.sort_label(name)) for name in rows.sorts()],
        **_shown(content, rows, chosen, made),
    }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _shown(
    content: Content, rows: Rows, chosen: NDArray[np.int64], made: list[Decided]
) -> dict[str, Any]:
    """Return the samples themselves, as the dashboard's inspector shows them, if asked for."""
    if content.samples is None:
        return {"kind": "number", "items": None}
    reader = reader_for(content.samples)
    makes = Items(_Smaller(reader), content.class_names, content.ids)
    pixels = bytearray()
    items = [
        makes.item(rows, int(row), content.tau, Decision(m.decision, m.note), pixels)
        for row, m in zip(chosen, made, strict=True)
    ]
    labels = None if rows.labels is None else rows.labels[chosen]
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


class _Smaller:
    """The same samples, with pictures that are small enough for a page."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader
        self.kind, self.editable, self.notice = reader.kind, False, reader.notice

    def __len__(self) -> int:
        return len(self._reader)

    def id(self, position: int) -> str:
        return self._reader.id(position)

    def text(self, position: int) -> str:
        return self._reader.text(position)

    def labels(self) -> NDArray[np.int64] | None:
        return self._reader.labels()

    def card(self, position: int) -> Card:
        card = self._reader.card(position)
        return card if card.image is None else replace(card, image=smaller(card.image))


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
