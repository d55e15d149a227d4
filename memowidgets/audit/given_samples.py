"""The samples that a user brings beside their arrays, as a dataset."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from memowidgets.checks import is_tensor, to_numpy
from memowidgets.data import (
    Dataset,
    ImageDataset,
    MCQDataset,
    TableDataset,
    TextDataset,
    WithheldDataset,
)
from memowidgets.data.dataset import checked_class_names, checked_ids
from memowidgets.data.kinds import kind_of, kind_of_sample, value_of
from memowidgets.data.tables import columns_to_show

Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
Names = Sequence[str] | None
_KINDS = (
    "a dataset, images as an array of shape (n, height, width[, channels]), a list of texts, or "
    "of records with 'question' and 'choices', or with 'text', or a DataFrame of a table"
)


def dataset_of(
    samples: Any, labels: Labels, ids: Names, class_names: Names, canaries: Mask | None
) -> Dataset:
    """A dataset of the samples; one of ids alone where there are none.

    Raises
    ------
    ValueError, TypeError
        If samples and labels don't fit each other, or the samples are of no known kind.
    """
    if samples is None:
        made: Dataset = _withheld(labels, ids, class_names)
    elif isinstance(samples, Dataset):
        made = _given(samples, labels, ids)
    else:
        made = _wrapped(samples, labels, ids, class_names)
    if canaries is None:
        return made
    if made.canaries is not None and not np.array_equal(made.canaries, canaries):
        raise ValueError("the samples say which of them are canaries: leave canaries= out")
    return cast("Dataset", dataclasses.replace(cast("Any", made), canaries=canaries))


def _withheld(labels: Labels, ids: Names, class_names: Names) -> WithheldDataset:
    names = checked_ids(ids, len(labels))
    return WithheldDataset(
        ids=names,
        labels=labels,
        class_names=checked_class_names(class_names, labels),
        hashes=tuple(names.tolist()),
        hint="samples=…",
    )


def _given(samples: Dataset, labels: Labels, ids: Names) -> Dataset:
    _check_count(len(samples), len(labels))
    other = np.flatnonzero(samples.labels != labels)
    if len(other):
        row = int(other[0])
        raise ValueError(
            f"labels and samples disagree on {len(other)} labels, the first in row {row}: "
            f"{labels[row]} here and {samples.labels[row]} there; give samples.with_labels(labels)"
        )
    checked_class_names(samples.class_names, labels)
    if ids is not None and list(ids) != samples.ids.tolist():
        raise ValueError("the samples have ids of their own, which differ: leave ids= out")
    return samples


def _wrapped(samples: Any, labels: Labels, ids: Names, class_names: Names) -> Dataset:
    array = to_numpy(samples) if is_tensor(samples) else samples
    if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        _check_count(len(array), len(labels))
        with warnings.catch_warnings():  # the check of the labels has said it
            warnings.filterwarnings("ignore", ".*never occur in the labels")
            return ImageDataset.from_arrays(array, labels, class_names, ids)
    rows = _rows(samples)
    _check_count(len(rows), len(labels))
    kind = kind_of(rows)
    if isinstance(samples, pd.DataFrame) and kind in (None, "withheld"):
        return _table(samples, labels, ids, class_names)
    other = next((row for row in rows if kind_of_sample(row) != kind), None)
    if kind not in ("text", "record", "question") or other is not None:
        named = type(rows[0] if other is None else other).__name__
        raise TypeError(f"samples holds {named}; give {_KINDS}")
    if kind == "question":
        return _questions(rows, labels, ids, class_names)
    texts = [row if kind == "text" else value_of(row, "text") for row in rows]
    names = checked_class_names(class_names, labels)
    own = None if kind == "text" else _own_ids(rows)
    return TextDataset(tuple(texts), checked_ids(ids or own, len(texts)), labels, names)


def _table(frame: pd.DataFrame, labels: Labels, ids: Names, class_names: Names) -> TableDataset:
    """The rows of a DataFrame, to be shown."""
    own = frame["id"].astype(str).tolist() if "id" in frame else None
    columns = columns_to_show(frame)
    names = checked_class_names(class_names, labels)
    return TableDataset(columns, checked_ids(ids or own, len(frame)), labels, names)


def _questions(rows: list[Any], labels: Labels, ids: Names, class_names: Names) -> MCQDataset:
    """Questions with these labels, whatever answers they carry."""
    named = [{**row, "answer": int(label)} for row, label in zip(rows, labels, strict=True)]
    if ids is not None:
        named = [{**row, "id": name} for row, name in zip(named, ids, strict=True)]
    data = MCQDataset.from_records(named, answers="index", equal_options="keep")
    if class_names is not None and len(class_names) != len(data.class_names):
        raise ValueError(
            f"the questions have up to {len(data.class_names)} options, which are their classes; "
            f"there are {len(class_names)} columns of logits, or class_names"
        )
    return data


def _rows(samples: Any) -> list[Any]:
    if hasattr(samples, "iloc"):  # a pandas Series or DataFrame
        return list(samples) if samples.ndim == 1 else list(samples.to_dict("records"))
    if isinstance(samples, str | bytes | Mapping) or not hasattr(samples, "__len__"):
        raise TypeError(f"samples must be {_KINDS}, not {type(samples).__name__}")
    return list(samples)


def _own_ids(rows: list[Any]) -> list[str] | None:
    return [str(row["id"]) for row in rows] if all("id" in row for row in rows) else None


def _check_count(n_samples: int, n_labels: int) -> None:
    if n_samples != n_labels:
        raise ValueError(f"{n_samples} samples but {n_labels} labels: give one for each")
