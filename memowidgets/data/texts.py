"""Datasets of plain texts with labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_same_order, is_missing
from memowidgets.data.dataset import (
    ID,
    BoolArray,
    Dataset,
    IntArray,
    checked_classes,
    checked_ids,
)
from memowidgets.data.rows import Rows, checked_text, labelled, read_csv, read_jsonl, rows_of_hf
from memowidgets.visible import quoted


@dataclass(frozen=True, repr=False, eq=False)
class TextDataset(Dataset):
    """Labelled texts; created by `from_texts`, `from_csv`, `from_jsonl` or `from_hf`.

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
            If lengths differ, a text is missing or empty, a label is missing or is not a class, ids
            repeat, or there is only one class. The message names the row.
        TypeError
            If a text is not a string. The message names the row. Also if `texts` is a single one.

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
        words = tuple(_checked_text(text, f"row {row}") for row, text in enumerate(texts))
        return cls._made(words, integers, names, ids)

    @classmethod
    def from_csv(
        cls,
        path: str | Path,
        text: str = "text",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
        *,
        sep: str = ",",
    ) -> Self:
        r"""Read a CSV file in UTF-8 with a header.

        Parameters
        ----------
        path : str or Path
            The file.
        text, label : str
            Names of the columns with the texts and the labels. Labels are names of classes, or
            integers from 0 if all of them are.
        class_names : sequence of str, optional
            Names of the classes. By default the numbers, or the strings that occur, sorted.
        ids : str, optional
            Name of the column with unique names of the samples. By default ``id`` if there is such
            a column, else positions.
        sep : str
            Character between two cells, such as ``";"`` or a tab.

        Returns
        -------
        TextDataset
            Its `source` names the file.

        Raises
        ------
        ValueError
            As in `from_texts`, and if a column is missing or a line has another number of cells
            than the header. The message names file and line.
        FileNotFoundError
            If the file does not exist.

        Warns
        -----
        UserWarning
            If a class never occurs, or equal texts have different labels.

        Examples
        --------
        >>> import tempfile
        >>> lines = "text,category\nmy card is lost,card\nno cash came out,cash\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "messages.csv"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     TextDataset.from_csv(path, label="category").class_names
        ('card', 'cash')
        """
        how: dict[str, Any] = {"text": text, "class_names": class_names, "ids": ids}
        rows, cells = read_csv(path, sep=sep), {"sep": sep}
        return cls._from_file("from_csv", path, rows, cells, label=label, **how)

    @classmethod
    def from_jsonl(
        cls,
        path: str | Path,
        text: str = "text",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
    ) -> Self:
        r"""Read a JSON Lines file in UTF-8, with one object per line.

        Parameters
        ----------
        path : str or Path
            The file.
        text, label, class_names, ids
            As in `from_csv`, with keys of the objects instead of columns.

        Returns
        -------
        TextDataset
            Its `source` names the file.

        Raises
        ------
        ValueError
            As in `from_texts`, and for broken JSON or another encoding. The message names file
            and line.
        FileNotFoundError
            If the file does not exist.

        Warns
        -----
        UserWarning
            If a class never occurs, or equal texts have different labels.

        Examples
        --------
        >>> import tempfile
        >>> lines = '{"text": "lost", "label": "card"}\n{"text": "empty", "label": "cash"}\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "messages.jsonl"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     TextDataset.from_jsonl(path)
        TextDataset(2 texts, 2 classes)
        """
        how: dict[str, Any] = {"text": text, "class_names": class_names, "ids": ids}
        return cls._from_file("from_jsonl", path, read_jsonl(path), label=label, **how)

    @classmethod
    def from_hf(
        cls,
        dataset: Any,
        text: str = "text",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
    ) -> Self:
        """Create a dataset from a `datasets.Dataset` in memory.

        Parameters
        ----------
        dataset : datasets.Dataset
            One split, such as ``load_dataset("banking77")["train"]``.
        text, label : str
            Names of the columns with the texts and the labels.
        class_names : sequence of str, optional
            Names of the classes. By default those of a ``ClassLabel`` column, else the numbers, or
            the strings that occur, sorted. The names of a ``ClassLabel`` column in another order
            number the classes anew; other names replace them.
        ids : str, optional
            Name of the column with unique names of the samples. By default ``id`` if there is such
            a column, else positions.

        Returns
        -------
        TextDataset
            Without a `source`: pass the dataset to `Audit.open` again.

        Raises
        ------
        ValueError
            As in `from_texts`, and if a column is missing.
        TypeError
            If `dataset` has several splits, is streamed, or is something else.

        Warns
        -----
        UserWarning
            If a class never occurs, or equal texts have different labels.
        """
        rows = rows_of_hf(dataset, {text, label, ID if ids is None else ids})
        return cls._from_rows(rows, text, label, class_names, ids)

    @classmethod
    def _from_rows(
        cls, rows: Rows, text: str, label: str, class_names: Sequence[str] | None, ids: str | None
    ) -> Self:
        found = labelled(rows, label, class_names, ids, text=text)
        pairs = enumerate(rows.values(text))
        words = tuple(_checked_text(value, rows.places[row]) for row, value in pairs)
        return cls._made(words, *found)

    @classmethod
    def _made(
        cls,
        words: tuple[str, ...],
        labels: IntArray,
        class_names: tuple[str, ...],
        ids: Sequence[str] | None,
    ) -> Self:
        if len(set(words)) == 1:
            raise ValueError(f"all {len(words)} texts are equal; pass different ones")
        data = cls(words, checked_ids(ids, len(words)), labels, class_names)
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
            If an id is unknown, or a text is empty or has half a character. The message names
            the id.
        TypeError
            If a text is not a str.
        """
        words = list(self.texts)
        for row, (name, text) in zip(self._positions(texts), texts.items(), strict=True):
            words[row] = _checked_text(text, f"the new text of {quoted(name)}")
        return self._replaced(texts=tuple(words))


def _checked_text(value: Any, where: str) -> str:
    if not isinstance(value, str) and not is_missing(value):
        raise TypeError(f"{where} must be a text, not {type(value).__name__}")
    return str(checked_text(value, "text", where, most=None))  # NumPy's texts too
