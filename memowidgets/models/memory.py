"""The memory of a device: work in smaller batches where it is full, and giving it back."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_TOO_LARGE = (
    "the GPU's memory cannot hold {} this model; use a smaller model, or device='cpu'. What is "
    "finished is kept"
)
_SMALLER = (
    "the GPU ran out of memory, so batches are processed in smaller parts, with the same gradients "
    "except for batch norms and for what is drawn at random, as in dropout"
)

_FULL = (  # what libraries beside torch's allocator say
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device's memory is full."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _FULL)


def answers(device: torch.device) -> bool:
    """Return whether a device still computes; after an error that broke it, none does."""
    import torch

    try:
        return float((torch.ones(1, device=device) + 1).cpu()) == 2
    except RuntimeError:
        return False


class Memory:
    """Work in smaller batches on a device whose memory is too small; warns of it once.

    Parameters
    ----------
    device : torch.device
        The device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._said = device, False

    def fit(self, work: Callable[[], Result], halve: Callable[[], int]) -> Result:
        """Repeat work while the memory is full, with batches that `halve` makes smaller.

        Raises
        ------
        MemoryError
            If `halve` returns 0, because a batch has one sample already.
        """
        while True:
            try:
                return work()
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                full = error.with_traceback(None)  # its frames hold what was computed
            if not halve():
                raise MemoryError(_TOO_LARGE.format("a single sample of")) from full
            free_memory(self._device)
            if not self._said:
                warnings.warn(_SMALLER, UserWarning, stacklevel=2)
            self._said = True

    def hold(self, work: Callable[[], Result]) -> Result:
        """Do work that does not depend on the batch size, and explain a lack of memory."""
        try:
            return work()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            what = "the weights, or the optimizer's state, of"
            raise MemoryError(_TOO_LARGE.format(what)) from error


def free_main_memory(root: Path = Path("/")) -> int:
    """Return how many bytes of main memory this process can still take.

    A container or a cluster's job has a limit, by control groups of version 1 or 2. What they count
    as used has files in it that the system drops when memory is needed.

    Parameters
    ----------
    root : Path
        Folder in which the system's own folders are.
    """
    import psutil

    free = [int(psutil.virtual_memory().available)]
    lines: list[str] = []
    with suppress(OSError):  # not Linux
        lines = (root / "proc/self/cgroup").read_text("utf-8").splitlines()
    for line in lines:
        _, kinds, group = line.split(":", 2)
        base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        if "memory" in kinds.split(","):
            base /= "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif kinds:
            continue
        limit, used, dropped = names
        place = base / group.lstrip("/")
        for folder in (place, *place.parents):  # the limit of each group holds for those in it
            with suppress(OSError, ValueError):  # a container sees its own only; "max" is no limit
                most = int((folder / limit).read_text("utf-8"))
                taken = int((folder / used).read_text("utf-8"))
                about = (folder / "memory.stat").read_text("utf-8").split()
                files = dict(zip(about[::2], about[1::2], strict=True)).get(dropped, "0")
                free.append(max(0, most - taken + int(files)))
            if folder == base:
                break
    return min(free)


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on a device; its copy to CUDA does not wait for what CUDA is computing."""
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def free_memory(device: torch.device) -> None:
    """Give back the memory of a device that this process keeps for later tensors.

    A device that has failed keeps its memory, and whoever computes on it next says that it failed.
    """
    if device.type == "cpu":
        return
    gc.collect()  # modules have cycles
    empty_cache = getattr(module_of(device), "empty_cache", None)
    if empty_cache is not None:
        with suppress(RuntimeError):
            empty_cache()


def module_of(device: torch.device) -> Any:
    """Return torch's module of a kind of device, such as ``torch.cuda``."""
    import torch

    return torch.get_device_module(device)
