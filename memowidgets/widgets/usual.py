"""Sort the values of a table's row, the most unusual for its class first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["UsualValues", "Value", "as_text"]

MISSING = "missing"
_EVERYTHING = -1  # stands for all rows, where there are no labels


@dataclass(frozen=True)
class Value:
    """One value of a table's row.

    Attributes
    ----------
    name : str
        Its column.
    value : str
        The value as text, empty if it is missing.
    usual : str
        Median of its class, or the most frequent category.
    """

    name: str
    value: str
    usual: str


class UsualValues:
    """Sorts a row's values by medians and frequencies in its class.

    A number is as unusual as its distance from the class's median, in standard deviations of the
    class. A category, or a missing value, with share p of the class is as unusual as the distance
    of its 0/1 feature from its mean, √((1 − p) / p) standard deviations.

    Parameters
    ----------
    columns : mapping of str to array of shape (n,)
        Columns of numbers, with NaN for a missing one, or of texts, with None for a missing one.
    labels : array of shape (n,), int, or None
        Class of each row. Without labels all rows are one class.

    Examples
    --------
    >>> ages = np.array([30.0, 31.0, 32.0, 90.0])
    >>> wards = np.array(["A", "A", "A", "A"], dtype=object)
    >>> [v.name for v in UsualValues({"ward": wards, "age": ages}, None).of(3)]
    ['age', 'ward']
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], labels: NDArray[np.int64] | None
    ) -> None:
        self._columns, self._labels = columns, labels
        self._known: dict[int, dict[str, _Numbers | _Categories]] = {}

    def of(self, position: int) -> tuple[Value, ...]:
        """Return the values of a row, the most unusual first."""
        label = _EVERYTHING if self._labels is None else int(self._labels[position])
        if label not in self._known:
            own = slice(None) if self._labels is None else self._labels == label
            self._known[label] = {
                name: (_Numbers if values.dtype.kind == "f" else _Categories)(values[own])
                for name, values in self._columns.items()
            }
        found = []
        for name, usual in self._known[label].items():
            value = self._columns[name][position]
            found.append((usual.distance(value), Value(name, as_text(value), usual.text)))
        return tuple(value for _, value in sorted(found, key=lambda pair: -pair[0]))


class _Numbers:
    def __init__(self, values: NDArray[Any]) -> None:
        there = values[np.isfinite(values)]
        self._missing = 1 - len(there) / len(values)
        self._median = float(np.median(there)) if len(there) else np.nan
        self._spread = float(there.std()) if len(there) else 0.0
        self.text = as_text(self._median, digits=4) or MISSING

    def distance(self, value: float) -> float:
        if not np.isfinite(value):
            return _rarity(self._missing)
        far = abs(value - self._median)
        return float(far / self._spread) if self._spread > 0 else 0.0


class _Categories:
    def __init__(self, values: NDArray[Any]) -> None:
        self._counts, self._n = Counter(values.tolist()), len(values)
        self.text = self._counts.most_common(1)[0][0] or MISSING

    def distance(self, value: str | None) -> float:
        return _rarity(self._counts[value] / self._n)


def as_text(value: Any, digits: int = 7) -> str:
    """Return a value as text, empty if it is missing."""
    if value is None or isinstance(value, str):
        return value or ""
    return "" if np.isnan(value) else f"{value:.{digits}g}"


def _rarity(share: float) -> float:
    return float(np.sqrt((1 - share) / share)) if share > 0 else 0.0
