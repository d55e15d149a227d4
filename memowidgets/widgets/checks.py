"""Checks of what the inspector is given. No widgets here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import check_same_order
from memowidgets.visible import quoted
from memowidgets.widgets.arrays import checked_flags, checked_floats
from memowidgets.widgets.pages import Extra, Rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from memowidgets.widgets.samples import SampleReader

__all__ = ["checked_names", "class_names_of", "one_of", "rows_from"]


def rows_from(
    reader: SampleReader,
    scores: ArrayLike | None,
    memorized: ArrayLike | None,
    labels: ArrayLike | None,
    positions: ArrayLike | None,
    errors: ArrayLike | None,
    log_lira: ArrayLike | None,
    probabilities: ArrayLike | None,
    extras: Mapping[str, Extra] | None = None,
) -> Rows:
    """Check everything that is known of the samples, and return it as rows."""
    check_same_order(
        scores=scores, memorized=memorized, labels=labels, errors=errors, log_lira=log_lira
    )
    places = _checked_positions(positions, len(reader))
    n = len(places)
    if memorized is not None and scores is None:
        raise ValueError("memorized without scores: give both, or neither")
    return Rows(
        places,
        scores=None if scores is None else checked_floats("scores", scores, n),
        errors=None if errors is None else checked_floats("errors", errors, n),
        memorized=None if memorized is None else checked_flags("memorized", memorized, n),
        log_lira=None if log_lira is None else _checked_log_lira(log_lira, n),
        labels=_checked_labels(labels, reader, places),
        probabilities=_checked_probabilities(probabilities, n),
        extras=extras or {},
    )


def _checked_positions(positions: ArrayLike | None, n: int) -> NDArray[np.int64]:
    if positions is None:
        return np.arange(n)
    places = np.asarray(positions, dtype=np.int64)
    wrong = (places < 0) | (places >= n)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"positions must lie between 0 and {n - 1}, one of {n} samples; row {row} is "
            f"{places[row]}"
        )
    return places


def _checked_log_lira(log_lira: ArrayLike, n: int) -> NDArray[np.float64]:
    """Check log-LiRA. NaN stays: it marks a sample that has none."""
    values = np.asarray(log_lira, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(
            f"log_lira must have one entry for each of {n} samples, not {values.shape}"
        )
    return values


def _checked_labels(
    labels: ArrayLike | None, reader: SampleReader, places: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    if labels is None:
        carried = reader.labels()
        return None if carried is None else carried[places]
    array = np.asarray(labels)
    if array.shape != places.shape:
        raise ValueError(f"labels has the shape {array.shape} for {len(places)} samples")
    if array.dtype.kind not in "iub":
        raise TypeError(f"labels must be integers that number the classes, not {array.dtype}")
    return array.astype(np.int64)


def _checked_probabilities(probabilities: ArrayLike | None, n: int) -> NDArray[np.float64] | None:
    if probabilities is None:
        return None
    array = np.asarray(probabilities)
    if array.ndim != 2 or len(array) != n:
        raise ValueError(
            f"probabilities must have the shape ({n}, number of classes), not {array.shape}"
        )
    if np.isfinite(array.sum()):  # one pass where all is well, as it mostly is
        return array
    wrong = ~np.isfinite(array).all(axis=1)
    if wrong.any():
        raise ValueError(
            f"probabilities must be finite: {int(wrong.sum())} rows are not, the first is row "
            f"{int(np.argmax(wrong))}"
        )
    return array


def checked_names(ids: Sequence[str] | None, n: int) -> list[str] | None:
    """Check ids that the user gave, one for each sample."""
    if ids is None:
        return None
    if len(ids) != n:
        raise ValueError(f"{len(ids)} ids for {n} samples: give one for each")
    return [str(name) for name in ids]


def class_names_of(samples: Any, class_names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the class names that the user gave, else those of the samples."""
    names = class_names if class_names is not None else getattr(samples, "class_names", ())
    return tuple(str(name) for name in names)


def one_of(what: str, value: str, valid: tuple[str, ...]) -> str:
    """Return a valid name, or raise an error that lists the valid ones."""
    if value not in valid:
        raise ValueError(
            f"unknown {what} {quoted(value)}; valid here: {', '.join(map(repr, valid))}"
        )
    return value
