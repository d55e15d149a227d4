"""Rows of files and of a `datasets.Dataset`, each with its place, and datasets made of them.

Of these, those of texts are here.
"""

from __future__ import annotations

import abc
import csv
import io
import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_same_order, id_text, is_missing
from memowidgets.data.dataset import (
    ID,
    Dataset,
    IntArray,
    check_whole_characters,
    checked_classes,
    checked_ids,
    named_ids,
    writable,
)
from memowidgets.files import checked_path, fill, replacement_of
from memowidgets.store import NotThereError
from memowidgets.vocabulary import first_line, listed, quoted, visible

if TYPE_CHECKING:
    import os

    import pandas as pd

SHORT = 2  # characters of a value that an error may quote
# limits in messages
_A_NAME = 40  # characters
_MOST_COLUMNS = 12


@dataclass(frozen=True)
class Rows:
    """All rows of one source.

    Attributes
    ----------
    where : str
        Name of the source in messages.
    columns : dict of str to sequence
        Values by column, None where a record lacks one. A column that was not asked for is empty.
    places : sequence of str
        Place of each row: ``"row 3"``, or a file and its line.
    are_cells : bool
        Whether each value is the text of a cell, as in a CSV file.
    decimal : str
        Decimal point of numbers in cells.
    frame : DataFrame, optional
        The frame whose rows these are, with texts as the names of its columns.
    class_names : dict of str to sequence of str
        Names of the classes of those columns that are numbers of classes.
    categorical : sequence of str
        Columns whose type says that they are categorical.
    """

    where: str
    columns: Mapping[str, Sequence[Any]]
    places: Sequence[str]
    are_cells: bool = False
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    categorical: Sequence[str] = ()
    decimal: str = "."
    frame: Any = None

    def __len__(self) -> int:
        return len(self.places)

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the place and the values of each row."""
        for row, place in enumerate(self.places):
            yield place, {name: values[row] for name, values in self.columns.items()}


def labels_of(
    found: Rows,
    label: str,
    class_names: Sequence[str] | None,
    ids: str | None,
    **needed: str | Sequence[str],
) -> tuple[IntArray, tuple[str, ...], NDArray[np.str_], Any]:
    """Return labels as numbers, names of classes, and ids as `ids_of` does.

    Labels in cells that are all whole numbers are numbers. If the column of labels has names of
    classes of its own and `class_names` has these names, in any order, they number the classes.
    Otherwise `class_names` replace the names, one by one.

    Parameters
    ----------
    found : Rows
        The rows.
    label, ids : str
        Columns of the labels and of the ids. By default the ids are ``id`` if there is such a
        column, else a frame's index or positions.
    class_names : sequence of str, optional
        Names of the classes.
    **needed : str or sequence of str
        Other columns that must be there, by the name of the argument that names them.

    Raises
    ------
    ValueError
        If there is no row, a column, label or id is missing, or a label is not a class.
    """
    check_columns(found, label=label, ids=ids, **needed)
    own = found.class_names.get(label)
    labels: Any = list(found.columns[label])
    if found.are_cells:
        labels = _as_numbers(labels, class_names)
    if own is not None and class_names is not None and set(own) <= set(class_names):
        named = dict(enumerate(own))  # by name, because the order may be another
        labels = [
            one if is_missing(one) else named.get(one, str(one)) for one in labels
        ]
    integers, names = checked_classes(
        labels, own if class_names is None else class_names, found.places.__getitem__
    )
    column = ID if ids is None and label != ID else ids
    return integers, names, *ids_of(found, column)


def ids_of(found: Rows, column: str | None) -> tuple[NDArray[np.str_], Any]:
    """Return the ids in a column as texts, and as a frame has them, as `named_ids` does.

    Where there is no such column or it has none, they are a frame's index, or positions.
    """
    values = [] if column is None else found.columns.get(column, [])
    ids = [None if is_missing(one) else id_text(one) for one in values]
    if ids.count(None) == len(ids):
        return named_ids(None, len(found), found.frame)
    if None in ids:
        raise ValueError(
            f"{found.places[ids.index(None)]}: the id is missing, but other rows have one; give "
            "each row an id, or rename the column"
        )
    names = checked_ids(ids, len(ids), found.places.__getitem__)
    if found.frame is None:
        return names, None
    return named_ids(found.frame[column], len(found), found.frame)


def check_columns(found: Rows, **needed: str | Sequence[str | None] | None) -> None:
    """Raise if there is no row, or no column that an argument names."""
    if not len(found):
        below = " below its header" if found.are_cells else ""
        raise ValueError(f"{found.where} is empty: it has no row{below}")
    for argument, columns in needed.items():
        for column in [columns] if isinstance(columns, str | None) else columns:
            if column is not None and column not in found.columns:
                raise NotThereError(
                    f"{found.where} has no column {shown_column(column)}; its columns: "
                    f"{listed_columns(found.columns)}",
                    f"name another one with {argument}=",
                )


def check_once(columns: Sequence[str], where: str) -> None:
    """Raise if two columns have the same name."""
    twice = next((name for name, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise ValueError(
            f"{where}: two columns have the name {shown_column(twice)}; rename one of them"
        )


def listed_columns(known: Iterable[str]) -> str:
    """Return the first columns for a message."""
    return listed(map(shown_column, known), _MOST_COLUMNS, 2 * _A_NAME)


def shown_column(name: object) -> str:
    """Return a column's name; of a long one its length, for without a header it is a sample."""
    return describe_value(str(name), _A_NAME)


def rows_of_frame(frame: pd.DataFrame, label: object) -> Rows:
    """Return the rows of a DataFrame whose columns may have any names, but not one twice.

    Categories of the column of labels number the classes in their own order.
    """
    if not hasattr(frame, "to_dict") or not hasattr(frame, "columns"):
        raise TypeError(f"frame must be a pandas DataFrame, not {type(frame).__name__}")
    names = [str(name) for name in frame.columns]
    check_once(names, "the table")
    codes = [
        n for n, kind in zip(names, frame.dtypes, strict=True) if kind == "category"
    ]
    columns = {str(name): values.tolist() for name, values in frame.items()}
    classes = {}
    if isinstance(label, str) and label in codes:
        categorical = frame.iloc[:, names.index(label)].cat
        columns[label] = [
            None if code < 0 else code for code in categorical.codes.tolist()
        ]
        classes[label] = tuple(map(str, categorical.categories))
    places = _numbered("row", len(frame))
    named = frame.set_axis(names, axis=1)
    return Rows(
        "the table",
        columns,
        places,
        class_names=classes,
        categorical=codes,
        frame=named,
    )


def rows_of_records(
    records: Iterable[Any],
    places: Sequence[str] | None = None,
    where: str = "the list of records",
) -> Rows:
    """Return records from memory, numbered from 0 if they have no places."""
    rows = list(records)
    for number, record in enumerate(rows):
        if not isinstance(record, Mapping):
            raise TypeError(
                f"row {number} is of type {type(record).__name__}; each row must be a mapping with "
                "'question', 'choices' and 'answer'"
            )
    names = dict.fromkeys(name for record in rows for name in record)
    columns = {str(name): [record.get(name) for record in rows] for name in names}
    return Rows(
        where, columns, _numbered("row", len(rows)) if places is None else places
    )


def _numbered(start: str, n: int) -> list[str]:
    return [f"{start} {row}" for row in range(n)]


def rows_of_hf(dataset: Any) -> Rows:
    """Return the rows of a `datasets.Dataset` in memory, without its transform.

    Raises
    ------
    TypeError
        If this is not such a dataset. The message says what to pass.
    """
    if hasattr(dataset, "keys") and hasattr(dataset, "column_names"):
        splits = ", ".join(map(repr, dataset.keys()))
        raise TypeError(
            f"dataset has several splits ({splits}); pass one of them, as in dataset['train']"
        )
    if not hasattr(dataset, "features") or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"dataset must be a datasets.Dataset in memory, not {type(dataset).__name__}; make a "
            "streamed one with datasets.Dataset.from_list(list(dataset))"
        )
    classes = {
        name: getattr(kind, "names", None) for name, kind in dataset.features.items()
    }
    plain = dataset.with_format(None)
    return Rows(
        "the dataset",
        # each is read when it is used
        {name: plain[name] for name in plain.column_names},
        _numbered("row", len(dataset)),
        class_names={
            name: names for name, names in classes.items() if names is not None
        },
    )


def read_jsonl(path: str | os.PathLike[str]) -> Rows:
    """Read the objects of a JSON Lines file, ignoring empty lines."""
    path = checked_path(path)
    records = []
    places = []
    # split at \n only: str.splitlines would also split texts at U+2028
    for number, line in enumerate(_text_of(path).split("\n"), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=_with_keys_once)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: broken JSON ({error})") from error
        if not isinstance(record, dict):
            raise ValueError(  # noqa: TRY004  # the file's content is wrong, not an argument's type
                f"{where}: a line must be a JSON object, not a {type(record).__name__}"
            )
        records.append(record)
        places.append(where)
    return rows_of_records(records, places, str(path))


def _with_keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of a JSON object as a mapping, which would keep the last of equal keys."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(
            f"the key {shown_column(twice)} is there twice; keep one of them"
        )
    return record


def read_csv(
    path: str | os.PathLike[str],
    sep: str = ",",
    decimal: str = ".",
    header: Sequence[str] | None = None,
) -> Rows:
    """Read a CSV file in UTF-8 with quoted line breaks, ignoring empty lines.

    Parameters
    ----------
    path : str or Path
        The file.
    sep, decimal : str
        Character between two cells, and the decimal point of numbers in them.
    header : sequence of str, optional
        Names of the columns of a file whose first line does not have them.

    Raises
    ------
    ValueError
        If it is empty or broken, its cells seem to be separated otherwise, a line has another
        number of cells than the header, or two columns have the same name. The message names file
        and line.
    """
    path = checked_path(path)
    lines = _lines_of_csv(path, sep)
    names = (
        [name.strip() for name in lines.pop(0)[1]] if header is None else list(header)
    )
    check_once(names, str(path))
    for where, cells in lines:
        if len(cells) != len(names):
            raise ValueError(
                f"{where}: {len(cells)} cells, but there are {len(names)} columns, "
                f"{listed_columns(names)}; quote cells that have {sep!r} in them, or pass another "
                "sep="
            )
    columns = {
        name: [cells[i] if cells[i].strip() else None for _, cells in lines]
        for i, name in enumerate(names)
    }
    places = [where for where, _ in lines]
    return Rows(str(path), columns, places, are_cells=True, decimal=decimal)


def _lines_of_csv(path: Path, sep: str) -> list[tuple[str, list[str]]]:
    """Return the place and the cells of each line that is not empty."""
    text = _text_of(path)
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=sep, strict=True)
    lines = []
    start = 1
    usual = csv.field_size_limit(len(text) + 1)  # a text may be longer than this
    try:
        for cells in reader:
            if cells:
                lines.append((f"{path}, line {start}", cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {start}: broken CSV ({error})") from error
    finally:
        csv.field_size_limit(usual)
    if not lines:
        raise ValueError(f"{path} is empty: it has no row")
    where, first = lines[0]
    other = next(
        (mark for mark in ",;\t|" if len(first) == 1 and mark in first[0]), None
    )
    if other is not None:
        raise ValueError(
            f"{where}: one cell between {sep!r}, and several between {other!r}; pass sep={other!r}"
        )
    return lines


def read_parquet(path: Path) -> Rows:
    """Read the records of a Parquet file; this needs pyarrow."""
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        reason = first_line(error)
        raise ValueError(
            f"{path} is not a whole Parquet file ({reason}); delete it and get it again"
        ) from error
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    return Rows(str(path), columns, _numbered(f"{path}, row", len(frame)))


def _text_of(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].split(b"\n")
        raise ValueError(
            f"{path}, line {len(before)}: byte 0x{content[error.start]:02x} at position "
            f"{len(before[-1])} is not UTF-8; save the whole file as UTF-8"
        ) from error


class FileDataset(Dataset):
    """A dataset that files of rows can hold: texts, questions or a table.

    A file or a `datasets.Dataset` has columns, and keywords say what is in which of them. These
    keywords are the same for all readers of a class: its docstring explains them.
    """

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        *,
        sep: str = ",",
        decimal: str = ".",
        **how: object,
    ) -> Self:
        r"""Read a CSV file in UTF-8 with a header. An empty cell is a missing value.

        Parameters
        ----------
        path : path-like
            The file.
        sep : str
            Character between two cells, such as ``";"`` or a tab.
        decimal : str
            Decimal point of numbers in a table. For ``","`` there are no points in a number.
        **how
            Keywords of the class.

        Returns
        -------
        Dataset
            Its `source` names the file.

        Raises
        ------
        ValueError
            If a column is missing, a line has another number of cells than the header, or a sample
            is refused as it is from memory. The message names file and line.
        FileNotFoundError
            If the file does not exist.

        Examples
        --------
        >>> import tempfile
        >>> from memowidgets.data import TableDataset
        >>> lines = "age,ward,outcome\n31,A,ill\n45,B,well\n62,A,ill\n"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "patients.csv"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     TableDataset.from_csv(path, label="outcome")
        TableDataset(3 rows of 1 number and 1 category, 2 classes)
        """
        cells = {"sep": sep, "decimal": decimal}
        return cls._from_file("from_csv", path, read_csv(path, **cells), how, **cells)

    @classmethod
    def from_jsonl(cls, path: str | os.PathLike[str], **how: object) -> Self:
        r"""Read a JSON Lines file in UTF-8, with one object per line and its keys as columns.

        A key that an object lacks, or whose value is null, is a missing value.

        Parameters
        ----------
        path : path-like
            The file.
        **how
            Keywords of the class.

        Returns
        -------
        Dataset
            Its `source` is the file, as that of `from_csv`.

        Raises
        ------
        ValueError, FileNotFoundError
            As in `from_csv`, and for broken JSON.

        Examples
        --------
        >>> import tempfile
        >>> from memowidgets.data import TextDataset
        >>> lines = '{"text": "lost", "label": "card"}\n{"text": "empty", "label": "cash"}\n'
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "messages.jsonl"
        ...     _ = path.write_text(lines, encoding="utf-8")
        ...     TextDataset.from_jsonl(path)
        TextDataset(2 texts, 2 classes)
        """
        return cls._from_file("from_jsonl", path, read_jsonl(path), how)

    @classmethod
    def from_hf(cls, dataset: object, **how: object) -> Self:
        """Create a dataset from a `datasets.Dataset` in memory.

        Parameters
        ----------
        dataset : datasets.Dataset
            One split, such as ``load_dataset("banking77")["train"]``. The names of a
            ``ClassLabel`` column are those of the classes. The same names in another order, as
            `class_names`, number the classes anew; other names replace them.
        **how
            Keywords of the class.

        Returns
        -------
        Dataset
            Without a `source`: pass the dataset to `Audit.open` again.

        Raises
        ------
        ValueError
            If a column is missing, or a sample is refused as it is from memory.
        TypeError
            If `dataset` has several splits, is streamed, or is something else.
        """
        return cls._from_rows(rows_of_hf(dataset), **how)

    @classmethod
    def _from_file(
        cls, loader: str, path: object, rows: Rows, how: dict[str, Any], **cells: str
    ) -> Self:
        how = cls._source_keywords(how)
        data = cls._from_rows(rows, **how)
        return data.with_source(f"{cls.__name__}.{loader}", path=path, **cells, **how)

    @classmethod
    def _source_keywords(cls, how: dict[str, Any]) -> dict[str, Any]:
        """Return keywords that mean the same, and that a source can keep."""
        return how

    @classmethod
    @abc.abstractmethod
    def _from_rows(cls, *rows: Any, **how: Any) -> Self:
        """Return a dataset of `Rows`."""

    @abc.abstractmethod
    def _reading_keywords(self) -> dict[str, Any]:
        """Return the keywords with which a file of `_columns` is read again."""

    def to_csv(self, path: str | os.PathLike[str], overwrite: bool = False) -> Self:
        """Write the samples to a CSV file, and return what it gives when read.

        Parameters
        ----------
        path : path-like
            File to write, outside of run directories. Only its owner can read it.
        overwrite : bool
            Whether to replace a file that exists.

        Returns
        -------
        Dataset
            The same samples, read again from the file: `source` says how. It marks no canaries and
            has no fitted encoding.

        Raises
        ------
        ValueError
            If a sample would be read as another one, as a category that is an empty text would in
            a CSV file. The message names it. Nothing is written then.
        FileExistsError
            If the file exists and `overwrite` is False.

        Examples
        --------
        >>> import tempfile
        >>> from memowidgets.data import TextDataset
        >>> data = TextDataset.from_texts(["a fine day", "a poor day"], ["good", "bad"])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = data.to_csv(f"{folder}/days.csv")
        >>> again, again.source["loader"]
        (TextDataset(2 texts, 2 classes), 'TextDataset.from_csv')
        """
        out = io.StringIO(newline="")
        columns = self._columns()
        # with quotes around each text, because a bare carriage return would end its line
        writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            zip(*(map(_cell, values) for values in columns.values()), strict=True)
        )
        return self._write(path, out.getvalue(), "from_csv", overwrite)

    def to_jsonl(self, path: str | os.PathLike[str], overwrite: bool = False) -> Self:
        """Write the samples to a JSON Lines file, as `to_csv` does."""
        columns = self._columns()
        rows = (
            dict(zip(columns, map(_plain, row), strict=True))
            for row in zip(*columns.values(), strict=True)
        )
        content = "".join(f"{json.dumps(row)}\n" for row in rows)
        return self._write(path, content, "from_jsonl", overwrite)

    def _write(
        self, path: str | os.PathLike[str], content: str, loader: str, overwrite: bool
    ) -> Self:
        """Write a file if reading it gives the same samples, and return these."""
        target = writable(path, overwrite=overwrite)
        with replacement_of(target) as temporary, warnings.catch_warnings():
            # of what is known since the samples were first read
            warnings.simplefilter("ignore")
            fill(temporary, content.encode())
            try:
                again: Self = getattr(type(self), loader)(
                    temporary, **self._reading_keywords()
                )
                self._check_same(again)
            except ValueError as error:
                reason = str(error).replace(f"{temporary}, ", "")
                raise ValueError(f"{target} is not written: {reason}") from None
        source = again.source or {}
        return again.with_source(
            source["loader"], **source["arguments"] | {"path": target}
        )

    def _check_same(self, again: FileDataset) -> None:
        """Raise for the first value that is another one in a dataset that was read again."""
        read = again._columns()
        for column, values in self._columns().items():
            ours = list(map(_plain, values))
            theirs = list(map(_plain, read.get(column, ())))
            if ours != theirs:
                pairs = enumerate(zip_longest(ours, theirs))
                row = next(row for row, (old, new) in pairs if old != new)
                raise ValueError(
                    f"the column {quoted(column)} of {quoted(self.ids[row])} (row {row}) would be "
                    "read as another value. Spaces around a column's name and categories that are "
                    "empty or NA do not survive in a CSV file; pass to_jsonl(path), or keep "
                    "to_frame()"
                )


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
            Unique names of the samples. By default the index of a Series, else their positions.

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
            raise ValueError(
                f"{len(texts)} texts but {len(integers)} labels; pass one for each"
            )
        words = tuple(
            checked_text(text, "text", f"row {row}") for row, text in enumerate(texts)
        )
        return cls._made(
            words, integers, names, *named_ids(ids, len(words), texts, labels)
        )

    @classmethod
    def _from_rows(
        cls,
        rows: Rows,
        text: str = "text",
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
    ) -> Self:
        about = labels_of(rows, label, class_names, ids, text=text)
        pairs = zip(rows.columns[text], rows.places, strict=True)
        words = tuple(checked_text(value, "text", place) for value, place in pairs)
        return cls._made(words, *about)

    @classmethod
    def _made(
        cls,
        words: tuple[str, ...],
        labels: IntArray,
        class_names: tuple[str, ...],
        ids: NDArray[np.str_],
        own_ids: object,
    ) -> Self:
        data = cls(ids, labels, class_names, texts=words, own_ids=own_ids)
        data._warn_of_contradictions()
        return data

    def _summary(self) -> Iterable[str]:
        return [
            f"{len(self)} texts",
            f"{len(self.class_names)} classes",
            *self._repeats(),
        ]

    def _sample(self, index: int) -> str:
        return self.texts[index]

    def _contents(self) -> Iterable[bytes]:
        return (text.encode("utf-8", "surrogatepass") for text in self.texts)

    def _columns(self) -> dict[str, Any]:
        return {"text": self.texts} | super()._columns()

    def _reading_keywords(self) -> dict[str, Any]:
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
        for row, (name, text) in zip(
            self._positions(texts), texts.items(), strict=True
        ):
            words[row] = checked_text(text, "text", f"the new text of {quoted(name)}")
        return self._copy_with(texts=tuple(words))


def _plain(value: object) -> Any:
    """Return a value as JSON has it; a missing number is null."""
    if isinstance(value, float | np.floating):
        return None if np.isnan(value) else float(value)
    return int(value) if isinstance(value, np.integer) else value


def _cell(value: object) -> Any:
    """Return a value as a cell has it: options as JSON, a missing value as nothing."""
    return json.dumps(value) if isinstance(value, tuple) else _plain(value)


def _as_numbers(labels: list[Any], class_names: Sequence[str] | None) -> list[Any]:
    """Return labels that are all written as whole numbers as numbers, unless classes have them."""
    written = {label for label in labels if label is not None}
    if isinstance(class_names, Iterable) and written <= set(class_names):
        return labels
    if not all(
        text.isdecimal() and len(text) < 10 and str(int(text)) == text
        for text in written
    ):
        return labels  # 01 and 1 can be different classes
    return [None if label is None else int(label) for label in labels]


def checked_text(value: object, what: str, where: str) -> str:
    """Return a text, or raise if it is missing, empty or cannot be tokenized."""
    if is_missing(value):
        raise ValueError(f"{where}: the {what} is missing")
    if not isinstance(value, str):
        raise ValueError(  # noqa: TRY004  # the content is wrong, not an argument's type
            f"{where}: the {what} must be a text, not {describe_value(value)}"
        )
    if not value.strip():
        raise ValueError(f"{where}: the {what} is empty")
    check_whole_characters([value], lambda _: f"{where}: the {what}")
    return str(value)  # NumPy's texts too


def describe_value(value: object, longest: int = SHORT) -> str:
    """Describe a wrong value in an error: a number or letter as it is, a text by its length.

    A notebook keeps its errors, so they must not quote what could be part of a sample.
    """
    if isinstance(value, str):
        return (
            quoted(value)
            if len(value) <= longest
            else f"a text of {len(value)} characters"
        )
    if isinstance(value, int | float | np.number):
        return visible(str(value), _A_NAME)
    return f"of type {type(value).__name__}"
