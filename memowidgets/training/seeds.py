"""Independent streams from one seed, and random states that a training does not share."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.device import module_of

if TYPE_CHECKING:
    import torch

# SeedSequence treats [0, 4, 0] like [0, 4]. These streams have the seeds of that plain form,
# each at the one length of path at which it is used. Every other path has its own seeds.
_LENGTHS = {0: 1, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 2}
_OWN = "device"  # state of the generator of a training's own device
_ONE_AT_A_TIME = threading.RLock()  # the generators belong to the whole process


def derived_seed(seed: int, *path: int) -> int:
    """Return an independent 32-bit seed for each path below a seed.

    Parameters
    ----------
    seed : int
        Seed, from 0.
    path : int
        Numbers from 0 to 2³² − 1: a stream, and numbers within it.

    Examples
    --------
    >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(0, 2)
    (True, False)
    >>> derived_seed(0, 4, 0) == derived_seed(0, 4)
    False
    """
    if path and len(path) == _LENGTHS.get(path[0]):
        return _first_word(np.random.SeedSequence([seed, *path]))
    return _first_word(np.random.SeedSequence(seed, spawn_key=(len(path), *path)))


def epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of the order of the samples in an epoch."""
    return _first_word(np.random.SeedSequence([seed, epoch]))


def _first_word(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0])


class RandomStates:
    """States of torch's, NumPy's and Python's generators that belong to one training.

    Training runs inside `active`, which swaps these states in and restores the previous ones
    afterwards, so that neither affects the other. Of a device's generators, only that of the
    training's own device is touched. So a training goes on on any other device.

    Parameters
    ----------
    seed : int
        Seed of all generators.
    device : torch.device, optional
        Device of the training. Default: the CPU.
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        import torch

        self._device = device
        with restored():
            torch.default_generator.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002 - anyone's module may draw from it
            random.seed(seed)
            self._states = _capture()
        if _has_generator(device):
            self._states[_OWN] = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these states within this context; other trainings in this process wait."""
        with restored(self._device):
            _restore(self._states, self._device)
            try:
                yield
            finally:
                self._states = _capture(self._device)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the states as arrays, for a safetensors file."""
        kind, key, *rest = self._states["numpy"]
        plain = json.dumps([[kind, key.tolist(), *rest], self._states["python"]]).encode()
        of_torch = {k: v.numpy().copy() for k, v in self._states.items() if k in ("torch", _OWN)}
        return {**of_torch, "plain": np.frombuffer(plain, dtype=np.uint8)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from saved states; a device that they lack keeps the state of the seed."""
        import torch

        (kind, key, *rest), (version, internal, following) = json.loads(arrays["plain"].tobytes())
        self._states |= {
            "numpy": (kind, np.array(key, np.uint32), *rest),
            "python": (version, tuple(internal), following),
        }
        of_torch = {"torch", _OWN} & self._states.keys() & arrays.keys()
        self._states |= {name: torch.from_numpy(np.array(arrays[name])) for name in of_torch}


@contextmanager
def preserved(device: torch.device | None = None) -> Iterator[None]:
    """Restore all random states at the end, whatever drew from them.

    In another thread than the main one nothing is restored, because the user's own cell may have
    drawn meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with restored(device):
        yield


@contextmanager
def restored(device: torch.device | None = None) -> Iterator[None]:
    """Restore all random states at the end, a device's own included, in any thread."""
    with _ONE_AT_A_TIME:
        before = _capture(device)
        try:
            yield
        finally:
            _restore(before, device)


def _has_generator(device: torch.device | None) -> TypeGuard[torch.device]:
    """Return whether a device has a generator beside the CPU's."""
    if device is None or device.type in ("cpu", "meta"):
        return False
    return hasattr(module_of(device), "get_rng_state")


def _where(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is one


def _capture(device: torch.device | None = None) -> dict[str, Any]:
    """Return the states as the generators give them, which takes less time than arrays."""
    import torch

    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": np.random.get_state(),  # noqa: NPY002
        "python": random.getstate(),
    }
    if _has_generator(device):
        states[_OWN] = module_of(device).get_rng_state(*_where(device))
    return states


def _restore(states: Mapping[str, Any], device: torch.device | None = None) -> None:
    import torch

    torch.set_rng_state(states["torch"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    random.setstate(states["python"])
    if _has_generator(device) and _OWN in states:
        module_of(device).set_rng_state(states[_OWN], *_where(device))
