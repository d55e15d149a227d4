"""Forward pass over many samples: logits, losses and, optionally, representations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import looks_like_probabilities, warn_user
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import modes_kept
from memowidgets.models.device import cpu_threads, described, resolve_precision, room_for, sent
from memowidgets.progress import Progress
from memowidgets.training.config import preserved, restored

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn


FloatArray = NDArray[np.float32]
Shapes = Mapping[str, tuple[int, ...]]
Allocate = Callable[[Shapes, str], Mapping[str, FloatArray]]  # of shapes and a precision
Feed = Callable[[NDArray[Any]], Any]
LAYER = "layer."


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
    made_by : str
        What its rounding depends on: device, versions and size of a batch. Empty if not known.
    """

    logits: FloatArray
    losses: FloatArray
    layers: dict[str, FloatArray]
    precision: str = "float32"
    made_by: str = ""

    def figures(self, labels: NDArray[np.int64]) -> tuple[float, float]:
        """Return the mean loss in nats, and the share whose largest logit is the label's."""
        accuracy = float((self.logits.argmax(axis=1) == labels).mean())
        return float(self.losses.mean(dtype=np.float64)), accuracy


def filled_pass(
    batches: Iterable[tuple[Any, Any]],
    ask: Callable[[Any, Any], Mapping[str, Tensor]],
    n: int,
    n_batches: int,
    precision: Callable[[], str],
    *,
    progress: Progress | None = None,
    what: str = "scoring",
    allocate: Allocate | None = None,
) -> Forward:
    """Ask a module about every batch, and return the answers for all samples.

    Parameters
    ----------
    batches : iterable of (places, inputs)
        The places of a batch in the result, and what the module gets.
    ask : callable
        Function of places and inputs that returns "logits", "losses" and "layer.NAME" of a batch.
    n, n_batches : int
        Number of samples, and of batches.
    precision : callable
        Function that returns the precision of the pass once a batch was asked about.
    progress, what : Progress and str
        Progress, and the text that it shows. It may cancel between two batches.
    allocate : callable, optional
        Function that creates the arrays that the pass fills, from their shapes by name and from the
        precision, and may leave out layers. With memory-mapped arrays the pass needs memory for one
        batch only.

    Raises
    ------
    ValueError
        If a layer has another width in each batch.
    FloatingPointError
        If a loss is not finite, because the training has diverged.
    """
    filled: Mapping[str, FloatArray] = {}
    for done, (places, inputs) in enumerate(batches):
        if progress is not None:
            progress.report(done, n_batches, what)
        answers = ask(places, inputs)
        if not filled:
            shapes = {name: (n, *values.shape[1:]) for name, values in answers.items()}
            filled = (allocate or in_memory)(shapes, precision())
        for name, values in answers.items():
            if name not in filled:
                continue
            if filled[name].shape[1:] != tuple(values.shape[1:]):
                raise ValueError(
                    f"layer {name.removeprefix(LAYER)!r} has {values.shape[1]} values in one batch "
                    f"and {filled[name].shape[1]} in another; pad to one length, or change layers="
                )
            filled[name][places] = values.float().cpu().numpy()
    wrong = ~np.isfinite(filled["losses"])
    if wrong.any():
        raise FloatingPointError(
            f"the loss of {int(wrong.sum())} of {n} samples is not finite: the training has "
            "diverged, so lower the learning rate, or the inputs or the first weights hold NaN"
        )
    layers = {k.removeprefix(LAYER): v for k, v in filled.items() if k.startswith(LAYER)}
    return Forward(filled["logits"], filled["losses"], layers, precision())


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
    allocate: Allocate | None = None,
    feed: Feed | None = None,
) -> Forward:
    """Run a module over samples in eval mode, in which it stays; random states do not change.

    `feed` is the model's feeder of the data in this precision. A new one may copy all images to the
    device again. `progress` and `allocate` are those of `filled_pass`.

    Raises
    ------
    FloatingPointError
        If a loss is not finite, because the training has diverged.
    MemoryError
        If a batch does not fit in the device's memory.
    """
    import torch

    precision = resolve_precision(device, precision)
    feed = feed or model.feeder(data, device, precision)
    module.eval()
    with preserved(device), torch.no_grad(), ExitStack() as stack:
        stack.enter_context(cpu_threads(model.cpu_threads))
        stack.enter_context(model.autocast(device, precision))
        outputs = stack.enter_context(model.captured(module)) if capture else {}
        labels = sent(torch.from_numpy(data.labels[positions]), device)

        def ask(place: Any, inputs: Any) -> dict[str, Tensor]:
            logits, losses = model.outputs(module, inputs, labels[place])
            layers = {LAYER + name: output for name, output in outputs.items()}
            return {"logits": logits, "losses": losses, **layers}

        places = _places(model.lengths(data), positions, model.forward_batch)
        what = f"a forward pass over {min(model.forward_batch, len(positions))} samples at once"
        with room_for(what, "set forward_batch of the model to less, or use a smaller model"):
            found = filled_pass(
                ((place, feed(positions[place])) for place in places),
                ask,
                len(positions),
                len(places),
                lambda: precision,
                progress=progress,
                allocate=allocate,
            )
    if looks_like_probabilities(found.logits):
        warn_user("the module returns probabilities, not logits; leave out its softmax")
    made_by = f"{described(device)}, batches of {model.forward_batch}"
    return replace(found, made_by=made_by)


def in_memory(shapes: Shapes, precision: str) -> dict[str, FloatArray]:
    """Create the arrays of a pass in memory."""
    del precision
    return {name: np.empty(shape, np.float32) for name, shape in shapes.items()}


def end_batches(model: Model, data: Dataset, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the samples in the first and the last batch of a pass over samples.

    In a pass over them alone these are its batches too, so that every number is the same.
    """
    places = _places(model.lengths(data), positions, model.forward_batch)
    every = np.arange(len(positions))
    return np.concatenate([every[place] for place in places[:: max(1, len(places) - 1)]])


def _places(lengths: NDArray[Any] | None, positions: NDArray[np.int64], size: int) -> list[Any]:
    """Return each batch's places, as slices or arrays: similar lengths together, to pad less."""
    starts = range(0, len(positions), size)
    if lengths is None:
        return [slice(start, min(start + size, len(positions))) for start in starts]
    order = np.argsort(lengths[positions], kind="stable")
    return [order[start : start + size] for start in starts]


def unwrap(module: nn.Module) -> nn.Module:
    """Return the module inside of wrappers for several devices, and of torch.compile's."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        inside = getattr(module, "_orig_mod", None)  # of torch.compile
        if isinstance(module, DataParallel | DistributedDataParallel):
            inside = module.module
        if inside is None:
            return module
        module = cast("nn.Module", inside)


def device_of(module: nn.Module) -> torch.device:
    """Return the device of a module's first weight; the CPU if it has none."""
    import torch

    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Put a module in eval mode for passes without gradients, and restore everything afterwards.

    Buffers that a forward pass changed are restored; the others are not written to. An active
    autocast does not remember weights that it casts here without gradients.
    """
    import torch

    device = device_of(module)
    with ExitStack() as stack:
        stack.enter_context(restored(device))
        stack.enter_context(modes_kept(module))
        for part in module.modules():
            part.training = False
        before = [
            (part, name, buffer, buffer.clone())
            for part in module.modules()
            for name, buffer in part._buffers.items()  # noqa: SLF001 - the registered ones
            if buffer is not None
        ]
        stack.enter_context(torch.no_grad())
        kind = device.type
        if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
            stack.enter_context(torch.autocast(kind, dtype, cache_enabled=False))
        try:
            yield
        finally:
            for part, name, buffer, content in before:
                part._buffers[name] = buffer  # noqa: SLF001
                if not torch.equal(buffer, content):
                    buffer.copy_(content)
