"""Columns of values, labels and ids from a file or from a `datasets.Dataset`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memowidgets.checks import is_missing, warn_user
from memowidgets.data.columns import known_columns
from memowidgets.data.rows import Row, read_csv_table, read_jsonl
from memowidgets.files import checked_path

_ID = "id"


@dataclass(frozen=True)
class Labelled:
    """Rows with a label each, in their order.

    Attributes
    ----------
    rows : list of Row
        All values of the rows with their places.
    labels : list
        Labels as they stand in the source.
    class_names : sequence of str or None
        Names of the classes, if the caller or the source gives them.
    ids : list of str or None
        Unique names of the rows, if there is a column of them.
    """

    rows: list[Row]
    labels: list[Any]
    class_names: Sequence[str] | None
    ids: list[str] | None

    def where(self, row: int) -> str:
        """Return the place of a row, for a message."""
        return self.rows[row].where


def read_csv_labelled(
    path: str | Path, label: str, class_names: Sequence[str] | None, ids: str | None, **needed: str
) -> Labelled:
    """Read a CSV file; an empty cell is None, and labels that are all whole numbers are numbers.

    Raises
    ------
    ValueError
        If the file is empty or broken, or a column is missing. The message names file and line.
    """
    rows = read_csv_table(checked_path(path))
    _check_columns(list(rows[0].fields), str(path), label=label, ids=ids, **needed)
    found = _labelled(rows, label, class_names, ids)
    return Labelled(rows, _as_numbers(found.labels, class_names), class_names, found.ids)


def read_jsonl_labelled(
    path: str | Path, label: str, class_names: Sequence[str] | None, ids: str | None, **needed: str
) -> Labelled:
    """Read a JSON Lines file; a key that an object lacks is None.

    Raises
    ------
    ValueError
        If the file is empty or broken, or no object has one of the keys. The message names the
        file.
    """
    rows = read_jsonl(checked_path(path))
    if not rows:
        raise ValueError(f"{path} is empty: it has no row")
    known = list(dict.fromkeys(key for row in rows for key in row.fields))
    _check_columns(known, str(path), label=label, ids=ids, **needed)
    return _labelled(rows, label, class_names, ids)


def labelled_of_hf(
    dataset: Any, label: str, class_names: Sequence[str] | None, ids: str | None, **needed: str
) -> Labelled:
    """Return columns of a `datasets.Dataset`; the names of a ClassLabel are the class names.

    If `class_names` has these names, in any order, they number the classes. Otherwise they replace
    the names, one by one.

    Raises
    ------
    TypeError
        If this is not such a dataset. The message says what to pass.
    ValueError
        If it is empty or a column is missing.
    """
    check_hf(dataset, label=label, ids=ids, **needed)
    read = {label, *needed.values(), _ID if ids is None else ids}
    rows = rows_of_hf(dataset.select_columns([c for c in dataset.column_names if c in read]))
    names = getattr(dataset.features[label], "names", None)
    found = _labelled(rows, label, names if class_names is None else class_names, ids)
    if names is None or class_names is None or not set(names) <= set(class_names):
        return found
    by_name = [_named(number, names) for number in found.labels]  # the order may be another
    return replace(found, labels=by_name)


def check_hf(dataset: Any, **needed: str | None) -> None:
    """Raise if this is not a `datasets.Dataset` in memory that has these columns."""
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
    if not len(dataset):
        raise ValueError("the dataset is empty: it has no row")
    _check_columns(dataset.column_names, "the dataset", **needed)


def rows_of_hf(dataset: Any) -> list[Row]:
    """Return the rows of a `datasets.Dataset` with their places, without its transform."""
    if getattr(dataset, "format", {}).get("type") == "custom":
        warn_user(
            "the transform of the dataset is not applied: the samples are those of "
            "dataset.with_format(None)"
        )
    plain = dataset.with_format(None)
    return [Row(f"row {number}", record) for number, record in enumerate(plain)]


def _labelled(
    rows: list[Row], label: str, class_names: Sequence[str] | None, ids: str | None
) -> Labelled:
    labels = [row.fields.get(label) for row in rows]
    name = _ID if ids is None and any(_ID in row.fields for row in rows) else ids
    if name is None:
        return Labelled(rows, labels, class_names, None)
    for row in rows:
        if is_missing(row.fields.get(name)):
            raise ValueError(
                f"{row.where}: the id is missing; give each row one, or rename the column {name!r}"
            )
    return Labelled(rows, labels, class_names, [str(row.fields[name]) for row in rows])


def _named(number: Any, names: Sequence[str]) -> Any:
    if isinstance(number, int) and not isinstance(number, bool):
        return names[number] if 0 <= number < len(names) else str(number)
    return number


def _check_columns(known: Sequence[str], where: str, **needed: str | None) -> None:
    for argument, column in needed.items():
        if column is not None and column not in known:
            raise ValueError(
                f"{where} has no column {column!r}; its columns: {known_columns(known)}. Name "
                f"another one with {argument}="
            )


def _as_numbers(labels: list[Any], class_names: Sequence[str] | None) -> list[Any]:
    """Return labels that are all written as whole numbers as numbers, unless classes have them."""
    written = {label for label in labels if label is not None}
    if isinstance(class_names, Iterable) and written <= set(class_names):
        return labels
    if not all(text.isdecimal() and len(text) < 10 and str(int(text)) == text for text in written):
        return labels  # 01 and 1 can be different classes
    return [None if label is None else int(label) for label in labels]


def file_source(loader: str, path: str | Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `source` of a dataset that a loader read from a file, as JSON can hold it."""
    absolute = str(Path(path).expanduser().absolute())
    plain = json.loads(json.dumps(dict(arguments), default=list))
    return {"loader": loader, "arguments": {"path": absolute, **plain}}
