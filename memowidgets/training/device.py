"""The device to compute on: its choice, its memory, its settings, and its failure."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.memory import answers, free_memory, is_out_of_memory, module_of
from memowidgets.visible import first_line

if TYPE_CHECKING:
    import torch


_GIB = 2**30
_CHUNK_BYTES = 2**26
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
_TOO_LATE = (
    f"TrainingConfig(deterministic=True) needs the environment variable {_CUBLAS}=:4096:8 before "
    "this process multiplies on the GPU for the first time; restart Python with it"
)
Result = TypeVar("Result")


@contextmanager
def cpu_threads(limit: int | None) -> Iterator[None]:
    """Limit torch's threads within this context; None changes nothing."""
    import torch

    before = torch.get_num_threads()
    if limit is None or limit >= before:
        yield
        return
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
    if name == "cpu" or (name == "auto" and find_spec("torch") is None):
        return "cpu"
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:1, mps") from None
    n = count_devices(device.type)
    if n == 0:
        kind = "CUDA GPU" if device.type == "cuda" else f"device of the kind {device.type}"
        raise ValueError(f"device {name!r} was requested, but torch finds no {kind}")
    index: int | None = device.index
    if index is not None and index >= n:
        there = ", ".join(f"{device.type}:{i}" for i in range(n))
        raise ValueError(f"device {name!r} was requested, but torch finds only {there}")
    return str(device)


def count_devices(kind: str) -> int:
    """Return how many devices of a kind torch finds, such as ``"cuda"``; the CPU counts as one."""
    import torch

    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module: Any = getattr(torch, kind, None)
    is_available = getattr(module, "is_available", None)
    return int(module.device_count()) if is_available is not None and is_available() else 0


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
        try:
            free, total = torch.cuda.mem_get_info(name)
        except RuntimeError as error:
            return f"{name}, {first_line(error)}"
        return f"{name}, {(total - free) / _GIB:.1f} of {total / _GIB:.0f} GiB in use"
    threads = torch.get_num_threads()
    return f"{name.upper()}, {threads} thread{'s' if threads != 1 else ''}"


class DeviceError(RuntimeError):
    """Failure of a device that can't go on, unlike one of the work that it did."""


@contextmanager
def apart(device: torch.device | None = None) -> Iterator[None]:
    """Leave out torch's contexts that the caller is in: autocast, `no_grad` and `inference_mode`.

    An autocast would reach the backward pass, so that float32 would be bfloat16 in part.
    """
    import torch

    kinds = {"cpu", device.type if device is not None else "cpu"}
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():  # leaving it turns multithreading of backward on
            stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        for kind in sorted(kinds):
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def working_on(device: torch.device, *, deterministic: bool = False) -> Iterator[None]:
    """Do work on a device within this context, and tell a failure of the device from others.

    Parameters
    ----------
    device : torch.device
        The device.
    deterministic : bool
        Whether to use torch's deterministic algorithms and no TF32. The CPU's algorithms are
        deterministic, so there it changes nothing.

    Raises
    ------
    DeviceError
        If the device does not even add two numbers any more.
    """
    if device.type == "cpu":
        yield
        return
    if device.type == "cuda":  # read at the first product of the process, and then never again
        os.environ.setdefault(_CUBLAS, ":4096:8")
    try:
        with ExitStack() as stack:
            if deterministic:
                stack.enter_context(_deterministic())
            yield
    except RuntimeError as error:
        if isinstance(error, DeviceError) or is_out_of_memory(error) or answers(device):
            if _CUBLAS in str(error):
                raise RuntimeError(_TOO_LATE) from error
            raise
        reason = first_line(error)
        raise DeviceError(
            f"the device {device} has failed ({reason}). What is finished is kept: restart "
            'Python and go on, on another device (device="cpu") if this one stays away'
        ) from error


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes; None if it does not tell, as the CPU's."""
    ask = None if device.type == "cpu" else getattr(module_of(device), "mem_get_info", None)
    return None if ask is None else int(ask(device)[0])


def computed_on(
    name: str, array: NDArray[np.float32], compute: Callable[[Any], Result]
) -> Result | None:
    """Compute something of an array on a GPU; return None where its memory is too small for it.

    PSMI takes as much memory again for its projections, so the array must fit twice.

    Parameters
    ----------
    name : str
        Device, as torch names it. On the CPU, and on MPS, which has no float64, the result is None.
    array : array of shape (n, d), float32
        Representations, which may be memory-mapped.
    compute : callable
        Function of the array as a tensor on the device.

    Raises
    ------
    DeviceError
        If the device fails.
    """
    if name.partition(":")[0] in ("cpu", "mps"):  # without torch, whose import takes seconds
        return None
    import torch

    device = torch.device(name)
    with working_on(device):
        free = free_bytes(device)
        if free is not None and 2 * 4 * array.size > free:
            return None
        try:
            return compute(_copied(array, device))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
    free_memory(device)
    return None


def _copied(array: NDArray[np.float32], device: torch.device) -> torch.Tensor:
    """Return an array as a tensor on a device, read in chunks."""
    import torch

    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    held = torch.empty(array.shape, dtype=torch.float32, device=device)
    for start in range(0, len(array), rows):
        part = np.array(array[start : start + rows], dtype=np.float32)
        held[start : start + rows].copy_(torch.from_numpy(part))
    return held


def wait_for(device: torch.device) -> None:
    """Wait until a device has done what it was given."""
    if device.type == "mps":
        module_of(device).synchronize()
    elif device.type != "cpu":
        module_of(device).synchronize(device)


@contextmanager
def _deterministic() -> Iterator[None]:
    """Use torch's deterministic algorithms and no TF32; restore the settings afterwards."""
    import torch

    before = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    settings = [(torch.backends.cudnn, "benchmark", False), *_without_tf32()]
    old = [getattr(part, name) for part, name, _ in settings]
    torch.use_deterministic_algorithms(mode=True)
    try:
        for part, name, value in settings:
            setattr(part, name, value)
        yield
    finally:
        for (part, name, _), value in zip(settings, old, strict=True):
            setattr(part, name, value)
        torch.use_deterministic_algorithms(before, warn_only=only_warns)


def _without_tf32() -> list[tuple[Any, str, Any]]:
    """Return the settings that switch TF32 off; torch refuses to mix the older and newer ones."""
    import torch

    backends: Any = torch.backends
    older = [(part, "allow_tf32", False) for part in (backends.cuda.matmul, backends.cudnn)]
    try:
        for part, name, _ in older:
            getattr(part, name)
    except RuntimeError:
        newer = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
        return [(part, "fp32_precision", "ieee") for part in newer]
    return older
