"""What the page gets of each sample: its card, and what is known of an opened one."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.widgets.samples import MOST_CHARACTERS, Card, SampleReader, readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memowidgets.decisions import Decision
    from memowidgets.widgets.inspected import Listed
    from memowidgets.widgets.messages import Choice, SampleDetail, ShadowGaps
    from memowidgets.widgets.samples import Value
    from memowidgets.widgets.sent import Named


MOST_ID, MOST_NOTE, MOST_GLIMPSE = 200, 300, 240
MOST_TITLE = MOST_OPTION = 32
MOST_WHOLE = 50_000
MOST_PIXELS = 64  # of a picture's longer side, unless it is opened
MOST_VALUES, MOST_WHOLE_VALUES = 8, 1000  # of a table's row: on a card, and opened
_LIKELIEST = 5


class Items:
    """Makes the wire form of samples. Their pixels go into a buffer beside it.

    Parameters
    ----------
    reader : SampleReader
        Reader of the samples.
    class_names : sequence of str
        Names of the classes. A class without a name has its number.
    ids : sequence of str, optional
        Ids of the samples, by default the reader's.
    """

    def __init__(
        self,
        reader: SampleReader,
        class_names: Sequence[str],
        ids: Sequence[str] | None,
    ) -> None:
        self._reader, self.class_names, self._ids = reader, class_names, ids

    def name(self, position: int) -> str:
        """Return the id of a sample, as decisions know it."""
        return self._reader.id(position) if self._ids is None else self._ids[position]

    @cached_property
    def positions(self) -> dict[str, list[int]]:
        """Where the samples of each id stand."""
        found: dict[str, list[int]] = {}
        for position in range(len(self._reader)):
            found.setdefault(self.name(position), []).append(position)
        return found

    def class_name(self, label: int) -> str:
        """Return the name of a label, empty without one."""
        if label < 0:
            return ""
        inside = label < len(self.class_names)
        return _cut(self.class_names[label], MOST_ID) if inside else str(label)

    def name_of_class(self, label: int, options: Sequence[str]) -> str:
        """Return a sample's name for a class: of a question, the option itself if it is short."""
        option = options[label] if 0 <= label < len(options) else ""
        return (
            readable(option)
            if 0 < len(option) <= MOST_OPTION
            else self.class_name(label)
        )

    def renamed(self, position: int, old: int, new: str) -> str:
        """Return the name of a sample's label and of the class that it gets, in one text."""
        options = self._reader.card(position).options
        names = (
            self.name_of_class(old, options),
            self.name_of_class(self.class_names.index(new), options),
        )
        return " → ".join(filter(None, names))

    def item(
        self,
        rows: Listed,
        row: int,
        status: str,
        made: Decision,
        pixels: bytearray,
        *,
        uncertain: bool = False,
        most: int = MOST_CHARACTERS,
    ) -> dict[str, Any]:
        """Return the sample of a row with its scores, texts with at most so many characters."""
        scored = rows.scored
        position = int(scored.positions[row])
        card, whole = self._reader.card(position), most == MOST_WHOLE
        label = -1 if scored.labels is None else int(scored.labels[row])
        of_model = None if scored.probabilities is None else scored.probabilities[row]
        guess = None if of_model is None else int(of_model.argmax())
        score, error = _of_row(scored.scores, row), _of_row(scored.errors, row)
        return {
            "position": position,
            "id": _cut(self.name(position), MOST_ID),
            "status": status,
            "score": score,
            "error": error,
            "uncertain": uncertain,
            "logLira": _of_row(scored.log_lira, row),
            "right": None if scored.right is None else bool(scored.right[row]),
            "decision": made.decision,
            "to": self.name_of_class(self.class_names.index(made.to), card.options)
            if made.to in self.class_names
            else _cut(made.to, MOST_ID),
            "note": made.note if whole else _cut(made.note, MOST_NOTE),
            "label": self.name_of_class(label, card.options),
            "guess": "" if guess is None else self.name_of_class(guess, card.options),
            "answer": label,
            "looksWrong": rows.looks_wrong is not None and bool(rows.looks_wrong[row]),
            "suggested": None if guess == label or label < 0 else guess,
            "guessProbability": _of_row(of_model, guess),
            "labelProbability": _of_row(rows.label_probability, row),
            **self._shown(card, pixels, most),
            **_values(card.values, MOST_WHOLE_VALUES if whole else MOST_VALUES),
            **(
                {}
                if most == MOST_GLIMPSE
                else self._classes(card, of_model, label, most)
            ),
        }

    def glimpse(self, position: int, label: int, pixels: bytearray) -> dict[str, Any]:
        """Return a neighbour of a sample: what it shows and its label."""
        card = self._reader.card(position)
        return {
            "position": position,
            "id": _cut(self.name(position), MOST_ID),
            "label": self.name_of_class(label, card.options),
            "answer": label,
            **self._shown(card, pixels, MOST_GLIMPSE),
            **_values(card.values, 3),
        }

    def _shown(self, card: Card, pixels: bytearray, most: int) -> dict[str, Any]:
        """Return a text with at most so many characters, or an image, whose pixels are appended."""
        shown: dict[str, Any] = {"canary": card.canary}
        if card.text is not None:
            shown["text"] = readable(card.text[:most])
            shown["hidden"] = max(0, len(card.text) - most)
        if card.image is not None:
            image = card.image if most == MOST_WHOLE else smaller(card.image)
            height, width, channels = image.shape
            shape = {"height": height, "width": width, "channels": channels}
            shown["image"] = {"offset": len(pixels), **shape}
            pixels.extend(np.ascontiguousarray(image).tobytes())
        return shown

    def _classes(
        self, card: Card, of_model: NDArray[np.float64] | None, label: int, most: int
    ) -> dict[str, Any]:
        """Return what the model gives the options, or the classes that it finds most probable.

        The latter of a text or a table's row, with the label last if it is not among them.
        """
        if card.options:
            options = _options(card.options, of_model, label, most)
            return {**options, "asks": self._reader.asks}
        if of_model is None or card.image is not None:
            return {}
        order = np.argsort(-of_model, kind="stable")[:_LIKELIEST]
        if 0 <= label < len(of_model) and label not in order:
            order = np.append(order, label)
        return {
            "likeliest": [
                {
                    "name": self.class_name(int(i)),
                    "label": int(i) == label,
                    "probability": float(of_model[i]),
                }
                for i in order
            ]
        }


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


def short_title(title: str) -> str:
    """Return a score's name for a card: the part before the first comma."""
    name = title.split(",", maxsplit=1)[0].strip()
    return name if 0 < len(name) <= MOST_TITLE else "score"


def digits_for(scores: NDArray[np.float64]) -> int:
    """Return the number of digits after the point that tells scores apart."""
    if len(scores) < 2 or np.isnan(scores[0]):
        return 2
    span = float(scores.max() - scores.min())
    return 2 if span == 0 else int(np.clip(2 - np.floor(np.log10(span)), 0, 8))


def _values(values: tuple[Value, ...], most: int) -> dict[str, Any]:
    if not values:
        return {}
    return {
        "values": [
            {
                "name": _cut(value.name, MOST_ID),
                "value": _cut(value.value, MOST_ID),
                "usual": _cut(value.usual, MOST_ID),
            }
            for value in values[:most]
        ],
        "hiddenValues": max(0, len(values) - most),
    }


def _options(
    options: tuple[str, ...],
    of_model: NDArray[np.float64] | None,
    label: int,
    most: int,
) -> dict[str, Any]:
    known = [] if of_model is None else of_model.tolist()
    return {
        "options": [
            {
                "text": readable(text[:most]),
                "hidden": max(0, len(text) - most),
                "label": i == label,
                "probability": known[i] if i < len(known) else None,
            }
            for i, text in enumerate(options)
        ]
    }


def _of_row(values: NDArray[np.float64] | None, row: int | None) -> float | None:
    """Return a number for the page; None if it is not known, NaN or infinite."""
    return None if values is None or row is None else _number(float(values[row]))


def _cut(text: str, most: int) -> str:
    return readable(text if len(text) <= most else f"{text[: most - 1]}…")


def known_of(
    detail: SampleDetail, rows: Listed, items: Items, pixels: bytearray
) -> dict[str, Any]:
    """Return a sample's detail in its wire form. The neighbours' pixels go into the buffer."""
    return {
        "title": readable(detail.title),
        "checkpoints": _choices(detail.checkpoints),
        "layers": _choices(detail.layers),
        "scores": [[_number(value) for value in row] for row in detail.scores.tolist()],
        "digits": digits_for(detail.scores[np.isfinite(detail.scores)]),
        "shadows": None if detail.shadows is None else _shadows(detail.shadows),
        "neighbours": [
            {
                **items.glimpse(position, label_of(rows, position), pixels),
                "distance": distance,
            }
            for position, distance in detail.neighbours
        ],
        "notes": [readable(note) for note in detail.notes],
        "guess": detail.guess,
    }


def _choices(choices: Sequence[Choice]) -> list[Named]:
    return [
        {"value": c.value, "label": readable(c.label), "marked": c.marked}
        for c in choices
    ]


def _shadows(shadows: ShadowGaps) -> dict[str, Any]:
    return {
        "inside": np.sort(shadows.inside).tolist(),
        "outside": np.sort(shadows.outside).tolist(),
        "models": [len(shadows.inside), len(shadows.outside)],
        "target": float(shadows.target),
        "fitIn": [float(value) for value in shadows.fit_in],
        "fitOut": [float(value) for value in shadows.fit_out],
        "logLira": _number(float(shadows.log_lira)),
        "checkpoint": readable(shadows.checkpoint),
        "support": shadows.support,
    }


def label_of(rows: Listed, position: int) -> int:
    """Return the label of a sample that may have no row, or -1 if it is not known."""
    if rows.scored.labels is None:
        return -1
    at = np.flatnonzero(rows.scored.positions == position)
    return int(rows.scored.labels[at[0]]) if len(at) else -1


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
