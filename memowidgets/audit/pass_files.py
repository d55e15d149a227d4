"""Forward passes as files of a run directory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.kept import AUTO, FLOAT16, FLOAT32, STATES, ScoreFiles
from memowidgets.store import RunDirectory, StoreError, Tensors, TooLargeError
from memowidgets.training.forward import Allocate

STATE_TYPES = (AUTO, FLOAT16, FLOAT32)
LARGE = 1_000_000_000  # bytes of representations in float32, above which "auto" is float16
_MOST_ROUNDING = 2e-5  # of the variance within classes; changes PSMI by .1 standard errors
_ROWS_LOOKED_AT = 2000


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
    states : str
        One of `STATE_TYPES`: the type that a new pass keeps representations in.
    """

    def __init__(
        self,
        run: RunDirectory,
        checkpoint: str,
        precision: str = "",
        weights: str = "",
        place: str = "",
        states: str = FLOAT32,
    ) -> None:
        self._run, self.checkpoint, self._new_states = run, checkpoint, states
        self._name = place or f"forward/{checkpoint}"
        self._precision, self._weights = precision, weights

    @property
    def exists(self) -> bool:
        """Whether the pass was made, with the checkpoint's own weights.

        One in float16 is made again where float32 is asked for.
        """
        if not self._run.has(self._name, self._of):
            return False
        return self._new_states != FLOAT32 or self._states_there() == FLOAT32

    @property
    def why_not(self) -> str | None:
        """Why a pass that is on disk cannot be used."""
        return self._run.why_not(self._name, self._of)

    @property
    def scores(self) -> ScoreFiles:
        """The scores that were computed from it."""
        place = f"scores/{self.checkpoint}"
        return ScoreFiles(self._run, place, self._weights, lambda: self.states)

    @property
    def size(self) -> int:
        """Size of the pass on disk in bytes."""
        return (self._run.path / f"{self._name}.safetensors").stat().st_size

    @property
    def states(self) -> str:
        """Type of the representations: that of the pass on disk, else of the one to be made."""
        return self._states_there() if self.exists else self._new_states

    def _states_there(self) -> str:
        return self._run.read_tensors(self._name, self._of).metadata.get(STATES, FLOAT32)

    def fill(self, make: Callable[[Allocate], object], labels: NDArray[np.int64]) -> None:
        """Let `make` write a pass straight into the file, which appears once it has ended well.

        Representations that do not fit in float16, or vary too little within the classes for its
        11 bits, are made again in float32.
        """
        try:
            with self._filling(self._new_states, labels) as allocate:
                make(allocate)
        except (TooLargeError, _TooCoarse) as error:
            warnings.warn(
                f"the representations at {self.checkpoint} are kept in float32, because {error}, "
                "which float16 cannot hold",
                UserWarning,
                stacklevel=3,
            )
            with self._filling(FLOAT32, labels) as allocate:
                make(allocate)

    @contextmanager
    def _filling(self, states: str, labels: NDArray[np.int64]) -> Iterator[Allocate]:
        made: dict[str, NDArray[Any]] = {}
        with ExitStack() as stack:

            @lru_cache(maxsize=1)  # a pass that ran out of memory begins again in smaller batches
            def allocate(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
                half = halved(dict(shapes), states)
                kind = {STATES: FLOAT16} if half else {}
                made_in = {"precision": self._precision, **kind}
                new = self._run.new_tensors(self._name, dict(shapes), made_in, self._weights, half)
                made.update(stack.enter_context(new))
                return made

            yield lambda shapes: allocate(tuple(shapes.items()))
            for name, values in made.items():
                if values.dtype == np.float16 and _rounding(values, labels) > _MOST_ROUNDING:
                    raise _TooCoarse(
                        f"the values of layer {name.removeprefix('layer.')!r} are tiny, or differ "
                        "too little within the classes for their size"
                    )

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


class _TooCoarse(Exception):  # noqa: N818 - no error: the pass is made again
    """Rounding to float16 changes representations too much."""


def _rounding(values: NDArray[np.float16], labels: NDArray[np.int64]) -> float:
    """Return the variance that rounding adds, as a share of that within classes, from some rows.

    0 for values that were in bfloat16, which float16 holds exactly.
    """
    rows = np.unique(np.linspace(0, len(values) - 1, _ROWS_LOOKED_AT).astype(np.int64))
    halves, (_, classes) = values[rows], np.unique(labels[rows], return_inverse=True)
    if not (halves.view(np.uint16) & 7).any():
        return 0.0
    found, counts = halves.astype(np.float64), np.bincount(classes)
    order, starts = np.argsort(classes, kind="stable"), np.cumsum(counts) - counts
    means = np.add.reduceat(found[order], starts) / counts[:, np.newaxis]
    within = ((found - means[classes]) ** 2).sum() / max(len(rows) - len(counts), 1)
    smallest = np.float64(2.0**-24)
    steps = np.ldexp(1.0, np.frexp(np.maximum(np.abs(found), smallest))[1] - 11).clip(smallest)
    added = (steps**2 / 12).sum() / len(rows)
    return float(added / within) if within else np.inf


def halved(shapes: Mapping[str, tuple[int, ...]], states: str) -> tuple[str, ...]:
    """Return the names of the arrays of a pass that are kept in float16."""
    layers = tuple(name for name in shapes if name.startswith("layer."))
    size = 4 * sum(math.prod(shapes[name]) for name in layers)
    return layers if states == FLOAT16 or (states == AUTO and size > LARGE) else ()


def check_states(states: str) -> None:
    """Raise for an unknown type of representations."""
    if states not in STATE_TYPES:
        raise ValueError(f"unknown states {states!r}; valid: {', '.join(STATE_TYPES)}")
