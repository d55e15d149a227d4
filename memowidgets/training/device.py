"""Which device to compute on, and how to say so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

__all__ = ["cpu_threads", "device_status", "resolve_device", "torch_device"]

_GIB = 2**30


@contextmanager
def cpu_threads(limit: int | None) -> Iterator[None]:
    """Let torch use so many threads at most while open; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if limit is not None and limit < before:
        torch.set_num_threads(limit)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_device(name: str) -> str:
    """The device behind a name: ``"auto"`` is a GPU where there is one, else the CPU.

    Raises
    ------
    ValueError
        If torch does not know the name or the device is not there.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:1, mps") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} was asked for, but torch finds no CUDA GPU here")
    return str(device)


def torch_device(name: str) -> torch.device:
    """The device of a name that `resolve_device` gave."""
    import torch

    return torch.device(name)


def device_status(name: str) -> str:
    """The device and its memory in a few words."""
    if "torch" not in sys.modules:  # nothing was computed with it, and loading it takes seconds
        return name.replace("cpu", "CPU")
    import torch

    if torch.device(name).type == "cuda":
        free, total = torch.cuda.mem_get_info(name)
        return f"{name}, {(total - free) / _GIB:.1f} of {total / _GIB:.0f} GiB used"
    threads = torch.get_num_threads()
    return f"{name.replace('cpu', 'CPU')}, {threads} {'thread' if threads == 1 else 'threads'}"
