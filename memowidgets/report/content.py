"""The content of a report as plain data, independent of audits, files and markup."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.evaluation import Evaluation, OperatingPoint, clopper_pearson
from memowidgets.evaluation.scored import Scored
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
        The scores; None if nothing is scored. Labels, ids and probabilities in it are shown with
        samples only.
    ids : sequence of str
        Ids of all members.
    samples : sequence, optional
        The members themselves, if the report is to show them.
    class_names : sequence of str
        Names of the classes, which are only shown with samples.
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
    support : pair of arrays of shape (n,), optional
        Number of models that memorised each of them, NaN for unknown, of those that trained on it.
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
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    figures: Sequence[Figure] = ()
    warnings: Sequence[Note] = ()
    missing: Sequence[Missing] = ()
    truth_given: bool = False
    digests: Sequence[Digest] = ()
    support: tuple[Floats, NDArray[np.int64]] | None = None

    @property
    def at(self) -> str:
        """How samples are flagged, in words."""
        return at(self.tau)

    @cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Mask of the scored rows that are flagged."""
        if self.scored is None:
            return np.zeros(0, dtype=np.bool_)
        return self.scored.flagged(self.tau)

    @cached_property
    def flagged_interval(self) -> tuple[float, float]:
        """95 % interval of the flagged share."""
        return clopper_pearson(int(self.flagged.sum()), len(self.flagged))

    @cached_property
    def undecided(self) -> int | None:
        """Number of scores less than two standard errors from τ."""
        if self.scored is None or self.scored.errors is None:
            return None
        levels = ErrorLevels.of(self.scored.errors)  # as the page counts
        return levels.undecided(self.scored.scores, self.tau)

    @cached_property
    def memorized(self) -> NDArray[np.bool_] | None:
        """Mask of the judged rows that are memorised, or None without ground truth."""
        scored = self.scored
        if scored is None or not scored.judged.any():
            return None
        return scored.only(scored.judged).memorized(self.eta)

    @property
    def memorized_but_wrong(self) -> int | None:
        """Number of memorised rows that the finished model answers wrongly; None if unknown."""
        memorized = None if self.scored is None else self.scored.memorized(self.eta)
        if self.scored is None or self.scored.right is None or memorized is None:
            return None
        return int((memorized & ~self.scored.right).sum())

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """Evaluation of the scores against log-LiRA, or None if there is no ROC."""
        return None if self.scored is None else self.scored.evaluated(self.eta)

    @cached_property
    def n_truly(self) -> float | None:
        """How many of the memorised rows truly are, as an expected number; None if unknown."""
        doubt = self.scored and self.scored.doubt and self.scored.doubt(self.eta)
        return doubt[0] if doubt else None

    @property
    def truly(self) -> str:
        """How many of the memorised rows truly are, as in "about 15 of them truly", or ""."""
        return "" if self.n_truly is None else truly(self.n_truly)

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
        """The rates at τ, or None if there is no ROC."""
        return None if self.evaluation is None else self.evaluation.at(self.tau)

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
