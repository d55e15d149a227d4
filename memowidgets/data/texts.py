"""Datasets of plain texts with labels."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
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
    chosen_positions,
    one_position,
    warn_of_contradictions,
)
from memowidgets.data.labelled import (
    Labelled,
    file_source,
    labelled_of_hf,
    read_csv_labelled,
    read_jsonl_labelled,
)
from memowidgets.data.planted import with_wrong_labels
from memowidgets.data.questions import checked_text
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
    ) -> Self:
        r"""Read a CSV file in UTF-8 with commas and a header.

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

        Returns
        -------
        TextDataset
            Its `source` is the file, so that `Audit.open(path, data=file)` reads it again.

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
        rows = read_csv_labelled(path, label, class_names, ids, text=text)
        how = {"text": text, "label": label, "class_names": class_names, "ids": ids}
        source = file_source("TextDataset.from_csv", path, how)
        return replace(cls._from_rows(rows, text), source=source)

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
            Its `source` is the file, so that `Audit.open(path, data=file)` reads it again.

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
        rows = read_jsonl_labelled(path, label, class_names, ids, text=text)
        how = {"text": text, "label": label, "class_names": class_names, "ids": ids}
        source = file_source("TextDataset.from_jsonl", path, how)
        return replace(cls._from_rows(rows, text), source=source)

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
        return cls._from_rows(labelled_of_hf(dataset, label, class_names, ids, text=text), text)

    @classmethod
    def _from_rows(cls, found: Labelled, text: str) -> Self:
        words = tuple(_checked_text(row.fields.get(text), row.where) for row in found.rows)
        integers, names = checked_classes(found.labels, found.class_names, found.where)
        return cls._made(words, integers, names, found.ids)

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
        warn_of_contradictions("texts", words, labels, data.ids)
        return data

    def __repr__(self) -> str:
        repeated = len(self) - len(set(self.texts))
        twice = f", {repeated} duplicate{'s' if repeated > 1 else ''}" if repeated else ""
        planted = "" if self.canaries is None else f", {int(self.canaries.sum())} canaries"
        return f"TextDataset({len(self)} texts, {len(self.class_names)} classes{twice}{planted})"

    def __getitem__(self, index: int) -> str:
        index = one_position(index, len(self))
        return self.texts[index]

    def take(self, indices: ArrayLike) -> Self:
        """Return the texts at these positions, in this order, as a dataset."""
        chosen = chosen_positions(indices, len(self))
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
        """Plant canaries: texts that teach nothing about the others.

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
        return with_wrong_labels(self, n, kind, seed, "texts")

    def content_hashes(self) -> list[str]:
        """Return the SHA-256 of each text, 16 hexadecimal digits."""
        return [
            hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
            for text in self.texts
        ]


def _checked_text(value: Any, where: str) -> str:
    if not isinstance(value, str) and not is_missing(value):
        raise TypeError(f"{where} must be a text, not {type(value).__name__}")
    return str(checked_text(value, "text", where, most=None))  # NumPy's texts too
