"""The rows that the inspector shows: checked, filtered and sorted. No widgets here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import check_finite, real_numbers, to_numpy
from memowidgets.evaluation.scored import Scored
from memowidgets.vocabulary import quoted
from memowidgets.widgets.explored import checked_scores

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import ArrayLike, NDArray

    from memowidgets.widgets.samples import SampleReader


LOOKS_WRONG, ON_THE_LINE = "label looks wrong", "on the line"
_WANTED = {  # whether the rows of a filter are flagged, and whether they are memorised
    "flagged": (True, None),
    "found": (True, True),
    "flagged only": (True, False),
    "missed": (False, True),
    "left alone": (False, False),
}


@dataclass(frozen=True, eq=False)
class Listed:
    """Scored samples as they are filtered and sorted.

    Attributes
    ----------
    scored : Scored
        The samples of the rows.
    eta : float or None
        Log-LiRA from which on a sample is memorised; None if that is known without.
    """

    scored: Scored
    eta: float | None = None

    def __len__(self) -> int:
        return len(self.scored)

    @cached_property
    def memorized(self) -> NDArray[np.bool_] | None:
        """Mask of the memorised rows; None without ground truth."""
        return self.scored.memorized(self.eta)

    @cached_property
    def filters(self) -> tuple[str, ...]:
        """Names of the filters that make sense here."""
        wrong = () if self.looks_wrong is None else (LOOKS_WRONG,)
        if not self.scored.is_scored:
            return ("all", *wrong)
        of_truth = () if self.memorized is None else ("found", "flagged only", "missed")
        line = () if self.scored.errors is None else (ON_THE_LINE,)
        return ("flagged", *of_truth, "left alone", *wrong, *line, "all")

    @cached_property
    def sorts(self) -> dict[str, str]:
        """Labels of the orders that make sense here, by name."""
        return {
            name: label
            for name, (label, key) in _SORTS.items()
            if key(self) is not None
        }

    def mask(self, name: str, tau: float) -> NDArray[np.bool_]:
        """Return a mask of the rows that a filter shows."""
        one_of("filter", name, self.filters)
        if name == "all":
            return np.ones(len(self), dtype=np.bool_)
        if name == ON_THE_LINE:
            return self.scored.close(tau)
        if name == LOOKS_WRONG and self.looks_wrong is not None:
            return self.looks_wrong
        is_flagged, is_memorized = _WANTED[name]
        chosen: NDArray[np.bool_] = self.scored.flagged(tau) == is_flagged
        if is_memorized is not None and self.memorized is not None:
            chosen &= self.memorized == is_memorized
        return chosen

    def counts(self, tau: float) -> dict[str, int]:
        """Return how many rows each filter shows."""
        return {
            name: int(np.count_nonzero(self.mask(name, tau))) for name in self.filters
        }

    def order(self, name: str) -> NDArray[np.int64]:
        """Return all rows in an order, by its name."""
        one_of("sort", name, self.sorts)
        if name not in self._orders:
            self._orders[name] = np.argsort(_SORTS[name][1](self), kind="stable")
        return self._orders[name]

    @cached_property
    def _orders(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @cached_property
    def label_probability(self) -> NDArray[np.float64] | None:
        """Probability of each row's label by the model, NaN for a row without a label."""
        labels, probabilities = self.scored.labels, self.scored.probabilities
        if probabilities is None or labels is None:
            return None
        known = (labels >= 0) & (labels < probabilities.shape[1])
        column = np.where(known, labels, 0)
        chosen = probabilities[np.arange(len(self)), column].astype(np.float64)
        return np.where(known, chosen, np.nan)

    @cached_property
    def looks_wrong(self) -> NDArray[np.bool_] | None:
        """Mask of the rows whose model and neighbours agree on another class than their label.

        None where one of these is not known.
        """
        known, nearby, labels = (
            self.scored.probabilities,
            self.scored.nearby,
            self.scored.labels,
        )
        if known is None or nearby is None or labels is None:
            return None
        guess = known.argmax(axis=1)
        wrong: NDArray[np.bool_] = (guess != labels) & (guess == nearby) & (labels >= 0)
        return wrong


def _risk(rows: Listed) -> NDArray[np.float64] | None:
    return rows.scored.scores if rows.scored.is_scored else None


def _turned(values: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    return None if values is None else -values


# Label of each order, and the values by which it sorts, lowest first; None if they are not known.
_SORTS: dict[str, tuple[str, Callable[[Listed], Any]]] = {
    "risk": ("most at risk first", _risk),
    "safe": ("least at risk first", lambda rows: _turned(_risk(rows))),
    "log-lira": ("highest log-LiRA first", lambda rows: _turned(rows.scored.log_lira)),
    "disagreement": ("least probable label first", lambda rows: rows.label_probability),
    "label": ("by label", lambda rows: rows.scored.labels),
    "order": ("as in the dataset", lambda rows: rows.scored.positions),
}


def first_of(
    order: NDArray[np.int64], found: NDArray[np.bool_], most: int
) -> NDArray[np.int64]:
    """Return the first rows of an order that are found. It reads no more of the order than needed.

    Examples
    --------
    >>> first_of(np.array([3, 1, 0, 2]), np.array([True, False, True, True]), 2)
    array([3, 0])
    """
    parts, n, start, length = [order[:0]], 0, 0, 1024
    while n < most and start < len(order):
        read = order[start : start + length]
        parts.append(read[found[read]])
        n, start, length = n + len(parts[-1]), start + length, 2 * length
    return np.concatenate(parts)[:most]


def rows_from(
    reader: SampleReader,
    scores: ArrayLike | None = None,
    memorized: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    errors: ArrayLike | None = None,
    log_lira: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
) -> Listed:
    """Check everything that is known of the samples, and return it as rows."""
    if memorized is not None and scores is None:
        raise ValueError("memorized without scores: give both, or neither")
    n = len(reader)
    scored = checked_scores(scores, memorized, "", errors, log_lira, n=n)
    known = reader.labels() if labels is None else _checked_labels(labels, n)
    return Listed(
        replace(
            scored, labels=known, probabilities=_checked_probabilities(probabilities, n)
        )
    )


def _checked_labels(labels: ArrayLike, n: int) -> NDArray[np.int64]:
    array = to_numpy(labels, "labels")
    if array.shape != (n,):
        raise ValueError(f"labels has the shape {array.shape} for {n} samples")
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"labels must be integers that number the classes, not {array.dtype}"
        )
    return array.astype(np.int64)


def _checked_probabilities(
    probabilities: ArrayLike | None, n: int
) -> NDArray[np.float64] | None:
    if probabilities is None:
        return None
    array = real_numbers(probabilities, "probabilities")
    if array.ndim != 2 or len(array) != n:
        raise ValueError(
            f"probabilities must have the shape ({n}, number of classes), not {array.shape}"
        )
    check_finite(array, "probabilities")
    return array


def checked_names(ids: Sequence[str] | None, n: int) -> list[str] | None:
    """Check ids that the user gave, one for each sample."""
    if ids is None:
        return None
    if len(ids) != n:
        raise ValueError(f"{len(ids)} ids for {n} samples: give one for each")
    return [str(name) for name in ids]


def class_names_of(
    samples: object, class_names: Sequence[str] | None
) -> tuple[str, ...]:
    """Return the class names that the user gave, else those of the samples."""
    names = (
        class_names if class_names is not None else getattr(samples, "class_names", ())
    )
    return tuple(str(name) for name in names)


def one_of(what: str, value: str, valid: Collection[str]) -> str:
    """Return a valid name, or raise an error that lists the valid ones."""
    if value not in valid:
        raise ValueError(
            f"unknown {what} {quoted(value)}; valid here: {', '.join(map(repr, valid))}"
        )
    return value
