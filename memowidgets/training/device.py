"""Choice of the device to compute on, and its description."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


_GIB = 2**30


@contextmanager
def cpu_threads(limit: int | None) -> Iterator[None]:
    """Limit torch's threads within this context; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if limit is not None and limit < before:
        torch.set_num_threads(limit)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_device(name: str) -> str:
    """Return the device behind a name; ``"auto"`` is a GPU if there is one, else the CPU.

    Raises
    ------
    ValueError
        If torch does not know the name, or the device is not available.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:1, mps") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was requested, but torch finds no CUDA GPU")
    return str(device)


def torch_device(name: str) -> torch.device:
    """Return the device of a name that `resolve_device` returned."""
    import torch

    return torch.device(name)


def device_status(name: str) -> str:
    """Return the device and its memory or threads as a short text."""
    if "torch" not in sys.modules:  # torch was not used yet, and importing it takes seconds
        return name.upper() if name == "cpu" else name
    import torch

    if torch.device(name).type == "cuda":
        free, total = torch.cuda.mem_get_info(name)
        return f"{name}, {(total - free) / _GIB:.1f} of {total / _GIB:.0f} GiB in use"
    threads = torch.get_num_threads()
    return f"{name.upper()}, {threads} thread{'s' if threads != 1 else ''}"
