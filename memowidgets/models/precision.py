"""Whether bfloat16 pays off on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["PRECISIONS", "runs_bfloat16", "uses_bfloat16"]

PRECISIONS = ("auto", "float32", "bfloat16")


def uses_bfloat16(device: torch.device, precision: str) -> bool:
    """Whether matrices are multiplied in bfloat16 at a precision of `PRECISIONS`."""
    return precision == "bfloat16" or (precision == "auto" and runs_bfloat16(device))


def runs_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies matrices in bfloat16, faster than in float32.

    A CPU does so with tile instructions (AMX); with AVX-512 alone it took twice the time of
    float32 where it was measured.
    """
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has_tiles = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return device.type == "cpu" and has_tiles is not None and bool(has_tiles())
