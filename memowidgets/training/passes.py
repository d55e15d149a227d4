"""Passes of a user's module over their data: logits, losses and representations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import looks_like_probabilities, warn_user
from memowidgets.models.device import Memory, precision_of
from memowidgets.progress import Progress
from memowidgets.stamps import digest_of_arrays
from memowidgets.training.captured import Capture, Layer, auto_layers, named_layers
from memowidgets.training.checkpoint import arrays_of
from memowidgets.training.forward import (
    LAYER,
    Forward,
    device_of,
    filled_pass,
    in_memory,
    untouched,
)
from memowidgets.training.inputs import Batches, moved
from memowidgets.training.recorder import Allocate, Weights, trained_weights
from memowidgets.visible import listed, quoted

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_TRIED = 2  # samples
_SAMPLED = 1024  # values of a frozen weight in a digest
_FLOAT32, _SHORT = 1e-3, 5e-2  # rounding of logits, on other devices and in other batches


@dataclass(frozen=True)
class Looker:
    """Passes over a module that its user trains: the `Passes` of a recorder.

    Attributes
    ----------
    batches : Batches
        Inputs of the module.
    labels : array of shape (n,), int64
        Label of each sample.
    forward : callable
        Function of module and inputs that gives logits.
    layers : tuple of Layer
        Layers to capture, first to last.
    head : str or None
        Name of the last linear layer, if the layers were chosen automatically.
    held_out : Looker or None
        Passes over samples that the loop does not train on.
    """

    batches: Batches
    labels: NDArray[np.int64]
    forward: Callable[[Any, Any], Any]
    layers: tuple[Layer, ...]
    head: str | None
    held_out: Looker | None = None

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Names of the layers, first to last."""
        return tuple(layer.name for layer in self.layers)

    def look(self, module: nn.Module, progress: Progress, allocate: Allocate) -> Forward:
        """Run the module over all samples. Module and random states stay unchanged.

        `allocate` creates the arrays that the pass fills, once, from their shapes by name and from
        the precision of the pass. Where the GPU's memory is full, the pass begins again in smaller
        batches.

        Raises
        ------
        ValueError
            If the logits do not fit the labels, a layer has another width in each batch, or rows
            are no longer those that were read first.
        FloatingPointError
            If a loss is not finite.
        MemoryError
            If a single sample does not fit into the GPU's memory beside the training.
        """
        device = device_of(module)
        used: list[str] = []

        def precision() -> str:
            return used[-1] if used else precision_of(module, device)

        with untouched(module), Capture(module, self.layers, self.head) as capture:
            self.batches.check_steady()
            note = module.register_forward_pre_hook(
                lambda *_: used.append(precision_of(module, device))
            )

            def work() -> Forward:
                capture.lengths.clear()
                return filled_pass(
                    self.batches,
                    partial(self._answers, module, device, capture),
                    len(self.labels),
                    len(self.batches),
                    precision,
                    progress=progress,
                    what="recording a checkpoint",
                    allocate=lambda shapes: allocate(shapes, precision()),
                )

            try:
                found = Memory(device).fit(work, self.batches.halve)
            finally:
                note.remove()
        _warn_of_padding(capture.lengths)
        return found

    def test(self, module: nn.Module, progress: Progress) -> tuple[float, float] | None:
        """Return the mean loss and the accuracy of the held-out samples, if there are any."""
        if self.held_out is None:
            return None
        seen = self.held_out.look(module, progress, lambda shapes, _precision: in_memory(shapes))
        return seen.figures(self.held_out.labels)

    def weights(self, module: nn.Module) -> Weights:
        """Return the digest alone: of the trained weights, and of some of each other tensor.

        A frozen backbone is large, and another one differs almost everywhere.
        """
        trained = trained_weights(module)
        others = {
            name: _sampled(tensor)
            for name, tensor in tensors_of(module).items()
            if name not in trained and not tensor.is_meta
        }
        of_others = f"-{digest_of_arrays(arrays_of(others))}" if others else ""
        return Weights(digest_of_arrays(arrays_of(trained)) + of_others)

    def difference(self, module: nn.Module, logits: NDArray[np.float32], precision: str) -> float:
        """Return by how much the logits of the first samples differ from those of a pass.

        It is a share of the largest logit; 0 for a difference that rounding explains.
        """
        n = min(self.batches.size, len(self.labels))  # layers may scale by what is in a batch
        with untouched(module):
            inputs = moved(self.batches.first(n), device_of(module))
            here = ask(self.forward, module, inputs, n).float().cpu().numpy().astype(np.float64)
        there = np.asarray(logits[:n], np.float64)
        apart = float(np.abs(here - there).max()) / max(float(np.abs(there).max()), 1e-30)
        return apart if apart > (_FLOAT32 if precision == "float32" else _SHORT) else 0.0

    def _answers(
        self,
        module: nn.Module,
        device: torch.device,
        capture: Capture,
        place: NDArray[np.int64],
        inputs: Any,
    ) -> dict[str, Tensor]:
        import torch
        from torch.nn.functional import cross_entropy

        capture.begin()
        inputs = moved(inputs, device)
        logits = ask(self.forward, module, inputs, len(place))
        rows = capture.rows(logits, inputs)
        logits = logits.float()
        labels = torch.from_numpy(self.labels[place]).to(logits.device)
        return {
            "logits": logits,
            "losses": cross_entropy(logits, labels, reduction="none"),
            **{LAYER + name: values for name, values in rows.items()},
        }


def tried(
    module: nn.Module,
    batches: Batches,
    forward: Callable[[Any, Any], Any],
    layers: str | Sequence[str],
) -> tuple[int, tuple[Layer, ...], str | None]:
    """Run a module on two samples, and return its number of classes, its layers and its head.

    Raises
    ------
    ValueError
        If it does not give logits, or lacks a layer.
    """
    with untouched(module):
        inputs = moved(batches.first(_TRIED), device_of(module))

        def run() -> Tensor:
            return ask(forward, module, inputs, _TRIED)

        logits = run()
        if looks_like_probabilities(logits.float().cpu().numpy()):
            raise ValueError(
                "the module returns probabilities, not logits: each row lies between 0 and 1 and "
                "sums to 1. Pass forward=, a function of (module, inputs) that returns their "
                "logarithm, such as lambda module, inputs: module(inputs).log()"
            )
        n_classes = logits.shape[1]
        if isinstance(layers, str) and layers == "auto":
            return n_classes, *auto_layers(module, run)
        return n_classes, named_layers(module, layers), None


def _warn_of_padding(lengths: Mapping[str, set[int]]) -> None:
    """Warn of layers that were averaged over padding, if batches have different lengths."""
    changing = {name: found for name, found in lengths.items() if len(found) > 1}
    if changing:
        found = set.union(*changing.values())
        warn_user(
            f"batches have {min(found)} to {max(found)} positions and no attention_mask, so the "
            f"mean at {listed(map(quoted, changing), 5)} includes padding and depends on the "
            "batch; give the mask to a parameter attention_mask, or choose layers with layers="
        )


def ask(forward: Callable[[Any, Any], Any], module: nn.Module, inputs: Any, n: int) -> Tensor:
    """Return the logits of a batch of n samples.

    Raises
    ------
    TypeError, ValueError
        If what the forward returns is not a column of logits for each class.
    """
    import torch

    output = forward(module, inputs)
    found = output.get("logits") if isinstance(output, dict) else None
    found = getattr(output, "logits", output) if found is None else found
    advice = "pass forward=, a function of (module, inputs) that returns such logits"
    if isinstance(found, tuple | list) and found:
        _check_first(found, n, advice)
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"the module returns {type(output).__name__}, not logits of shape (batch, classes); "
            f"{advice}"
        )
    if found.ndim != 2 or len(found) != n:
        raise ValueError(
            f"the module returns logits of shape {tuple(found.shape)} for {n} samples, not "
            f"(batch, classes); {advice}"
        )
    if found.shape[1] < 2:
        raise ValueError(
            "the module returns one value for each sample, as regressions and single-logit "
            "classifiers do, not a logit for each class; for a single logit z of two classes pass "
            "forward=, a function that returns torch.cat([0 * z, z], dim=1)"
        )
    return found


def _check_first(outputs: Sequence[Any], n: int, advice: str) -> None:
    """Raise if the first of several outputs is wider than another: features before logits."""
    shapes = [tuple(getattr(each, "shape", ())) for each in outputs]
    tables = [shape for shape in shapes if len(shape) == 2 and shape[0] == n and shape[1] > 1]
    if tables and shapes[0] == tables[0] and shapes[0][1] > min(shape[1] for shape in tables):
        narrow = min(tables, key=lambda shape: shape[1])
        raise ValueError(
            f"the module returns {len(outputs)} outputs, the first {shapes[0]} and another "
            f"{narrow}, so the first may be features and not logits of shape (batch, classes); "
            f"{advice}"
        )


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a module's state by name, those inside of packed layers too."""
    found: dict[str, Tensor] = {}
    for name, value in module.state_dict().items():
        inside = (
            {f"{name}.{i}": each for i, each in enumerate(value)} if type(value) is tuple else {}
        )
        found |= {
            n: each for n, each in (inside or {name: value}).items() if hasattr(each, "detach")
        }
    return found


def _sampled(tensor: Tensor) -> Tensor:
    import torch

    values = tensor.detach()
    if values.is_quantized or type(values) not in (torch.Tensor, torch.nn.Parameter):
        values = values.dequantize()  # such values have no views
    some = values.reshape(-1)[:: max(1, values.numel() // _SAMPLED)]
    return some.float() if some.is_floating_point() else some  # NumPy lacks most short types
