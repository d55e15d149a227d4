"""The inspector, Python side: keeps the samples and hands out pages of them in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from memowidgets.widgets.arrays import checked_flags, checked_floats, checked_tau
from memowidgets.widgets.assets import script, style
from memowidgets.widgets.cells import created, displayed
from memowidgets.widgets.pages import SORTS, Rows
from memowidgets.widgets.samples import MOST_CHARACTERS, SampleReader, readable, reader_for
from memowidgets.widgets.standin import bundle, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["SampleInspector"]

MOST_CLASSES = 200
SMALLEST_PAGE, LARGEST_PAGE = 1, 48


class SampleInspector(anywidget.AnyWidget):
    """Look at the samples behind the scores, the riskiest first.

    Samples travel to the page in messages only, a page at a time: neither the widget's state
    nor a saved notebook holds any of them.

    Parameters
    ----------
    samples : sequence
        An `ImageDataset`, an array of images of shape (n, h, w) or (n, h, w, c), a list of
        texts, or of records with ``question``, ``choices`` and ``answer``.
    scores : array-like of shape (n,), optional
        Low means risk; finite.
    memorized : array-like of shape (n,), bool, optional
        Ground truth.
    labels : array-like of shape (n,), int, optional
        What each sample is trained on; by default what the samples carry.
    tau : float
        A sample is flagged if its score is at most this.
    positions : array-like of shape (n,), int, optional
        Which sample each score belongs to; by default there is one for each, in order.
    errors, log_lira : array-like of shape (n,), optional
        Standard error of each score, and its log-LiRA.
    probabilities : array-like of shape (n, n_classes), optional
        The model's.
    class_names : sequence of str, optional
        By default those of the samples, else numbers.
    ids : sequence of str, optional
        Names of the samples, by default those they carry, else their positions.
    title : str
        What the scores are.

    Attributes
    ----------
    page, page_size : int
        Page on show, from 0, and samples on a page (1 to 48).
    filter : str
        ``"all"``, ``"flagged"``, ``"not flagged"``; with ground truth ``"hit"``,
        ``"false alarm"``, ``"missed"``, ``"clear"``.
    sort : str
        ``"risk"``, ``"safe"``, ``"log-lira"``, ``"disagreement"``, ``"label"``, ``"order"``.
    tau : float
        The threshold that the filters go by.
    selected : int or None
        Position of the sample that the user chose; stays in Python.

    Raises
    ------
    ValueError
        If there is no sample, lengths differ, a score is NaN or infinite, or a filter or sort
        is unknown.
    TypeError
        If the samples are of no known kind.

    Examples
    --------
    >>> inspector = SampleInspector(["a text", "another"], scores=[0.2, -0.3])
    >>> inspector.filter, inspector.sort
    ('flagged', 'risk')
    >>> inspector.close()
    """

    _esm = script("inspector")
    _css = style()

    page = traitlets.Int(0, min=0).tag(sync=True)
    page_size = traitlets.Int(24, min=SMALLEST_PAGE, max=LARGEST_PAGE).tag(sync=True)
    filter = traitlets.Unicode("all").tag(sync=True)
    sort = traitlets.Unicode("order").tag(sync=True)
    tau = traitlets.Float(0.0).tag(sync=True)
    selected = traitlets.Int(None, allow_none=True)
    _version = traitlets.Int(0).tag(sync=True)
    _dimmed = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self,
        samples: Any,
        scores: ArrayLike | None = None,
        memorized: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        tau: float = 0.0,
        *,
        positions: ArrayLike | None = None,
        errors: ArrayLike | None = None,
        log_lira: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        title: str = "score",
        **traits: Any,
    ) -> None:
        self._reader = reader_for(samples)
        self._class_names = _class_names(samples, class_names)
        self._ids = _checked_ids(ids, len(self._reader))
        self._title = title
        self._heard: int | None = None
        self._found: tuple[str, NDArray[np.bool_]] | None = None
        self._rows = _rows(
            self._reader, scores, memorized, labels, positions, errors, log_lira, probabilities
        )
        chosen = {name: traits.pop(name) for name in ("filter", "sort") if name in traits}
        super().__init__(**traits)
        with self.hold_sync():
            self.tau = checked_tau(tau)
            self.filter = chosen.get("filter", self._rows.filters()[0])
            self.sort = chosen.get("sort", self._rows.sorts()[0])
        self.on_msg(self._hear)
        created(self)

    def update(
        self,
        scores: ArrayLike | None = None,
        memorized: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        tau: float | None = None,
        *,
        positions: ArrayLike | None = None,
        errors: ArrayLike | None = None,
        log_lira: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        title: str = "score",
    ) -> None:
        """Show the same samples by other scores; parameters as for the constructor.

        `tau` stays where it is unless given; a filter or sort that no longer makes sense goes
        back to the first that does. May be called from any thread.
        """
        rows = _rows(
            self._reader, scores, memorized, labels, positions, errors, log_lira, probabilities
        )
        threshold = self.tau if tau is None else checked_tau(tau)
        before = self._rows
        with self.hold_sync():
            self._rows, self._title, self._found = rows, title, None
            if self.filter not in rows.filters() or before.scores is None:
                self.filter = rows.filters()[0]
            if self.sort not in rows.sorts() or before.scores is None:
                self.sort = rows.sorts()[0]
            self.tau = threshold
            self._dimmed = False
            self._version += 1

    def close(self) -> None:
        """Take the widget and its layout off the page and out of memory."""
        if self.layout is not None and self.comm is not None:
            self.layout.close()
        super().close()

    # ---------------------------------------------------------------- traits

    @traitlets.validate("filter")
    def _check_filter(self, proposal: Any) -> str:
        return _one_of("filter", proposal["value"], self._rows.filters())

    @traitlets.validate("sort")
    def _check_sort(self, proposal: Any) -> str:
        return _one_of("sort", proposal["value"], self._rows.sorts())

    @traitlets.validate("tau")
    def _check_tau(self, proposal: Any) -> float:
        return checked_tau(proposal["value"])

    @traitlets.validate("selected")
    def _check_selected(self, proposal: Any) -> int | None:
        position: int | None = proposal["value"]
        if position is not None and not 0 <= position < len(self._reader):
            raise ValueError(
                f"selected must be None or a position from 0 to {len(self._reader) - 1}, "
                f"not {position}"
            )
        return position

    @traitlets.observe("selected")
    def _show_selected(self, _change: Any) -> None:
        if self.selected != self._heard:  # the page knows its own choice, and may be past it
            self.send({"type": "select", "position": self.selected})

    # ---------------------------------------------------------------- messages

    def _hear(self, _widget: Any, content: dict[str, Any], _buffers: Any) -> None:
        if content.get("type") == "select":
            self._heard = content.get("position")
            self.selected = self._heard
        if content.get("type") == "page":
            self.send(*self._answer(content))

    def _answer(self, asked: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        """One page of samples, and all its images in one buffer."""
        rows, tau, title = self._rows, self.tau, self._title
        base = self._narrowed(rows, asked.get("label"), str(asked.get("search") or ""))
        name = asked["filter"] if asked["filter"] in rows.filters() else rows.filters()[0]
        sort = asked["sort"] if asked["sort"] in rows.sorts() else rows.sorts()[0]
        shown = rows.mask(name, tau) & base
        order = rows.order(sort)
        found = order[shown[order]]
        pages = max(1, -(-len(found) // self.page_size))
        page = min(max(0, int(asked["page"])), pages - 1)
        start = page * self.page_size
        pixels = bytearray()
        chosen = found[start : start + self.page_size]
        content = {
            "type": "page",
            "request": asked["request"],
            "page": page,
            "pages": pages,
            "first": start + 1 if len(found) else 0,
            "total": len(found),
            "scoreName": _short(title),
            "digits": _digits(rows.scores),
            "counts": {kind: int((rows.mask(kind, tau) & base).sum()) for kind in rows.filters()},
            "items": [self._item(rows, int(row), tau, pixels) for row in chosen],
            "kind": self._reader.kind,
            "sorts": [[key, SORTS[key]] for key in rows.sorts()],
            "classes": self._classes(rows),
            "selected": self.selected,
        }
        return content, [bytes(pixels)] if pixels else []

    def _narrowed(self, rows: Rows, label: int | None, search: str) -> NDArray[np.bool_]:
        """Rows of a class that contain a text."""
        base = np.ones(len(rows), dtype=np.bool_)
        if label is not None and rows.labels is not None:
            base &= rows.labels == label
        wanted = search.casefold().strip()
        if wanted:
            base &= self._matches(rows, wanted)
        return base

    def _matches(self, rows: Rows, wanted: str) -> NDArray[np.bool_]:
        if self._found is not None and self._found[0] == wanted:
            return self._found[1]
        read = self._reader.text
        match = np.fromiter((wanted in read(int(p)).casefold() for p in rows.positions), np.bool_)
        if rows is self._rows:
            self._found = (wanted, match)
        return match

    def _classes(self, rows: Rows) -> list[list[Any]]:
        if rows.labels is None:
            return []
        present = np.unique(rows.labels[rows.labels >= 0])
        if not 1 < len(present) <= MOST_CLASSES:
            return []
        return [[int(label), self._class(int(label))] for label in present]

    def _class(self, label: int) -> str:
        inside = 0 <= label < len(self._class_names)
        return readable(self._class_names[label]) if inside else str(label)

    # ---------------------------------------------------------------- one sample

    def _item(self, rows: Rows, row: int, tau: float, pixels: bytearray) -> dict[str, Any]:
        position = int(rows.positions[row])
        card = self._reader.card(position)
        score, error = _at(rows.scores, row), _at(rows.errors, row)
        item: dict[str, Any] = {
            "position": position,
            "id": self._ids[position] if self._ids is not None else self._reader.id(position),
            "status": rows.status(row, tau),
            "score": score,
            "error": error,
            "uncertain": score is not None and error is not None and abs(score - tau) < 2 * error,
            "logLira": _at(rows.log_lira, row),
            "canary": card.canary,
            **self._judgement(rows, row),
        }
        if card.text is not None:
            item["text"] = readable(card.text[:MOST_CHARACTERS])
            item["hidden"] = max(0, len(card.text) - MOST_CHARACTERS)
        if card.options:
            item["options"] = _options(card.options, rows, row)
        if card.image is not None:
            height, width, channels = card.image.shape
            shape = {"height": height, "width": width, "channels": channels}
            item["image"] = {"offset": len(pixels), **shape}
            pixels.extend(np.ascontiguousarray(card.image).tobytes())
        return item

    def _judgement(self, rows: Rows, row: int) -> dict[str, Any]:
        """The label, and what the model says."""
        label = -1 if rows.labels is None else int(rows.labels[row])
        judgement: dict[str, Any] = {
            "label": "" if label < 0 else self._class(label),
            "guess": "",
            "guessProbability": None,
            "labelProbability": _at(rows.label_probability, row),
        }
        if rows.probabilities is not None:
            guess = int(np.argmax(rows.probabilities[row]))
            judgement["guess"] = self._class(guess)
            judgement["guessProbability"] = float(rows.probabilities[row, guess])
        return judgement

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        rows = self._rows
        if rows.scores is None:
            return f"SampleInspector({len(rows)} samples)"
        return (
            f"SampleInspector({int(rows.flagged(self.tau).sum())} of {len(rows)} samples "
            f"flagged at τ = {self.tau:.4g})"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        rows = self._rows
        counts = [(name, str(int(rows.mask(name, self.tau).sum()))) for name in rows.filters()]
        stand_in = table("Samples", counts)
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), stand_in)


def _rows(
    reader: SampleReader,
    scores: ArrayLike | None,
    memorized: ArrayLike | None,
    labels: ArrayLike | None,
    positions: ArrayLike | None,
    errors: ArrayLike | None,
    log_lira: ArrayLike | None,
    probabilities: ArrayLike | None,
) -> Rows:
    places = _checked_positions(positions, len(reader))
    n = len(places)
    if memorized is not None and scores is None:
        raise ValueError("memorized without scores: give both, or neither")
    return Rows(
        places,
        scores=None if scores is None else checked_floats("scores", scores, n),
        errors=None if errors is None else checked_floats("errors", errors, n),
        memorized=None if memorized is None else checked_flags("memorized", memorized, n),
        log_lira=None if log_lira is None else _checked_log_lira(log_lira, n),
        labels=_checked_labels(labels, reader, places),
        probabilities=_checked_probabilities(probabilities, n),
    )


def _checked_positions(positions: ArrayLike | None, n: int) -> NDArray[np.int64]:
    if positions is None:
        return np.arange(n)
    places = np.asarray(positions, dtype=np.int64)
    wrong = (places < 0) | (places >= n)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"positions must lie between 0 and {n - 1}, one of {n} samples; row {row} is "
            f"{places[row]}"
        )
    return places


def _checked_log_lira(log_lira: ArrayLike, n: int) -> NDArray[np.float64]:
    """NaN is a sample without one and stays."""
    values = np.asarray(log_lira, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"log_lira must have one entry for each of {n} samples, not {values.shape}"
        )
    return values


def _checked_labels(
    labels: ArrayLike | None, reader: SampleReader, places: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    if labels is None:
        carried = reader.labels()
        return None if carried is None else carried[places]
    array = np.asarray(labels)
    if array.shape != places.shape:
        raise ValueError(f"labels has the shape {array.shape} for {len(places)} samples")
    if array.dtype.kind not in "iub":
        raise TypeError(f"labels must be integers that number the classes, not {array.dtype}")
    return array.astype(np.int64)


def _checked_probabilities(probabilities: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    if probabilities is None:
        return None
    array = np.asarray(probabilities)
    if array.ndim != 2 or len(array) != n:
        raise ValueError(
            f"probabilities must have the shape ({n}, number of classes), not {array.shape}"
        )
    wrong = ~np.isfinite(array).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"probabilities must be finite: {int(wrong.sum())} rows are not, the first is row "
            f"{int(np.argmax(wrong))}"
        )
    return array


def _checked_ids(ids: Sequence[str] | None, n: int) -> list[str] | None:
    if ids is None:
        return None
    if len(ids) != n:
        raise ValueError(f"{len(ids)} ids for {n} samples: give one for each")
    return [readable(str(name)) for name in ids]


def _class_names(samples: Any, class_names: Sequence[str] | None) -> tuple[str, ...]:
    names = class_names if class_names is not None else getattr(samples, "class_names", ())
    return tuple(str(name) for name in names)


def _one_of(what: str, value: str, valid: tuple[str, ...]) -> str:
    if value not in valid:
        raise ValueError(f"unknown {what} {value!r}; valid here: {', '.join(map(repr, valid))}")
    return value


def _options(options: tuple[str, ...], rows: Rows, row: int) -> list[dict[str, Any]]:
    label = None if rows.labels is None else int(rows.labels[row])
    of_model = None if rows.probabilities is None else rows.probabilities[row]
    return [
        {
            "text": readable(text[:MOST_CHARACTERS]),
            "label": i == label,
            "probability": None if of_model is None or i >= len(of_model) else float(of_model[i]),
        }
        for i, text in enumerate(options)
    ]


def _at(values: NDArray[np.float64] | None, row: int) -> float | None:
    if values is None or not np.isfinite(values[row]):
        return None
    return float(values[row])


def _short(title: str) -> str:
    """The name of a score, short enough for a card: what stands before the first comma."""
    name = title.split(",", maxsplit=1)[0].strip()
    return name if 0 < len(name) <= 16 else "score"


def _digits(scores: NDArray[np.float64] | None) -> int:
    """Digits after the point that tell scores apart."""
    if scores is None or len(scores) < 2:
        return 2
    span = float(scores.max() - scores.min())
    return 2 if span == 0 else int(np.clip(2 - np.floor(np.log10(span)), 0, 8))
