"""The evidence about one target model: all that an audit's numbers are computed from.

It is arrays and what is said of them, without files or a way to any. A run directory gives one
(`memowidgets.audit.run`), arrays of a user give one (`memowidgets.audit.runs.given`), and
`Evidence.as_target` derives one in which a shadow model is the target. It computes no score and no
log-LiRA: the functions in `memowidgets.audit.numbers` do, and whoever asks them keeps their scores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
)

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.names import GIVEN, Names
from memowidgets.checks import warn_user
from memowidgets.data import Dataset
from memowidgets.files import array_digest, digest
from memowidgets.metrics import logit_gap
from memowidgets.store import Absent, NotThereError, StoreError
from memowidgets.training.checkpoint import LAYER, Record
from memowidgets.training.design import REFERENCE, SHADOW, Kind
from memowidgets.training.shadows import Shadows
from memowidgets.vocabulary import Note, listed, percent

if TYPE_CHECKING:
    import pandas as pd

    from memowidgets.evaluation.scored import Scored
    from memowidgets.registry import Score
    from memowidgets.training.config import Settings
    from memowidgets.training.origin import Origin

REPRESENTATIONS, LOGITS, SHADOWS = "representations", "logits", "shadow models"
TRACE, REFERENCES = "losses at each checkpoint", "reference models"
FEWEST_SHADOWS = 4  # two inside and two outside
ANEW = "make an audit with mw.Audit(model, data, path=…)"
OF_ARRAYS = "an audit of arrays cannot {}, because it has no model"
INSTEAD = (  # for arrays
    f"{ANEW}, such as on the data that kept() gives; gaps of your own shadow models go into "
    "shadow_gaps=, and those of models that never saw a sample go into reference_gaps="
)
_PREDICT_NOTHING = "the model has not learned its task and the scores predict nothing"
_OWN = "forward."  # before the name of an array of a shadow model's own pass
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")
_Table = TypeVar("_Table", "pd.Series[Any]", "pd.DataFrame")


class Lazy(Mapping[_Key, _Value], Generic[_Key, _Value]):
    """Values by name, each of which is made when it is asked for.

    Parameters
    ----------
    names : iterable
        The names.
    make : callable
        Function of a name that returns its value.

    Examples
    --------
    >>> squares = Lazy([1, 2], lambda n: n * n)
    >>> 2 in squares, squares[2], squares.get(3)
    (True, 4, None)
    """

    def __init__(self, names: Iterable[_Key], make: Callable[[_Key], _Value]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: _Key) -> _Value:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Arrays:
    """Arrays by name, or why there are none.

    Parameters
    ----------
    held : mapping of str to array, or None
        The arrays, which may be memory-mapped when one is asked for. None: there are none.
    why_not : callable
        Function of a name that says why there is no array of it.
    """

    def __init__(
        self,
        held: Mapping[str, NDArray[Any]] | None,
        why_not: Callable[[str], Absent] = Absent,
    ) -> None:
        self.are_there = held is not None
        self.why_not = why_not
        self._held: Mapping[str, NDArray[Any]] = {} if held is None else held

    def __contains__(self, name: str) -> bool:
        return name in self._held  # without reading it

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._held[name]


class ScoreKey(NamedTuple):
    """What identifies a score of all members that was computed before.

    Attributes
    ----------
    metric, layer, checkpoint : str
        Names. The layer is empty for a score without one.
    of : str
        Digest of the weights that it comes from.
    target : tuple of (str, int), or None
        Design and number of the shadow model that is the target; None for the run's own.
    version : str or Score
        Version of its function. A row of the registry is its own version where it has no other:
        then the score is in memory alone.
    beside : str
        Digest of what else it comes from, such as reference models; empty where that is nothing.
    """

    metric: str
    layer: str
    checkpoint: str
    of: str
    target: tuple[str, int] | None
    version: str | Score
    beside: str


class KnownScores(Protocol):
    """Scores that were computed before, as numbers read them."""

    def has(self, key: ScoreKey) -> bool:
        """Whether `find` has an answer."""

    def find(self, key: ScoreKey) -> Scored | None:
        """Return the scores of a key, if they are known."""

    def about(self, key: ScoreKey) -> Mapping[str, str]:
        """Return what was kept beside scores at the place of a key, whatever they come from."""

    def seconds(self, metric: str) -> float | None:
        """Return how long the function of a score took when it was last called, if it was."""


class NoScores:
    """None were computed before."""

    def has(self, _key: ScoreKey) -> bool:
        """Whether `find` has an answer."""
        return False

    def find(self, _key: ScoreKey) -> Scored | None:
        """Return None."""
        return None

    def about(self, _key: ScoreKey) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def seconds(self, _metric: str) -> float | None:
        """Return None."""
        return None


@dataclass(frozen=True)
class Need:
    """Something of a checkpoint that a number is computed from, and that a run can make.

    Attributes
    ----------
    what : {"pass", "losses", "pool"}
        The forward pass over the members; their losses; logit gaps of the run's target over the
        pool, which judge a shadow model in its place, and with which RMIA compares.
    checkpoint : str
        Name of the checkpoint.
    """

    what: Literal["pass", "losses", "pool"]
    checkpoint: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What is known of the target at a checkpoint.

    Attributes
    ----------
    record : Record
        Epoch, step, losses and accuracies.
    made : Arrays
        The forward pass over the members: ``logits``, ``losses``, and ``layer.<name>``, the
        representations. A recording has ``gaps`` and ``guess`` instead of logits at some
        checkpoints.
    outputs : Arrays
        ``logits`` and ``losses`` as training kept them.
    gaps : array of shape (n_members,), or None
        Logit gaps of the members, where they are known without logits.
    first : mapping of str to array
        ``gap``, the target's logit gaps over the pool, (n_pool,), where they are known.
    """

    record: Record
    made: Arrays
    outputs: Arrays
    gaps: NDArray[Any] | None = None
    first: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)

    @cached_property
    def pool(self) -> NDArray[np.float32] | None:
        """The target's logit gaps over the pool, if they are known."""
        return _read_only(np.array(self.first["gap"])) if "gap" in self.first else None

    @property
    def has_pass(self) -> bool:
        """Whether the forward pass is there."""
        return self.made.are_there

    @property
    def has_gaps(self) -> bool:
        """Whether the target's logit gaps of the members are there."""
        return self.has_pass or self.gaps is not None

    @property
    def has_logits(self) -> bool:
        """Whether logits of the members are there."""
        return "logits" in (self.made if self.has_pass else self.outputs)


class Cache:
    """Keeps the last answer to each question, as long as what it depends on stays the same.

    Examples
    --------
    >>> cache = Cache()
    >>> cache.of("sum", (1, 2), lambda: 3), cache.of("sum", (1, 2), lambda: 4)
    (3, 3)
    >>> cache.of("sum", (2, 2), lambda: 4)
    4
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, tuple[Hashable, Any]] = {}

    def of(
        self, question: Hashable, state: Hashable, make: Callable[[], _Value]
    ) -> _Value:
        """Return the value for a question; `state` names everything else that it depends on."""
        held = self._held.get(question)
        if held is None or held[0] != state:
            held = self._held[question] = state, make()
        return cast("_Value", held[1])

    def clear(self) -> None:
        """Forget all answers."""
        self._held = {}


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array that is cached and given away, so that nobody changes what is computed."""
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class OneModel:
    """A shadow model, as it was kept.

    Attributes
    ----------
    arrays : mapping of str to array
        ``members``, a mask over the pool; ``gap.<checkpoint>``, logit gaps of the pool;
        ``loss.<checkpoint>`` and ``forward.<name>``, losses and forward pass over its members.
    about : mapping of str to str
        What was written of it; ``forward`` is the name of the checkpoint of its forward pass.
    cache : Cache
        Values of it as the target that are expensive to compute.
    """

    arrays: Mapping[str, NDArray[Any]]
    about: Mapping[str, str]
    cache: Cache = field(default_factory=Cache)

    @cached_property
    def digest(self) -> str:
        """Digest of this very model."""
        return digest([self.about, array_digest(self.arrays["members"])])


@dataclass(frozen=True, eq=False)
class Models:
    """Models that the target is compared with: shadow models of one design, or reference models.

    Attributes
    ----------
    design : str
        Key of the set, such as ``"halves"``. Other designs than halves are drawn in pairs. Empty
        if it is not known.
    none : Absent
        Why there are none, and what to do.
    gaps : mapping of str to Shadows
        Masks and logit gaps over the pool, by the checkpoints at which every model has gaps.
    indices : tuple of int
        Numbers of the models.
    kept : mapping of int to OneModel
        Each model by its number.
    unusable : mapping of int to StoreError
        Models that are there and cannot be read.
    lost : tuple of Note
        What is said of models that were trained and are lost or damaged.
    suffice : bool
        Whether some sample is in two of the models and out of two others, as they are drawn.
    kind : Kind
        What they are called.
    """

    design: str
    none: Absent
    gaps: Mapping[str, Shadows] = field(default_factory=dict)
    indices: tuple[int, ...] = ()
    kept: Mapping[int, OneModel] = field(default_factory=dict)
    unusable: Mapping[int, StoreError] = field(default_factory=dict)
    lost: tuple[Note, ...] = ()
    suffice: bool = True
    kind: Kind = SHADOW

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every model has logit gaps.

        Raises
        ------
        StoreError
            If one of the models belongs elsewhere.
        """
        for index in self.indices:
            if index in self.unusable:
                raise self.unusable[index]
        return tuple(self.gaps)

    @cached_property
    def digest(self) -> str:
        """Digest of these very models."""
        return digest([[i, one.digest] for i, one in self.kept.items()])

    @property
    def are_pairs(self) -> bool:
        """Whether they were trained in complementary pairs."""
        return self.design not in ("", "halves")

    def read(self, checkpoint: str) -> Shadows:
        """Return what `at` does, and warn of models that are lost."""
        found = self.at(checkpoint)
        for note in self.lost:
            warn_user(note)
        return found

    def at(self, checkpoint: str) -> Shadows:
        """Return masks and logit gaps over the pool; a reference model has NaN where it trained.

        Raises
        ------
        StoreError
            If there are none, none at that checkpoint, or one belongs elsewhere.
        """
        if not self.indices:
            raise self.none.error()
        held, called = self.checkpoints, self.kind
        if checkpoint not in held:
            what = f"the {called.noun}s have gaps at {', '.join(held)}, not"
            raise NotThereError(what, f"call {called.call} again for it", checkpoint)
        return self.gaps[checkpoint]

    def model(self, index: Any) -> OneModel:
        """Return the model of a number.

        Raises
        ------
        StoreError, ValueError
            If there is none, or it cannot be read.
        """
        is_number = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if is_number and index in self.unusable:
            raise self.unusable[int(index)]
        if is_number and index in self.kept:
            return self.kept[int(index)]
        if not self.kept:
            raise self.none.error()
        valid = listed(str(one) for one in self.indices)
        raise ValueError(f"unknown {self.kind.noun} {index!r}; valid: {valid}")


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence about one target model, as it was when it was taken.

    Attributes
    ----------
    path : str
        Folder that it comes from; a few words if there is none.
    manifest : mapping
        What made it: its seed, and model, data and versions as far as they are known.
    data : Dataset
        All samples, with the labels that were trained on. Only ids and labels are sure to be there.
    trained_labels : array of shape (n,), int64
        Label of each sample that was trained on.
    pool, member_rows : array of int64
        Rows of `data` that a model may train on, and that the target trained on.
    held_out_labels : array of int64
        Labels of the held-out samples.
    n_options : int
        Number of answers that the model chooses from: classes, or options of a question.
    names : Names
        Checkpoints and layers by name.
    checkpoints : dict of str to Checkpoint
        What is known of each checkpoint, by name.
    shadows, references : Models
        Models that the target is compared with. References never saw the members, and no truth
        comes from them.
    settings : Settings or Absent
        How the target was trained, or why nobody knows.
    scores : KnownScores
        Scores that were computed before.
    given : mapping of str to array
        The arrays that a user gave beside representations, by the names of their arguments; empty
        for others.
    general_notes : tuple of str
        What a reader must know of all its numbers.
    repeated : mapping of str to int
        Number of a Trainer's rows of each member that has several, by its id.
    undrawn : array of int64
        Positions of members that a recorded training does not draw, which have no score.
    sees_draws : bool
        Whether it would be known if a member was not drawn.
    origins : tuple of Origin
        Who trained the target with which settings, one for each stretch in which these are the
        same.
    makes : set of str
        What can be made of a checkpoint if it is not there, as `Need.what`. It is empty unless
        model and samples are at hand.
    absent : mapping of str to Absent
        Kinds of evidence that are at no checkpoint: ``LOGITS``, ``TRACE``, ``REPRESENTATIONS``.
    device : str
        Where heavy scores are computed: ``"auto"``, or as torch names it.
    whole : Evidence or None
        The run's own evidence, if a shadow model stands in its target's place.
    index : int or None
        Number of that shadow model.
    cache : Cache
        Values that are expensive to compute.
    """

    path: str
    manifest: Mapping[str, Any]
    data: Dataset
    trained_labels: NDArray[np.int64]
    pool: NDArray[np.int64]
    member_rows: NDArray[np.int64]
    held_out_labels: NDArray[np.int64]
    n_options: int
    names: Names
    checkpoints: Mapping[str, Checkpoint]
    shadows: Models
    references: Models
    settings: Settings | Absent
    scores: KnownScores = field(default_factory=NoScores)
    given: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    general_notes: tuple[Note, ...] = ()
    repeated: Mapping[str, int] = field(default_factory=dict)
    undrawn: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sees_draws: bool = True
    origins: tuple[Origin, ...] = ()
    makes: frozenset[str] = frozenset()
    absent: Mapping[str, Absent] = field(default_factory=dict)
    device: str = "cpu"
    whole: Evidence | None = None
    index: int | None = None
    cache: Cache = field(default_factory=Cache)

    def __repr__(self) -> str:
        if self.whole is not None:
            return f"ShadowAudit(shadow {self.index} as the target of {self.whole!r})"
        if self.given:
            n, layers = len(self.data), len(self.names.layer_names)
            return f"Audit.from_arrays({n} samples, {layers} layers)"
        return (
            f"Audit({self.data!r}, {len(self.member_rows)} members, "
            f"{len(self.names.found)} checkpoints, {len(self.shadows.indices)} shadow models)"
        )

    # samples

    @cached_property
    def members(self) -> NDArray[np.str_]:
        """Ids of the members as texts, (n_members,)."""
        return _read_only(self.data.ids[self.member_rows])

    @cached_property
    def member_index(self) -> pd.Index[Any]:
        """Ids of the members as their owner's frame has them, by which tables are given away."""
        found = self.data.index[self.member_rows]
        return found.rename("id") if found.names == [None] else found

    def by_own_ids(self, table: _Table) -> _Table:
        """Return a table by the members' ids as texts with their own ids, which users have."""
        if self.data.own_ids is None:
            return table
        import pandas as pd

        rows = pd.Index(self.members).get_indexer(table.index)
        return table.set_axis(self.member_index[rows])

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Label that each member was trained on, (n_members,)."""
        return _read_only(self.trained_labels[self.member_rows])

    @cached_property
    def member_data(self) -> Dataset:
        """The members as a dataset."""
        are_all = np.array_equal(self.member_rows, np.arange(len(self.data)))
        return self.data if are_all else self.data.take(self.member_rows)

    @cached_property
    def member_columns(self) -> NDArray[np.int64]:
        """Places of the members in the pool, (n_members,)."""
        return np.searchsorted(self.pool, self.member_rows)

    @cached_property
    def other_columns(self) -> NDArray[np.int64]:
        """Places in the pool of the samples that are not members."""
        return np.flatnonzero(~np.isin(self.pool, self.member_rows))

    # what there is

    def training(self) -> Settings:
        """Return how the target was trained.

        Raises
        ------
        NotThereError
            If nobody knows.
        """
        if isinstance(self.settings, Absent):
            raise self.settings.error()
        return self.settings

    @property
    def target(self) -> tuple[str, int] | None:
        """Design and number of the shadow model that is the target; None for the run's own."""
        if self.whole is None or self.index is None:
            return None
        return self.whole.shadows.design, self.index

    def weights_at(self, record: Record) -> str:
        """Return a digest of the target's weights at a checkpoint."""
        if self.whole is None:
            return record.weights
        return self.whole.shadows.model(self.index).digest

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of evidence scores can use.

        Shadow models are among them once they give a ground truth, reference models once trained.
        With one checkpoint the baseline is the truth itself.
        """
        there = [
            kind for kind in (REPRESENTATIONS, LOGITS, TRACE) if kind not in self.absent
        ]
        there += [SHADOWS] * (len(self.checkpoints) > 1 and self.has_ground_truth)
        return (*there, *[REFERENCES] * bool(self.references.indices))

    @cached_property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end of training is known or can be computed."""
        if "log_lira" in self.given:
            return True
        final, models = self.names.final(), self.shadows
        if final is None or len(models.indices) < FEWEST_SHADOWS:
            return False
        if final.name not in models.checkpoints:
            return False
        known = self.checkpoints[final.name].has_gaps or "pass" in self.makes
        return known and models.suffice

    @cached_property
    def n_shadows(self) -> int:
        """Number of shadow models that the target is compared with at the end of training."""
        n, final = len(self.shadows.indices), self.names.final()
        if self.whole is None:
            return n
        knows_first = final is not None and self.has(Need("pool", final.name))
        # without itself, with the first
        return n - 1 + ("pool" in self.makes or knows_first)

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        if "log_lira" in self.given:
            missing = int(np.isnan(self.given["log_lira"]).sum())
            return "log-LiRA as given" + (
                f", {missing} samples have none" if missing else ""
            )
        design = self.shadows.design.split("-")[0]
        of = f" of the design {design!r}" if design else ""
        return f"log-LiRA from {self.n_shadows} shadow models{of}, variance shrunk"

    def has(self, need: Need) -> bool:
        """Return whether something that can be made is there."""
        if need.what == "pool":
            return "gap" in (self.whole or self).checkpoints[need.checkpoint].first
        at = self.checkpoints[need.checkpoint]
        return at.has_pass or (need.what == "losses" and at.outputs.are_there)

    def missing(self, needs: Iterable[Need]) -> list[Need]:
        """Return what of this is not there and can be made."""
        wanted = dict.fromkeys(need for need in needs if need.what in self.makes)
        return [need for need in wanted if not self.has(need)]

    def notes_at(self, checkpoint: str | float) -> tuple[Note, ...]:
        """Return what a reader must know before trusting a score at a checkpoint.

        Where the model has not learned its task, no score predicts anything.
        """
        record, chosen = self.names.record(checkpoint), self.names.prediction()
        of_rule = chosen.warnings if record == chosen.record else ()
        return (*self.general_notes, *self.not_learned(record), *of_rule)

    def not_learned(self, record: Record) -> tuple[Note, ...]:
        """Return why the model has not learned its task at a checkpoint; empty if it has."""
        notes, limit = [], 0.5 * math.log(self.n_options)
        at = "" if record.name == GIVEN else f"at {record.name} "
        if record.median_loss > limit and not self._has_turned_at(record):
            said = f"{at}the median training loss is {record.median_loss:.2f}, above half of "
            said += f"log({self.n_options}) = {limit:.2f}: {_PREDICT_NOTHING}"
            notes.append(
                Note("not learned", said, loss=record.median_loss, limit=limit)
            )
        unseen = self._right_where_unseen(record)
        if unseen is not None:
            from memowidgets.evaluation.intervals import clopper_pearson

            what, right, labels = unseen
            n = len(labels)
            accuracy = right / n
            chance = float(np.bincount(labels).max() / n)
            lower, _ = clopper_pearson(right, n)
            if lower <= chance:
                said = f"{at}the {what} accuracy, {percent(accuracy)} (at least {percent(lower)} "
                said += "with 97.5 % confidence), is not above chance, "
                said += f"{percent(chance)}: {_PREDICT_NOTHING}"
                notes.append(
                    Note("not learned", said, accuracy=accuracy, chance=chance)
                )
        return tuple(notes)

    def _right_where_unseen(
        self, record: Record
    ) -> tuple[str, int, NDArray[np.int64]] | None:
        """Return how many samples are answered rightly that were not trained on, with their labels.

        They are the held-out samples, or without any the members, asked of reference models that
        never saw them.
        """
        labels = self.held_out_labels
        if len(labels):
            if record.test_accuracy is None:
                return None
            return "held-out", round(record.test_accuracy * len(labels)), labels
        models = self.references.gaps.get(record.name)
        if models is None:
            return None
        gaps = models.gaps[:, self.member_columns]
        are_asked = ~np.isnan(gaps)
        asked = are_asked.any(axis=0)
        sums = np.where(are_asked, gaps, 0).sum(axis=0)
        return "out-of-fold", int((sums[asked] > 0).sum()), self.labels[asked]

    def _has_turned_at(self, record: Record) -> bool:
        """Whether this is where held-out loss turned, so that the model had learned by then.

        Where labels are noisy, the median training loss is still high there.
        """
        if len(self.names.found) < 2:
            return False
        chosen = self.names.prediction()
        return chosen.why == "turn" and chosen.record == record

    def table(self) -> pd.DataFrame:
        """Return one row for each checkpoint, as `Audit.checkpoints` describes."""
        import pandas as pd

        columns = [
            "name",
            "epoch",
            "step",
            "median_loss",
            "train_loss",
            "train_accuracy",
        ]
        columns += ["test_loss", "test_accuracy"]
        records = self.names.found
        table = pd.DataFrame([asdict(record) for record in records], columns=columns)
        table = table.astype({"test_loss": float, "test_accuracy": float}).set_index(
            "name"
        )
        given = GIVEN in self.checkpoints
        drops = [np.nan if given else record.drop(records[0]) for record in records]
        table.insert(3, "drop", drops)
        chosen = (
            self.names.prediction().record.name if given or len(records) > 1 else None
        )
        table["prediction"] = table.index == chosen
        table["learned"] = [not self.not_learned(record) for record in records]
        return table.assign(step=np.nan) if given else table

    # reading what there is, or saying what is missing

    def gaps_of_pass(self, record: Record) -> NDArray[np.floating[Any]]:
        """Return the logit gap of each member in a forward pass, (n_members,).

        In a recording that is the one that LiRA takes; of arrays it is never the finished model's.
        """
        at = self.checkpoints[record.name]
        if (
            at.has_pass
            and at.gaps is not None
            and "logits" not in at.made
            and LOGITS in self.kinds
        ):
            return at.gaps
        if "gaps" in at.made:
            return np.array(at.made["gaps"])

        def gaps() -> NDArray[np.floating[Any]]:
            return logit_gap(self.of_pass(record, "logits"), self.labels)

        return self.cache.of(("logit gaps", record.name), at, gaps)

    def logits(self, record: Record) -> NDArray[np.float32]:
        """Return the members' logits at a checkpoint, (n_members, n_classes).

        Those of the forward pass, if there is one, as the scores are; else those of training.
        """
        at = self.checkpoints[record.name]
        if at.has_logits and not at.has_pass:
            return np.array(at.outputs["logits"])
        return self.of_pass(record, "logits")

    def losses(self, record: Record) -> NDArray[Any]:
        """Return the members' training losses at a checkpoint, (n_members,), in nats.

        Those that training kept, if it did; else those of the forward pass.
        """
        at = self.checkpoints[record.name]
        if at.outputs.are_there:
            return np.array(at.outputs["losses"])
        if not at.has_pass:
            raise at.outputs.why_not("losses").error(record.name)
        return np.array(self.of_pass(record, "losses"))

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """Return the target's logit gap of each member, (n_members,)."""
        own = self.checkpoints[record.name].gaps
        return self.gaps_of_pass(record) if own is None else own

    def gaps_of_others(self, record: Record) -> NDArray[np.floating[Any]] | None:
        """Return the target's logit gap of each sample of the pool that is no member, if known."""
        pool = self.checkpoints[record.name].pool
        return (
            None
            if pool is None or len(self.other_columns) < 2
            else pool[self.other_columns]
        )

    def of_pass(self, record: Record, name: str) -> NDArray[Any]:
        """Return an array of the forward pass of a checkpoint, memory-mapped, a row a member.

        They are ``logits``, ``losses``, and ``layer.<name>``, a layer's output.

        Raises
        ------
        NotThereError
            If it is not there. The message says what to pass or to call.
        """
        made = self.checkpoints[record.name].made
        if name not in made:
            raise made.why_not(name).error("" if record.name == GIVEN else record.name)
        return made[name]

    # a shadow model in the target's place

    def as_target(self, index: int) -> Evidence:
        """Return the evidence with a shadow model as the target: leave one out.

        Its members, forward pass, scores and log-LiRA are its own; checkpoints and the place to
        look are the run's. The run's target is one of its shadow models where its logit gaps over
        the pool are known. What was computed from it is kept while the shadow models' files stay.
        """
        if self.whole is not None:
            return self.whole.as_target(index)
        if index not in self._targets:
            self._targets[index] = self._as_target(index)
        return self._targets[index]

    @cached_property
    def _targets(self) -> dict[int, Evidence]:
        """What `as_target` returned before."""
        return {}

    def _as_target(self, index: int) -> Evidence:
        one, who = self.shadows.model(index), f"shadow {index}"
        keep = "run_shadows(…, keep_forward=True)"
        mask, at = np.array(one.arrays["members"]), one.about.get("forward")
        kept = "no forward pass" if at is None else f"its forward pass at {at}, not"
        no_pass = Absent(
            f"{who} kept {kept}", f"{keep} keeps it at the prediction checkpoint"
        )
        do = f"{keep} of a new run keeps them up to the prediction checkpoint"
        no_losses = Absent(f"{who} kept no losses", do)

        def without(name: str) -> Absent:
            if "forward.logits" not in one.arrays:  # nor layers
                return Absent(
                    "this recording keeps logit gaps and losses of shadow models only"
                )
            layer = name.removeprefix(LAYER)
            do = f"run_shadows(…, keep_forward=[{layer!r}]) keeps it"
            return Absent(f"{who} did not keep layer {layer}", do)

        def at_checkpoint(held: Checkpoint) -> Checkpoint:
            name = held.record.name
            gap, loss = f"gap.{name}", f"loss.{name}"
            made, outputs = (
                Arrays(None, lambda _: no_pass),
                Arrays(None, lambda _: no_losses),
            )
            if at == name:
                own = [x.removeprefix(_OWN) for x in one.arrays if x.startswith(_OWN)]
                made = Arrays(Lazy(own, lambda own: one.arrays[_OWN + own]), without)
            if loss in one.arrays:
                outputs = Arrays(Lazy(["losses"], lambda _: one.arrays[loss]))
            if gap not in one.arrays:
                return Checkpoint(held.record, made, outputs)
            pool = np.array(one.arrays[gap])
            return Checkpoint(held.record, made, outputs, pool[mask], {"gap": pool})

        trained_on = "because those of the audit trained on samples that it trains on"
        no_references = Absent(
            f"{who} has no reference models, {trained_on}",
            "call this on the audit itself",
        )

        def others() -> Models:
            def without_it(checkpoint: str) -> Shadows:
                return self.all_models(checkpoint).without(index)

            return replace(self.shadows, gaps=Lazy(self.shadows.gaps, without_it))

        of_target = (self.shadows, *self.checkpoints.values())
        checkpoints = {
            name: one.cache.of(
                ("checkpoint", name), held.record, partial(at_checkpoint, held)
            )
            for name, held in self.checkpoints.items()
        }
        traced = any(name.startswith("loss.") for name in one.arrays)
        return replace(
            self,
            path=f"{self.path}/targets/{self.shadows.design}/{index:04d}",
            whole=self,
            index=index,
            member_rows=self.pool[mask],
            checkpoints=checkpoints,
            shadows=one.cache.of("others", of_target, others),
            references=Models("parts", no_references, kind=REFERENCE),
            makes=frozenset(["pool"] if "pass" in self.makes else []),
            absent={} if traced else {TRACE: no_losses},
            cache=one.cache,
        )

    def all_models(self, checkpoint: str) -> Shadows:
        """Shadow models, and the run's target last if its gaps over the pool are known."""
        shadows, first = (
            self.shadows.read(checkpoint),
            self.checkpoints[checkpoint].pool,
        )
        if first is None:
            return shadows
        return Shadows(
            np.vstack([shadows.members, np.isin(self.pool, self.member_rows)]),
            np.vstack([shadows.gaps, first]),
            np.append(shadows.indices, -1),
        )
