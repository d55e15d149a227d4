"""A pass over a user's module that leaves module, gradients and random states as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, cast

from memowidgets.models.modes import modes_kept
from memowidgets.training.seeds import restored

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["device_of", "untouched", "unwrapped"]


def unwrapped(module: nn.Module) -> nn.Module:
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
    """Put a module in eval mode for passes without gradients, and restore everything afterwards."""
    import torch

    device = device_of(module)
    with ExitStack() as stack:
        stack.enter_context(restored(device))
        stack.enter_context(modes_kept(module))
        for part in module.modules():
            part.training = False
        stack.enter_context(_buffers_kept(module))
        stack.enter_context(torch.no_grad())
        stack.enter_context(_casts_not_kept(device))
        yield


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    """Restore the buffers that a forward pass changed; the others are not written to."""
    import torch

    before = [
        (part, name, buffer, buffer.clone())
        for part in module.modules()
        for name, buffer in part._buffers.items()  # noqa: SLF001 - the registered ones
        if buffer is not None
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for part, name, buffer, content in before:
                part._buffers[name] = buffer  # noqa: SLF001
                if not torch.equal(buffer, content):
                    buffer.copy_(content)


@contextmanager
def _casts_not_kept(device: torch.device) -> Iterator[None]:
    """Keep an active autocast from remembering weights that it casts here without gradients."""
    import torch

    kind = device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        yield
        return
    with torch.autocast(kind, torch.get_autocast_dtype(kind), cache_enabled=False):
        yield
