"""The evidence about one target model: all that an audit's numbers are computed from.

A run directory gives one (`memowidgets.audit.run`), arrays of a user give one
(`memowidgets.audit.runs.given`), and `Evidence.as_target` derives one in which a shadow model is
the target. It computes no score and no log-LiRA: the functions in `memowidgets.audit.numbers` do.
`Names` finds its checkpoints and layers, and `KeptScores` the scores that were computed before.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.data import Dataset
from memowidgets.metrics import logit_gap
from memowidgets.store import Absent, NotThereError, RunDirectory, Tensors
from memowidgets.training.checkpoint import LAYER, Record
from memowidgets.training.lookout import Lookout, Prediction
from memowidgets.training.shadows import Shadows
from memowidgets.vocabulary import Note, listed, percent, quoted, visible

if TYPE_CHECKING:
    import pandas as pd

    from memowidgets.evaluation.scored import Scored
    from memowidgets.training.config import Settings
    from memowidgets.training.origin import Origin

GIVEN = "given"  # the one checkpoint of arrays

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
# What a score estimates from representations. To be raised when that changes: scores of another
# version are computed again. Those of a less exact estimator stay, with their standard errors.
METHODS = {"psmi": 1, "mahalanobis": 1}
_METHOD = "method"
_Value = TypeVar("_Value")
_Table = TypeVar("_Table", "pd.Series[Any]", "pd.DataFrame")


class Arrays:
    """Arrays by name that are opened when one is asked for.

    Parameters
    ----------
    opened : callable or None
        Function that returns a mapping, such as the memory-mapped arrays of a file; None where
        there is none.
    why_not : callable
        Function of a name that says why there is no array of it.
    start : str
        Start of the names in the mapping, which is left out here.
    """

    def __init__(
        self,
        opened: Callable[[], Mapping[str, NDArray[Any]]] | None,
        why_not: Callable[[str], Absent] = Absent,
        start: str = "",
    ) -> None:
        self.are_there, self._opened = opened is not None, opened or dict
        self.why_not, self._start = why_not, start

    def __contains__(self, name: str) -> bool:
        return f"{self._start}{name}" in self._opened()  # without reading it

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._opened()[self._start + name]


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
    find_pool : callable
        Function that returns the target's logit gaps over the pool, (n_pool,), or None where they
        are not known.
    state : hashable
        A value that changes when the forward pass or the outputs do.
    """

    record: Record
    made: Arrays
    outputs: Arrays
    gaps: NDArray[Any] | None = None
    find_pool: Callable[[], NDArray[np.float32] | None] = lambda: None
    state: Hashable = ()

    @cached_property
    def pool(self) -> NDArray[np.float32] | None:
        """The target's logit gaps over the pool, if they are known."""
        return self.find_pool()

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


@dataclass(frozen=True)
class Names:
    """Finds checkpoints and layers by the names that users give them.

    Attributes
    ----------
    layer_names : tuple of str
        Names of the layers, first to last.
    found : tuple of Record
        The checkpoints, in the order of training.
    lookout : Lookout or None
        What says where to look; None for arrays.
    last_step : int
        Step at the end of training.
    to_go_on : str
        What to do for more checkpoints.
    """

    layer_names: tuple[str, ...]
    found: tuple[Record, ...] = ()
    lookout: Lookout | None = None
    last_step: int = -1
    to_go_on: str = "call train()"

    @property
    def _is_given(self) -> bool:
        """Whether these are of arrays, which have one checkpoint under three names."""
        return [record.name for record in self.found] == [GIVEN]

    def so_far(self, record: Record) -> list[Record]:
        """Return the checkpoints after step 0 up to one of them, in the order of training."""
        return [one for one in self.found if 0 < one.step <= record.step]

    def final(self) -> Record | None:
        """The checkpoint at the end of training, if it was reached."""
        return next((one for one in self.found if one.step == self.last_step), None)

    def prediction(self) -> Prediction:
        """The checkpoint to look at.

        Raises
        ------
        NotThereError
            If the target was not trained yet.
        """
        return self._prediction

    @cached_property
    def _prediction(self) -> Prediction:
        if self.lookout is None:  # how far the loss had dropped is not known
            return Prediction(self.found[0], np.nan, np.nan, reached=True)
        self._check_trained()
        return self.lookout.prediction(self.found)

    def _of_paper(self) -> Record:
        """The checkpoint that the paper looks at: the first that reached ρ, or the nearest."""
        if self.lookout is None:
            return self.found[0]
        self._check_trained()
        return self.lookout.rule.of_paper(self.found)

    def _check_trained(self) -> None:
        if len(self.found) < 2:
            raise NotThereError(
                "there is no checkpoint after step 0 yet", self.to_go_on
            )

    def record(self, checkpoint: str | float) -> Record:
        """The checkpoint behind ``"prediction"``, ``"final"``, ``"rho"``, an epoch or a name.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        """
        if checkpoint == "prediction":
            return self.prediction().record
        if checkpoint == "rho":
            return self._of_paper()
        if checkpoint == "final":
            final = self.final()
            if final is None:
                raise NotThereError(
                    "the target is not trained to the end yet", self.to_go_on
                )
            return final
        given: Any = checkpoint
        is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
        epoch = float(given) if is_number else math.nan
        for record in self.found:
            if checkpoint == record.name or math.isclose(
                epoch, record.epoch, abs_tol=1e-6
            ):
                return record
        if not self.found:
            what = f"there is no checkpoint {_spell(checkpoint)}, because there is none yet"
            raise NotThereError(what, self.to_go_on)
        raise ValueError(
            f"unknown checkpoint {_spell(checkpoint)}; valid: prediction, final, rho, an epoch, or "
            f"one of the names {listed(record.name for record in self.found)}"
        )

    def some_records(
        self, checkpoints: str | float | Iterable[str | float]
    ) -> list[Record]:
        """One checkpoint, several, or "all" after step 0."""
        later = [one for one in self.found if one.step > 0]
        return _one_or_several(checkpoints, later, self.record)

    def layer(self, layer: str | int) -> str:
        """The name behind a number from 1, ``"last"`` or a name.

        A number is a position from 1, but a name where the layers are named by numbers: the blocks
        of a transformer, such as 27, 28, 29 and 30, or a user's own keys. Children of an
        `nn.Sequential` are named from 0, and there a number is a position. Evidence without
        representations has one layer, whose name is empty.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        """
        names = self.layer_names
        if not names:
            if layer in ("last", ""):
                return ""
            do = "give Audit.from_arrays representations={layer: array}"
            raise NotThereError(f"there is no layer {quoted(layer)}", do)
        if layer == "last":
            return names[-1]
        first = int(names[0]) if names[0].isdigit() else 0
        are_blocks = first > 0 and list(names) == [
            str(first + i) for i in range(len(names))
        ]
        numbered = (
            any(name.isdigit() for name in names) if self._is_given else are_blocks
        )
        is_number = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
        if is_number and not numbered:
            if 1 <= int(layer) <= len(names):
                return names[int(layer) - 1]
        elif str(layer) in names:
            return str(layer)
        valid = f"last, {'' if numbered else f'1 to {len(names)}, '}or a name of {listed(names)}"
        raise ValueError(f"unknown layer {_spell(layer)}; valid: {valid}")

    def some_layers(self, layers: str | int | Iterable[str | int]) -> list[str]:
        """Names of one layer, of several, or of "all"."""
        return _one_or_several(layers, self.layer_names, self.layer)


def _one_or_several(
    asked: str | float | Iterable[str | float],
    every: Sequence[_Value],
    find: Callable[..., _Value],
) -> list[_Value]:
    """Find one thing by name, or several; "all" stands for every one."""
    if isinstance(asked, str) and asked == "all":
        return list(every)
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        return [find(asked)]
    return [find(one) for one in asked]


def _spell(value: object) -> str:
    """A name in quotation marks, a number without."""
    return quoted(value) if isinstance(value, str) else visible(repr(value), 40)


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

    def recall(self, question: Hashable, state: Hashable) -> Any:
        """Return the value that is held for a question in that state, or None."""
        held = self._held.get(question)
        return None if held is None or held[0] != state else held[1]

    def clear(self) -> None:
        """Forget all answers."""
        self._held = {}


class ScorePlace(NamedTuple):
    """Where the scores from one forward pass lie on disk, a file for each metric and layer.

    Attributes
    ----------
    run : RunDirectory
        The run directory.
    folder : str
        Their folder in it.
    weights : str
        Digest of the weights that the scores must come from.
    """

    run: RunDirectory
    folder: str
    weights: str


class KeptScores:
    """Scores that were computed before: on disk where a folder can be written, else in memory.

    Parameters
    ----------
    cache : Cache
        The memory.
    place : callable, optional
        Function of a checkpoint's record and a layer that returns where they lie on disk.
    """

    def __init__(
        self, cache: Cache, place: Callable[[Record, str], ScorePlace] | None = None
    ) -> None:
        self._cache, self._place = cache, place

    def _read(
        self, metric: str, layer: str, record: Record, *, warns: bool
    ) -> Tensors | None:
        """Return the file of the scores, if it is there, usable and of today's method."""
        if self._place is None:
            return None
        run, folder, weights = self._place(record, layer)
        name = f"{folder}/{layer}/{metric}"
        if warns:
            warn_of(run.why_not(name, weights))
        if not run.has(name, weights):
            return None
        found = run.read_tensors(name, weights)
        return (
            found
            if found.metadata.get(_METHOD) == str(METHODS.get(metric, 1))
            else None
        )

    def has(self, metric: str, layer: str, record: Record, state: Hashable) -> bool:
        """Whether `find` has an answer. `state` changes when what they come from does."""
        if self._cache.recall(("score", metric, layer, record.name), state) is not None:
            return True
        return self._read(metric, layer, record, warns=False) is not None

    def find(
        self, metric: str, layer: str, record: Record, state: Hashable
    ) -> Scored | None:
        """Return the scores by a metric at a layer of a checkpoint, if they are kept."""
        held = self._cache.recall(("score", metric, layer, record.name), state)
        if held is not None:
            return cast("Scored", held)
        # SciPy, which a watched loop needs not
        from memowidgets.evaluation.scored import (
            Scored,
        )

        kept = self._read(metric, layer, record, warns=True)
        if kept is None:
            return None
        values = np.array(kept["score"])
        return Scored(
            np.array(kept["rows"]) if "rows" in kept else np.arange(len(values)),
            values,
            np.array(kept["error"]) if "error" in kept else None,
            notes=tuple(map(_note, json.loads(kept.metadata.get("notes", "[]")))),
        )

    def keep(
        self, metric: str, layer: str, record: Record, state: Hashable, scores: Scored
    ) -> None:
        """Keep the scores by a metric at a layer of a checkpoint.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        place = None if self._place is None else self._place(record, layer)
        if place is None or place.run.read_only:
            self._cache.of(("score", metric, layer, record.name), state, lambda: scores)
            return
        tensors: dict[str, NDArray[Any]] = {"score": scores.scores}
        # some have none
        if not np.array_equal(scores.positions, np.arange(len(scores))):
            tensors["rows"] = scores.positions
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = json.dumps([[note.key, note, note.numbers] for note in scores.notes])
        stored = {"notes": notes, _METHOD: str(METHODS.get(metric, 1))}
        place.run.write_tensors(
            f"{place.folder}/{layer}/{metric}", tensors, stored, place.weights
        )


def _note(kept: Any) -> Note:
    if isinstance(kept, str):  # of a recording, all of whose notes are about a ridge
        return Note("ridge", kept)
    key, sentence, numbers = kept
    return Note(key, sentence, **numbers)


def warn_of(reason: str | None) -> None:
    """Warn that a file on disk cannot be used and is made again; None: there is no such file."""
    if reason is not None:
        warn_user(f"{reason}. It is not used, and made again.")


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
    indices : tuple of int
        Numbers of the models.
    find_checkpoints : callable
        Function that returns the names of the checkpoints at which every model has logit gaps.
    state : hashable
        A value that changes when a model is added, removed or trained again.
    suffice : bool
        Whether some sample is in two of the models and out of two others, as they are drawn.
    """

    design: str
    read: Callable[[str], Shadows]
    indices: tuple[int, ...] = ()
    find_checkpoints: Callable[[], Sequence[str]] = tuple
    state: Hashable = ()
    suffice: bool = True

    @cached_property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every model has logit gaps."""
        return tuple(self.find_checkpoints())

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
    scores : KeptScores
        Scores that were computed before.
    shadow : callable
        Function of a shadow model's number that returns the model.
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
    training : callable
        Function that returns how the target was trained, or raises where nobody knows.
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
    scores: KeptScores
    training: Callable[[], Settings]
    shadow: Callable[[int], OneModel]
    given: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    general_notes: tuple[Note, ...] = ()
    repeated: Mapping[str, int] = field(default_factory=dict)
    undrawn: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    sees_draws: bool = True
    origins: tuple[Origin, ...] = ()
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

    def uses_kept(self, at: Checkpoint) -> bool:
        """Whether scores that were kept are read: not if their pass is lost and can be made."""
        return at.has_pass or "pass" not in self.makes

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
            return (self.whole or self).checkpoints[need.checkpoint].pool is not None
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
        held_out, accuracy = self.held_out_labels, record.test_accuracy
        if accuracy is not None and len(held_out):
            from memowidgets.evaluation.intervals import clopper_pearson

            chance = float(np.bincount(held_out).max() / len(held_out))
            lower, _ = clopper_pearson(round(accuracy * len(held_out)), len(held_out))
            if lower <= chance:
                said = f"{at}the held-out accuracy, {percent(accuracy)} (at least {percent(lower)} "
                said += "with 97.5 % confidence), is not above chance, "
                said += f"{percent(chance)}: {_PREDICT_NOTHING}"
                notes.append(
                    Note("not learned", said, accuracy=accuracy, chance=chance)
                )
        return tuple(notes)

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

        return self.cache.of(("logit gaps", record.name), at.state, gaps)

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
        one, who, keep = (
            self.shadow(index),
            f"shadow {index}",
            "run_shadows(…, keep_forward=True)",
        )
        mask, at = np.array(one.arrays["members"]), one.forward_at
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

        def checkpoint(name: str, held: Checkpoint) -> Checkpoint:
            made = Arrays(lambda: one.arrays, without, "forward.")
            outputs = Arrays(lambda: {"losses": one.arrays[f"loss.{name}"]})
            pool = (
                np.array(one.arrays[gap])
                if (gap := f"gap.{name}") in one.arrays
                else None
            )
            return Checkpoint(
                held.record,
                made if at == name else Arrays(None, lambda _: no_pass),
                outputs
                if f"loss.{name}" in one.arrays
                else Arrays(None, lambda _: no_losses),
                gaps=None if pool is None else pool[mask],
                find_pool=lambda: pool,
                state=(name, one.state),
            )

        trained_on = "because those of the audit trained on samples that it trains on"
        no_references = Absent(
            f"{who} has no reference models, {trained_on}",
            "call this on the audit itself",
        )
        targets = tuple(
            (held.state, held.pool is None) for held in self.checkpoints.values()
        )
        others = replace(
            self.shadows,
            read=lambda checkpoint: self.all_models(checkpoint).without(index),
            state=(self.shadows.state, targets),
        )
        traced = any(name.startswith("loss.") for name in one.arrays)
        return replace(
            self,
            path=f"{self.path}/targets/{self.shadows.design}/{index:04d}",
            whole=self,
            index=index,
            member_rows=self.pool[mask],
            checkpoints={
                name: checkpoint(name, held) for name, held in self.checkpoints.items()
            },
            shadows=others,
            references=Models("parts", no_references.refuse),
            makes=frozenset(["pool"] if "pass" in self.makes else []),
            absent={} if traced else {TRACE: no_losses},
            scores=one.scores,
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
