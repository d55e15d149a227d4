"""The rows that the inspector shows: checked, filtered and sorted. No widgets here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import check_finite, check_same_order
from memowidgets.evaluation.scored import Scored
from memowidgets.visible import quoted
from memowidgets.widgets.explored import checked_scores

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from memowidgets.widgets.samples import SampleReader


SORTS = {
    "risk": "most at risk first",
    "safe": "least at risk first",
    "log-lira": "highest log-LiRA first",
    "disagreement": "least probable label first",
    "label": "by label",
    "order": "as in the dataset",
}
LOOKS_WRONG, ON_THE_LINE = "label looks wrong", "on the line"


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

    def filters(self) -> tuple[str, ...]:
        """Return the names of the filters that make sense here."""
        known = self.scored.is_scored, self.memorized is not None
        return valid_filters(*known, self.knows_model, self.scored.errors is not None)

    def sorts(self) -> tuple[str, ...]:
        """Return the names of the orders that make sense here."""
        there = {
            "risk": self.scored.is_scored,
            "safe": self.scored.is_scored,
            "log-lira": self.scored.log_lira is not None,
            "disagreement": self.knows_model,
            "label": self.scored.labels is not None,
            "order": True,
        }
        return tuple(name for name in SORTS if there[name])

    def sort_label(self, name: str) -> str:
        """Return the label of an order."""
        return SORTS[name]

    def mask(self, name: str, tau: float) -> NDArray[np.bool_]:
        """Return a mask of the rows that a filter shows."""
        flagged = self.scored.flagged(tau)
        if name == "all":
            return np.ones(len(self), dtype=np.bool_)
        if name == LOOKS_WRONG and self.looks_wrong is not None:
            return self.looks_wrong
        if name == ON_THE_LINE and self.scored.errors is not None:
            return self.scored.close(tau)
        if name == "flagged" or (name == "left alone" and self.memorized is None):
            return flagged if name == "flagged" else ~flagged
        if self.memorized is None:
            raise ValueError(f"the filter {name!r} needs ground truth")
        wants_flag, wants_memorized = name in ("found", "flagged only"), name in ("found", "missed")
        chosen: NDArray[np.bool_] = flagged == wants_flag
        chosen &= self.memorized == wants_memorized
        return chosen

    def counts(self, tau: float) -> dict[str, int]:
        """Return how many rows each filter shows."""
        found = self.scored.counts(tau, self.eta)
        found["all"] = found.pop("n")
        for name in (LOOKS_WRONG, ON_THE_LINE):
            if name in self.filters():
                found[name.replace(" ", "_")] = int(np.count_nonzero(self.mask(name, tau)))
        return {name: found[name.replace(" ", "_")] for name in self.filters()}

    @cached_property
    def is_ordered(self) -> bool:
        """Whether row i is sample i, so that a mask of rows is one of samples."""
        return bool(np.array_equal(self.scored.positions, np.arange(len(self))))

    def order(self, name: str) -> NDArray[np.int64]:
        """Return all rows in an order, by its name."""
        if name not in self.sorts():
            raise ValueError(
                f"unknown sort {name!r}; valid here: {', '.join(map(repr, self.sorts()))}"
            )
        if name not in self._orders:
            self._orders[name] = np.argsort(_keys(self, name), kind="stable")
        return self._orders[name]

    @cached_property
    def _orders(self) -> dict[str, NDArray[np.int64]]:
        return {}

    @property
    def knows_model(self) -> bool:
        """Whether it is known what the model says of the labels."""
        return self.scored.probabilities is not None and self.scored.labels is not None

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
        """Mask of the rows to which the model gives another class than their label, if known."""
        known, labels = self.scored.probabilities, self.scored.labels
        if known is None or labels is None:
            return None
        wrong: NDArray[np.bool_] = known.argmax(axis=1) != labels
        return wrong & (labels >= 0)


def first_of(order: NDArray[np.int64], found: NDArray[np.bool_], most: int) -> NDArray[np.int64]:
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


def valid_filters(scores: bool, truth: bool, model: bool, errors: bool) -> tuple[str, ...]:
    """Return the names of the filters that make sense with what is known.

    `model` says whether its classes are known, and `errors` whether those of the scores are.
    """
    if not scores:
        return ("all", LOOKS_WRONG) if model else ("all",)
    of_truth = ("found", "flagged only", "missed") if truth else ()
    more = (LOOKS_WRONG,) * model + (ON_THE_LINE,) * errors
    return ("flagged", *of_truth, "left alone", *more, "all")


def _keys(rows: Listed, name: str) -> NDArray[np.float64]:
    """Return the values by which an order sorts, lowest first."""
    scored = rows.scored
    if name == "log-lira" and scored.log_lira is not None:
        return -scored.log_lira
    if name == "disagreement" and rows.label_probability is not None:
        return rows.label_probability
    if name == "label" and scored.labels is not None:
        return scored.labels.astype(np.float64)
    if name in ("risk", "safe"):
        return scored.scores if name == "risk" else -scored.scores
    return scored.positions.astype(np.float64)


def rows_from(
    reader: SampleReader,
    scores: ArrayLike | None,
    memorized: ArrayLike | None,
    labels: ArrayLike | None,
    positions: ArrayLike | None,
    errors: ArrayLike | None,
    log_lira: ArrayLike | None,
    probabilities: ArrayLike | None,
) -> Listed:
    """Check everything that is known of the samples, and return it as rows."""
    check_same_order(scores=scores, labels=labels)
    places = _checked_positions(positions, len(reader))
    n = len(places)
    if memorized is not None and scores is None:
        raise ValueError("memorized without scores: give both, or neither")
    found = replace(
        checked_scores(scores, memorized, "", errors, log_lira, n=n),
        positions=places,
        labels=_checked_labels(labels, reader, places),
        probabilities=_checked_probabilities(probabilities, n),
    )
    return Listed(found)


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
    check_finite(array, "probabilities")
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
