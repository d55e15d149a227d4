"""The evidence about one target model: all that an audit's numbers are computed from.

A run directory gives one (`memowidgets.audit.run`), arrays of a user give one
(`memowidgets.audit.runs.given`), and `Evidence.as_target` derives one in which a shadow model is
the target. It computes no score and no log-LiRA: the functions in `memowidgets.audit.numbers` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.kept import Cache, KeptScores, warn_of
from memowidgets.audit.names import GIVEN, Names
from memowidgets.data import Dataset
from memowidgets.metrics import logit_gap
from memowidgets.store import Absent
from memowidgets.training.rho import Record
from memowidgets.training.shadows import Shadows
from memowidgets.vocabulary import Note, percent

if TYPE_CHECKING:
    import pandas as pd

    from memowidgets.training.config import Settings

REPRESENTATIONS, LOGITS, SHADOWS = "representations", "logits", "shadow models"
TRACE, REFERENCES = "losses at each checkpoint", "reference models"
FEWEST_SHADOWS = 4  # two inside and two outside
LAYER = "layer."  # before the name of a layer in a forward pass
ANEW = "make an audit with mw.Audit(model, data, path=…)"
OF_ARRAYS = "an audit of arrays cannot {}, because it has no model"
INSTEAD = (  # for arrays
    f"{ANEW}, such as on the data that kept() gives; gaps of your own shadow models go into "
    "shadow_gaps=, and those of models that never saw a sample go into reference_gaps="
)
_PREDICT_NOTHING = "the model has not learned its task and the scores predict nothing"
_OTHERS = ("shadow_gaps", "reference_gaps")  # named where arrays are represented


class Arrays(Mapping[str, NDArray[Any]]):
    """Arrays by name that are opened when one is asked for.

    Parameters
    ----------
    opened : callable
        Function that returns a mapping, such as the memory-mapped arrays of a file.
    start : str
        Start of their names there, which is left out here. Arrays with other names are left out.
    absent : callable, optional
        Function of a name that says why there is no array of it, for `find`.
    """

    def __init__(
        self,
        opened: Callable[[], Mapping[str, NDArray[Any]]],
        start: str = "",
        absent: Callable[[str], Absent] | None = None,
    ) -> None:
        self._opened, self._start, self._absent = opened, start, absent

    def find(self, name: str) -> NDArray[Any] | Absent:
        """Return the array of that name, or why there is none."""
        return self[name] if self._absent is None or name in self else self._absent(name)

    def __contains__(self, name: object) -> bool:
        return f"{self._start}{name}" in self._opened()  # without reading it

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._opened()[self._start + name]

    def __iter__(self) -> Iterator[str]:
        start = self._start
        return (name.removeprefix(start) for name in self._opened() if name.startswith(start))

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Need:
    """Something of a checkpoint that a number is computed from, and that a run can make.

    Attributes
    ----------
    what : {"pass", "losses", "pool", "others"}
        The forward pass over the members; their losses; logit gaps of the run's target over the
        pool, for a shadow model in its place; logit gaps of the pool's samples that are not
        members.
    checkpoint : str
        Name of the checkpoint.
    """

    what: Literal["pass", "losses", "pool", "others"]
    checkpoint: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What is known of the target at a checkpoint.

    Attributes
    ----------
    record : Record
        Epoch, step, losses and accuracies.
    made : Arrays or Absent
        The forward pass over the members: ``logits``, ``losses``, and ``layer.<name>``, the
        representations. A recording has ``gaps`` and ``guess`` instead of logits at some
        checkpoints.
    outputs : mapping of str to array, or Absent
        ``logits`` and ``losses`` as training kept them.
    gaps : array of shape (n_members,), or None
        Logit gaps of the members, where they are known without logits.
    others : array or None
        Logit gaps of the pool's samples that are not members.
    find_first : callable
        Function that returns the logit gaps of the run's target over the pool, (n_pool,), or None
        where they are not known.
    state : hashable
        A value that changes when the forward pass or the outputs do.
    why_no_outputs : str
        Why a file of the outputs cannot be used; empty if it can, or is not there.
    """

    record: Record
    made: Arrays | Absent
    outputs: Mapping[str, NDArray[Any]] | Absent
    gaps: NDArray[Any] | None = None
    others: NDArray[np.float32] | None = None
    find_first: Callable[[], NDArray[np.float32] | None] = lambda: None
    state: Hashable = ()
    why_no_outputs: str = ""

    @cached_property
    def first(self) -> NDArray[np.float32] | None:
        """Logit gaps of the run's target over the pool, for a shadow model in its place."""
        return self.find_first()

    @property
    def has_pass(self) -> bool:
        """Whether the forward pass is there."""
        return not isinstance(self.made, Absent)

    @property
    def has_gaps(self) -> bool:
        """Whether the target's logit gaps of the members are there."""
        return self.has_pass or self.gaps is not None

    @property
    def has_logits(self) -> bool:
        """Whether logits of the members are there."""
        held = self.outputs if isinstance(self.made, Absent) else self.made
        return not isinstance(held, Absent) and "logits" in held

    def has(self, need: Need) -> bool:
        """Whether something that can be made is there."""
        there = {
            "pass": self.has_pass,
            "losses": self.has_pass or not isinstance(self.outputs, Absent),
            "pool": self.first is not None,
            "others": self.others is not None,
        }
        return there[need.what]


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
    forward_at : str or None
        Name of the checkpoint of its forward pass.
    state : hashable
        A value that changes when it is trained again.
    scores : KeptScores
        Scores of it as the target that were computed before.
    cache : Cache
        Values of it as the target that are expensive to compute.
    """

    arrays: Mapping[str, NDArray[Any]]
    forward_at: str | None
    state: Hashable
    scores: KeptScores
    cache: Cache


@dataclass(frozen=True, eq=False)
class Models:
    """Models that the target is compared with: shadow models of one design, or reference models.

    Attributes
    ----------
    design : str
        Key of the set, such as ``"halves"``. Other designs than halves are drawn in pairs. Empty
        if it is not known.
    read : callable
        Function of a checkpoint's name that returns masks and logit gaps over the pool. It raises
        an error that says how to get models where there are none.
    find : callable
        Function that returns the numbers of the models.
    find_checkpoints : callable
        Function that returns the names of the checkpoints at which every model has logit gaps.
    find_lost : callable
        Function that returns a sentence, if models that were trained cannot be used.
    state : hashable
        A value that changes when a model is added, removed or trained again.
    suffice : callable
        Function that returns whether some sample is in two of the models and out of two others.
        It is taken for true where they are drawn so.
    """

    design: str
    read: Callable[[str], Shadows]
    find: Callable[[], Sequence[int]] = tuple
    find_checkpoints: Callable[[], Sequence[str]] = tuple
    find_lost: Callable[[], Sequence[Note]] = tuple
    state: Hashable = ()
    suffice: Callable[[], bool] = lambda: True

    @cached_property
    def indices(self) -> tuple[int, ...]:
        """Numbers of the models."""
        return tuple(self.find())

    @cached_property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every model has logit gaps."""
        return tuple(self.find_checkpoints())

    @cached_property
    def lost(self) -> tuple[Note, ...]:
        """One sentence, if models that were trained cannot be used."""
        return tuple(self.find_lost())

    @property
    def are_pairs(self) -> bool:
        """Whether they were trained in complementary pairs."""
        return self.design not in ("", "halves")


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence about one target model, as it was when it was taken.

    Attributes
    ----------
    path : str
        Folder that it comes from; a few words if there is none.
    manifest : mapping
        What made it: seed, model, data, versions, as far as they are known.
    seed : int
        Seed of every draw.
    data : Dataset
        All samples, with the labels that were trained on. Only ids and labels are sure to be there.
    trained_labels, true_labels : array of shape (n,), int64
        Label of each sample that was trained on, and the one from before label noise.
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
    shadow_sets : callable
        Function that returns the number of shadow models of each design, by key of the set.
    scores : KeptScores
        Scores that were computed before.
    shadow : callable or Absent
        Function of a shadow model's number that returns the model.
    given : mapping of str to array
        The arrays that a user gave beside representations, by the names of their arguments; empty
        for others.
    general_notes : tuple of str
        What a reader must know of all its numbers.
    repeated : mapping of str to int
        Number of a Trainer's rows of each member that has several, by its id.
    settings : Settings or Absent
        How the target was trained.
    makes : set of str
        What can be made of a checkpoint if it is not there, as `Need.what`. It is empty unless
        model and samples are at hand.
    absent : mapping of str to Absent
        Kinds of evidence that are at no checkpoint: ``LOGITS``, ``TRACE``, ``REPRESENTATIONS``.
    device : callable
        Function that returns where heavy scores are computed, as torch names it.
    whole : Evidence or None
        The run's own evidence, if a shadow model stands in its target's place.
    index : int or None
        Number of that shadow model.
    cache : Cache
        Values that are expensive to compute.
    """

    path: str
    manifest: Mapping[str, Any]
    seed: int
    data: Dataset
    trained_labels: NDArray[np.int64]
    true_labels: NDArray[np.int64]
    pool: NDArray[np.int64]
    member_rows: NDArray[np.int64]
    held_out_labels: NDArray[np.int64]
    n_options: int
    names: Names
    checkpoints: Mapping[str, Checkpoint]
    shadows: Models
    references: Models
    scores: KeptScores
    settings: Settings | Absent
    shadow: Callable[[int], OneModel] | Absent
    shadow_sets: Callable[[], dict[str, int]] = dict
    given: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    general_notes: tuple[Note, ...] = ()
    repeated: Mapping[str, int] = field(default_factory=dict)
    makes: frozenset[str] = frozenset()
    absent: Mapping[str, Absent] = field(default_factory=dict)
    device: Callable[[], str] = lambda: "cpu"
    whole: Evidence | None = None
    index: int | None = None
    cache: Cache = field(default_factory=Cache)

    def __repr__(self) -> str:
        if self.whole is not None:
            return f"ShadowAudit(shadow {self.index} as the target of {self.whole!r})"
        if self.given:
            named = [name for name in ("logits", "log_lira", *_OTHERS) if name in self.given]
            parts = [f"{len(self.data)} samples"]
            if self.names.layer_names:
                parts.append(f"{len(self.names.layer_names)} layers")
            parts += [name.replace("_", " ") for name in named]
            return f"Audit.from_arrays({', '.join(parts)})"
        return (
            f"Audit({self.data!r}, {len(self.member_rows)} members, "
            f"{len(self.names.found)} checkpoints, {len(self.shadows.indices)} shadow models)"
        )

    @property
    def training(self) -> Settings:
        """How the target was trained.

        Raises
        ------
        NotThereError
            If nobody knows.
        """
        if isinstance(self.settings, Absent):
            raise self.settings.error()
        return self.settings

    # samples

    @cached_property
    def members(self) -> NDArray[np.str_]:
        """Ids of the members, (n_members,)."""
        return _read_only(self.data.ids[self.member_rows])

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
    def clean_data(self) -> Dataset:
        """All samples, with their labels from before label noise."""
        if self.whole is not None:
            return self.whole.clean_data
        same = self.true_labels is self.trained_labels
        return self.data if same else self.data.with_labels(self.true_labels)

    @cached_property
    def member_columns(self) -> NDArray[np.int64]:
        """Places of the members in the pool, (n_members,)."""
        return np.searchsorted(self.pool, self.member_rows)

    @cached_property
    def other_columns(self) -> NDArray[np.int64]:
        """Places in the pool of the samples that are not members."""
        return np.flatnonzero(~np.isin(self.pool, self.member_rows))

    # what there is

    def uses_kept(self, at: Checkpoint) -> bool:
        """Whether scores that were kept are read: not if their pass is lost and can be made."""
        return at.has_pass or "pass" not in self.makes

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Which kinds of evidence scores can use.

        Shadow models are among them once they give a ground truth, reference models once trained.
        With one checkpoint the baseline is the truth itself.
        """
        there = [kind for kind in (REPRESENTATIONS, LOGITS, TRACE) if kind not in self.absent]
        there += [SHADOWS] * (len(self.checkpoints) > 1 and self.has_ground_truth)
        return (*there, *[REFERENCES] * bool(self.references.indices))

    @cached_property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end of training is known or can be computed."""
        if "log_lira" in self.given:
            return True
        final = self.names.final()
        if final is None or len(self.shadows.indices) < FEWEST_SHADOWS:
            return False
        if final.name not in self.shadows.checkpoints:
            return False
        known = self.checkpoints[final.name].has_gaps or "pass" in self.makes
        return known and self.shadows.suffice()

    @cached_property
    def n_shadows(self) -> int:
        """Number of shadow models that the target is compared with at the end of training."""
        n_in_set = len(self.shadows.indices)  # one that is the target included
        if self.whole is None:
            return n_in_set
        final = self.names.final()
        knows_first = final is not None and self.checkpoints[final.name].first is not None
        return n_in_set - 1 + ("pool" in self.makes or knows_first)

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        if "log_lira" in self.given:
            missing = int(np.isnan(self.given["log_lira"]).sum())
            return "log-LiRA as given" + (f", {missing} samples have none" if missing else "")
        if not self.has_ground_truth:
            return "none"
        design = self.shadows.design.split("-")[0]
        of = f" of the design {design!r}" if design else ""
        return f"log-LiRA from {self.n_shadows} shadow models{of}, variance shrunk"

    def missing(self, needs: Iterable[Need]) -> list[Need]:
        """Return what of this is not there and can be made."""
        wanted = dict.fromkeys(need for need in needs if need.what in self.makes)
        return [need for need in wanted if not self.checkpoints[need.checkpoint].has(need)]

    def notes_at(self, checkpoint: str | float) -> tuple[Note, ...]:
        """Return what a reader must know before trusting a score at a checkpoint.

        Where the model has not learned its task, no score predicts anything.
        """
        record, chosen = self.names.record(checkpoint), self.names.prediction()
        of_rule = chosen.warnings if record == chosen.record else ()
        return (*self.not_learned(record), *of_rule, *self.general_notes, *self.shadows.lost)

    def not_learned(self, record: Record) -> tuple[Note, ...]:
        """Return why the model has not learned its task at a checkpoint; empty if it has."""
        notes, limit = [], 0.5 * math.log(self.n_options)
        at = "" if record.name == GIVEN else f"at {record.name} "
        if record.median_loss > limit:
            notes.append(
                Note(
                    "not learned",
                    f"{at}the median training loss is {record.median_loss:.2f}, above half of "
                    f"log({self.n_options}) = {limit:.2f}: {_PREDICT_NOTHING}",
                    loss=record.median_loss,
                    limit=limit,
                )
            )
        held_out = self.held_out_labels
        if record.test_accuracy is not None and len(held_out):
            from memowidgets.evaluation.intervals import clopper_pearson

            chance = float(np.bincount(held_out).max() / len(held_out))
            lower, _ = clopper_pearson(round(record.test_accuracy * len(held_out)), len(held_out))
            if lower <= chance:
                known = f"{percent(record.test_accuracy)} (at least {percent(lower)} with 97.5 %"
                notes.append(
                    Note(
                        "not learned",
                        f"{at}the held-out accuracy, {known} confidence), is not above chance, "
                        f"{percent(chance)}: {_PREDICT_NOTHING}",
                        accuracy=record.test_accuracy,
                        chance=chance,
                    )
                )
        return tuple(notes)

    def table(self) -> pd.DataFrame:
        """Return one row for each checkpoint, as `Audit.checkpoints` describes."""
        import pandas as pd

        columns = ["name", "epoch", "step", "median_loss", "train_loss", "train_accuracy"]
        columns += ["test_loss", "test_accuracy"]
        records = self.names.found
        table = pd.DataFrame([asdict(record) for record in records], columns=columns)
        table = table.astype({"test_loss": float, "test_accuracy": float}).set_index("name")
        given = GIVEN in self.checkpoints
        drops = [np.nan if given else record.drop(records[0]) for record in records]
        table.insert(3, "drop", drops)
        chosen = self.names.prediction().record.name if given or len(records) > 1 else None
        table["prediction"] = table.index == chosen
        table["learned"] = [not self.not_learned(record) for record in records]
        return table.assign(step=np.nan) if given else table

    # reading what there is, or saying what is missing

    def gaps_of_pass(self, record: Record) -> NDArray[np.floating[Any]]:
        """Return the logit gap of each member in a forward pass, (n_members,).

        In a recording that is the one that LiRA takes; of arrays it is never the finished model's.
        """
        own, made = self.checkpoints[record.name].gaps, self._pass(record)
        if own is not None and "logits" not in made and LOGITS in self.kinds:
            return own
        if "gaps" in made:
            return np.array(made["gaps"])
        return self.cache.of(
            ("logit gaps", record.name),
            self.checkpoints[record.name].state,
            lambda: logit_gap(self.of_pass(record, "logits"), self.labels),
        )

    def logits(self, record: Record) -> NDArray[np.float32]:
        """Return the members' logits at a checkpoint, (n_members, n_classes).

        Those of the forward pass, if there is one, as the scores are; else those of training.
        """
        at = self.checkpoints[record.name]
        if not (at.has_pass or isinstance(at.outputs, Absent)) and at.has_logits:
            return np.array(at.outputs["logits"])
        return self.of_pass(record, "logits")

    def losses(self, record: Record) -> NDArray[Any]:
        """Return the members' training losses at a checkpoint, (n_members,), in nats.

        Those that training kept, if it did; else those of the forward pass.
        """
        at = self.checkpoints[record.name]
        if not isinstance(at.outputs, Absent):
            return np.array(at.outputs["losses"])
        if at.why_no_outputs:
            warn_of(at.why_no_outputs)
        if not at.has_pass:
            raise at.outputs.error(record.name)
        return np.array(self.of_pass(record, "losses"))

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """Return the target's logit gap of each member, (n_members,)."""
        own = self.checkpoints[record.name].gaps
        return self.gaps_of_pass(record) if own is None else own

    def _pass(self, record: Record) -> Arrays:
        """Return the forward pass of a checkpoint, or raise the error that says why not."""
        made = self.checkpoints[record.name].made
        if isinstance(made, Absent):
            raise made.error(record.name)
        return made

    def of_pass(self, record: Record, name: str) -> NDArray[Any]:
        """Return an array of the forward pass of a checkpoint, memory-mapped, a row a member.

        They are ``logits``, ``losses``, and ``layer.<name>``, a layer's output.

        Raises
        ------
        NotThereError
            If it is not there. The message says what to pass or to call.
        """
        found = self._pass(record).find(name)
        if isinstance(found, Absent):
            raise found.error("" if record.name == GIVEN else record.name)
        return found

    # a shadow model in the target's place

    def as_target(self, index: int) -> Evidence:
        """Return the evidence with a shadow model as the target: leave one out.

        Its members, forward pass, scores and log-LiRA are its own; checkpoints and the ρ rule are
        the run's. The run's target is one of its shadow models where its logit gaps over the pool
        are known. What was computed from it is kept while the shadow models' files stay.
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
        if isinstance(self.shadow, Absent):
            raise self.shadow.error()
        one = self.shadow(index)
        mask, who = np.array(one.arrays["members"]), f"shadow {index}"
        keep = "run_shadows(…, keep_forward=True)"
        kept = "no forward pass"
        if one.forward_at is not None:
            kept = f"its forward pass at {one.forward_at}, not"
        no_pass = Absent(f"{who} kept {kept}", f"{keep} keeps it at the prediction checkpoint")
        no_losses = Absent(
            f"{who} kept no losses",
            f"{keep} of a new run keeps them up to the prediction checkpoint",
        )

        def without(name: str) -> Absent:
            if "forward.logits" not in one.arrays:  # nor layers
                return Absent("this recording keeps logit gaps and losses of shadow models only")
            layer = name.removeprefix(LAYER)
            return Absent(
                f"{who} did not keep layer {layer}",
                f"run_shadows(…, keep_forward=[{layer!r}]) keeps it",
            )

        at = {}
        for name, held in self.checkpoints.items():
            lost, gaps = f"loss.{name}", f"gap.{name}"
            every = np.array(one.arrays[gaps]) if gaps in one.arrays else None
            at[name] = Checkpoint(
                held.record,
                Arrays(lambda: one.arrays, "forward.", without)
                if one.forward_at == name
                else no_pass,
                {"losses": one.arrays[lost]} if lost in one.arrays else no_losses,
                gaps=None if every is None else every[mask],
                others=None if every is None else every[~mask],
                find_first=held.find_first,
                state=(name, one.state),
            )
        traced = any(name.startswith("loss.") for name in one.arrays)
        others = replace(
            self.shadows,
            read=lambda checkpoint: self.all_models(checkpoint).without(index),
            state=(
                self.shadows.state,
                tuple((held.state, held.first is None) for held in self.checkpoints.values()),
            ),
        )
        no_references = Absent(
            f"{who} has no reference models, because those of the audit trained on samples that it "
            "trains on",
            "call this on the audit itself",
        )
        return replace(
            self,
            path=f"{self.path}/targets/{self.shadows.design}/{index:04d}",
            whole=self,
            index=index,
            member_rows=self.pool[mask],
            checkpoints=at,
            shadows=others,
            references=no_models("parts", no_references),
            makes=frozenset(["pool"] if "pass" in self.makes else []),
            absent={} if traced else {TRACE: no_losses},
            scores=one.scores,
            cache=one.cache,
        )

    def all_models(self, checkpoint: str) -> Shadows:
        """Shadow models, and the run's target last if its gaps over the pool are known."""
        shadows, first = self.shadows.read(checkpoint), self.checkpoints[checkpoint].first
        if first is None:
            return shadows
        return Shadows(
            np.vstack([shadows.members, np.isin(self.pool, self.member_rows)]),
            np.vstack([shadows.gaps, first]),
            np.append(shadows.indices, -1),
        )


def no_models(design: str, why: Absent) -> Models:
    """Return a set without models, whose `read` raises an error that says why."""

    def refuse(_checkpoint: str) -> Shadows:
        raise why.error()

    return Models(design, refuse)
