"""Tables: a row is a sample, with numbers and categories."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import as_text, is_missing, several, warn_user
from memowidgets.data.dataset import ID, check_whole_characters
from memowidgets.data.rows import (
    FileDataset,
    Rows,
    check_once,
    labels_of,
    rows_of_frame,
)
from memowidgets.vocabulary import listed, quoted, verb

if TYPE_CHECKING:
    import pandas as pd

_MOST_CATEGORIES = 1000
_FEW_ROWS = 20
# with thousands, a decimal comma, a unit of money or of percent
_WRITTEN_NUMBER = re.compile(
    r"[$€£]?\s*[+-]?(\d+|\d{1,3}([.,' \u00a0]\d{3})+)?([.,]\d+)?(?<=\d)(e[+-]?\d+)?\s*[%€]?",
    re.IGNORECASE,
)
_LARGEST = 1e100  # the variance of larger numbers is beyond float64
_NO_NUMBER = (None, "NA", "N/A", "null", "NULL", "None")  # in a column of numbers
_NUMBER = (int, float, np.integer, np.floating, np.bool_)


@dataclass(frozen=True)
class TableSample:
    """One row of a `TableDataset`.

    Attributes
    ----------
    id : str
        Id of the sample.
    values : dict
        Value of each column: a number, a category as text, or None if it is missing.
    label : int
        Label that it is trained on.
    canary : bool
        Whether it is a canary.
    """

    id: str
    values: dict[str, float | str | None]
    label: int
    canary: bool = False


@dataclass(frozen=True, repr=False, eq=False, kw_only=True)
class TableDataset(FileDataset):
    """Labelled rows of a table; created by `from_frame`, `from_csv`, `from_jsonl` or `from_hf`.

    All of these take the keywords of `from_frame`. In a CSV file, a column is numeric if all of its
    cells are numbers.

    A model reads encoded rows: numbers are scaled to mean 0 and standard deviation 1, a missing
    number becomes the column's median, and one more feature says where it was missing. A category
    becomes one feature for each category, and a missing one is a category of its own. These are
    the features of scikit-learn's ``ColumnTransformer`` with ``SimpleImputer("median")`` and
    ``StandardScaler``, ``MissingIndicator`` and ``OneHotEncoder(handle_unknown="ignore")``.

    An `Audit` fits the encoding on its pool, so held-out rows have no part in it. All of its models
    use this encoding. It is fitted again when a run is opened, and never stored.

    Columns that are `shown` are no features: a page and a file have them, and a model does not.

    Rows that are equal to a model stay on one side of every split.

    Attributes
    ----------
    columns : dict of str to array of shape (n,)
        Values of each column: float64 with NaN if missing, or texts with None if missing.
    shown : tuple of str
        Columns that no model reads.
    ids, labels, class_names, canaries, source
        As in `Dataset`.
    encoding : sklearn.compose.ColumnTransformer or None
        The fitted encoding. None before `fitted`.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {"age": [31, 45, 62, 28], "ward": ["A", "B", "A", "B"], "outcome": ["ill", "well"] * 2}
    ... )
    >>> data = TableDataset.from_frame(frame, label="outcome")
    >>> data
    TableDataset(4 rows of 1 number and 1 category, 2 classes)
    >>> data[1].values
    {'age': 45.0, 'ward': 'B'}
    >>> data.fitted(range(4)).encoded().shape
    (4, 3)
    """

    columns: dict[str, NDArray[Any]]
    shown: tuple[str, ...] = ()

    _fields: ClassVar[tuple[str, ...]] = ("columns",)
    _noun: ClassVar[str] = "rows"

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame | Rows,
        label: str = "label",
        class_names: Sequence[str] | None = None,
        ids: str | None = None,
        categorical: Sequence[str] = (),
        drop: Sequence[str] = (),
        shown: Sequence[str] = (),
    ) -> Self:
        """Create a dataset from a pandas DataFrame.

        Parameters
        ----------
        frame : DataFrame
            One row for each sample. A column of numbers or truth values is numeric. A column of
            texts, or of pandas' category type, is categorical.
        label : str
            Column of the labels: names of classes, or integers from 0.
        class_names : sequence of str, optional
            Names of the classes. By default the numbers, or the strings that occur, sorted.
        ids : str, optional
            Column of unique names of the samples. By default ``id`` if there is such a column, else
            the frame's index.
        categorical : sequence of str
            Columns whose numbers are codes, and so are categories. Also columns of texts of which
            more than half are different, where these are categories nevertheless.
        drop : sequence of str
            Columns that are left out, besides those of the labels and the ids.
        shown : sequence of str
            Columns that are shown beside a row and that no model reads, such as notes, names and
            dates. Whatever is not a number is a text there, and a blank text is a missing value.

        Returns
        -------
        TableDataset

        Raises
        ------
        ValueError
            If a column is missing, a label is missing or is not a class, a number is infinite, a
            column has dates or other objects, numbers that are written as texts, nothing but
            missing values, or texts of which more than half are different, there is only one class,
            or ids repeat. The message names all such columns, and the row of a bad value.
        TypeError
            If this is not a DataFrame.

        Warns
        -----
        UserWarning
            If values are missing, whole numbers rise from row to row, a class never occurs, or
            equal rows have different labels.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame(
        ...     {"ward": ["A", "B"], "bed": [4, 7], "label": [0, 1]}
        ... )
        >>> TableDataset.from_frame(frame, drop=["ward"])[1].values
        {'bed': 7.0}
        """
        label = _name_of(label)
        ids = _name_of(ids)
        rows = frame if isinstance(frame, Rows) else rows_of_frame(frame, label)
        given = {"categorical": categorical, "drop": drop, "shown": shown}
        needed = {
            name: [*map(_name_of, several(name, names))]
            for name, names in given.items()
        }
        about = labels_of(rows, label, class_names, ids, **needed)
        read = [
            one
            for one in rows.columns
            if one not in {label, ids or ID, *needed["drop"]}
        ]
        codes = {*needed["categorical"], *rows.categorical}
        columns = _read(rows, read, codes, needed["shown"])
        if not columns:
            raise ValueError(
                "the table has no column besides the label; a model has nothing to read"
            )
        labels, classes, names, own = about
        shown = tuple(name for name in columns if name in needed["shown"])
        data = cls(names, labels, classes, columns=columns, shown=shown, own_ids=own)
        data._warn_of_contradictions()
        data._warn_of_gaps()
        return data

    _from_rows = from_frame

    def _count_missing(self) -> dict[str, int]:
        """Return the number of missing values of each column that a model reads."""
        values = self._features.items()
        return {
            name: sum(value is None for value in map(_value, each))
            for name, each in values
        }

    def _warn_of_gaps(self) -> None:
        gaps = {name: count for name, count in self._count_missing().items() if count}
        if gaps:
            shown = (f"{quoted(name)} ({count})" for name, count in gaps.items())
            count = sum(gaps.values())
            warn_user(
                f"{count} {verb(count, 'value is', 'values are')} missing, in "
                f"{listed(shown, 5, 60)}; a missing number is encoded as the column's median and "
                "marked, a missing category as a category of its own. Fill them in to choose "
                "otherwise"
            )

    def _summary(self) -> Iterable[str]:
        numbers = sum(_is_numeric(values) for values in self._features.values())
        others = len(self._features) - numbers
        shown = len(self.shown)
        gaps = sum(self._count_missing().values())
        counts = (
            (numbers, verb(numbers, "number", "numbers")),
            (others, verb(others, "category", "categories")),
            (shown, f"{verb(shown, 'column', 'columns')} to show"),
        )
        kinds = [f"{count} {words}" for count, words in counts if count]
        yield f"{len(self)} rows of {' and '.join(kinds)}"
        yield f"{len(self.class_names)} classes"
        if gaps:
            yield f"{gaps} missing {verb(gaps, 'value', 'values')}"
        yield from self._repeats()

    def _sample(self, index: int) -> TableSample:
        return TableSample(
            str(self.ids[index]),
            {name: _value(values[index]) for name, values in self.columns.items()},
            int(self.labels[index]),
            self.is_canary(index),
        )

    def _contents(self) -> Iterable[bytes]:
        columns = self._features or self.columns
        names = json.dumps(list(columns)).encode()
        rows = zip(*(map(_value, values) for values in columns.values()), strict=True)
        return (names + json.dumps(row).encode() for row in rows)

    @property
    def _features(self) -> dict[str, NDArray[Any]]:
        """The columns that a model reads."""
        return {k: v for k, v in self.columns.items() if k not in self.shown}

    def _columns(self) -> dict[str, Any]:
        label, name = self._label_and_id()
        classes = [self.class_names[i] for i in self.labels]
        return {name: self.ids.tolist(), **self.columns, label: classes}

    def _reading_keywords(self) -> dict[str, Any]:
        label, name = self._label_and_id()
        codes = [one for one, values in self.columns.items() if not _is_numeric(values)]
        return {
            "label": label,
            "class_names": list(self.class_names),
            "ids": name,
            "categorical": codes,
            "shown": list(self.shown),
        }

    def _label_and_id(self) -> tuple[str, str]:
        """Return names for the columns of labels and ids that no other column has."""
        label = "label"
        name = ID
        while label in self.columns:
            label += "_"
        while name in self.columns:
            name += "_"
        return label, name

    def fitted(self, rows: ArrayLike) -> Self:
        """Return the same rows with an encoding that is fitted on some of them.

        Parameters
        ----------
        rows : array-like of shape (n_fitted,), int
            Positions of the rows to fit on, such as an audit's pool.

        Returns
        -------
        TableDataset

        Raises
        ------
        ValueError
            If all columns are only shown.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.impute import MissingIndicator, SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        imputed = SimpleImputer(strategy="median", keep_empty_features=True)
        features = self._features
        if not features:
            raise ValueError(
                "all columns of this table are only shown, so a model has nothing to read; make it "
                "with TableDataset.from_frame(frame, label=…), which reads columns as features"
            )
        numbers = [name for name, values in features.items() if _is_numeric(values)]
        texts = [name for name in features if name not in set(numbers)]
        encoding = ColumnTransformer(
            [
                ("numbers", make_pipeline(imputed, StandardScaler()), numbers),
                ("missing", MissingIndicator(error_on_new=False), numbers),
                (
                    "texts",
                    OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                    texts,
                ),
            ]
        )
        return replace(
            self, encoding=encoding.fit(self._frame().iloc[np.asarray(rows)])
        )

    def encoded(self) -> NDArray[np.float32]:
        """Return the features that a model reads, (n, n_features).

        Raises
        ------
        ValueError
            If no encoding is fitted.
        """
        if self.encoding is None:
            raise ValueError(
                "this table has no encoding yet: an Audit fits it on its pool; to fit one yourself "
                "call data.fitted(rows) with the training rows"
            )
        return np.ascontiguousarray(
            self.encoding.transform(self._frame()), dtype=np.float32
        )

    def _frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(
            {k: pd.Series(v, dtype=v.dtype) for k, v in self._features.items()}
        )


def _name_of(column: Any) -> Any:
    """Return a column as rows call it: pandas counts those of a file without a header."""
    return str(column) if isinstance(column, int | np.integer) else column


def columns_to_show(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the columns of a frame that is shown and not trained on.

    Columns ``id`` and ``label`` are left out, because a sample has them anyway.
    """
    names = [str(name) for name in frame.columns]
    check_once(names, "the table")
    columns = {
        name: frame.iloc[:, i].tolist()
        for i, name in enumerate(names)
        if name not in (ID, "label")
    }
    places = [f"row {row}" for row in range(len(frame))]
    return _read(Rows("the table", columns, places), list(columns), (), list(columns))


def _read(
    rows: Rows,
    names: Sequence[str],
    codes: Collection[str],
    shown: Collection[str],
) -> dict[str, NDArray[Any]]:
    """Return columns by name, or raise one error that has the problems of all of them."""
    check_whole_characters(names, lambda i: f"the column name {quoted(names[i])}")
    columns = {}
    problems = []
    for name in names:
        values = list(rows.columns[name])
        is_category = name in codes
        make = _shown_column if name in shown else _column
        if rows.are_cells and not (name in shown and is_category):
            values = _values_of_cells(values, is_category, rows.decimal)
        try:
            columns[name] = make(name, values, is_category, rows.places)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError(". And ".join(problems))
    return columns


def _shown_column(
    name: str, values: list[Any], is_text: bool, places: Sequence[str]
) -> NDArray[Any]:
    """Return a column that no model reads: numbers if float64 holds all of them, else texts."""
    there = [None if _is_blank(value) else value for value in values]
    if not is_text and all(value is None or _is_exact(value) for value in there):
        return np.array([np.nan if value is None else float(value) for value in there])
    words = [None if value is None else str(value) for value in there]
    return _texts(name, words, places)


def _is_blank(value: Any) -> bool:
    return is_missing(value) or (isinstance(value, str) and not value.strip())


def _is_exact(value: Any) -> bool:
    if not isinstance(value, _NUMBER):
        return False
    number = _float(value)
    return abs(number) <= _LARGEST and bool(number == value)


def _column(
    name: str, values: list[Any], is_category: bool, places: Sequence[str]
) -> NDArray[Any]:
    """Return a column as real numbers, or as texts, or raise an error that names it."""
    gaps = [is_missing(value) for value in values]
    if all(gaps):
        raise ValueError(f"the column {quoted(name)} has no value; leave it out")
    there = [value for value, gap in zip(values, gaps, strict=True) if not gap]
    if not is_category and all(isinstance(value, _NUMBER) for value in there):
        pairs = zip(values, gaps, strict=True)
        numbers = np.array([np.nan if gap else _float(v) for v, gap in pairs])
        large = np.abs(numbers) > _LARGEST
        if large.any():
            row = int(large.argmax())
            raise ValueError(
                f"the column {quoted(name)} is {numbers[row]:g} in {places[row]}, and numbers "
                f"beyond ±{_LARGEST:g} cannot be scaled; correct it or leave it empty"
            )
        _warn_of_ids(name, there)
        return numbers
    allowed = (str, *_NUMBER) if is_category else str
    for value, gap, place in zip(values, gaps, places, strict=True):
        if not (gap or isinstance(value, allowed)):
            raise ValueError(
                f"the column {quoted(name)} has a value of type {type(value).__name__} in {place}; "
                "make all of them numbers, or all of them texts, or pass "
                f"shown=[{quoted(name)}] to see it and not train on it, or drop=[{quoted(name)}]"
            )
    words = [None if gap else as_text(v) for v, gap in zip(values, gaps, strict=True)]
    texts = _texts(name, words, places)
    _check_categories(name, words, is_category)
    return texts


def _float(value: Any) -> float:
    """Return a number as float64, infinite where that has no such number."""
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf if value > 0 else -math.inf


def _texts(
    name: str, words: list[str | None], places: Sequence[str]
) -> NDArray[np.object_]:
    check_whole_characters(
        words, lambda row: f"the column {quoted(name)} in {places[row]}"
    )
    return np.array(words, dtype=object)


def _check_categories(name: str, words: list[str | None], is_category: bool) -> None:
    texts = {word for word in words if word is not None}
    n = len(words)
    different = len(texts)
    written = [text for text in texts if _WRITTEN_NUMBER.fullmatch(text.strip())]
    if not is_category and 2 * len(written) > different:
        raise ValueError(
            f"the column {quoted(name)} has numbers that are written as texts, such as "
            f"{quoted(min(written))}; make them numbers (from_csv has decimal=',', pandas has "
            f"to_numeric) and leave other cells empty, or pass categorical=[{quoted(name)}] if "
            "they are codes"
        )
    most = _MOST_CATEGORIES if is_category else min(_MOST_CATEGORIES, n / 2)
    if different > max(most, _FEW_ROWS):
        raise ValueError(
            f"the column {quoted(name)} has {different} different texts in {n} rows, too many for "
            f"categories; pass shown=[{quoted(name)}] to see it and not train on it, "
            f"drop=[{quoted(name)}], ids={quoted(name)} if it names the rows, or "
            f"categorical=[{quoted(name)}] if they are up to {_MOST_CATEGORIES} categories"
        )


def _warn_of_ids(name: str, there: list[Any]) -> None:
    """Warn of whole numbers that rise from row to row."""
    whole = all(float(value).is_integer() for value in there)
    if whole and len(there) > _FEW_ROWS and all(a < b for a, b in pairwise(there)):
        warn_user(
            f"the whole numbers of the column {quoted(name)} rise from row to row, as ids do, "
            f"from which a model learns nothing about new rows; pass drop=[{quoted(name)}], or "
            f"ids={quoted(name)}, unless they are a quantity"
        )


def _values_of_cells(
    cells: list[str | None], is_category: bool, decimal: str
) -> list[Any]:
    """Return the numbers in cells that are all numbers, or stand for none; else the texts.

    Codes stay as they are written, because 007 and 7 can be different ones.
    """
    there = [None if cell in _NO_NUMBER else cell for cell in cells]
    try:
        numbers = [None if cell is None else _number(cell, decimal) for cell in there]
    except ValueError:
        return list(cells)
    return there if is_category else numbers


def _number(cell: str, decimal: str) -> float:
    if "_" in cell or (decimal != "." and "." in cell):
        raise ValueError  # 1_2 is 12 for Python, and a code for everybody else
    return float(cell.replace(decimal, "."))


def _is_numeric(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f"


def _value(value: Any) -> float | str | None:
    if value is None or isinstance(value, str):
        return value
    return None if np.isnan(value) else float(value) + 0.0  # −0.0 is 0.0
