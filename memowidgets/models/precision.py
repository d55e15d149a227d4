"""Precision of matrix products: the requested one, and what a device supports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


COMPUTED = ("float32", "bfloat16")
PRECISIONS = ("auto", *COMPUTED)


def resolve_precision(device: torch.device, precision: str) -> str:
    """Return the precision of `COMPUTED` that one of `PRECISIONS` means on a device."""
    if precision != "auto":
        return precision
    return "bfloat16" if runs_bfloat16(device) else "float32"


def runs_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies matrices faster in bfloat16 than in float32.

    A CPU does so with tile instructions (AMX). With AVX-512 alone it took twice the time of float32
    in a measurement.
    """
    import torch

    if device.type == "cuda":
        index: int | None = device.index
        # torch asks the current GPU, and GPUs differ.
        with nullcontext() if index is None else torch.cuda.device(index):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return device.type == "cpu" and has_tiles is not None and bool(has_tiles())


def check_available(device: torch.device, precision: str) -> None:
    """Raise for a precision that a device cannot compute in.

    Raises
    ------
    ValueError
        If the precision is not one of `COMPUTED`, or torch has no autocast for the device.
    """
    import torch

    if precision not in COMPUTED:
        raise ValueError(
            f"an audit cannot compute in {precision!r}, only in {' or '.join(COMPUTED)}"
        )
    if precision != "float32" and not torch.amp.is_autocast_available(device.type):
        raise ValueError(
            f"the device {device} cannot compute in {precision}, the precision of this run; "
            'pass device="cpu"'
        )


@contextmanager
def used_precision(model: Any) -> Iterator[list[str]]:
    """Within this context, every pass of a model of transformers adds its precision to the list.

    The precision is the dtype of an autocast that is active in the model's own forward. Without
    one, it is the dtype of most of its weights.
    """
    import torch

    found: list[str] = []
    weights = [p.dtype for p in model.parameters() if p.is_floating_point()]
    device = next(model.parameters()).device.type

    def note(*_: object) -> None:
        active = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if active else max(weights, key=weights.count)
        found.append(str(dtype).removeprefix("torch."))

    hooks = [part.register_forward_pre_hook(note) for part in _first_parts(model)]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _first_parts(model: Any) -> list[Any]:
    """Return the input embeddings; the first part with weights of its own if there are none."""
    try:
        embeddings = model.get_input_embeddings()
    except NotImplementedError:  # some models of images
        embeddings = None
    if hasattr(embeddings, "register_forward_pre_hook"):
        return [embeddings]
    return [part for part in model.modules() if part._parameters][:1]  # noqa: SLF001
