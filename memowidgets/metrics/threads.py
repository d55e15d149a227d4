"""Work on NumPy arrays that is spread over the cores; NumPy lets go of Python's lock meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from memowidgets.metrics.arrays import Array, is_tensor

Piece = TypeVar("Piece")


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def on_all_cores(array: Array, pieces: Sequence[Piece], work: Callable[[Piece], None]) -> None:
    """Do the work on every piece; pieces write to places of their own, so order has no effect.

    A tensor's device is parallel by itself: its pieces go one after another.
    """
    workers = 1 if is_tensor(array) else min(cores(), len(pieces))
    if workers > 1:
        with ThreadPoolExecutor(workers) as pool:
            _finish(pool.map(work, pieces))
    else:
        _finish(map(work, pieces))


def _finish(results: Iterable[None]) -> None:
    for _ in results:
        pass
