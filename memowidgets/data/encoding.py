"""Encoding of a table's columns as features, kept as plain arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_encoding", "encoded", "fitted_encoding"]

Columns = Mapping[str, NDArray[Any]]
Encoding = Mapping[str, NDArray[Any]]

_PARTS = {"medians": "f", "means": "f", "scales": "f", "marked": "b", "hashes": "i", "counts": "i"}
_TINY = 10 * np.finfo(np.float64).eps  # relative spread below which a column counts as constant


def fitted_encoding(columns: Columns) -> dict[str, NDArray[Any]]:
    """Return what an encoding learns from columns of numbers (NaN) and of texts (None).

    Returns
    -------
    dict of str to array
        ``medians``, ``means``, ``scales`` and ``marked`` (whether missing values have a feature) of
        each numeric column; ``hashes`` of the categories of all other columns, one after another,
        and the ``counts`` of them for each column.
    """
    numbers = _numeric(columns)
    gaps = np.isnan(numbers)
    with np.errstate(all="ignore"):
        medians = np.array(
            [_median(column[~gap]) for column, gap in zip(numbers, gaps, strict=True)]
        )
    filled = np.where(gaps, medians.reshape(-1, 1), numbers)
    means, spread = filled.mean(axis=1), filled.std(axis=1)
    scales = np.where(spread <= _TINY * np.abs(means), 1.0, spread)
    found = [np.unique(_hashes(values)) for values in _texts(columns)]
    return {
        "medians": medians,
        "means": means,
        "scales": scales,
        "marked": gaps.any(axis=1),
        "hashes": np.concatenate([np.empty(0, dtype=np.int64), *found]),
        "counts": np.array([len(hashes) for hashes in found], dtype=np.int64),
    }


def encoded(columns: Columns, encoding: Encoding) -> NDArray[np.float32]:
    """Return scaled numbers, marks of missing ones, and categories, (n, n_features)."""
    numbers = _numeric(columns)
    gaps = np.isnan(numbers)
    filled = np.where(gaps, encoding["medians"].reshape(-1, 1), numbers)
    scaled = (filled - encoding["means"].reshape(-1, 1)) / encoding["scales"].reshape(-1, 1)
    known = np.split(encoding["hashes"], np.cumsum(encoding["counts"])[:-1])
    categories = [
        _hashes(values)[:, np.newaxis] == hashes
        for values, hashes in zip(_texts(columns), known, strict=False)
    ]
    parts = [scaled.T, gaps[encoding["marked"]].T, *categories]
    return np.concatenate([part.astype(np.float32) for part in parts], axis=1)


def check_encoding(encoding: Encoding, columns: Columns) -> None:
    """Raise if these arrays are not an encoding of these columns.

    Raises
    ------
    ValueError
        If a part is missing, of another kind, or for another number of columns.
    """
    for name, kind in _PARTS.items():
        part = encoding.get(name)
        if part is None or part.ndim != 1 or part.dtype.kind != kind:
            raise ValueError(f"the encoding of the table lacks a good {name!r}")
    n_numbers, n_texts = len(_numeric(columns)), len(_texts(columns))
    sizes = {len(encoding[name]) for name in ("medians", "means", "scales", "marked")}
    if sizes != {n_numbers} or len(encoding["counts"]) != n_texts:
        raise ValueError(
            f"the encoding is for {len(encoding['medians'])} numeric and {len(encoding['counts'])} "
            f"categorical columns, but the table has {n_numbers} and {n_texts}"
        )
    counts = encoding["counts"]
    if (counts < 0).any() or counts.sum() != len(encoding["hashes"]):
        raise ValueError("the encoding of the table has other categories than it counts")


def _numeric(columns: Columns) -> NDArray[np.float64]:
    """Return the numeric columns, (n_numeric, n)."""
    found = [values for values in columns.values() if values.dtype.kind == "f"]
    n = len(next(iter(columns.values())))
    return np.array(found, dtype=np.float64).reshape(len(found), n)


def _texts(columns: Columns) -> list[NDArray[Any]]:
    return [values for values in columns.values() if values.dtype.kind != "f"]


def _median(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _hashes(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return a number for each category, so that a run directory has no text of a sample."""
    number = {value: _hash(value) for value in set(values.tolist())}
    return np.array([number[value] for value in values.tolist()], dtype=np.int64)


def _hash(value: str | None) -> int:
    content = b"\0missing" if value is None else b"\1" + value.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big", signed=True)
