"""Arrays of an explorer: checked, judged, and in the form in which its page gets them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import check_finite, check_same_order, plain_labels, real_numbers, to_numpy
from memowidgets.evaluation import Evaluation
from memowidgets.evaluation.scored import AXES, Scored
from memowidgets.vocabulary import truly
from memowidgets.widgets.widget import checked_tau

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Places = NDArray[np.int64]


MOST_LEVELS = 65_536  # distinct errors that are sent as they are
MOST_EXACT = 500_000  # samples for which two bytes of error each are no burden


def checked_floats(name: str, values: ArrayLike, n: int | None = None) -> Floats:
    """Return a vector of finite numbers. Raise an error that counts those that are not."""
    array = real_numbers(values, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if n is None and len(array) == 0:
        raise ValueError(f"{name} is empty: there must be at least one sample")
    if n is not None and len(array) != n:
        raise ValueError(f"{name} has {len(array)} entries for {n} samples: give one for each")
    check_finite(array, name)
    return array.astype(np.float64)


def checked_flags(name: str, values: ArrayLike, n: int) -> Bools:
    """Return a boolean vector from true and false, or 0 and 1, one for each sample."""
    array = to_numpy(values)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must be one truth value for each of {n} samples, not of shape {array.shape}"
        )
    if array.dtype.kind == "b":
        return array.astype(np.bool_)
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise TypeError(
            f"{name} must be true or false; to turn log-LiRA into that, compare it with η, "
            "as in log_lira >= 4"
        )
    return array.astype(np.bool_)


def checked_classes(values: ArrayLike, n: int) -> Places:
    """Return the class of each sample as a number."""
    labels = plain_labels(to_numpy(values))
    if labels.shape != (n,):
        raise ValueError(f"labels has the shape {labels.shape} for {n} samples: give one for each")
    found: Places = np.unique(labels, return_inverse=True)[1]
    return found


def checked_errors(values: ArrayLike, n: int) -> Floats:
    """Return standard errors, one for each sample. Raise an error if one is negative."""
    errors = checked_floats("errors", values, n)
    wrong = errors < 0
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"errors must not be negative: {int(wrong.sum())} of {n} are, the first in row {first}"
        )
    return errors


def checked_log_lira(values: ArrayLike, n: int) -> Floats:
    """Return log-LiRA, one number for each sample, NaN for a sample that has none."""
    array = to_numpy(values)
    if array.shape != (n,):
        raise ValueError(
            f"log_lira must be one number for each of {n} samples (NaN for none), not of shape "
            f"{array.shape}"
        )
    if array.dtype.kind not in "fiu":
        raise TypeError(f"log_lira must be real numbers, not {array.dtype}; a mask is `memorized`")
    return array.astype(np.float64)


@dataclass(frozen=True)
class SortedScores:
    """Scores in the form of the front end: each value once, in rising order.

    Attributes
    ----------
    order : array of shape (n,), int
        The samples by their scores, ascending.
    firsts : array of shape (u,), int
        Where in that order each distinct score begins.
    values : array of shape (u,), float64
        The distinct scores, ascending.
    """

    order: Places
    firsts: Places
    values: Floats

    @classmethod
    def of(cls, scores: Floats) -> SortedScores:
        """Sort finite scores, one for each sample."""
        order = np.argsort(scores)
        rising = scores[order]
        firsts = np.flatnonzero(np.append(True, rising[1:] != rising[:-1])[: len(order)])
        return cls(order, firsts, rising[firsts])

    @cached_property
    def counts(self) -> Places:
        """Number of samples with each value."""
        return np.diff(np.append(self.firsts, len(self.order)))

    @cached_property
    def shared(self) -> Places:
        """Positions of the values that several samples share."""
        return np.flatnonzero(self.counts > 1)

    def rising(self, of_samples: NDArray[Any]) -> NDArray[Any]:
        """Return values of the samples in the order of their scores."""
        return of_samples[self.order]

    def packed(self) -> dict[str, Any]:
        """Return the values, and the counts of those that several samples share.

        Returns
        -------
        dict
            ``values``: as float32 if that loses nothing, else (``wide``) as float64, so that
            the front end counts exactly what Python does; ``shared`` and ``ties``: position of
            each of the ``n_shared`` values that several samples share, and how many do, as
            unsigned integers of the smallest size that holds them. A million scores are at most
            8 MB.
        """
        with np.errstate(over="ignore"):  # what overflows is sent as it is
            narrow = self.values.astype(np.float32)
        wide = not np.array_equal(narrow.astype(np.float64), self.values)
        return {
            "values": (self.values if wide else narrow).tobytes(),
            "wide": wide,
            "n_shared": len(self.shared),
            "shared": _smallest(self.shared),
            "ties": _smallest(self.counts[self.shared]),
        }

    def packed_truth(self, memorized: Bools | None) -> dict[str, bytes | None]:
        """Return which values have a memorised sample, one bit for each value.

        Returns
        -------
        dict
            ``bits``: one bit a value, whether any of its samples is memorised; ``of_shared``: how
            many are, for each value that several share. Both None without ground truth.
        """
        if memorized is None:
            return {"bits": None, "of_shared": None}
        memorized_at = np.add.reduceat(memorized[self.order].astype(np.int64), self.firsts)
        return {
            "bits": np.packbits(memorized_at > 0).tobytes(),
            "of_shared": _smallest(memorized_at[self.shared]),
        }


@dataclass(frozen=True)
class ErrorLevels:
    """Standard errors as places in a list of levels, one or two bytes for each sample.

    Attributes
    ----------
    levels : array of shape (l,), float64
        Ascending. All distinct errors if they are at most 65 536, so that nothing is lost (256 for
        more than half a million samples: codes of one byte); else 256 in equal ratios, each error
        counting as the next level above it.
    codes : array of shape (n,), int
        The level of each sample.
    """

    levels: Floats
    codes: Places

    @classmethod
    def of(cls, errors: Floats) -> ErrorLevels:
        """Find the levels of errors that are finite and not negative."""
        levels = np.unique(errors)
        if len(levels) > (MOST_LEVELS if len(errors) <= MOST_EXACT else 256):
            smallest = levels[levels > 0][0]
            steps = np.geomspace(smallest, levels[-1], 255)
            steps[0], steps[-1] = smallest, levels[-1]
            levels = np.append(0.0, steps)
        return cls(levels, np.searchsorted(levels, errors))

    @property
    def errors(self) -> Floats:
        """Error of each sample, as Python and the front end both use it."""
        return self.levels[self.codes]

    def undecided(self, scores: Floats, tau: float) -> int:
        """Return how many scores are less than two standard errors from τ."""
        reach = 2 * self.errors
        return int(((scores - reach < tau) & (tau < scores + reach)).sum())

    def packed(self, scores: SortedScores) -> dict[str, bytes]:
        """Return ``levels`` as float64, and ``codes`` in the order of the scores."""
        codes = scores.rising(self.codes)
        return {"levels": self.levels.tobytes(), "codes": _smallest(codes, len(self.levels) - 1)}


def eta_range(log_lira: Floats) -> list[float]:
    """Return the ends of the slider of η: 0, and a value above 99.9 % of the samples.

    Parameters
    ----------
    log_lira : array of shape (n,)
        In nats; what is not finite does not count.

    Returns
    -------
    list of two float
        The upper end is a whole number from 12 to 100.

    Examples
    --------
    >>> eta_range(np.array([-3.0, 2.5, 30.2, np.nan]))
    [0.0, 31.0]
    """
    finite = log_lira[np.isfinite(log_lira)]
    highest = float(np.quantile(finite, 0.999)) if len(finite) else 0.0
    return [0.0, float(np.ceil(min(max(highest, 12.0), 100.0)))]


def packed_log_lira(rising: Floats) -> tuple[bytes, bool]:
    """Return log-LiRA as float32 if that is exact, else as float64, and whether it is float64."""
    with np.errstate(over="ignore"):
        narrow = rising.astype(np.float32)
    wide = not np.array_equal(narrow.astype(np.float64), rising)
    return (rising if wide else narrow).tobytes(), wide


def _smallest(counts: Places, most: int | None = None) -> bytes:
    """Return whole numbers in the smallest unsigned type that holds them and `most`."""
    largest = max(int(counts.max(initial=0)), most or 0)
    return counts.astype(np.min_scalar_type(largest)).tobytes()


@dataclass(frozen=True, eq=False)
class Judged:
    """Scores in the form that a page gets, with those that are memorised at one η.

    Attributes
    ----------
    scored : Scored
        The samples that count.
    eta : float
        A sample is memorised if its log-LiRA is at least this.
    sorted : SortedScores
        Their scores in rising order.
    levels : ErrorLevels, optional
        Their standard errors.
    counting : array of bool
        Which of all samples that were given are among them; the others have no log-LiRA.
    note : str
        A sentence on those others.
    positives : str
        What the truth marks, as in ``"canaries"``; by default memorised samples.
    version : int
        Goes up with each other array of scores.
    """

    scored: Scored
    eta: float
    sorted: SortedScores
    levels: ErrorLevels | None
    counting: Bools
    note: str = ""
    positives: str = ""
    version: int = 0

    @classmethod
    def of(cls, found: Scored, eta: float = 4.0, positives: str = "") -> Judged:
        """Leave out the samples without log-LiRA, unless no sample has one."""
        if found.truth is not None and found.log_lira is not None:
            raise ValueError("give memorized or log_lira, not both: η says who is memorised")
        counting, note = found.judged, ""
        if not counting.any():
            note = "" if found.log_lira is None else "No sample has a log-LiRA yet."
            counting, found = ~counting, replace(found, log_lira=None)
        elif not counting.all():
            n = int((~counting).sum())
            verb = "sample has no log-LiRA and is" if n == 1 else "samples have no log-LiRA and are"
            note = f"{n} {verb} left out."
        kept = found.only(counting)
        levels = None if kept.errors is None else ErrorLevels.of(kept.errors)
        return cls(kept, eta, SortedScores.of(kept.scores), levels, counting, note, positives)

    @property
    def has_log_lira(self) -> bool:
        """Whether η says who is memorised."""
        return self.scored.log_lira is not None

    @property
    def canary_tau(self) -> float | None:
        """Lowest τ that flags 75 % of the planted canaries; None without any."""
        planted = self.scored.canaries
        if planted is None or not planted.any():
            return None
        ordered = np.sort(self.scored.scores[planted])
        return float(ordered[math.ceil(0.75 * len(ordered)) - 1])

    @property
    def data(self) -> dict[str, Any]:
        """What the front end draws, except which samples are memorised."""
        if not len(self.scored):
            return {}
        errors: dict[str, bytes | None] = {"levels": None, "codes": None}
        if self.levels is not None:
            errors = {**self.levels.packed(self.sorted)}
        log_lira = self.scored.log_lira
        return {
            "version": self.version,
            "title": self.scored.title,
            "truth": self.positives,
            "eta_range": None if log_lira is None else eta_range(log_lira),
            "note": self.note,
            "natural": self.scored.natural,
            "canary_tau": self.canary_tau,
            "axes": [*axes_of(self.scored)],
            **errors,
            **self.sorted.packed(),
        }

    @cached_property
    def memorized(self) -> Bools | None:
        """Mask of the memorised samples; None without ground truth."""
        return self.scored.memorized(self.eta)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """How well the scores predict the truth; None if there is no ROC."""
        return self.scored.evaluated(self.eta)

    @property
    def said(self) -> dict[str, Any]:
        """Remarks on the truth, and how many of the memorised samples truly are, in words."""
        found = self.evaluation
        if found is None:
            return {"remarks": [], "truly": ""}
        known = "" if found.n_truly is None else truly(found.n_truly, found.n_memorized)
        return {"remarks": [str(note) for note in found.warnings], "truly": known}

    @property
    def key(self) -> dict[str, Any]:
        """Version and η of these numbers, for the front end."""
        return {"version": self.version, "eta": self.eta if self.has_log_lira else None}

    @property
    def wire(self) -> dict[str, Any]:
        """The memorised samples."""
        if not len(self.scored):
            return {}
        return {**self.key, **self.sorted.packed_truth(self.memorized)}

    def late(self) -> dict[str, Any]:
        """Return what takes a while: remarks on the truth."""
        return {**self.key, **self.said}


def axes_of(scored: Scored) -> tuple[str, ...]:
    """Return the axes on which scores can be shown."""
    return AXES[:1] if scored.labels is None else AXES


NOTHING = Judged.of(Scored(np.empty(0, dtype=np.int64), np.empty(0)))


def checked_scores(
    scores: ArrayLike | None,
    memorized: ArrayLike | None = None,
    title: str = "",
    errors: ArrayLike | None = None,
    log_lira: ArrayLike | None = None,
    natural: float | None = 0.0,
    canaries: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    n: int | None = None,
) -> Scored:
    """Check all arrays of a view before anything changes; n samples may be without a score."""
    check_same_order(
        scores=scores,
        memorized=memorized,
        errors=errors,
        log_lira=log_lira,
        canaries=canaries,
        labels=labels,
    )
    values = np.full(n or 0, np.nan) if scores is None else checked_floats("scores", scores, n)
    n = len(values)
    return Scored(
        np.arange(n),
        values,
        truth=None if memorized is None else checked_flags("memorized", memorized, n),
        log_lira=None if log_lira is None else checked_log_lira(log_lira, n),
        errors=None if errors is None else checked_errors(errors, n),
        canaries=None if canaries is None else checked_flags("canaries", canaries, n),
        natural=None if natural is None else checked_tau(natural, "natural"),
        labels=None if labels is None else checked_classes(labels, n),
        title=title,
    )
