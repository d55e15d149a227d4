"""The device to compute on: its choice, its memory, its precision, its settings, its failure."""

from __future__ import annotations

import functools
import gc
import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import warn_user
from memowidgets.extras import installed
from memowidgets.vocabulary import first_line

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_FULL = (  # what libraries beside torch's allocator say
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)

Result = TypeVar("Result")
COMPUTED = ("float32", "bfloat16")
PRECISIONS = ("auto", *COMPUTED)
_GIB = 2**30


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that a device's memory is full."""
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _FULL)


def answers(device: torch.device) -> bool:
    """Return whether a device still computes; after an error that broke it, none does."""
    import torch

    try:
        return float((torch.ones(1, device=device) + 1).cpu()) == 2
    except RuntimeError:
        return False


@contextmanager
def room_for(
    what: str = "the weights, or the optimizer's state, of this model",
    remedy: str = "use a smaller model, or device='cpu'",
) -> Iterator[None]:
    """Turn a device's lack of memory for the work in this context into one sentence.

    Parameters
    ----------
    what : str
        What the memory must hold, such as a batch with its size.
    remedy : str
        What to do if it cannot, as part of a sentence.

    Raises
    ------
    MemoryError
        If the memory of the device is full.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        full = error.with_traceback(None)  # its frames hold what was computed
        text = (
            f"the GPU's memory cannot hold {what}; {remedy}. What is finished is kept"
        )
        raise MemoryError(text) from full


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
    with suppress(RuntimeError, AttributeError):  # some kinds of devices keep none
        module_of(device).empty_cache()


def module_of(device: torch.device) -> Any:
    """Return torch's module of a kind of device, such as ``torch.cuda``."""
    import torch

    return torch.get_device_module(device)


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
def used_precision(model: Any) -> Iterator[Callable[[], str]]:
    """Within this context, note the precision of a module's passes, which the function returns.

    It is noted inside of the pass, at the first part with weights of its own that runs, because an
    autocast may begin in the model's own forward. Which part that is shows only in the pass: those
    that an adapter has replaced have weights too, and do not run.
    """
    import torch

    precisions: list[str] = []
    hooks: list[Any] = []
    device = next(model.parameters(), torch.empty(0)).device

    def note(*_: object) -> None:
        precisions.append(precision_of(model, device))
        remove()

    def remove() -> None:
        while hooks:
            hooks.pop().remove()

    own = (part for part in model.modules() if part._parameters)  # noqa: SLF001
    hooks.extend(part.register_forward_pre_hook(note) for part in own)
    try:
        yield lambda: precisions[0] if precisions else precision_of(model, device)
    finally:
        remove()


def precision_of(module: Any, device: torch.device) -> str:
    """Return the dtype of an active autocast, else of most weights."""
    import torch

    if torch.amp.is_autocast_available(device.type) and torch.is_autocast_enabled(
        device.type
    ):
        precision = torch.get_autocast_dtype(device.type)
    else:
        dtypes = [p.dtype for p in module.parameters() if p.is_floating_point()]
        precision = max(dtypes, key=dtypes.count) if dtypes else torch.float32
    return str(precision).removeprefix("torch.")


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


@functools.cache
def rounding_of(device: torch.device) -> str:
    """Return what the rounding of a pass depends on: the device, and the versions that compute."""
    import torch

    if device.type == "cpu":
        name = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    else:
        named = getattr(module_of(device), "get_device_name", None)
        name = device.type if named is None else str(named(device))
    versions = installed(("torch", "transformers", "peft", "tokenizers"))
    return ", ".join(
        [name, *(f"{library} {version}" for library, version in versions.items())]
    )


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
        raise ValueError(
            f"unknown device {name!r}; valid: auto, cpu, cuda, cuda:1, mps"
        ) from None
    n = count_devices(device.type)
    if (device.index or 0) >= n:
        kind = (
            "CUDA GPU" if device.type == "cuda" else f"device of the kind {device.type}"
        )
        there = ", ".join(f"{device.type}:{i}" for i in range(n))
        devices = f"only {there}" if there else f"no {kind}"
        raise ValueError(f"device {name!r} was requested, but torch finds {devices}")
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
    return (
        int(module.device_count()) if is_available is not None and is_available() else 0
    )


def is_there(name: str) -> bool:
    """Return whether this machine has the device of a name."""
    device = torch_device(name)
    return (device.index or 0) < count_devices(device.type)


def torch_device(name: str) -> torch.device:
    """Return the device of a name that `resolve_device` returned."""
    import torch

    return torch.device(name)


def device_status(name: str) -> str:
    """Return the device and its memory or threads as a short text."""
    # torch was not used yet, and importing it takes seconds
    if "torch" not in sys.modules:
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
    """Leave out what the caller has set: autocast, `no_grad`, `inference_mode`, the default dtype.

    An autocast would reach the backward pass, so that float32 would be bfloat16 in part. Models are
    trained in float32, with the same weights as in a worker, which has torch's own default.
    """
    import torch

    kinds = {"cpu", device.type if device is not None else "cpu"}
    with ExitStack() as stack:
        # leaving it turns multithreading of backward on
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        if (default := torch.get_default_dtype()) != torch.float32:
            stack.callback(torch.set_default_dtype, default)
            torch.set_default_dtype(torch.float32)
        for kind in sorted(kinds):
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(
                kind
            ):
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
    # read at the first product of the process, and then never again
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        with ExitStack() as stack:
            if device.type == "cuda":
                stack.enter_context(_without_cudnn_attention())
            if deterministic:
                stack.enter_context(_deterministic())
            yield
    except RuntimeError as error:
        if isinstance(error, DeviceError) or is_out_of_memory(error) or answers(device):
            raise
        reason = first_line(error)
        raise DeviceError(
            f"the device {device} has failed ({reason}). What is finished is kept: restart "
            'Python and go on, on another device (device="cpu") if this one stays away'
        ) from error


@contextmanager
def _without_cudnn_attention() -> Iterator[None]:
    """Leave attention to torch's own kernels within this context.

    With cuDNN's, the gradients of a padded batch are sometimes not finite where a token may attend
    to none, as the padding on a prompt's left (`benchmarks/gpu/language-diagnosis.json`).
    """
    from torch.backends import cuda

    before = cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    cuda.enable_cudnn_sdp(enabled=False)
    try:
        yield
    finally:
        cuda.enable_cudnn_sdp(before)


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device in bytes; None if it does not tell, as the CPU's."""
    ask = (
        None
        if device.type == "cpu"
        else getattr(module_of(device), "mem_get_info", None)
    )
    return None if ask is None else int(ask(device)[0])


def computed_on(
    name: str, array: NDArray[np.float32], compute: Callable[[Any], Result]
) -> Result | None:
    """Compute something of an array on a GPU; warn and return None if its memory is too small.

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
    # without torch, whose import takes seconds
    if name.partition(":")[0] in (
        "cpu",
        "mps",
    ):
        return None
    import torch

    device = torch.device(name)
    with working_on(device):
        try:
            return compute(tensor_of(array).to(device))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
    free_memory(device)
    needed = 2 * array.nbytes / 1e9
    warn_user(
        f"the memory of {name} does not hold the {needed:.1f} GB of this layer and of what "
        "is computed of it, so it is computed on the CPU"
    )
    return None


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor without a copy, even if it is mapped read-only."""
    import torch

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))


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
    older = [
        (part, "allow_tf32", False) for part in (backends.cuda.matmul, backends.cudnn)
    ]
    try:
        for part, name, _ in older:
            getattr(part, name)
    except RuntimeError:
        newer = (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn)
        return [(part, "fp32_precision", "ieee") for part in newer]
    return older
