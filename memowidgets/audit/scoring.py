"""Scores of the target's members from one forward pass a checkpoint, kept on disk."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics import PSMI, Mahalanobis, logit_gap
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.forward import Allocate, Forward
from memowidgets.training.made_in import are_rounded
from memowidgets.visible import listed, visible

__all__ = ["METRICS", "Metric", "Pass", "Scores", "score_pass"]

METRICS = ("psmi", "loss", "logit_gap", "mahalanobis")
PER_LAYER = ("psmi", "mahalanobis")
_SMALLEST_CLASS = 2
_FEWEST_CLASSES = 2

Metric = Callable[[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]], NDArray[Any]]


@dataclass(frozen=True)
class Scores:
    """Scores of one metric; low means risk.

    Attributes
    ----------
    rows : array of shape (n_scored,), int64
        Which of the target's members were scored, as positions among them.
    mu : array of shape (n_scored,), float64
        Their scores.
    errors : array of shape (n_scored,), float64, or None
        Standard error of each, where the metric knows it.
    notes : tuple of str
        What the metric says of the data it was fitted on.
    """

    rows: NDArray[np.int64]
    mu: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()


class Pass:
    """The forward pass of a checkpoint over the target's members, on disk.

    Parameters
    ----------
    run : RunDirectory
        Where it is.
    checkpoint : str
        Name of the checkpoint.
    precision : str
        In which the pass is made; one of another is refused. Empty: not checked.
    weights : str
        Digest of the checkpoint's weights; a pass of others is refused. Empty: not checked.
    """

    def __init__(
        self, run: RunDirectory, checkpoint: str, precision: str = "", weights: str = ""
    ) -> None:
        self._run, self.checkpoint = run, checkpoint
        self._precision, self._weights = precision, weights

    @property
    def exists(self) -> bool:
        """Whether the pass was made, by the checkpoint's own weights."""
        return self._run.has(self._name, self._of)

    @property
    def why_not(self) -> str | None:
        """Why a pass that is on disk can't be used."""
        return self._run.why_not(self._name, self._of)

    def write(self, seen: Forward) -> None:
        """Keep what a module said of the members."""
        layers = {f"layer.{name}": values for name, values in seen.layers.items()}
        self._run.write_tensors(
            self._name,
            {"logits": seen.logits, "losses": seen.losses, **layers},
            {"precision": seen.precision},
            self._weights,
        )

    @contextmanager
    def filling(self) -> Iterator[Allocate]:
        """Let a pass write straight into the file; it is there once the block ends well."""
        made_in = {"precision": self._precision}
        with ExitStack() as stack:

            @lru_cache(maxsize=1)  # a pass that ran out of memory begins again in smaller batches
            def allocate(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> Any:
                new = self._run.new_tensors(self._name, dict(shapes), made_in, self._weights)
                return stack.enter_context(new)

            yield lambda shapes: allocate(tuple(shapes.items()))

    def logits(self) -> NDArray[np.float32]:
        """Logits of shape (n_members, n_classes)."""
        return np.array(self._tensors()["logits"])

    def gaps(self, labels: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """The logit gap of each member, (n_members,)."""
        return logit_gap(self.logits(), labels)

    def losses(self) -> NDArray[np.float32]:
        """The training loss of each member, (n_members,)."""
        return np.array(self._tensors()["losses"])

    def representation(self, layer: str) -> NDArray[np.float32]:
        """A layer's output, memory-mapped, (n_members, values).

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
                "kept; "
                "those of "
                f"{listed(there) or 'no layer'} are there"
            )
        states = kept[f"layer.{layer}"]
        return states.astype(np.float32) if states.dtype == np.float16 else states

    def stored(self, metric: str, layer: str, *, warn: bool = True) -> Tensors | None:
        """The scores of this pass by a metric at a layer; None where they were not computed.

        Warns
        -----
        UserWarning
            If they are on disk and can't be used, unless `warn` is False.
        """
        name = self._place_of(metric, layer)
        reason = self._run.why_not(name, self._of, ("rows", "score"))
        if warn:
            warn_of(reason)
        usable = reason is None and self._run.has(name, self._of)
        return self._run.read_tensors(name, self._of) if usable else None

    def store(self, metric: str, layer: str, scores: Scores) -> None:
        """Keep the scores of this pass by a metric at a layer."""
        tensors = {"rows": scores.rows, "score": scores.mu}
        if scores.errors is not None:
            tensors["error"] = scores.errors
        notes = {"notes": json.dumps(scores.notes)}
        self._run.write_tensors(self._place_of(metric, layer), tensors, notes, self._weights)

    @property
    def _name(self) -> str:
        return f"forward/{self.checkpoint}"

    def _place_of(self, metric: str, layer: str) -> str:
        return f"scores/{self.checkpoint}/{layer}/{metric}"

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


def score_pass(
    made: Pass,
    metric: str,
    layer: str,
    labels: NDArray[np.int64],
    seed: int,
    progress: Progress,
) -> Scores:
    """One metric at one layer; read from disk where it was computed before."""
    if metric not in PER_LAYER:
        values = -made.losses() if metric == "loss" else made.gaps(labels)
        return Scores(np.arange(len(labels)), values.astype(np.float64))
    kept = made.stored(metric, layer)
    if kept is not None:
        return _read(kept)
    progress.report(0, 1, f"computing {metric} at {layer}")
    scores = _computed(metric, made.representation(layer), labels, seed)
    try:
        made.store(metric, layer, scores)
    except StoreError as error:
        warnings.warn(f"the scores are not kept: {error}", UserWarning, stacklevel=2)
    return scores


def warn_of(reason: str | None) -> None:
    """Say why a file is not used, where it is there, and that it is made again."""
    if reason is not None:
        warnings.warn(f"{reason}. It is not used, and made again.", UserWarning, stacklevel=3)


def scorable(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the samples whose class has at least two members: PSMI needs a deviation."""
    counts = np.bincount(labels)
    return np.flatnonzero(counts[labels] >= _SMALLEST_CLASS)


def _computed(
    metric: str, representation: NDArray[np.float32], labels: NDArray[np.int64], seed: int
) -> Scores:
    if metric == "mahalanobis":
        fitted = Mahalanobis().fit(representation)
        values = fitted.score_samples(representation)
        return Scores(np.arange(len(labels)), values, notes=fitted.warnings_)
    rows = scorable(labels)
    x, y = representation[rows], labels[rows]
    if len(np.unique(y)) < _FEWEST_CLASSES:
        raise ValueError(
            f"PSMI needs two classes of two members or more; of {len(labels)} members "
            f"{len(rows)} are in such a class, {len(np.unique(y))} classes in all"
        )
    psmi = PSMI(random_state=seed).fit(x, y)
    values, errors = psmi.score_samples(x, y, return_std=True)
    return Scores(rows, values, errors, psmi.warnings_)


def _read(kept: Tensors) -> Scores:
    return Scores(
        np.array(kept["rows"]),
        np.array(kept["score"]),
        np.array(kept["error"]) if "error" in kept else None,
        tuple(json.loads(kept.metadata.get("notes", "[]"))),
    )
