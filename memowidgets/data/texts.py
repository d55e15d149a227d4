"""Datasets of plain texts with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import is_missing
from memowidgets.data.base import (
    BoolArray,
    Dataset,
    IntArray,
    checked_classes,
    checked_ids,
)
from memowidgets.data.planted import with_wrong_labels
from memowidgets.data.questions import checked_text
from memowidgets.visible import quoted


@dataclass(frozen=True, repr=False, eq=False)
class TextDataset(Dataset):
    """Labelled texts; created by `from_texts`.

    Equal texts stay on one side of every split.

    Attributes
    ----------
    texts : tuple of str
        Texts of the samples.
    ids, labels, class_names, canaries, source
        As in `Dataset`.

    Examples
    --------
    >>> data = TextDataset.from_texts(["a fine day", "a poor day"], [1, 0], ["bad", "good"])
    >>> data
    TextDataset(2 texts, 2 classes)
    >>> data[0], data.ids.tolist()
    ('a fine day', ['0', '1'])
    """

    texts: tuple[str, ...]
    ids: NDArray[np.str_]
    labels: IntArray
    class_names: tuple[str, ...]
    canaries: BoolArray | None = None
    source: dict[str, Any] | None = None

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[str],
        labels: ArrayLike,
        class_names: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Self:
        """Create a dataset from texts in memory.

        Parameters
        ----------
        texts : sequence of str
            One text for each sample.
        labels : array-like of shape (n,)
            Labels as integers from 0, or as strings.
        class_names : sequence of str, optional
            Names of the classes. By default their numbers, or the strings that occur, sorted.
        ids : sequence of str, optional
            Unique names of the samples. By default their positions.

        Returns
        -------
        TextDataset

        Raises
        ------
        ValueError
            If lengths differ, a text is missing or empty, a label is missing or is not a class, ids
            repeat, or there is only one class. The message names the row.
        TypeError
            If a text is not a string. The message names the row.

        Warns
        -----
        UserWarning
            If a class never occurs.
        """
        integers, names = checked_classes(labels, class_names)
        if len(texts) != len(integers):
            raise ValueError(f"{len(texts)} texts but {len(integers)} labels; pass one for each")
        words = tuple(_checked_text(text, f"row {row}") for row, text in enumerate(texts))
        return cls(words, checked_ids(ids, len(words)), integers, names)

    def __repr__(self) -> str:
        repeated = len(self) - len(set(self.texts))
        twice = f", {repeated} duplicate{'s' if repeated > 1 else ''}" if repeated else ""
        planted = "" if self.canaries is None else f", {int(self.canaries.sum())} canaries"
        return f"TextDataset({len(self)} texts, {len(self.class_names)} classes{twice}{planted})"

    def __getitem__(self, index: int) -> str:
        return self.texts[index]

    def take(self, indices: ArrayLike) -> Self:
        """Return the texts at these positions, in this order, as a dataset."""
        chosen = np.asarray(indices)
        return replace(
            self,
            texts=tuple(self.texts[i] for i in chosen),
            ids=self.ids[chosen],
            labels=self.labels[chosen],
            canaries=None if self.canaries is None else self.canaries[chosen],
            source=None,
        )

    def with_texts(self, texts: Mapping[str, tuple[str, Sequence[str]]]) -> Self:
        """Return the same samples with new texts for some of them.

        Parameters
        ----------
        texts : mapping of id to (text, options)
            New texts. Options are ignored, because plain texts have none.

        Returns
        -------
        TextDataset

        Raises
        ------
        ValueError
            If an id is unknown or a text is empty. The message names the id.
        """
        unknown = [name for name in texts if name not in set(self.ids.tolist())]
        if unknown:
            raise ValueError(f"no text has the id {quoted(unknown[0])}; use ids from .ids")
        empty = [name for name, (text, _) in texts.items() if not text.strip()]
        if empty:
            raise ValueError(
                f"the new text of {quoted(empty[0])} is empty; write one, or remove the sample"
            )
        pairs = zip(self.ids.tolist(), self.texts, strict=True)
        words = tuple(texts[name][0] if name in texts else text for name, text in pairs)
        return replace(self, texts=words, source=None)

    def with_canaries(self, n: int, kind: str = "mislabelled", seed: int = 0) -> Self:
        """Plant canaries: texts that a model can only fit by memorising them.

        Parameters
        ----------
        n : int
            Number of canaries.
        kind : {"mislabelled"}
            ``"mislabelled"`` gives `n` texts a wrong label, drawn evenly.
        seed : int
            Seed for the choice of texts and labels.

        Returns
        -------
        TextDataset
            The same texts, ids and order. `canaries` marks the planted ones. A text that is a
            canary already is not chosen again.

        Raises
        ------
        ValueError
            If there are more canaries than texts, or the kind is unknown.

        Examples
        --------
        >>> data = TextDataset.from_texts(["a fine day", "a poor day"], ["good", "bad"])
        >>> data.with_canaries(1)
        TextDataset(2 texts, 2 classes, 1 canaries)
        """
        return with_wrong_labels(self, n, kind, seed)

    def content_hashes(self) -> list[str]:
        """Return the SHA-256 of each text, 16 hexadecimal digits."""
        return [
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            for text in self.texts
        ]


def _checked_text(value: Any, where: str) -> str:
    if not isinstance(value, str) and not is_missing(value):
        raise TypeError(f"{where} must be a text, not {type(value).__name__}")
    return checked_text(value, "text", where, most=None)
