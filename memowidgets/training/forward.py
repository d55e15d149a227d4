"""Forward pass over many samples: logits, losses and, optionally, representations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import looks_like_probabilities, warn_user
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.memory import sent
from memowidgets.models.precision import resolve_precision
from memowidgets.progress import Progress
from memowidgets.store import put_rows
from memowidgets.training.device import cpu_threads
from memowidgets.training.seeds import preserved

if TYPE_CHECKING:
    import torch
    from torch import nn


FloatArray = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]
Allocate = Callable[[Shapes], Mapping[str, FloatArray]]
Feed = Callable[[NDArray[Any]], Any]
_LAYER = "layer."


@dataclass(frozen=True)
class Forward:
    """Result of a forward pass over n samples.

    Attributes
    ----------
    logits : array of shape (n, n_classes), float32
        Unnormalised log-probabilities.
    losses : array of shape (n,), float32
        Training loss of each sample's label, in nats (natural logarithms).
    layers : dict of array of shape (n, values), float32
        Representation after each layer, by name. Empty if none was captured.
    precision : str
        Precision of the matrix products: "float32" or "bfloat16".
    """

    logits: FloatArray
    losses: FloatArray
    layers: dict[str, FloatArray]
    precision: str = "float32"

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Return the share of the samples whose largest logit is the label's."""
        return float((self.logits.argmax(axis=1) == labels).mean())

    def figures(self, labels: NDArray[np.int64]) -> tuple[float, float]:
        """Return the mean loss in nats, and the accuracy."""
        return float(self.losses.mean(dtype=np.float64)), self.accuracy(labels)


def forward(
    model: Model,
    module: nn.Module,
    data: Dataset,
    positions: NDArray[np.int64],
    device: torch.device,
    precision: str,
    *,
    capture: bool = False,
    progress: Progress | None = None,
    what: str = "scoring",
    allocate: Allocate | None = None,
    feed: Feed | None = None,
) -> Forward:
    """Run a module over samples in eval mode, in which it stays; random states do not change.

    `feed` is the model's feeder of the data in this precision. A new one may copy all images to the
    device again.

    `allocate` creates the arrays that the pass fills, from their shapes by name: "logits", "losses"
    and "layer.NAME". With memory-mapped arrays the pass needs memory for one batch only.

    Raises
    ------
    FloatingPointError
        If a loss is not finite, because the training has diverged.
    """
    import torch

    precision = resolve_precision(device, precision)
    feed = feed or model.feeder_at(data, device, precision)
    places = _places(model.lengths(data), positions, model.forward_batch)
    filled: Mapping[str, FloatArray] = {}
    module.eval()
    with preserved(device), torch.no_grad(), ExitStack() as stack:
        stack.enter_context(cpu_threads(model.cpu_threads))
        stack.enter_context(model.autocast(device, precision))
        outputs = stack.enter_context(model.captured(module)) if capture else {}
        labels = sent(torch.from_numpy(data.labels[positions]), device)
        for done, place in enumerate(places):
            if progress is not None:
                progress.report(done, len(places), what)
            logits, losses = model.outputs(module, feed(positions[place]), labels[place])
            kept = {"logits": logits, "losses": losses}
            kept |= {_LAYER + name: output for name, output in outputs.items()}
            if not filled:
                shapes = {k: (len(positions), *v.shape[1:]) for k, v in kept.items()}
                filled = (allocate or _in_memory)(shapes)
            for name, output in kept.items():
                put_rows(filled[name], place, output.float().cpu().numpy())
    check_finite(filled["losses"])
    if looks_like_probabilities(filled["logits"]):
        warn_user(
            "the module returns probabilities, not logits: each row lies between 0 and 1 and sums "
            "to 1. The loss and the logit gap expect logits; leave out the module's softmax"
        )
    layers = {k.removeprefix(_LAYER): v for k, v in filled.items() if k.startswith(_LAYER)}
    return Forward(filled["logits"], filled["losses"], layers, precision)


def halve_passes(model: Model) -> int:
    """Halve the batches of a model's passes, and return their size; 0 changes nothing."""
    smaller = model.forward_batch // 2
    if smaller:
        vars(model)["forward_batch"] = smaller  # changes this model, not its class
    return smaller


def _in_memory(shapes: Shapes) -> dict[str, FloatArray]:
    return {name: np.empty(shape, np.float32) for name, shape in shapes.items()}


def _places(lengths: NDArray[Any] | None, positions: NDArray[np.int64], size: int) -> list[Any]:
    """Return each batch's places, as slices or arrays: similar lengths together, to pad less."""
    starts = range(0, len(positions), size)
    if lengths is None:
        return [slice(start, min(start + size, len(positions))) for start in starts]
    order = np.argsort(lengths[positions], kind="stable")
    return [order[start : start + size] for start in starts]


def check_finite(losses: FloatArray) -> None:
    """Raise for losses of a training that has diverged, or of inputs or weights with NaN."""
    wrong = ~np.isfinite(losses)
    if wrong.any():
        raise FloatingPointError(
            f"the loss of {int(wrong.sum())} of {len(losses)} samples is not finite: the training "
            "has diverged, so lower the learning rate, or the inputs or the first weights hold NaN"
        )
