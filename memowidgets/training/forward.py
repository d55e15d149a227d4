"""One pass over many samples: logits, losses and, where asked, every layer's representation."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.progress import Progress
from memowidgets.training.device import cpu_threads
from memowidgets.training.seeds import preserved

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["Forward", "forward"]

FloatArray = NDArray[np.float32]
_LAYER = "layer."


@dataclass(frozen=True)
class Forward:
    """What a module says of n samples.

    Attributes
    ----------
    logits : array of shape (n, n_classes), float32
        Unnormalised log probabilities.
    losses : array of shape (n,), float32
        The training loss of each sample's label, in nats.
    layers : dict of array of shape (n, values), float32
        The representation after each layer, by name; empty unless captured.
    """

    logits: FloatArray
    losses: FloatArray
    layers: dict[str, FloatArray]

    def accuracy(self, labels: NDArray[np.int64]) -> float:
        """Share of the samples whose largest logit is the label's."""
        return float((self.logits.argmax(axis=1) == labels).mean())

    def figures(self, labels: NDArray[np.int64]) -> tuple[float, float]:
        """Mean loss, in nats, and accuracy."""
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
) -> Forward:
    """Run a module over samples in eval mode; its mode and all random states stay as they were.

    Raises
    ------
    FloatingPointError
        If a loss is not finite: the training has diverged.
    """
    import torch

    feed = model.feeder(data, device)
    order = _by_length(model.lengths(data), positions)
    size = model.forward_batch
    batches = [positions[order[i : i + size]] for i in range(0, len(order), size)]
    parts: list[dict[str, NDArray[Any]]] = []
    training = module.training
    module.eval()
    try:
        with preserved(), torch.no_grad(), ExitStack() as stack:
            stack.enter_context(cpu_threads(model.cpu_threads))
            stack.enter_context(model.autocast(device, precision))
            layers = stack.enter_context(model.captured(module)) if capture else {}
            for done, batch in enumerate(batches):
                if progress is not None:
                    progress.report(done, len(batches), what)
                labels = torch.from_numpy(data.labels[batch]).to(device)
                logits, losses = model.outputs(module, feed(batch), labels)
                kept = {"logits": logits, "losses": losses}
                kept |= {_LAYER + name: output for name, output in layers.items()}
                parts.append({k: v.float().cpu().numpy() for k, v in kept.items()})
    finally:
        module.train(training)
    back = np.argsort(order)
    joined = {name: np.concatenate([part[name] for part in parts])[back] for name in parts[0]}
    _check_finite(joined["losses"])
    return Forward(
        joined.pop("logits"),
        joined.pop("losses"),
        {name.removeprefix(_LAYER): values for name, values in joined.items()},
    )


def _by_length(lengths: NDArray[Any] | None, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """An order in which samples of like length stand together: batches need little padding."""
    if lengths is None:
        return np.arange(len(positions))
    return np.argsort(lengths[positions], kind="stable")


def _check_finite(losses: FloatArray) -> None:
    wrong = ~np.isfinite(losses)
    if wrong.any():
        raise FloatingPointError(
            f"the loss of {int(wrong.sum())} of {len(losses)} samples is not finite: the training "
            "has diverged; lower the learning rate"
        )
