"""Scores that were computed, and where they are kept: in memory, and as files of a run."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.store import RunDirectory, Tensors
from memowidgets.training.rho import Record

if TYPE_CHECKING:
    from memowidgets.audit.evidence import Checkpoint

AUTO, FLOAT16, FLOAT32 = "auto", "float16", "float32"  # types of representations
STATES = "states"  # in the files of passes and scores
# How a score is computed from representations. To be raised with each change of its values: scores
# of another version are computed again.
METHODS = {"psmi": 1, "mahalanobis": 1}
_METHOD = "method"
_Value = TypeVar("_Value")


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

    def copy(self) -> Self:
        """Return scores that share no array with these: what a user changes stays theirs."""
        errors = None if self.errors is None else self.errors.copy()
        return replace(self, rows=self.rows.copy(), mu=self.mu.copy(), errors=errors)


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


class ScoreFiles:
    """The scores computed from one forward pass, one file for each metric and layer.

    Parameters
    ----------
    run : RunDirectory
        Where the files are.
    folder : str
        Their folder in it.
    weights : str
        Digest of the weights that the scores must come from. Empty: not checked.
    states : callable
        Function that returns the type of the representations that the scores must come from.
    """

    def __init__(
        self,
        run: RunDirectory,
        folder: str,
        weights: str = "",
        states: Callable[[], str] = lambda: FLOAT32,
    ) -> None:
        self._run, self._folder, self._weights = run, folder, weights
        self._states = states

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether there are usable scores by a metric at a layer."""
        name = self._place(metric, layer)
        if self._why_not(name) is not None or not self._run.has(name, self._of):
            return False
        return self._is_current(metric, self._run.read_tensors(name, self._of))

    def stored(self, metric: str, layer: str) -> Scores | None:
        """Read the scores by a metric at a layer; None if they were not computed.

        Warns
        -----
        UserWarning
            If the file cannot be used.
        """
        name = self._place(metric, layer)
        reason = self._why_not(name)
        warn_of(reason)
        if reason is not None or not self._run.has(name, self._of):
            return None
        kept = self._run.read_tensors(name, self._of)
        if not self._is_current(metric, kept):
            return None
        values = np.array(kept["score"])
        return Scores(
            np.array(kept["rows"]) if "rows" in kept else np.arange(len(values)),
            values,
            np.array(kept["error"]) if "error" in kept else None,
            tuple(json.loads(kept.metadata.get("notes", "[]"))),
        )

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores by a metric at a layer."""
        tensors: dict[str, NDArray[Any]] = {"score": scores.mu}
        if not np.array_equal(scores.rows, np.arange(len(scores.rows))):  # some have none
            tensors["rows"] = scores.rows
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = {
            "notes": json.dumps(scores.notes),
            STATES: self._states(),
            _METHOD: str(METHODS.get(metric, 1)),
        }
        self._run.write_tensors(self._place(metric, layer), tensors, notes, self._weights)

    def _is_current(self, metric: str, kept: Tensors) -> bool:
        """Return whether scores are of today's method, and of the type of representations there."""
        if kept.metadata.get(_METHOD) != str(METHODS.get(metric, 1)):
            return False
        return self._states() in (AUTO, kept.metadata.get(STATES, FLOAT32))

    def _why_not(self, name: str) -> str | None:
        return self._run.why_not(name, self._of, ("score",))

    @property
    def _of(self) -> str | None:
        return self._weights or None

    def _place(self, metric: str, layer: str) -> str:
        return f"{self._folder}/{layer}/{metric}"


class KeptScores:
    """Scores that were computed before: on disk if the evidence has a folder, else in memory.

    Parameters
    ----------
    cache : Cache
        The memory.
    files : callable or None
        Function of a checkpoint's record and a layer that returns where they lie on disk.
    read_only : bool
        Whether nothing can be written there.
    remember : bool
        Whether new scores stay in memory, too.
    """

    def __init__(
        self,
        cache: Cache,
        files: Callable[[Record, str], ScoreFiles] | None = None,
        *,
        read_only: bool = True,
        remember: bool = True,
    ) -> None:
        self._cache, self._files = cache, files
        self._read_only, self._remember = read_only, remember

    def has(self, metric: str, layer: str, at: Checkpoint) -> bool:
        """Whether `find` has an answer."""
        if self._cache.known(("score", metric, layer, at.record.name), at.state) is not None:
            return True
        return self._files is not None and self._files(at.record, layer).is_scored(metric, layer)

    def find(self, metric: str, layer: str, at: Checkpoint) -> Scores | None:
        """Return the scores by a metric at a layer of a checkpoint, if they are kept."""
        held = self._cache.known(("score", metric, layer, at.record.name), at.state)
        if held is not None:
            return cast("Scores", held).copy()
        return None if self._files is None else self._files(at.record, layer).stored(metric, layer)

    def keep(self, metric: str, layer: str, at: Checkpoint, scores: Scores) -> None:
        """Keep the scores by a metric at a layer of a checkpoint.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        if self._remember:
            question = "score", metric, layer, at.record.name
            self._cache.of(question, at.state, scores.copy)
        if self._files is not None and not self._read_only:
            self._files(at.record, layer).store(metric, layer, scores)


def warn_of(reason: str | None) -> None:
    """Warn that a file on disk cannot be used and is made again; None: there is no such file."""
    if reason is not None:
        warnings.warn(f"{reason}. It is not used, and made again.", UserWarning, stacklevel=3)
