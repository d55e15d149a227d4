"""A device named "pretend", which is this machine's CPU and refuses to be mixed with it.

A tensor of it holds an ordinary one, and says that it is elsewhere. As on a real accelerator, an
operation on both kinds raises, except for a copy from one to the other and for a single number, and
NumPy can't read it. So code that forgets to move a tensor fails here. Values and random numbers are
those of the CPU, so every result can be compared with that of the CPU.

`DEVICE` can be made small, so that convolutions and embeddings of many rows run out of memory, or
lost, so that every operation fails. In a worker process, $PRETEND_COUNT says how many devices there
are, and $PRETEND_SEEN names a folder in which each process leaves a file for each device that it
uses.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

NAME = "pretend"
_COPIES = {"aten::_to_copy", "aten::copy_", "aten::_copy_from"}
# Their gradients raise on CUDA. Here they do: an error in a backward pass would end the process.
_NOT_DETERMINISTIC = (
    "aten::_adaptive_avg_pool2d",
    "aten::avg_pool3d",
    "aten::grid_sampler_2d",
)
_FACTORIES = ("empty.memory_format", "empty_strided.default", "_to_copy.default")


@dataclass
class Device:
    """State of the device, which tests change, and what torch and the package ask of its module.

    Attributes
    ----------
    count : int
        How many of them there are.
    present : bool
        Whether torch is told that there is one.
    lost : bool
        Whether every operation fails, and every question to the device.
    largest : int or None
        Largest number of samples that a convolution or an embedding has memory for.
    skew : float
        Share by which convolutions err.
    free : int or None
        Free memory in bytes; None stands for much.
    emptied : int
        How often the cached memory was freed.
    seen : set of int
        Indices of the devices that something was put on.
    """

    count: int = (
        0  # or torch would ask for its random state, also in tests of other devices
    )
    present: bool = False
    lost: bool = False
    largest: int | None = None
    skew: float = 0.0
    free: int | None = None
    emptied: int = 0
    seen: set[int] = field(default_factory=set)

    def check(self, name: str, result: object) -> None:
        """Raise if the device is lost, or cannot do what is asked, or not in its memory."""
        self.answer()
        exact = torch.are_deterministic_algorithms_enabled() and torch.is_grad_enabled()
        if exact and name in _NOT_DETERMINISTIC:
            raise RuntimeError(f"{name} does not have a deterministic implementation")
        limited = any(kind in name for kind in ("convolution", "embedding"))
        if self.largest is None or not limited or "backward" in name:
            return
        if isinstance(result, torch.Tensor) and len(result) > self.largest:
            raise torch.OutOfMemoryError(
                f"pretend out of memory: {tuple(result.shape)}"
            )

    def answer(self, device: object = None) -> None:
        """Raise if the device is lost."""
        if self.lost:
            raise RuntimeError("PRETEND error: no such device is connected any more")

    synchronize = answer  # nothing is left to wait for

    def erring(self, name: str, result: object) -> object:
        """Return a result as the device computes it."""
        if self.skew and "convolution" in name and isinstance(result, torch.Tensor):
            return result * (1 + self.skew * torch.rand_like(result))
        return result

    def see(self, index: int) -> None:
        """Note that something is put on a device."""
        if index not in self.seen and "PRETEND_SEEN" in os.environ:
            Path(os.environ["PRETEND_SEEN"], f"{os.getpid()}-{index}").touch()
        self.seen.add(index)

    def is_available(self) -> bool:
        return self.present

    def device_count(self) -> int:
        return self.count

    def current_device(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """Its generator is the CPU's, which is seeded beside it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def empty_cache(self) -> None:
        self.answer()
        self.emptied += 1

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        self.answer(device)
        total = 8 * 2**30
        return total if self.free is None else self.free, total


DEVICE = Device()


class Pretend(torch.Tensor):
    """Tensor whose values are in `held`, an ordinary one."""

    held: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor, index: int = 0):
        DEVICE.see(index)
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        layout |= {"dtype": held.dtype, "device": f"{NAME}:{index}"}
        made = torch.Tensor._make_wrapper_subclass(cls, held.shape, **layout)
        made.held = held
        return made

    def __repr__(self) -> str:
        return f"Pretend({self.held!r})"

    def numpy(self, *_args, **_kwargs):
        raise TypeError(
            f"NumPy cannot read a tensor on {self.device}; call cpu() first"
        )

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(cls, operation, _types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


def _run(operation, args, kwargs):
    """Do an operation on what the tensors hold, and give its results the device of their inputs."""
    name = operation._schema.name
    tensors = list(_tensors((args, kwargs)))
    ours = [tensor for tensor in tensors if isinstance(tensor, Pretend)]
    strange = any(
        not isinstance(tensor, Pretend) and tensor.dim() > 0 for tensor in tensors
    )
    places = {tensor.device for tensor in ours if tensor.dim() > 0}
    if name not in _COPIES and (len(places) > 1 or (ours and strange)):
        found = sorted({str(tensor.device) for tensor in tensors})
        raise RuntimeError(
            f"{name} got tensors on different devices: {', '.join(found)}"
        )
    wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    goes_to = _destination(name, args, ours, wanted)
    args, kwargs = _changed(_held, args), _changed(_held, kwargs)
    if wanted is not None and wanted.type == NAME:
        kwargs["device"] = torch.device("cpu")
    result = operation(*args, **kwargs)
    if goes_to is None:
        return result
    result = DEVICE.erring(name, result)
    # an in-place operation returns its input
    own = {id(tensor.held): tensor for tensor in ours}

    def placed(value):
        if not isinstance(value, torch.Tensor):
            return value
        DEVICE.check(name, value)
        return own[id(value)] if id(value) in own else Pretend(value, goes_to)

    return _changed(placed, result)


def _tensors(value):
    """Yield the tensors in the arguments of an operation, faster than torch's pytree does."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _changed(change, value):
    """Return arguments or results of an operation with a function applied to each of them."""
    kind = type(value)
    if kind in (tuple, list):
        return kind([_changed(change, part) for part in value])
    if kind is dict:
        return {key: _changed(change, part) for key, part in value.items()}
    return change(value)


def _held(value):
    return value.held if isinstance(value, Pretend) else value


def _destination(name, args, ours, wanted) -> int | None:
    """Return the index of the pretend device that a result is on; None for the CPU."""
    here = next((tensor.device for tensor in ours if tensor.dim() > 0), None)
    here = here or (ours[0].device if ours else None)
    if name == "aten::copy_":
        here = args[0].device if isinstance(args[0], Pretend) else None
    elif wanted is not None:
        here = wanted if wanted.type == NAME else None
    if here is None:
        return None
    index = here.index or 0
    if index >= DEVICE.count:
        raise RuntimeError(f"{here} does not exist: there are {DEVICE.count}")
    return index


@functools.cache
def register() -> list[torch.library.Library]:
    """Tell torch of the device, once in a process."""
    set_up = torch.utils.backend_registration._setup_privateuseone_for_python_backend
    set_up(NAME, backend_module=DEVICE)
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    factories = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        packet, overload = name.split(".")
        operation = getattr(getattr(torch.ops.aten, packet), overload)
        factories.impl(
            name.removesuffix(".default"), _starting(operation), "PrivateUse1"
        )
    return [fallback, factories]  # alive as long as the process


def _starting(operation) -> Callable:
    return lambda *args, **kwargs: _run(operation, args, kwargs)


def one_thread() -> torch.autograd.set_multithreading_enabled:
    """Run the backward passes of this Python thread in itself.

    torch starts a thread for each device that it knows of at the first backward pass of a process,
    which may be before it knows of this one.
    """
    return torch.autograd.set_multithreading_enabled(mode=False)


def start() -> None:
    """Make the device available. torch calls it in worker processes, as an entry point."""
    register()
    DEVICE.present, DEVICE.count = True, int(os.environ.get("PRETEND_COUNT", "1"))
    one_thread()
    # A parameter of another class can't take the content of one on the CPU, so it is replaced.
    torch.__future__.set_overwrite_module_params_on_conversion(True)


def stop() -> None:
    """Make the device unavailable, and restore what `start` changed."""
    DEVICE.__init__()
    torch.autograd.set_multithreading_enabled(mode=True)
    torch.__future__.set_overwrite_module_params_on_conversion(False)
