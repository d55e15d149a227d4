"""Readers of samples for the inspector: images, texts, questions and rows of a table."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import is_tensor, to_numpy
from memowidgets.data.dataset import kind_of, value_of
from memowidgets.data.tables import columns_to_show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


MISSING = "missing"
_EVERYTHING = -1  # stands for all rows, where there are no labels


@dataclass(frozen=True)
class Value:
    """One value of a table's row.

    Attributes
    ----------
    name : str
        Its column.
    value : str
        The value as text, empty if it is missing.
    usual : str
        Median of its class, or the most frequent category.
    """

    name: str
    value: str
    usual: str


class UsualValues:
    """Sorts a row's values by medians and frequencies in its class.

    A number is as unusual as its distance from the class's median, in standard deviations of the
    class. A category, or a missing value, with share p of the class is as unusual as the distance
    of its 0/1 feature from its mean, √((1 − p) / p) standard deviations.

    Parameters
    ----------
    columns : mapping of str to array of shape (n,)
        Columns of numbers, with NaN for a missing one, or of texts, with None for a missing one.
    labels : array of shape (n,), int, or None
        Class of each row. Without labels all rows are one class.

    Examples
    --------
    >>> ages = np.array([30.0, 31.0, 32.0, 90.0])
    >>> wards = np.array(["A", "A", "A", "A"], dtype=object)
    >>> [v.name for v in UsualValues({"ward": wards, "age": ages}, None).of(3)]
    ['age', 'ward']
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], labels: NDArray[np.int64] | None
    ) -> None:
        self._columns, self._labels = columns, labels
        self._known: dict[int, dict[str, tuple[str, Callable[[Any], float]]]] = {}

    def of(self, position: int) -> tuple[Value, ...]:
        """Return the values of a row, the most unusual first."""
        label = _EVERYTHING if self._labels is None else int(self._labels[position])
        if label not in self._known:
            own = slice(None) if self._labels is None else self._labels == label
            self._known[label] = {
                name: _usual(of[own]) for name, of in self._columns.items()
            }
        found = []
        for name, (usual, distance) in self._known[label].items():
            value = self._columns[name][position]
            found.append((distance(value), Value(name, as_text(value), usual)))
        return tuple(value for _, value in sorted(found, key=lambda pair: -pair[0]))


def _usual(values: NDArray[Any]) -> tuple[str, Callable[[Any], float]]:
    """Return the usual value of a column in a class, and how far another value is from it."""
    n = len(values)
    if values.dtype.kind != "f":
        times = Counter(values.tolist())
        return times.most_common(1)[0][0] or MISSING, lambda value: _rarity(
            times[value] / n
        )
    there = values[np.isfinite(values)]
    median, spread = (np.median(there), there.std()) if len(there) else (np.nan, 0.0)

    def distance(value: float) -> float:
        if not np.isfinite(value):
            return _rarity(1 - len(there) / n)
        return float(abs(value - median) / spread) if spread > 0 else 0.0

    return as_text(median, digits=4) or MISSING, distance


def as_text(value: Any, digits: int = 7) -> str:
    """Return a value as text, empty if it is missing."""
    if value is None or isinstance(value, str):
        return value or ""
    return "" if np.isnan(value) else f"{value:.{digits}g}"


def _rarity(share: float) -> float:
    return float(np.sqrt((1 - share) / share)) if share > 0 else 0.0


MOST_CHARACTERS = 4000
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Card:
    """Content of one sample.

    Attributes
    ----------
    text : str or None
        A text, or the question of an MCQ.
    options : tuple of str
        The choices of an MCQ.
    values : tuple of Value
        The values of a table's row, those first that are most unusual for its class.
    image : array of shape (height, width, channels), uint8, or None
        One, three or four channels.
    canary : bool
        Whether it was planted.
    """

    text: str | None = None
    options: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    image: NDArray[np.uint8] | None = None
    canary: bool = False


class SampleReader:
    """Reads samples of one kind from a sequence. Each may have an id."""

    kind = ""
    is_text = False
    asks = False  # whether each sample has options of its own
    notice = ""  # what is said once above all samples

    def __init__(self, samples: Any) -> None:
        self._samples = samples
        # a dataset's: without making the sample
        self._ids = getattr(samples, "ids", None)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._samples)

    def id(self, position: int) -> str:
        """Return the id of a sample."""
        if self._ids is not None:
            return str(self._ids[position])
        name = value_of(self._samples[position], "id")
        return str(position if name is None else name)

    def card(self, position: int) -> Card:
        """Return the content of a sample."""
        raise NotImplementedError

    def text(self, position: int) -> str:  # noqa: ARG002 - images have none
        """Return the text that a search looks through, empty for images."""
        return ""

    def labels(self) -> NDArray[np.int64] | None:
        """Return the labels that the samples have, -1 for one without a label."""
        known = getattr(self._samples, "labels", None)
        if known is not None:
            return np.asarray(known, dtype=np.int64)
        carried = np.array(
            [_label(self._samples[i]) for i in range(len(self))], dtype=np.int64
        )
        return carried if (carried >= 0).any() else None

    def _is_canary(self, position: int) -> bool:
        if not hasattr(self._samples, "canaries"):
            return bool(value_of(self._samples[position], "canary"))
        canaries = self._samples.canaries  # a dataset's: without making the sample
        return canaries is not None and bool(canaries[position])


def reader_for(samples: Any) -> SampleReader:
    """Return the reader for samples.

    Parameters
    ----------
    samples : sequence
        A dataset of this package, an array of images of shape (n, h, w) or (n, h, w, c), a
        list of texts, a list of records with ``question``, ``choices`` and ``answer`` or with
        ``text``, or a DataFrame, each row of which is a sample.

    Returns
    -------
    SampleReader

    Raises
    ------
    TypeError
        If the first sample is of no known kind.
    ValueError
        If there is no sample or the images have an unknown shape.

    Examples
    --------
    >>> reader_for(["first text", "second text"]).card(1).text
    'second text'
    """
    if is_tensor(samples):
        samples = to_numpy(samples, "samples")
    if not hasattr(samples, "__len__") or not hasattr(samples, "__getitem__"):
        raise TypeError(
            f"samples must have a length and an order, not be {type(samples).__name__}"
        )
    if len(samples) == 0:
        raise ValueError("samples is empty: there must be at least one")
    if hasattr(samples, "iloc") and samples.ndim == 1:  # a pandas Series
        samples = samples.tolist()
    if hasattr(samples, "iloc"):  # a pandas DataFrame
        records = samples.to_dict("records")
        if kind_of(records) in (None, "withheld"):
            return _TableRows(columns_to_show(samples), records)
        samples = records
    kind = kind_of(samples)
    if kind == "row":
        return _TableRows(samples.columns, samples)
    if kind in _READERS:
        return _READERS[kind](samples)
    raise TypeError(
        f"cannot show samples of type {type(samples[0]).__name__}: give images as an array of "
        "shape (n, height, width[, channels]), texts as strings, records with 'question', "
        "'choices' and 'answer', or a DataFrame"
    )


def readable(text: str) -> str:
    """Return text that can be sent as UTF-8. Half characters are replaced."""
    return _SURROGATES.sub("\ufffd", text)


class _Images(SampleReader):
    kind = "image"

    def card(self, position: int) -> Card:
        sample = self._samples[position]
        pixels = _as_bytes(to_numpy(value_of(sample, "image"), "an image"))
        return Card(image=pixels, canary=self._is_canary(position))


class _ImageArray(SampleReader):
    kind = "image"

    def __init__(self, images: NDArray[Any]) -> None:
        if images.ndim not in (3, 4) or (
            images.ndim == 4 and images.shape[3] not in (1, 3, 4)
        ):
            raise ValueError(
                "images must have the shape (n, height, width) or (n, height, width, channels) "
                f"with 1, 3 or 4 channels, not {images.shape}"
            )
        super().__init__(images)
        self._top = float(images.max()) if images.dtype.kind == "f" else None

    def card(self, position: int) -> Card:
        return Card(image=_as_bytes(self._samples[position], self._top))

    def labels(self) -> NDArray[np.int64] | None:
        return None


class _Texts(SampleReader):
    kind = "text"
    is_text = True

    def card(self, position: int) -> Card:
        return Card(text=self.text(position), canary=self._is_canary(position))

    def text(self, position: int) -> str:
        sample = self._samples[position]
        return str(sample if isinstance(sample, str) else value_of(sample, "text"))


class _TableRows(SampleReader):
    kind = "table"

    def __init__(self, columns: Mapping[str, NDArray[Any]], samples: Any) -> None:
        super().__init__(samples)
        self._columns = columns
        self._usual = UsualValues(columns, self.labels())

    def card(self, position: int) -> Card:
        return Card(values=self._usual.of(position), canary=self._is_canary(position))

    def text(self, position: int) -> str:
        pairs = (
            (name, as_text(values[position])) for name, values in self._columns.items()
        )
        return "\n".join(f"{name}: {value}" for name, value in pairs)


class _Withheld(SampleReader):
    """Samples of which only ids and labels are known."""

    kind = "text"

    def __init__(self, samples: Sequence[Any]) -> None:
        super().__init__(samples)
        hint = value_of(samples[0], "hint")
        advice = f": open the audit with {hint}" if hint else ""
        self.notice = f"The samples are not at hand{advice}"
        self.notice += "" if self.notice.endswith("…") else "."

    def card(self, position: int) -> Card:
        return Card(text="", canary=self._is_canary(position))

    def text(self, position: int) -> str:
        return self.id(position)


class _Questions(SampleReader):
    kind = "mcq"
    is_text = True

    @cached_property
    def asks(self) -> bool:  # type: ignore[override]
        first = self.card(0).options
        return any(self.card(i).options != first for i in range(1, len(self)))

    def card(self, position: int) -> Card:
        known: Any = self._samples
        canary = self._is_canary(position)
        if hasattr(known, "questions"):  # a dataset's: without making the prompt
            return Card(
                known.questions[position], tuple(known.choices[position]), canary=canary
            )
        options = tuple(str(choice) for choice in value_of(known[position], "choices"))
        return Card(str(value_of(known[position], "question")), options, canary=canary)

    def text(self, position: int) -> str:
        known: Any = self._samples
        if hasattr(known, "questions"):  # a search reads all of them
            return "\n".join([known.questions[position], *known.choices[position]])
        card = self.card(position)
        return "\n".join([card.text or "", *card.options])


def _label(sample: Any) -> int:
    """Return the number that a sample gives as its label or answer, else -1."""
    for name in ("label", "answer"):
        label = value_of(sample, name)
        if isinstance(label, int | np.integer):
            return int(label)
    return -1


def _as_bytes(image: NDArray[Any], top: float | None = None) -> NDArray[np.uint8]:
    """Return an image as bytes. Real numbers run from 0 to 1, or to the largest pixel of all."""
    if image.ndim == 2:
        image = image[..., np.newaxis]
    if image.dtype == np.uint8:
        return image
    scale = 1.0 if top is None or top <= 1.0 else top
    pixels = np.nan_to_num(np.asarray(image, dtype=np.float64)) / scale
    if image.dtype.kind in "iu":
        pixels = image / 255.0
    return (np.clip(pixels, 0.0, 1.0) * 255).round().astype(np.uint8)


_READERS: dict[str | None, Callable[[Any], SampleReader]] = {
    "pixels": _ImageArray,
    "text": _Texts,
    "record": _Texts,
    "image": _Images,
    "question": _Questions,
    "withheld": _Withheld,
}
