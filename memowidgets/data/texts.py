"""Datasets of plain texts with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.data.base import (
    BoolArray,
    Dataset,
    IntArray,
    checked_class_names,
    checked_ids,
    checked_labels,
)
from memowidgets.visible import quoted


@dataclass(frozen=True, repr=False, eq=False)
class TextDataset(Dataset):
    """Labelled texts; created by `from_texts`.

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
            Labels as integers from 0.
        class_names : sequence of str, optional
            Names of the classes. By default their numbers.
        ids : sequence of str, optional
            Unique names of the samples. By default their positions.

        Returns
        -------
        TextDataset

        Raises
        ------
        ValueError
            If lengths differ, a label is not a class, ids repeat, or there is only one class.
        TypeError
            If a text is not a string; the message names the row.
        """
        integers = checked_labels(labels, class_names)
        if len(texts) != len(integers):
            raise ValueError(f"{len(texts)} texts but {len(integers)} labels; pass one for each")
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"row {row} must be a text, not {type(text).__name__}")
        names = checked_class_names(class_names, integers)
        return cls(tuple(map(str, texts)), checked_ids(ids, len(texts)), integers, names)

    def __repr__(self) -> str:
        planted = "" if self.canaries is None else f", {int(self.canaries.sum())} canaries"
        return f"TextDataset({len(self)} texts, {len(self.class_names)} classes{planted})"

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

    def content_hashes(self) -> list[str]:
        """Return the SHA-256 of each text, 16 hexadecimal digits."""
        return [
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            for text in self.texts
        ]
