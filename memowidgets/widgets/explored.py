"""Arrays of an explorer: checked, judged, and in the form in which its page gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import (
    as_code,
    check_finite,
    check_same_order,
    plain_labels,
    real_numbers,
    to_numpy,
)
from memowidgets.evaluation import Evaluation, compare
from memowidgets.evaluation.curve import OPENING_SHARE, Truly
from memowidgets.evaluation.intervals import SortedScores
from memowidgets.evaluation.scored import (
    AXES,
    LowestCount,
    LowestShare,
    Rule,
    Scored,
)
from memowidgets.vocabulary import truly, verb, whole
from memowidgets.widgets.messages import Asked, fields, mismatch
from memowidgets.widgets.widget import checked_tau

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Places = NDArray[np.int64]
    from numpy.typing import NDArray

    from memowidgets.widgets.messages import Part


MOST_LEVELS = 65_536  # distinct errors that are sent as they are


def checked_column(
    name: str, values: ArrayLike, n: int, *, nan: bool = False
) -> Floats:
    """Return one real number for each of n samples, finite unless `nan` is fine, or raise."""
    array = real_numbers(values, name)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must be one number for each of {n} samples, not of shape {array.shape}"
        )
    if not nan:
        check_finite(array, name)
    return array.astype(np.float64)


def checked_flags(name: str, values: ArrayLike, n: int) -> Bools:
    """Return a mask of true and false, or 0 and 1, one for each of n samples, or raise."""
    array = checked_column(name, values, n, nan=True)
    if not np.isin(array, (0, 1)).all():
        raise TypeError(
            f"{name} must be true or false; to turn log-LiRA into that, compare it with η, "
            "as in log_lira >= 4"
        )
    return array.astype(np.bool_)


def checked_classes(name: str, values: ArrayLike, n: int) -> Places:
    """Return the class of each of n samples as a number, or raise."""
    labels = plain_labels(values)
    if labels.shape != (n,):
        raise ValueError(
            f"{name} has the shape {labels.shape} for {n} samples: give one for each"
        )
    found: Places = np.unique(labels, return_inverse=True)[1]
    return found


def checked_errors(name: str, values: ArrayLike, n: int) -> Floats:
    """Return the standard error of each of n samples, or raise."""
    errors = checked_column(name, values, n)
    if errors.min() < 0:
        raise ValueError(
            f"{name} must not be negative, as the one in row {errors.argmin()} is"
        )
    return errors


def packed_scores(rising: SortedScores) -> dict[str, Any]:
    """Return the values, and the counts of those that several samples share.

    Returns
    -------
    dict
        ``values`` and ``wide`` as from `packed_floats`; ``shared`` and ``ties``: position of
        each of the ``n_shared`` values that several samples share, and how many do, as
        unsigned integers of the smallest size that holds them. A million scores are at most
        8 MB.
    """
    values, wide = packed_floats(rising.values)
    shared = np.flatnonzero(rising.counts > 1)
    return {
        "values": values,
        "wide": wide,
        "n_shared": len(shared),
        "shared": _smallest(shared),
        "ties": _smallest(rising.counts[shared]),
    }


def packed_truth(
    memorized: Bools | None, rising: SortedScores
) -> dict[str, bytes | None]:
    """Return which values have a memorised sample, one bit for each value.

    Returns
    -------
    dict
        ``bits``: one bit a value, whether any of its samples is memorised; ``of_shared``: how
        many are, for each value that several share. Both None without ground truth.
    """
    if memorized is None:
        return {"bits": None, "of_shared": None}
    total = rising.total(memorized)
    return {
        "bits": np.packbits(total > 0).tobytes(),
        "of_shared": _smallest(total[rising.counts > 1]),
    }


def packed_errors(
    errors: Floats | None, rising: SortedScores
) -> dict[str, bytes | None]:
    """Return standard errors as places in a list of levels, in the order of the scores.

    Returns
    -------
    dict
        ``levels``: ascending, as float64. All distinct errors if they are at most 65 536, so that
        nothing is lost; else 256 in equal ratios, each error counting as the next level above it.
        ``codes``: the level of each sample, in one or two bytes. Both None without errors.
    """
    if errors is None:
        return {"levels": None, "codes": None}
    levels = np.unique(errors)
    if len(levels) > MOST_LEVELS:
        levels = np.append(0.0, np.geomspace(levels[levels > 0][0], levels[-1], 255))
    codes = np.searchsorted(levels, errors[rising.order])
    return {"levels": levels.tobytes(), "codes": _smallest(codes, len(levels) - 1)}


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


def packed_floats(values: Floats) -> tuple[bytes, bool]:
    """Return values as float32 if that loses nothing, else as float64, and whether it is float64.

    The front end must count exactly what Python does.
    """
    with np.errstate(over="ignore"):  # what overflows is sent as it is
        narrow = values.astype(np.float32)
    wide = not np.array_equal(narrow.astype(np.float64), values)
    return (values if wide else narrow).tobytes(), wide


def _smallest(counts: NDArray[Any], most: int | None = None) -> bytes:
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
    note : str
        A sentence on those others.
    positives : str
        What the truth marks, as in ``"canaries"``; by default memorised samples.
    version : int
        Goes up with each other array of scores.
    """

    scored: Scored
    eta: float
    note: str = ""
    positives: str = ""
    version: int = 0

    @classmethod
    def of(cls, found: Scored, eta: float = 4.0, positives: str = "") -> Judged:
        """Leave out the samples without log-LiRA, unless no sample has one."""
        if found.truth is not None and found.log_lira is not None:
            raise ValueError(
                "give memorized or log_lira, not both: η says who is memorised"
            )
        judged, note = found.judged, ""
        n_without = int((~judged).sum())
        if n_without == len(found):
            note = "" if found.log_lira is None else "No sample has a log-LiRA yet."
            found = replace(found, log_lira=None)
        elif n_without:
            are = verb(
                n_without, "sample without log-LiRA is", "samples without log-LiRA are"
            )
            note, found = f"{n_without} {are} left out.", found.only(judged)
        return cls(found, eta, note, positives)

    @property
    def has_log_lira(self) -> bool:
        """Whether η says who is memorised."""
        return self.scored.log_lira is not None

    @property
    def data(self) -> dict[str, Any]:
        """What the front end draws, except which samples are memorised."""
        if not len(self.scored):
            return {}
        log_lira = self.scored.log_lira
        return {
            "version": self.version,
            "title": self.scored.title,
            "truth": self.positives,
            "eta_range": None if log_lira is None else eta_range(log_lira),
            "note": self.note,
            "natural": self.scored.natural,
            "axis": self.scored.axis,
            "axes": [*axes_of(self.scored)],
            **packed_errors(self.scored.errors, self.scored.rising),
            **packed_scores(self.scored.rising),
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
        others = [note.sentence for note in found.warnings if note.key != "truly"]
        return {"remarks": others, "truly": known}

    @property
    def key(self) -> dict[str, Any]:
        """Version and η of these numbers, for the front end."""
        return {"version": self.version, "eta": self.eta if self.has_log_lira else None}

    @property
    def wire(self) -> dict[str, Any]:
        """The memorised samples."""
        if not len(self.scored):
            return {}
        return {**self.key, **packed_truth(self.memorized, self.scored.rising)}

    def late(self) -> dict[str, Any]:
        """Return remarks on the truth."""
        return {**self.key, **self.said}


def checked_asked(value: Any) -> Asked:
    """Return what was asked for, or raise: a count, a share, or neither, where τ itself was."""
    problem = mismatch(value, Asked, "asked")
    unknown = [] if problem else sorted(value.keys() - fields(Asked).keys())
    if unknown:
        problem = f"asked has no part {as_code(unknown[0])}"
    elif not problem and len(value) > 1:
        problem = "asked has a count and a share"
    elif not problem and value.get("count", 1) < 1:
        problem = f"asked has a count of {value['count']}, which must be at least 1"
    elif not problem and not 0 < value.get("share", 1) <= 1:
        problem = f"asked has a share of {value['share']}, which must be above 0 and at most 1"
    if problem:
        raise ValueError(
            f"{problem}; give {{'count': 20}}, {{'share': 0.1}}, or {{}} for τ"
        )
    asked: Asked = value
    return asked


def opening(scored: Scored) -> tuple[Asked, float]:
    """Return what is asked for at first, and its τ: a share where a score has no τ of its own."""
    has_own = scored.natural is not None or scored.axis != AXES[0]
    return ({} if has_own else {"share": OPENING_SHARE}), scored.tau


def asked_rule(asked: Asked, tau: float) -> Rule:
    """Return what flags samples: what was asked for, or τ where τ itself was."""
    if "count" in asked:
        return LowestCount(asked["count"])
    if "share" in asked:
        return LowestShare(asked["share"])
    return tau


def axes_of(scored: Scored) -> tuple[str, ...]:
    """Return the axes on which scores can be shown."""
    return AXES[:1] if scored.labels is None else AXES


NOTHING = Judged.of(Scored(np.empty(0, dtype=np.int64), np.empty(0)))


def checked_scores(
    scores: ArrayLike | None,
    memorized: ArrayLike | None = None,
    title: str = "score",
    errors: ArrayLike | None = None,
    log_lira: ArrayLike | None = None,
    natural: float | None = 0.0,
    labels: ArrayLike | None = None,
    n: int | None = None,
) -> Scored:
    """Check all arrays of a view before anything changes; n samples may be without a score."""
    check_same_order(
        scores=scores,
        memorized=memorized,
        errors=errors,
        log_lira=log_lira,
        labels=labels,
    )
    if scores is None:
        values = np.full(n or 0, np.nan)
    else:
        values = checked_column(
            "scores", scores, len(to_numpy(scores, "scores")) if n is None else n
        )
        if not len(values):
            raise ValueError("scores is empty: there must be at least one sample")
    n = len(values)

    def known(
        check: Callable[..., Any], name: str, given: ArrayLike | None, **how: Any
    ) -> Any:
        return None if given is None else check(name, given, n, **how)

    return Scored(
        np.arange(n),
        values,
        truth=known(checked_flags, "memorized", memorized),
        log_lira=known(checked_column, "log_lira", log_lira, nan=True),
        errors=known(checked_errors, "errors", errors),
        natural=None if natural is None else checked_tau(natural, "natural"),
        labels=known(checked_classes, "labels", labels),
        title=title,
    )


@dataclass(frozen=True, eq=False)
class Compared:
    """Samples that have each of several scores.

    Attributes
    ----------
    positions : array of shape (n,), int64
        Which samples, by their positions.
    scores : array of shape (n_scores, n), float64
        A low score means risk.
    memorized : array of shape (n,), bool, optional
        None without ground truth.
    left_out : int
        Number of samples that lack one of the scores.
    known : list of Truly or None
        What is known of the true labels by each score.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    memorized: NDArray[np.bool_] | None
    left_out: int
    known: list[Truly | None]

    @classmethod
    def of(
        cls,
        first: Scored,
        memorized: NDArray[np.bool_] | None,
        others: Sequence[Scored],
        eta: float = 4.0,
    ) -> Compared:
        """Take the samples of the first score that have each other one too; η is for the truth."""
        beside = [
            _aligned(each.positions, each.scores, first.positions) for each in others
        ]
        scores = np.stack([first.scores, *beside])
        there = ~np.isnan(scores).any(axis=0)
        if not there.any():
            raise ValueError(
                "these scores have no sample in common: choose another one"
            )
        at = first.positions[there]

        def known_by(each: Scored) -> Truly | None:
            found = None if each.doubt is None else each.doubt(eta)
            if found is None or found.calibrated is None:
                return found
            of_both = _aligned(each.positions, found.calibrated, at)
            return found._replace(calibrated=of_both)

        return cls(
            at,
            scores[:, there],
            None if memorized is None else memorized[there],
            int((~there).sum()),
            [known_by(each) for each in (first, *others)],
        )

    @cached_property
    def rising(self) -> list[SortedScores]:
        """Each score in rising order."""
        return [SortedScores.of(each) for each in self.scores]

    @cached_property
    def ranks(self) -> NDArray[np.uint32]:
        """Place of each sample from the lowest score, from 1, of shape (n_scores, n).

        Samples that tie have the first of their places. A budget flags what has at most that rank,
        as `Scored.flagged` does: those with the lowest scores, and all that tie with them.
        """
        return np.stack([one.firsts[one.rung] + 1 for one in self.rising]).astype(
            np.uint32
        )

    def part(self, asked: Part) -> NDArray[np.int64]:
        """Return the positions of the samples that some scores flag at a budget, and others not."""
        wanted = np.array(asked["flagged"], dtype=np.bool_)[:, None]
        flagged = self.ranks[: len(wanted)] <= asked["budget"]
        chosen: NDArray[np.int64] = self.positions[(flagged == wanted).all(axis=0)]
        return chosen

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        """One for each score; none where there is no ROC."""
        if self.memorized is None or self.memorized.all() or not self.memorized.any():
            return []
        found = []
        for scores, rising, known in zip(
            self.scores, self.rising, self.known, strict=True
        ):
            one = Evaluation.of(scores, self.memorized, rising)
            found.append(one if known is None else one.with_truly(known))
        return found

    def said(self, names: Sequence[str]) -> str:
        """Return in words by how much the AUCs of the first two scores differ."""
        left_out = ""
        if self.left_out:
            lack = verb(self.left_out, "sample lacks", "samples lack")
            left_out = (
                f"{whole(self.left_out)} {lack} one of these scores and are left out. "
            )
        if not self.evaluations:
            return left_out.strip()
        first, second = self.evaluations[:2]
        if min(first.n_memorized, first.n - first.n_memorized) < 2:
            return (
                f"{left_out}With one sample of a kind, nobody can tell the AUCs apart."
            )
        found = compare(first, second).differences
        area, (_, (low, high)) = next(iter(found.items()))
        digits = next((d for d in (2, 3) if round(low, d) and round(high, d)), 4)
        ends = " to ".join(f"{round(x, digits) + 0.0:.{digits}f}" for x in (low, high))
        difference = f"difference of the {area} {ends.replace('-', '−')}, 95 %"
        if low <= 0 <= high:
            told = f"This audit cannot tell {names[0]} from {names[1]}"
        else:
            better, worse = names[:2] if low > 0 else names[1::-1]
            told = f"{better} finds more than {worse}"
        return f"{left_out}{told} ({difference})."

    @property
    def wire(self) -> dict[str, Any]:
        """Ranks of each score as uint32, and which samples are memorised, one bit for each."""
        known = self.memorized
        return {
            "n": len(self.positions),
            "ranks": [each.tobytes() for each in self.ranks],
            "bits": None if known is None else np.packbits(known).tobytes(),
        }


def _aligned(
    at: NDArray[np.int64], scores: NDArray[np.float64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the scores of these positions, NaN for one that has none."""
    everywhere = np.full(
        int(max(at.max(initial=0), positions.max(initial=0))) + 1, np.nan
    )
    everywhere[at] = scores
    return everywhere[positions]
