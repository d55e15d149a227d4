"""Members with their scores: which of them a threshold flags, and what each is called then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from memowidgets.evaluation.curve import (
    ONE_BELOW,
    Evaluation,
    Truly,
    class_spread,
    lowest_share,
)
from memowidgets.evaluation.intervals import Floats, Ints, Mask, SortedScores
from memowidgets.vocabulary import Note

BY_CLASS: Final = "class"
AXES = ("score", BY_CLASS)
STATUSES = ("left alone", "missed", "flagged only", "found")
FLAGGED = "flagged"  # where nobody knows who is memorised

# of η; None where nobody knows how many of the memorised members truly are
Doubt = Callable[[float], Truly | None]


class LowestShare(NamedTuple):
    """A share of the members to flag: those with the lowest scores."""

    share: float


class LowestCount(NamedTuple):
    """A number of members to flag: those with the lowest scores, and all that tie with them."""

    n: int


class AgainstClass(NamedTuple):
    """A threshold in robust deviations from the median of each member's class."""

    tau: float


# "class" is AgainstClass(-1.0), and None is where τ stands at first
Rule = float | Literal["class"] | LowestShare | LowestCount | AgainstClass | None


@dataclass(frozen=True, eq=False)
class Scored:
    """These members with this score. Row i is member ``positions[i]``.

    Attributes
    ----------
    positions : array of shape (n,), int64
        Position of each among all members.
    scores : array of shape (n,), float64
        A low score means risk. NaN where there is none, which only samples without any score have.
    errors : array of shape (n,), float64, optional
        Standard error of each score.
    log_lira : array of shape (n,), float64, optional
        NaN for a member that has none; None without ground truth.
    labels : array of shape (n,), int64, optional
        Label that each was trained on, -1 for none.
    probabilities : array of shape (n, n_classes), optional
        The model's at the checkpoint of the scores.
    nearby : array of shape (n,), int64, optional
        Class that most of the samples nearest to each have, where the model gives another class
        than its label; -1 where there is none. None where it was not looked for.
    notes : tuple of Note
        What a reader of the scores should know.
    warnings : tuple of Note
        What a reader must know before trusting them.
    title : str
        Name of the score and where it is from, for readers.
    metric, layer, checkpoint : str
        The same by name. The layer is empty for a metric that has none.
    natural : float, optional
        Threshold of the score that means the same for every model; None if it has none.
    ids : array of shape (n,), optional
        Id of each.
    canaries : array of shape (n,), bool, optional
        Which were planted to be memorised.
    right : array of shape (n,), bool, optional
        Whether the finished model gives a member its label; None where that is not known.
    truth : array of shape (n,), bool, optional
        Which are memorised, where that does not depend on η.
    doubt : callable, optional
        Function of η that returns what is known of the true labels, or None.
    axis : str
        ``"score"``, or ``"class"`` where `scores` and `errors` are in robust deviations from the
        median of the class.

    Examples
    --------
    >>> some = Scored(np.arange(3), np.array([-2.0, -1.0, 3.0]), log_lira=np.array([9.0, 0.0, 5.0]))
    >>> some.flagged(-1.5).tolist(), some.flagged(LowestShare(0.6)).tolist()
    ([True, False, False], [True, True, False])
    >>> some.status(-1.0, eta=4.0).tolist()
    ['found', 'flagged only', 'missed']
    """

    positions: Ints
    scores: Floats
    errors: Floats | None = None
    log_lira: Floats | None = None
    labels: Ints | None = None
    probabilities: Floats | None = None
    nearby: Ints | None = None
    notes: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    title: str = ""
    metric: str = ""
    layer: str = ""
    checkpoint: str = ""
    natural: float | None = None
    ids: NDArray[Any] | None = None
    canaries: Mask | None = None
    right: Mask | None = None
    truth: Mask | None = None
    doubt: Doubt | None = None
    axis: str = AXES[0]

    @classmethod
    def of_all(
        cls, values: NDArray[np.floating[Any]], notes: tuple[Note, ...] = ()
    ) -> Self:
        """Return scores of all members, in their order."""
        return cls(np.arange(len(values)), values.astype(np.float64), notes=notes)

    def __len__(self) -> int:
        return len(self.positions)

    def only(self, keep: Mask) -> Self:
        """Return the rows of a mask."""
        if keep.all():
            return self
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        some: dict[str, Any] = {
            name: column[keep]
            for name, column in columns.items()
            if isinstance(column, np.ndarray)
        }
        doubt_of_all = self.doubt

        def doubt(eta: float) -> Truly | None:
            truth = None if doubt_of_all is None else doubt_of_all(eta)
            if truth is None or truth.calibrated is None:
                return truth
            return truth._replace(calibrated=truth.calibrated[keep])

        return replace(self, **some, doubt=doubt)

    @cached_property
    def rising(self) -> SortedScores:
        """The scores in rising order."""
        return SortedScores.of(self.scores)

    @cached_property
    def is_scored(self) -> bool:
        """Whether there are scores."""
        return not np.isnan(self.scores).all()

    @property
    def tau(self) -> float:
        """Where τ stands at first, everywhere: the score's own, or the lowest 5 % flagged."""
        if self.axis == BY_CLASS:
            return ONE_BELOW
        return lowest_share(self.scores) if self.natural is None else self.natural

    @cached_property
    def against_class(self) -> Scored:
        """The rows by their score against their class: in robust deviations from its median.

        Raises
        ------
        ValueError
            If no class is known.
        """
        if self.axis == BY_CLASS:
            return self
        if self.labels is None:
            raise ValueError(
                "the rule by class needs the class of each sample: give labels"
            )
        middle, deviation = class_spread(self.scores, self.labels)
        name, comma, place = self.title.partition(",")
        errors = self.errors
        # a score that far is as far as a number can be
        with np.errstate(over="ignore"):
            scores = np.clip((self.scores - middle) / deviation, -1e308, 1e308)
            if errors is not None:
                errors = np.clip(errors / deviation, 0, 1e308)
        return replace(
            self,
            scores=scores,
            errors=errors,
            title=f"{name} against its class{comma}{place}",
            axis=BY_CLASS,
        )

    def on(self, rule: Rule) -> tuple[Scored, float]:
        """Return the rows on the axis of a rule, and its τ there."""
        if isinstance(rule, AgainstClass):
            return self.against_class, rule.tau
        if isinstance(rule, LowestShare):
            return self, lowest_share(self.scores, rule.share)
        if isinstance(rule, LowestCount):
            return self, self.rising.flagging(rule.n)
        if rule == BY_CLASS:
            return self.against_class, ONE_BELOW
        return self, self.tau if rule is None else float(rule)

    def flagged(self, rule: Rule, rows: Any = slice(None)) -> Mask:
        """Return which of some rows are flagged, by default of all.

        Parameters
        ----------
        rule : float, "class", AgainstClass, LowestShare, LowestCount or None
            The highest score that is flagged, the rule by class, the highest score against its
            class, the share or the number with the lowest, or where τ stands at first.
        rows : index, optional
            Of the rows to judge.

        Raises
        ------
        ValueError
            If the rule by class is asked and no class is known.
        """
        on_axis, tau = self.on(rule)
        flagged: Mask = on_axis.scores[rows] <= tau
        return flagged

    @cached_property
    def judged(self) -> Mask:
        """Which rows the ground truth says something of."""
        if self.log_lira is None or self.truth is not None:
            return np.full(len(self), self.truth is not None)
        return ~np.isnan(self.log_lira)

    def memorized(self, eta: float | None, rows: Any = slice(None)) -> Mask | None:
        """Return which of some rows are memorised: False where log-LiRA is NaN, None without truth.

        With η of None only a truth that does not depend on it counts.
        """
        memorized: Mask | None = None
        if self.truth is not None:
            memorized = self.truth[rows]
        elif self.log_lira is not None and eta is not None:
            memorized = self.log_lira[rows] >= eta
        return memorized

    def status(
        self, rule: Rule, eta: float | None, rows: Any = slice(None)
    ) -> NDArray[np.str_]:
        """Return what each of some rows is called, by default of all.

        One of `STATUSES`, or "flagged" and "left alone" where nobody knows if it is memorised, or
        nothing where it has no score.
        """
        flagged = self.flagged(rule, rows)
        memorized = self.memorized(eta, rows)
        status = np.where(flagged, FLAGGED, STATUSES[0])
        if memorized is not None:
            by_truth = np.array(STATUSES)[2 * flagged + memorized]
            status = np.where(self.judged[rows], by_truth, status)
        return np.where(np.isnan(self.scores[rows]), "", status)

    def close(self, rule: Rule, rows: Any = slice(None)) -> Mask:
        """Return which of some rows have a score less than two standard errors from τ."""
        on_axis, tau = self.on(rule)
        reach = 0.0 if on_axis.errors is None else 2 * on_axis.errors[rows]
        close: Mask = np.abs(on_axis.scores[rows] - tau) < reach
        return close

    def counts(self, rule: Rule, eta: float | None) -> dict[str, int]:
        """Return how many rows there are, and how many of them are what.

        Returns
        -------
        dict
            ``n``, ``flagged``, ``left_alone``; with ground truth also ``found``,
            ``flagged_only``, ``missed``.
        """
        memorized = self.memorized(eta)
        kinds = 2 * self.flagged(rule) + (0 if memorized is None else memorized)
        # in the order of STATUSES
        left_alone, missed, flagged_only, both = np.bincount(
            kinds, minlength=4
        ).tolist()
        counts = {"n": len(self), "flagged": flagged_only + both}
        if memorized is not None:
            counts |= {"found": both, "flagged_only": flagged_only, "missed": missed}
        return {**counts, "left_alone": left_alone}

    def evaluated(self, eta: float) -> Evaluation | None:
        """Return how well the scores of the judged rows predict the truth; None without a ROC."""
        some = self.only(self.judged)
        memorized = some.memorized(eta)
        if memorized is None or memorized.all() or not memorized.any():
            return None
        evaluation = Evaluation.of(some.scores, memorized, some.rising)
        truth = None if some.doubt is None else some.doubt(eta)
        return evaluation if truth is None else evaluation.with_truly(truth)
