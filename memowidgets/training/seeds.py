"""Independent streams from one seed, and random states that a training does not share."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

# SeedSequence treats [0, 4, 0] like [0, 4]. Streams that existing runs were drawn from keep their
# seeds, each at the one length of path at which it is used. Every other path has its own seeds.
_LENGTHS = {0: 1, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1, 6: 2}
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
    if any(not 0 <= part < 2**32 for part in path):
        raise ValueError(f"each part of a path must be from 0 to 2**32 - 1, not {path}")
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
    afterwards, so that neither affects the other.
    """

    def __init__(self, seed: int) -> None:
        import torch

        with _ONE_AT_A_TIME:
            outside = _capture()
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002 - anyone's module may draw from it
            random.seed(seed)
            self._states = _capture()
            _restore(outside)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these states within this context; other trainings in this process wait."""
        with _ONE_AT_A_TIME:
            outside = _capture()
            _restore(self._states)
            try:
                yield
            finally:
                self._states = _capture()
                _restore(outside)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the states as arrays, for a safetensors file."""
        return dict(self._states)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continue from saved states."""
        self._states = {name: np.array(array) for name, array in arrays.items()}


@contextmanager
def preserved() -> Iterator[None]:
    """Restore all random states at the end, whatever drew from them.

    In another thread than the main one nothing is restored, because the user's own cell may have
    drawn meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _ONE_AT_A_TIME:
        outside = _capture()
        try:
            yield
        finally:
            _restore(outside)


@contextmanager
def restored(device: torch.device | None = None) -> Iterator[None]:
    """Restore all random states at the end, a device's own included, in any thread."""
    with _ONE_AT_A_TIME:
        outside, own = _capture(), _device_state(device)
        try:
            yield
        finally:
            _restore(outside)
            if device is not None and own is not None:
                _device_module(device).set_rng_state(own, *_where(device))


def _device_state(device: torch.device | None) -> torch.Tensor | None:
    """Return the state of a generator that `_capture` leaves out."""
    if device is None or device.type in ("cpu", "cuda", "meta"):
        return None
    ask = getattr(_device_module(device), "get_rng_state", None)
    return None if ask is None else ask(*_where(device))


def _where(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "mps" else (device,)  # there is one


def _device_module(device: torch.device) -> Any:
    import torch

    return torch.get_device_module(device)


def _capture() -> dict[str, NDArray[Any]]:
    import torch

    legacy = np.random.get_state(legacy=False)  # noqa: NPY002
    states: dict[str, NDArray[Any]] = {
        "torch": torch.get_rng_state().numpy().copy(),
        "numpy": _bytes_of([legacy["gauss"], legacy["has_gauss"], legacy["state"]["pos"]]),
        "numpy.key": np.array(legacy["state"]["key"], dtype=np.int64),
        "python": _bytes_of(random.getstate()),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda.{i}"] = state.numpy().copy()
    return states


def _restore(states: Mapping[str, NDArray[Any]]) -> None:
    import torch

    torch.set_rng_state(torch.from_numpy(np.array(states["torch"])))
    gauss, has_gauss, position = _content_of(states["numpy"])
    key = np.asarray(states["numpy.key"]).astype(np.uint32)
    np.random.set_state(("MT19937", key, position, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = _content_of(states["python"])
    random.setstate((version, tuple(internal), gauss_next))
    if torch.cuda.is_available():
        for name, state in states.items():
            if name.startswith("cuda."):
                torch.cuda.set_rng_state(torch.from_numpy(np.array(state)), int(name[5:]))


def _bytes_of(content: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)


def _content_of(array: NDArray[Any]) -> Any:
    return json.loads(np.asarray(array, dtype=np.uint8).tobytes())
