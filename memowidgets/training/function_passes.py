"""Passes over a model that is no module: its script gives its answers as arrays or functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import to_numpy
from memowidgets.data import Dataset
from memowidgets.files import digest_of_arrays
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import LAYER, Allocate, Forward, in_memory
from memowidgets.training.recorder import Unseen, Weights

if TYPE_CHECKING:
    from torch import nn

_FIRST = 256  # rows whose answers stand for the weights
_LOGITS = "logits"  # the layer of a model that gives no representations

Rows = NDArray[np.int64]
Answer = Callable[[Rows], tuple[Any, Any]]
Source = (
    Any  # an array of all samples, a dictionary of such, or a function of positions
)


def asked_by(source: Source, rows: Rows, what: str) -> Any:
    """Return what a source has of some samples.

    Raises
    ------
    ValueError
        If an array ends before the last of them.
    """
    if callable(source):
        return source(rows)
    if isinstance(source, Mapping):
        return {name: asked_by(each, rows, str(name)) for name, each in source.items()}
    array = np.atleast_1d(to_numpy(source, what))
    if len(array) <= rows.max():
        raise ValueError(
            f"watch.record was given {what} of {len(array)} samples, and position {rows.max()} is "
            "asked for; pass those of all samples of the data in their order, not of rows alone"
        )
    return array[rows]


@dataclass(frozen=True)
class Answers:
    """Passes over samples by a function of rows.

    Attributes
    ----------
    answer : callable
        Function of positions that gives logits, (n, n_classes), and representations, (n, values)
        or ``{layer: array}``, or None.
    places : dict of str to int
        Position of each sample by its id.
    data : Dataset
        The samples of the passes.
    captures : bool
        Whether representations are kept.
    held_out : Dataset or None
        Samples for the test loss and accuracy.
    """

    answer: Answer
    places: Mapping[str, int]
    data: Dataset
    captures: bool = True
    held_out: Dataset | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """Label of each sample, (n,)."""
        return self.data.labels

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, first to last."""
        _, layers = self._ask(np.array(list(self.places.values())[:2]))
        return tuple(layers) if self.captures else ()

    def over(self, data: Dataset, *, capture: bool = True) -> Answers:
        """Return passes over other samples, without or with layers."""
        return replace(self, data=data, captures=capture, held_out=None)

    def beside(self, held_out: Dataset) -> Answers:
        """Return these passes with others over held-out samples."""
        return replace(self, held_out=held_out)

    def look(
        self,
        module: nn.Module,  # noqa: ARG002 - the function has its own
        progress: Progress,  # noqa: ARG002 - it is asked once
        allocate: Allocate,
    ) -> Forward:
        """Ask about all samples.

        Raises
        ------
        ValueError
            If the answers do not fit the samples, or a sample is not among those of the function.
        FloatingPointError
            If a logit is not finite.
        """
        from scipy.special import log_softmax  # a watched loop waits for no SciPy

        names = self.data.ids.tolist()
        unknown = [name for name in names if name not in self.places]
        if unknown:
            raise ValueError(
                f"what watch.record is given has no sample {unknown[0]!r}: held-out samples must "
                "be a share of the data, such as held_out=1/9"
            )
        logits, layers = self._ask(np.array([self.places[name] for name in names]))
        losses = -log_softmax(logits, axis=1)[np.arange(len(names)), self.labels]
        found = {"logits": logits, "losses": losses}
        if self.captures:
            found |= {LAYER + name: values for name, values in layers.items()}
        shapes = {name: values.shape for name, values in found.items()}
        filled = allocate(shapes, "float32")
        for name, values in found.items():
            filled[name][:] = values
        kept = {name: filled[LAYER + name] for name in layers if self.captures}
        return Forward(filled["logits"], filled["losses"], kept)

    def test(self, module: nn.Module, progress: Progress) -> Unseen | None:
        """Ask about the held-out samples, if there are any."""
        if self.held_out is None:
            return None
        others = self.over(self.held_out, capture=False)
        seen = others.look(module, progress, in_memory)
        return Unseen(seen, self.held_out.labels)

    def weights(self, module: nn.Module) -> Weights:  # noqa: ARG002
        """Return a digest of what the function answers for the first rows."""
        logits, _ = self._ask(np.array(list(self.places.values())[:_FIRST]))
        return Weights(digest_of_arrays({"logits": logits}))

    def _ask(self, rows: Rows) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        given, beside = self.answer(rows)
        logits = to_numpy(given, "logits").astype(np.float64)
        wanted = len(rows), len(self.data.class_names)
        if logits.shape != wanted:
            raise ValueError(
                f"watch.record was given logits of shape {logits.shape} for {len(rows)} samples "
                f"and {wanted[1]} classes; they must have the shape {wanted}"
            )
        if not np.isfinite(logits).all():
            raise FloatingPointError(
                "a logit is not finite: the training has diverged, or a probability of 0 has no "
                "logarithm"
            )
        if beside is None:
            beside = {_LOGITS: logits}
        if not isinstance(beside, Mapping):
            beside = {"representations": beside}
        layers = {}
        for name, values in beside.items():
            array = to_numpy(values, f"layer {name}")
            layers[str(name)] = array.reshape(len(rows), -1).astype(np.float32)
        return logits, layers
