"""What was computed, and where it is kept: scores in memory and as files of a run, and passes."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.forward import Allocate, Shapes
from memowidgets.training.rho import Record
from memowidgets.vocabulary import Note

if TYPE_CHECKING:
    from memowidgets.evaluation.scored import Scored

# How a score is computed from representations. To be raised with each change of its values: scores
# of another version are computed again.
METHODS = {"psmi": 2, "mahalanobis": 1}
_METHOD = "method"
_Value = TypeVar("_Value")


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

    def known(self, question: Hashable, state: Hashable) -> Any:
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
        Digest of the weights that the scores must come from. Empty: not checked.
    """

    run: RunDirectory
    folder: str
    weights: str = ""

    def file(self, metric: str, layer: str, *, warns: bool) -> Tensors | None:
        """Return the file of the scores by a metric, if it is there, usable and of today's method.

        Warns
        -----
        UserWarning
            If the file cannot be used, and `warns`.
        """
        name, of = f"{self.folder}/{layer}/{metric}", self.weights or None
        if warns:
            warn_of(self.run.why_not(name, of))
        if not self.run.has(name, of):
            return None
        kept = self.run.read_tensors(name, of)
        return kept if kept.metadata.get(_METHOD) == str(METHODS.get(metric, 1)) else None


class KeptScores:
    """Scores that were computed before: on disk if the evidence has a folder, else in memory.

    Parameters
    ----------
    cache : Cache
        The memory.
    place : callable or None
        Function of a checkpoint's record and a layer that returns where they lie on disk.
    read_only : bool
        Whether nothing can be written there: then new scores stay in memory.
    """

    def __init__(
        self,
        cache: Cache,
        place: Callable[[Record, str], ScorePlace] | None = None,
        *,
        read_only: bool = True,
    ) -> None:
        self._cache, self._place = cache, place
        self._read_only = read_only

    def _file(self, metric: str, layer: str, record: Record, *, warns: bool) -> Tensors | None:
        if self._place is None:
            return None
        return self._place(record, layer).file(metric, layer, warns=warns)

    def has(self, metric: str, layer: str, record: Record, state: Hashable) -> bool:
        """Whether `find` has an answer. `state` changes when what they come from does."""
        if self._cache.known(("score", metric, layer, record.name), state) is not None:
            return True
        return self._file(metric, layer, record, warns=False) is not None

    def find(self, metric: str, layer: str, record: Record, state: Hashable) -> Scored | None:
        """Return the scores by a metric at a layer of a checkpoint, if they are kept."""
        held = self._cache.known(("score", metric, layer, record.name), state)
        if held is not None:
            return cast("Scored", held)
        from memowidgets.evaluation.scored import Scored  # SciPy, which a watched loop needs not

        kept = self._file(metric, layer, record, warns=True)
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
        if self._place is None or self._read_only:
            self._cache.of(("score", metric, layer, record.name), state, lambda: scores)
            return
        run, folder, weights = self._place(record, layer)
        tensors: dict[str, NDArray[Any]] = {"score": scores.scores}
        if not np.array_equal(scores.positions, np.arange(len(scores))):  # some have none
            tensors["rows"] = scores.positions
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = json.dumps([[note.key, note, note.numbers] for note in scores.notes])
        stored = {"notes": notes, _METHOD: str(METHODS.get(metric, 1))}
        run.write_tensors(f"{folder}/{layer}/{metric}", tensors, stored, weights)


def _note(kept: Any) -> Note:
    if isinstance(kept, str):  # of a recording, all of whose notes are about a ridge
        return Note("ridge", kept)
    key, sentence, numbers = kept
    return Note(key, sentence, **numbers)


def warn_of(reason: str | None) -> None:
    """Warn that a file on disk cannot be used and is made again; None: there is no such file."""
    if reason is not None:
        warn_user(f"{reason}. It is not used, and made again.")


class StoredPass:
    """The forward pass of a checkpoint over the target's members, as a file of a run directory.

    Parameters
    ----------
    run : RunDirectory
        Where it is.
    checkpoint : str
        Name of the checkpoint.
    precision : str
        Precision that the pass is made in; a pass in another one is refused. Empty: not checked.
    weights : str
        Digest of the checkpoint's weights; a pass of others is refused. Empty: not checked.
    place : str
        Where it is in the run directory. Default: in the folder of passes.
    """

    def __init__(
        self,
        run: RunDirectory,
        checkpoint: str,
        precision: str = "",
        weights: str = "",
        place: str = "",
    ) -> None:
        self._run, self.checkpoint = run, checkpoint
        self._name = place or f"forward/{checkpoint}"
        self._precision, self._weights = precision, weights

    @property
    def exists(self) -> bool:
        """Whether the pass was made, with the checkpoint's own weights."""
        return self._run.has(self._name, self._of)

    @property
    def why_not(self) -> str | None:
        """Why a pass that is on disk cannot be used."""
        return self._run.why_not(self._name, self._of)

    @property
    def scores(self) -> ScorePlace:
        """The scores that were computed from it."""
        place = f"scores/{self.checkpoint}"
        return ScorePlace(self._run, place, self._weights)

    @property
    def size(self) -> int:
        """Size of the pass on disk in bytes."""
        return (self._run.path / f"{self._name}.safetensors").stat().st_size

    def fill(self, make: Callable[[Allocate], object]) -> None:
        """Let `make` write a pass straight into the file, which appears once it has ended well."""
        with ExitStack() as stack:

            def allocate(shapes: Shapes) -> dict[str, NDArray[Any]]:
                made_in = {"precision": self._precision}
                new = self._run.new_tensors(self._name, shapes, made_in, self._weights)
                return stack.enter_context(new)

            make(allocate)

    @property
    def _of(self) -> str | None:
        return self._weights or None

    def tensors(self) -> Tensors:
        """Return the arrays, memory-mapped: logits, losses, and representations by layer.

        Raises
        ------
        StoreError
            If they are of another precision than the checkpoint.
        """
        kept = self._run.read_tensors(self._name, self._of)
        found = kept.metadata.get("precision")
        if self._precision and found != self._precision:
            raise StoreError(
                f"{self._run.path / self._name}.safetensors was computed in {found}, and "
                f"{self.checkpoint} was trained in {self._precision}: delete the file, and the "
                "pass is made again"
            )
        return kept
