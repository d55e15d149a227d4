"""Forward passes and scores as files of a run directory."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.source import Scores
from memowidgets.metrics import logit_gap
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.forward import Allocate, Forward
from memowidgets.training.made_in import are_rounded
from memowidgets.visible import listed, visible

__all__ = ["ScoreFiles", "StoredPass", "read_scores", "warn_of"]


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
    """

    def __init__(self, run: RunDirectory, folder: str, weights: str = "") -> None:
        self._run, self._folder, self._weights = run, folder, weights

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether there are usable scores by a metric at a layer."""
        name = self._place(metric, layer)
        return self._why_not(name) is None and self._run.has(name, self._of)

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
        return read_scores(self._run.read_tensors(name, self._of))

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores by a metric at a layer."""
        tensors = {"rows": scores.rows, "score": scores.mu}
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = {"notes": json.dumps(scores.notes)}
        self._run.write_tensors(self._place(metric, layer), tensors, notes, self._weights)

    def _why_not(self, name: str) -> str | None:
        return self._run.why_not(name, self._of, ("rows", "score"))

    @property
    def _of(self) -> str | None:
        return self._weights or None

    def _place(self, metric: str, layer: str) -> str:
        return f"{self._folder}/{layer}/{metric}"


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
        self._scores = ScoreFiles(run, f"scores/{checkpoint}", weights)

    @property
    def exists(self) -> bool:
        """Whether the pass was made, with the checkpoint's own weights."""
        return self._run.has(self._name, self._of)

    @property
    def why_not(self) -> str | None:
        """Why a pass that is on disk cannot be used."""
        return self._run.why_not(self._name, self._of)

    def write(self, seen: Forward) -> None:
        """Keep the output of a module for the members."""
        layers = {f"layer.{name}": values for name, values in seen.layers.items()}
        self._run.write_tensors(
            self._name,
            {"logits": seen.logits, "losses": seen.losses, **layers},
            {"precision": seen.precision},
            self._weights,
        )

    @contextmanager
    def filling(self) -> Iterator[Allocate]:
        """Let a pass write straight into the file, which appears once the block has ended well."""
        made_in = {"precision": self._precision}
        with ExitStack() as stack:

            @lru_cache(maxsize=1)  # a pass that ran out of memory begins again in smaller batches
            def allocate(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
                new = self._run.new_tensors(self._name, dict(shapes), made_in, self._weights)
                return stack.enter_context(new)

            yield lambda shapes: allocate(tuple(shapes.items()))

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        return np.array(self._tensors()["logits"], dtype=np.float32)  # recordings round some

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Logit gap of each member, (n_members,)."""
        return logit_gap(self.logits(), labels)

    def losses(self) -> NDArray[np.float32]:
        """Training loss of each member, (n_members,)."""
        return np.array(self._tensors()["losses"])

    def representation(self, layer: str) -> NDArray[np.float32]:
        """Output of a layer, memory-mapped, (n_members, values).

        Raises
        ------
        StoreError
            If it was not kept: a recording holds some layers at some checkpoints.
        """
        kept = self._tensors()
        if f"layer.{layer}" not in kept:
            there = [name.removeprefix("layer.") for name in kept if name.startswith("layer.")]
            raise StoreError(
                f"the hidden states of layer {visible(layer, 40)} at {self.checkpoint} were not "
                f"kept; those of {listed(there) or 'no layer'} are there"
            )
        states = kept[f"layer.{layer}"]
        return states.astype(np.float32) if states.dtype == np.float16 else states

    def is_scored(self, metric: str, layer: str) -> bool:
        """Whether there are usable scores by a metric at a layer."""
        return self._scores.is_scored(metric, layer)

    def stored(self, metric: str, layer: str) -> Scores | None:
        """Read the scores by a metric at a layer, as `ScoreFiles.stored`."""
        return self._scores.stored(metric, layer)

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores by a metric at a layer."""
        self._scores.store(metric, layer, scores)

    @property
    def _of(self) -> str | None:
        return self._weights or None

    def _tensors(self) -> Tensors:
        kept = self._run.read_tensors(self._name, self._of)
        found = kept.metadata.get("precision") or self._precision
        if self._precision == "float32" and "precision" not in kept.metadata:
            found = "bfloat16" if are_rounded(kept["logits"], gaps=False) else found
        if self._precision and found != self._precision:
            raise StoreError(
                f"{self._run.path / self._name}.safetensors was computed in {found}, and "
                f"{self.checkpoint} was trained in {self._precision}: delete the file, and the "
                "pass is made again"
            )
        return kept


def read_scores(kept: Tensors) -> Scores:
    """Read scores as `ScoreFiles.store` wrote them."""
    return Scores(
        np.array(kept["rows"]),
        np.array(kept["score"]),
        np.array(kept["error"]) if "error" in kept else None,
        tuple(json.loads(kept.metadata.get("notes", "[]"))),
    )


def warn_of(reason: str | None) -> None:
    """Warn that a file on disk cannot be used and is made again; None: there is no such file."""
    if reason is not None:
        warnings.warn(f"{reason}. It is not used, and made again.", UserWarning, stacklevel=3)
