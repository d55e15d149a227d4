"""Datasets of plain texts with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from memowidgets.checks import check_same_order
from memowidgets.data.dataset import ID, IntArray, checked_classes, checked_ids
from memowidgets.data.rows import FileDataset, Rows, checked_text, labelled
from memowidgets.visible import quoted


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TextDataset(FileDataset):
    """Labelled texts; created by `from_texts`, `from_csv`, `from_jsonl` or `from_hf`.

    Files and `from_hf` take these keywords: `text` and `label`, the columns of the texts and of the
    labels, ``"text"`` and ``"label"`` by default; `class_names` as in `from_texts`; and `ids`, the
    column of unique names of the samples, by default ``id`` if there is such a column, else
    positions. Equal texts stay on one side of every split.

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

    _fields: ClassVar[tuple[str, ...]] = ("texts",)
    _noun: ClassVar[str] = "texts"

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
            If lengths differ, a text is missing, empty or not a str, a label is missing or is not
            a class, ids repeat, or there is only one class. The message names the row.
        TypeError
            If `texts` is a single text.

        Warns
        -----
        UserWarning
            If a class never occurs, or equal texts have different labels.
        """
        if isinstance(texts, str):
            raise TypeError("texts must be a list of texts, not a single one")
        check_same_order(ids=ids, texts=texts, labels=labels)
        integers, names = checked_classes(labels, class_names)
        if len(texts) != len(integers):
            raise ValueError(f"{len(texts)} texts but {len(integers)} labels; pass one for each")
        words = tuple(checked_text(text, "text", f"row {row}") for row, text in enumerate(texts))
        return cls._made(words, integers, names, ids)

    @classmethod
    def _from_rows(
        cls,
        rows: Rows,
        text: str = "text",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
    ) -> Self:
        found = labelled(rows, label, class_names, ids, text=text)
        pairs = zip(rows.columns[text], rows.places, strict=True)
        words = tuple(checked_text(value, "text", place) for value, place in pairs)
        return cls._made(words, *found)

    @classmethod
    def _made(
        cls,
        words: tuple[str, ...],
        labels: IntArray,
        class_names: tuple[str, ...],
        ids: Iterable[str] | None,
    ) -> Self:
        if len(set(words)) == 1:
            raise ValueError(f"all {len(words)} texts are equal; pass different ones")
        data = cls(checked_ids(ids, len(words)), labels, class_names, texts=words)
        data._warn_of_contradictions()
        return data

    def _summary(self) -> Iterable[str]:
        return [f"{len(self)} texts", f"{len(self.class_names)} classes", *self._repeats()]

    def _sample(self, index: int) -> str:
        return self.texts[index]

    def _contents(self) -> Iterable[bytes]:
        return (text.encode("utf-8", "surrogatepass") for text in self.texts)

    def _columns(self) -> dict[str, Any]:
        return {"text": self.texts} | super()._columns()

    def _reading(self) -> dict[str, Any]:
        return {"class_names": list(self.class_names), "ids": ID}

    def with_texts(self, texts: Mapping[str, str]) -> Self:
        """Return the same samples with new texts for some of them.

        Parameters
        ----------
        texts : mapping of id to str
            New texts.

        Returns
        -------
        TextDataset

        Raises
        ------
        ValueError
            If an id is unknown, or a text is empty, not a str, or has half a character. The message
            names the id.
        """
        words = list(self.texts)
        for row, (name, text) in zip(self._positions(texts), texts.items(), strict=True):
            words[row] = checked_text(text, "text", f"the new text of {quoted(name)}")
        return self._replaced(texts=tuple(words))
