"""The content of a report as plain data, independent of audits, files and markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.evaluation import Evaluation, OperatingPoint, clopper_pearson, roc
from memowidgets.vocabulary import Note, at, truly, verb
from memowidgets.widgets.explored import ErrorLevels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.decisions import Decision

    Floats = NDArray[np.float64]


WIDE = 640  # pixels
CHOICES = ("keep", "anonymise", "remove", "relabel", "undecided")


@dataclass(frozen=True)
class Missing:
    """A part that the report lacks.

    Attributes
    ----------
    what : str
        Name of the part.
    why : str
        Reason why it is missing.
    """

    what: str
    why: str


@dataclass(frozen=True)
class Figure:
    """A figure as SVG with its caption.

    Attributes
    ----------
    name : str
        Short name, such as ``"roc"``.
    caption : str
        Description for the reader.
    svg : str
        The figure.
    """

    name: str
    caption: str
    svg: str = field(repr=False)

    @property
    def is_wide(self) -> bool:
        """Whether the figure needs more than half of the page's width."""
        width = re.search(r"<svg[^>]*?\swidth=\"([\d.]+)", self.svg)
        return width is not None and float(width[1]) > WIDE


@dataclass(frozen=True)
class Digest:
    """SHA-256 digest of a part of the audit.

    Attributes
    ----------
    what : str
        The part: ``"model"``, ``"data"``, ``"run"``, ``"scores"``, ``"log-LiRA"``, ``"decisions"``.
    of : str
        What exactly the digest is of, such as a file of the run directory.
    sha256 : str, optional
        64 hexadecimal digits; None if there is nothing to compute them from.
    why : str
        Reason for None.
    """

    what: str
    of: str
    sha256: str | None
    why: str = ""


@dataclass(frozen=True, eq=False)
class Scored:
    """The reported scores. Row i belongs to member ``positions[i]``.

    Attributes
    ----------
    metric, title, layer, checkpoint : str
        Metric, its title, layer and checkpoint. The layer is empty for a metric that has none.
    positions : array of shape (n,), int64
        Positions among the members.
    scores : array of shape (n,), float64
        Finite numbers. A low score means risk.
    errors : array of shape (n,), float64, optional
        Standard errors.
    log_lira : array of shape (n,), float64, optional
        NaN for a member that has none; None without ground truth.
    labels : array of shape (n,), int64, optional
        Label that each member is trained on.
    probabilities : array of shape (n, n_classes), optional
        Probability of each class by the model.
    others : mapping of str to array of shape (n,)
        Other scores of the same members, to compare.
    notes : sequence of Note
        Notes that a reader of the scores needs.
    natural : float, optional
        Threshold that means the same for every model; None if the metric has none.
    right : array of shape (n,), bool, optional
        Whether the finished model gives a member its label; None where that is not known.
    below : array of shape (n,), bool, optional
        What the rule by class flags.
    support : pair of arrays of shape (n,), optional
        Number of models that memorised each member, NaN for unknown, of those that trained on it.
    doubt : tuple, optional
        The arguments of `Evaluation.with_truly`, with a probability for each member; None where
        log-LiRA has no errors.
    """

    metric: str
    title: str
    layer: str
    checkpoint: str
    positions: NDArray[np.int64]
    scores: Floats
    errors: Floats | None = None
    log_lira: Floats | None = None
    labels: NDArray[np.int64] | None = None
    probabilities: Floats | None = None
    others: Mapping[str, Floats] = field(default_factory=dict)
    notes: Sequence[Note] = ()
    natural: float | None = 0.0
    right: NDArray[np.bool_] | None = None
    below: NDArray[np.bool_] | None = None
    support: tuple[Floats, NDArray[np.int64]] | None = None
    doubt: tuple[float, int, Floats] | None = None

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """Mask of the rows that have a log-LiRA."""
        if self.log_lira is None:
            return np.zeros(len(self.scores), dtype=np.bool_)
        return ~np.isnan(self.log_lira)

    def memorized(self, eta: float) -> NDArray[np.bool_]:
        """Mask of the judged rows that are memorised at η."""
        if self.log_lira is None:
            return np.zeros(0, dtype=np.bool_)
        found: NDArray[np.bool_] = self.log_lira[self.judged] >= eta
        return found

    def memorized_but_wrong(self, eta: float) -> int | None:
        """Number of memorised rows that the finished model answers wrongly; None if unknown."""
        if self.right is None:
            return None
        return int((self.memorized(eta) & ~self.right[self.judged]).sum())


@dataclass(frozen=True, eq=False)
class Content:
    """The content of a report.

    Attributes
    ----------
    name : str
        Name of the audit.
    created : str
        Time of writing, ISO 8601 in UTC.
    facts : mapping of str to str
        Facts about what was audited, as names and texts.
    numbers : mapping of str to int
        ``members``, ``samples``, ``classes``, ``shadow_models``.
    layers : sequence of str
        Names of the layers, first to last.
    training, versions : mapping
        Settings of the training, and versions of libraries when the run was made and now.
    seed : int, optional
        Seed of every draw.
    checkpoints : sequence of mapping
        ``name``, ``epoch``, ``step``, ``median_loss``, ``drop``, ``train_loss``, …
    tau, eta : float
        A member is flagged if its score is at most τ, memorised if its log-LiRA is at least η.
    scored : Scored, optional
        The scores; None if nothing is scored.
    ids : sequence of str
        Ids of all members.
    samples : sequence, optional
        The members themselves, if the report is to show them.
    class_names : sequence of str
        Names of the classes, which are only shown with samples.
    canaries : array of shape (n_members,), bool, optional
        Mask of the planted members.
    decisions : mapping of str to Decision
        Decisions by id.
    figures : sequence of Figure
        The figures.
    warnings : sequence of Note
        What a reader must know before trusting the numbers.
    missing : sequence of Missing
        Missing parts, with reasons.
    truth_given : bool
        Whether the user gave log-LiRA, so that it does not come from shadow models.
    digests : sequence of Digest
        Digests of model, data and run.
    by_class : bool
        Whether the rule by class flags, in place of τ.
    """

    name: str
    created: str
    facts: Mapping[str, str]
    numbers: Mapping[str, int]
    layers: Sequence[str]
    training: Mapping[str, Any]
    versions: Mapping[str, Mapping[str, str]]
    seed: int | None
    checkpoints: Sequence[Mapping[str, Any]]
    tau: float
    eta: float
    scored: Scored | None
    ids: Sequence[str]
    samples: Any | None = None
    class_names: Sequence[str] = ()
    canaries: NDArray[np.bool_] | None = None
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    figures: Sequence[Figure] = ()
    warnings: Sequence[Note] = ()
    missing: Sequence[Missing] = ()
    truth_given: bool = False
    digests: Sequence[Digest] = ()
    by_class: bool = False

    @property
    def at(self) -> str:
        """How samples are flagged, in words."""
        return at(None if self.by_class else self.tau)

    @cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Mask of the scored rows that are flagged."""
        scores = np.empty(0) if self.scored is None else self.scored.scores
        if self.by_class and self.scored is not None and self.scored.below is not None:
            return self.scored.below
        found: NDArray[np.bool_] = scores <= self.tau
        return found

    @cached_property
    def flagged_interval(self) -> tuple[float, float]:
        """95 % interval of the flagged share."""
        return clopper_pearson(int(self.flagged.sum()), len(self.flagged))

    @cached_property
    def undecided(self) -> int | None:
        """Number of scores less than two standard errors from τ."""
        if self.scored is None or self.scored.errors is None or self.by_class:
            return None
        reach = 2 * ErrorLevels.of(self.scored.errors).errors  # as the page counts
        close = (self.scored.scores - reach < self.tau) & (self.tau < self.scored.scores + reach)
        return int(close.sum())

    @cached_property
    def memorized(self) -> NDArray[np.bool_] | None:
        """Mask of the judged rows that are memorised, or None without ground truth."""
        if self.scored is None or not self.scored.judged.any():
            return None
        return self.scored.memorized(self.eta)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """Evaluation of the scores against log-LiRA, or None if there is no ROC."""
        memorized = self.memorized
        if self.scored is None or memorized is None or memorized.all() or not memorized.any():
            return None
        judged, doubt = self.scored.judged, self.scored.doubt
        found = roc(self.scored.scores[judged], memorized)
        return found if doubt is None else found.with_truly(*doubt[:2], doubt[2][judged])

    @property
    def truly(self) -> str:
        """How many of the memorised rows truly are, as in "about 15 of them truly", or ""."""
        doubt = None if self.scored is None else self.scored.doubt
        return "" if doubt is None else truly(doubt[0])

    @cached_property
    def cautions(self) -> tuple[Note, ...]:
        """Warnings about the numbers, without repetition."""
        found = [*self.warnings]
        if self.scored is not None:
            found += self.scored.notes
            unscored = len(self.ids) - len(self.scored.positions)
            if unscored:
                of = f"{unscored} of {len(self.ids)} members"
                said = f"{of} {verb(unscored, 'has', 'have')} no score"
                found.append(Note("unscored", said, n=unscored))
        if self.evaluation is not None:
            found += self.evaluation.warnings
        return tuple(dict.fromkeys(found))

    @cached_property
    def point(self) -> OperatingPoint | None:
        """The rates at τ or by class, or None if there is no ROC."""
        if self.evaluation is None or self.scored is None:
            return None
        if not self.by_class:
            return self.evaluation.at(self.tau)
        flagged, memorized = self.flagged[self.scored.judged], self.evaluation.memorized
        counts = int((flagged & memorized).sum()), int((flagged & ~memorized).sum())
        return OperatingPoint.from_counts(
            self.tau, *counts, self.evaluation.n_memorized, self.evaluation.n
        )

    @cached_property
    def by_risk(self) -> NDArray[np.int64]:
        """Scored rows, the flagged ones first, and each of both by risk, highest first."""
        if self.scored is None:
            return np.empty(0, dtype=np.int64)
        return np.lexsort((self.scored.scores, ~self.flagged))

    def decided(self, *, flagged: bool) -> dict[str, int]:
        """Number of members with each decision, among all members or the flagged ones."""
        counts = dict.fromkeys(CHOICES, 0)
        in_question = self._flagged_members if flagged else np.ones(len(self.ids), np.bool_)
        for position, made in self._made.items():
            counts[made.decision] += bool(in_question[position])
        decided = sum(counts.values()) - counts["undecided"]
        return counts | {"undecided": int(in_question.sum()) - decided}

    @property
    def relabelled(self) -> dict[str, tuple[int, int]]:
        """Numbers of members and of flagged ones that get a class, by "relabel as" and its name."""
        found: dict[str, tuple[int, int]] = {}
        for position, made in self._made.items():
            if made.to:
                members, flagged = found.get(f"relabel as {made.to}", (0, 0))
                is_flagged = bool(self._flagged_members[position])
                found[f"relabel as {made.to}"] = (members + 1, flagged + is_flagged)
        return dict(sorted(found.items()))

    @cached_property
    def _made(self) -> dict[int, Decision]:
        """The decisions by position of the member."""
        made = self.decisions
        return {i: made[name] for i, name in enumerate(self.ids) if name in made} if made else {}

    @cached_property
    def _flagged_members(self) -> NDArray[np.bool_]:
        members = np.zeros(len(self.ids), dtype=np.bool_)
        if self.scored is not None:
            members[self.scored.positions[self.flagged]] = True
        return members
