"""What an audit's numbers are computed from: the evidence about one target model.

A `Source` holds evidence: samples, checkpoints, forward passes, logit gaps. It computes no score
and no log-LiRA; the functions in `numbers` do that, and they take any source.
"""

from __future__ import annotations

import numbers
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import as_code
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.rho import Prediction, Record

if TYPE_CHECKING:
    import pandas as pd

    from memowidgets.data import Dataset
    from memowidgets.decisions import DecisionLog
    from memowidgets.training.config import Settings
    from memowidgets.training.shadows import Shadows

__all__ = [
    "LOGITS",
    "REFERENCES",
    "REPRESENTATIONS",
    "SHADOWS",
    "TRACE",
    "Cache",
    "ForwardPass",
    "Names",
    "NotGivenError",
    "OneAtATime",
    "ReferenceModels",
    "Scores",
    "ShadowModels",
    "Source",
    "check_key",
    "looked_up",
    "one_look",
    "one_or_several",
]

REPRESENTATIONS, LOGITS, SHADOWS = "representations", "logits", "shadow models"
TRACE, REFERENCES = "losses at each checkpoint", "reference models"
_POLL_SECONDS = 0.2
_Value = TypeVar("_Value")


class NotGivenError(StoreError, ValueError):
    """Something that this audit does not have; the message says what to pass, or where to call."""


@dataclass(frozen=True)
class Scores:
    """Scores of one metric; a low score means risk.

    Attributes
    ----------
    rows : array of shape (n_scored,), int64
        Positions of the scored members among all members.
    mu : array of shape (n_scored,), float64
        Score of each.
    errors : array of shape (n_scored,), float64, or None
        Standard error of each score, if the metric has one.
    notes : tuple of str
        Warnings of the metric about the data that it was fitted on.
    """

    rows: NDArray[np.int64]
    mu: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_all(cls, values: NDArray[np.floating[Any]], notes: tuple[str, ...] = ()) -> Self:
        """Return scores of all members, in their order."""
        return cls(np.arange(len(values)), values.astype(np.float64), notes=notes)


class ForwardPass(Protocol):
    """The output of one checkpoint for each member, and the scores computed from it."""

    @property
    def exists(self) -> bool:
        """Whether the pass was made."""
        ...

    @property
    def why_not(self) -> str | None:
        """Why a pass that is on disk cannot be used; None if it can, or is not there."""
        ...

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        ...

    def losses(self) -> NDArray[np.float32]:
        """Training loss of each member, (n_members,)."""
        ...

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Logit gap of each member, (n_members,)."""
        ...

    def representation(self, layer: str) -> NDArray[np.float32]:
        """Output of a layer, (n_members, values)."""
        ...

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether `stored` has an answer."""
        ...

    def stored(self, metric: str, layer: str) -> Scores | None:
        """The scores by a metric at a layer; None if they were not computed from this pass."""
        ...

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores by a metric at a layer."""
        ...


class ShadowModels(Protocol):
    """The shadow models that a target is compared with."""

    @property
    def key(self) -> str:
        """Name of the set, such as "halves"."""
        ...

    def __len__(self) -> int: ...

    def indices(self) -> list[int]:
        """Numbers of the shadow models."""
        ...

    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every shadow model has logit gaps."""
        ...

    def read(self, checkpoint: str) -> Shadows:
        """Members and logit gaps of every shadow model at a checkpoint."""
        ...

    def lost(self) -> list[str]:
        """One sentence for each shadow model that was trained and cannot be used any more."""
        ...


class ReferenceModels(Protocol):
    """Models that never saw a member, asked about it at the prediction checkpoint."""

    def __len__(self) -> int: ...

    def state(self) -> tuple[Hashable, ...]:
        """A value that changes when a reference model is added, removed or trained again."""
        ...

    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints at which every reference model has logit gaps."""
        ...

    def gaps(self, checkpoint: str) -> NDArray[np.float32]:
        """Logit gaps of the members, (n_references, n_members); NaN where one was trained on."""
        ...


class Names(Protocol):
    """Finds checkpoints and layers by the names that users give them."""

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, first to last."""
        ...

    def records(self) -> list[Record]:
        """All checkpoints, in the order of training."""
        ...

    def final(self) -> Record | None:
        """The checkpoint at the end of training; None if training has not ended."""
        ...

    def prediction(self) -> Prediction:
        """The checkpoint that the ρ rule chose."""
        ...

    def record(self, checkpoint: str | float) -> Record:
        """The checkpoint called ``"prediction"``, ``"final"``, by its epoch or by its name."""
        ...

    def some_records(self, checkpoints: str | float | Iterable[str | float]) -> list[Record]:
        """One checkpoint, several, or "all" after step 0."""
        ...

    def layer(self, layer: str | int) -> str:
        """Name of the layer called by a number from 1, ``"last"`` or its name."""
        ...

    def some_layers(self, layers: str | int | Iterable[str | int]) -> list[str]:
        """Names of one layer, of several, or of "all"."""
        ...


class Source(Protocol):
    """The evidence about one target model.

    `memowidgets.audit.sources` has three kinds: a run directory, arrays that a user gives, and a
    shadow model in the target's place.
    """

    @property
    def path(self) -> str:
        """Its folder; a few words if there is none."""
        ...

    @property
    def manifest(self) -> Mapping[str, Any]:
        """What made it: seed, model, data, versions, as far as they are known."""
        ...

    @property
    def seed(self) -> int:
        """Seed of every draw."""
        ...

    @property
    def training(self) -> Settings:
        """How the target was trained."""
        ...

    @property
    def evidence(self) -> Collection[str]:
        """Which kinds of evidence scores can use.

        "representations", "logits", "losses at each checkpoint", "shadow models",
        "reference models".
        """
        ...

    def cannot(self, work: str) -> str:
        """Why this source cannot do a kind of work, such as "train", and what to do instead."""
        ...

    # samples

    @property
    def data(self) -> Dataset:
        """All samples, with the labels that were trained on."""
        ...

    def clean_data(self) -> Dataset:
        """All samples, with their labels from before label noise."""
        ...

    @property
    def pool_rows(self) -> NDArray[np.int64]:
        """Rows of `data` that a model may train on, (n_pool,)."""
        ...

    @property
    def member_rows(self) -> NDArray[np.int64]:
        """Rows of `data` that the target trained on, (n_members,)."""
        ...

    @property
    def members(self) -> NDArray[np.str_]:
        """Ids of the members, (n_members,)."""
        ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label that each member was trained on, (n_members,)."""
        ...

    @property
    def member_data(self) -> Dataset:
        """The members as a dataset."""
        ...

    @property
    def decision_log(self) -> DecisionLog:
        """Decisions on the samples."""
        ...

    # the target

    @property
    def names(self) -> Names:
        """Checkpoints and layers by name."""
        ...

    @property
    def checkpoints(self) -> pd.DataFrame:
        """One row for each checkpoint, as `Audit.checkpoints` describes."""
        ...

    def forward(self, record: Record, progress: Progress | None = None) -> ForwardPass:
        """The forward pass of a checkpoint over the members, computed if it is missing."""
        ...

    def kept_forward(self, record: Record) -> ForwardPass:
        """The forward pass of a checkpoint as it is on disk; check that it `exists`."""
        ...

    def logits_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Logits of the members at a checkpoint, (n_members, n_classes); no hidden states."""
        ...

    def losses_at(self, record: Record, progress: Progress | None = None) -> NDArray[np.float32]:
        """Training loss of each member at a checkpoint, (n_members,), in nats.

        Raises
        ------
        StoreError
            If they were not kept, and can't be computed; the message names the checkpoint.
        """
        ...

    def has_losses(self, record: Record) -> bool:
        """Whether `losses_at` answers without computing anything."""
        ...

    def target_gaps(self, record: Record) -> NDArray[np.floating[Any]]:
        """The target's logit gap of each member, (n_members,)."""
        ...

    def gaps_of(self, record: Record, rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """The target's logit gap of any rows of `data`; None if they cannot be computed."""
        ...

    @property
    def makes_passes(self) -> bool:
        """Whether a missing forward pass is made; elsewhere it is an error that says so at once."""
        ...

    def pass_cost(self) -> tuple[float | None, int | None]:
        """Seconds of the last forward pass that was made here, and bytes of one on disk, if any."""
        ...

    @property
    def asks_model(self) -> bool:
        """Whether `gaps_of` makes a forward pass."""
        ...

    def notes_at(self, checkpoint: str | float) -> tuple[str, ...]:
        """What a reader must know before trusting a score at a checkpoint."""
        ...

    @property
    def device(self) -> str:
        """Where forward passes are computed."""
        ...

    # its shadow models

    @property
    def shadows(self) -> ShadowModels:
        """The shadow models that the target is compared with."""
        ...

    @property
    def references(self) -> ReferenceModels:
        """The reference models: they never saw the members that they are asked about."""
        ...

    @property
    def shadow_sets(self) -> dict[str, int]:
        """Number of shadow models of each set, by key."""
        ...

    @property
    def given_log_lira(self) -> NDArray[np.float64] | None:
        """Log-LiRA that the user gave, (n_members,); None where it is computed."""
        ...

    @property
    def given_early_gaps(self) -> NDArray[np.float32] | None:
        """Early logit gaps of the shadow models that the user gave, (n_shadows, n_members)."""
        ...

    @property
    def has_ground_truth(self) -> bool:
        """Whether log-LiRA at the end of training is known or can be computed."""
        ...

    @property
    def truth_in_words(self) -> str:
        """What log-LiRA is computed from."""
        ...

    def gaps_known(self, checkpoint: str) -> bool:
        """Whether log-LiRA at a checkpoint needs no forward pass."""
        ...

    # what is kept in memory

    @property
    def cache(self) -> Cache:
        """Values that are expensive to compute."""
        ...

    def alone(self, progress: Progress | None = None) -> AbstractContextManager[None]:
        """Wait until no other thread works on this source."""
        ...

    def forward_state(self, checkpoint: str | float) -> tuple[Hashable, ...]:
        """A value that changes when the forward pass of a checkpoint does."""
        ...

    def gaps_state(self, checkpoint: str) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """A value that changes when log-LiRA at a checkpoint may.

        It names every shadow model's file: the number of shadow models would not do, because one
        may take the place of another.
        """
        ...


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

    def of(self, question: Hashable, state: Hashable, make: Callable[[], _Value]) -> _Value:
        """Return the value for a question; `state` names everything else that it depends on."""
        held = self._held.get(question)
        if held is None or held[0] != state:
            held = self._held[question] = state, make()
        return cast("_Value", held[1])

    def clear(self) -> None:
        """Forget all answers."""
        self._held = {}


_SEEN: ContextVar[dict[Hashable, Any] | None] = ContextVar("_SEEN", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """List the checkpoints and shadow models of a run only once until the block ends.

    It holds for this thread. The figures of an audit ask for each more than a thousand times. What
    another thread or process writes meanwhile is seen after the block.

    Examples
    --------
    >>> with one_look():
    ...     looked_up("a run", list) is looked_up("a run", list)
    True
    """
    token = _SEEN.set({} if (known := _SEEN.get()) is None else known)
    try:
        yield
    finally:
        _SEEN.reset(token)


def looked_up(question: Hashable, read: Callable[[], _Value]) -> _Value:
    """Return what `read` finds: inside of `one_look`, what it found the first time."""
    known = _SEEN.get()
    if known is None:
        return read()
    if question not in known:
        known[question] = read()
    return cast("_Value", known[question])


class OneAtATime:
    """Lets one thread at a time work; the others wait, and can be cancelled meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @contextmanager
    def __call__(self, progress: Progress | None = None) -> Iterator[None]:
        """Wait for the other threads. A cancelled `progress` ends the waiting."""
        while not self._lock.acquire(timeout=_POLL_SECONDS):
            if progress is not None:
                progress.report(0, 1, "waiting for other work on this audit")
        try:
            yield
        finally:
            self._lock.release()


def one_or_several(
    asked: str | float | Iterable[str | float],
    every: Callable[[], Sequence[_Value]],
    find: Callable[..., _Value],
) -> list[_Value]:
    """Find one thing by name, or several; "all" stands for every one."""
    if isinstance(asked, str) and asked == "all":
        return list(every())
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        return [find(asked)]
    return [find(one) for one in asked]


def check_key(what: str, given: Any) -> None:
    """Raise a TypeError if something is neither a name nor a number."""
    if not isinstance(given, str | numbers.Real):
        raise TypeError(f"{what} is a name or a number, not {as_code(given)}")
