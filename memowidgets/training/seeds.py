"""One seed, many independent streams; and random states that training keeps to itself."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RandomStates", "derived_seed", "preserved"]

_ONE_AT_A_TIME = threading.RLock()  # the generators belong to the whole process


def derived_seed(seed: int, *path: int) -> int:
    """An independent 32-bit seed for each path below a seed.

    Examples
    --------
    >>> derived_seed(0, 1) == derived_seed(0, 1), derived_seed(0, 1) == derived_seed(0, 2)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, *path]).generate_state(1)[0])


class RandomStates:
    """The states of torch's, NumPy's and Python's generators that belong to one training.

    Training runs inside `active`, which swaps them in and puts the surroundings' own back, so
    that neither disturbs the other.
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
        """Draw from these states while open; other trainings in this process wait."""
        with _ONE_AT_A_TIME:
            outside = _capture()
            _restore(self._states)
            try:
                yield
            finally:
                self._states = _capture()
                _restore(outside)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The states as arrays, for a safetensors file."""
        return dict(self._states)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Go on from saved states."""
        self._states = {name: np.array(array) for name, array in arrays.items()}


@contextmanager
def preserved() -> Iterator[None]:
    """Put all random states back at the end, whatever drew from them.

    In another thread than the main one nothing is put back: what the user's own cell draws
    meanwhile must not be rewound.
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
