"""The content of a report as plain data, independent of audits, files and markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memowidgets.decisions import CHANGES, CHOICES, UNDECIDED, Decision
from memowidgets.evaluation import Evaluation, OperatingPoint
from memowidgets.evaluation.scored import Scored
from memowidgets.vocabulary import Note

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memowidgets.registry import Score
    from memowidgets.widgets.messages import Moment

    Floats = NDArray[np.float64]


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


@dataclass(frozen=True)
class Digest:
    """SHA-256 digest of a file of the run directory.

    Attributes
    ----------
    what : str
        What it holds: ``"model"``, ``"run"`` or ``"decisions"``.
    of : str
        The file, such as ``"manifest.json"``.
    sha256 : str
        64 hexadecimal digits.
    """

    what: str
    of: str
    sha256: str


class Person(NamedTuple):
    """Who decided on members, and when.

    Attributes
    ----------
    by : str
        The name; empty where nobody is known to have decided.
    n : int
        Number of decisions.
    first, last : str
        Times of the first and the last of them, ISO 8601 in UTC. Empty where no time is known.
    """

    by: str
    n: int
    first: str
    last: str


class AtTime(NamedTuple):
    """The score of the rows of a report at one checkpoint.

    Attributes
    ----------
    moment : Moment
        The checkpoint.
    title : str
        As `Scored.title`.
    scores : array of shape (n,)
        On the axis of the report; NaN for a row without a score there.
    """

    moment: Moment
    title: str
    scores: Floats


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
        Settings of the training, and versions of libraries when the run was made, of the training,
        and now.
    seed : int, optional
        Seed of every draw.
    checkpoints : sequence of mapping
        ``name``, ``epoch``, ``step``, ``median_loss``, ``drop``, ``train_loss``, …
    tau : float
        A member whose score is at most τ is flagged.
    eta : float
        A member is memorised if its log-LiRA is at least η.
    score : Score, optional
        What the score is called and defined as.
    scored : Scored, optional
        Its values, of the members that count: where there is ground truth, it says something of
        each. None if nothing is scored. Labels, ids and probabilities in it are shown with samples
        only.
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
    missing : mapping of str to str
        Reason why a part is missing, by what it is.
    trained_by : str
        Who trained the model and what recorded that, in a sentence.
    earlier : sequence of (int, mapping)
        First step and settings of earlier stretches of the training, which had other settings.
    truth_given : bool
        Whether the user gave log-LiRA, so that it does not come from shadow models.
    digests : sequence of Digest
        Digests of the run's files.
    noun : str
        What a reader calls the samples, such as ``"images"``.
    view : mapping of str to Any
        How the page opens, by the names of `Dashboard.state`, such as its filter.
    asked : mapping
        What τ follows from, as `Dashboard.asked`; empty where τ itself was asked for.
    in_time : sequence of AtTime
        The score at each checkpoint in the order of training; empty where it has none.
    support : pair of arrays of shape (n,), optional
        Number of models that memorised each of them, NaN for unknown, of those that trained on it.
    can_train : bool
        Whether the audit trains models itself, rather than that somebody else trained the target.
    is_recording : bool
        Whether it is a recorded audit, whose model nobody trains again.
    leaves_out : bool
        Whether samples were left out of the training, so that shadow models can check it.
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
    score: Score | None
    scored: Scored | None
    ids: Sequence[str]
    samples: Any | None = None
    class_names: Sequence[str] = ()
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    figures: Sequence[Figure] = ()
    warnings: Sequence[Note] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    trained_by: str = ""
    earlier: Sequence[tuple[int, Mapping[str, Any]]] = ()
    truth_given: bool = False
    digests: Sequence[Digest] = ()
    noun: str = "samples"
    view: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    in_time: Sequence[AtTime] = ()
    support: tuple[Floats, NDArray[np.int64]] | None = None
    can_train: bool = True
    is_recording: bool = False
    leaves_out: bool = True

    @cached_property
    def flagged(self) -> NDArray[np.bool_]:
        """Mask of the scored rows that are flagged."""
        return (
            np.zeros(0, np.bool_)
            if self.scored is None
            else self.scored.flagged(self.tau)
        )

    @property
    def is_judged(self) -> bool:
        """Whether there is ground truth."""
        return self.scored is not None and bool(self.scored.judged.any())

    @cached_property
    def counts(self) -> dict[str, int]:
        """As `Scored.counts`."""
        return {} if self.scored is None else self.scored.counts(self.tau, self.eta)

    @property
    def n_memorized(self) -> int | None:
        """Number of memorised rows; None without ground truth."""
        if not self.is_judged:
            return None
        return self.counts["found"] + self.counts["missed"]

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
        return doubt.expected if doubt else None

    @property
    def is_early(self) -> bool:
        """Whether the model had not learned its task where the prediction was made."""
        return any(note.key == "not learned" for note in self.warnings)

    @cached_property
    def cautions(self) -> tuple[Note, ...]:
        """Warnings about the numbers, without repetition."""
        notes = [*self.warnings]
        if self.scored is not None:
            notes += self.scored.notes
        if self.evaluation is not None:
            notes += self.evaluation.warnings
        return tuple(dict.fromkeys(notes))

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

    @cached_property
    def flagged_ids(self) -> list[str]:
        """Ids of the flagged members."""
        if self.scored is None:
            return []
        return self._ids_of(self.flagged)

    def _ids_of(self, mask: NDArray[np.bool_]) -> list[str]:
        """Return the ids of the scored rows of a mask."""
        if self.scored is None:
            return []
        return [self.ids[row] for row in self.scored.positions[mask].tolist()]

    def decided(self, *, flagged: bool) -> dict[str, int]:
        """Number of members with each decision, among all members or the flagged ones."""
        names = self.flagged_ids if flagged else self.ids
        counts = Counter(self.decisions.get(name, UNDECIDED).decision for name in names)
        return {choice: counts[choice] for choice in CHOICES}

    @cached_property
    def made(self) -> dict[int, Decision]:
        """The decisions that were made on members, by the position of the member."""
        found = {}
        for position, name in enumerate(self.ids):
            decision = self.decisions.get(name, UNDECIDED)
            if decision.is_made:
                found[position] = decision
        return found

    @cached_property
    def n_looked_at(self) -> int:
        """Number of flagged members that a person looked at: those with a decision."""
        return int(self.flagged.sum()) - self.n_open

    @property
    def n_open(self) -> int:
        """Number of flagged members without a decision."""
        return self.decided(flagged=True)["undecided"]

    @cached_property
    def people(self) -> list[Person]:
        """Who decided on members, who decided most first."""
        times: dict[str, list[str]] = {}
        for decision in self.made.values():
            times.setdefault(decision.by, []).append(decision.at)
        found = []
        for by, all_of_them in times.items():
            known = sorted(filter(None, all_of_them)) or [""]
            found.append(Person(by, len(all_of_them), known[0], known[-1]))
        return sorted(found, key=lambda one: (-one.n, one.by))

    @cached_property
    def at_stake(self) -> NDArray[np.bool_]:
        """Mask of the memorised rows; of the flagged ones where nobody knows which those are."""
        memorized = None if self.scored is None else self.scored.memorized(self.eta)
        if memorized is None or not self.is_judged:
            return self.flagged
        return memorized

    @property
    def n_changed(self) -> int:
        """How many of these are to be removed, anonymised or relabelled."""
        names = self._ids_of(self.at_stake)
        made = (self.decisions.get(name, UNDECIDED).decision for name in names)
        return sum(decision in CHANGES for decision in made)
