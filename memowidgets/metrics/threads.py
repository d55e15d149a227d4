"""Parallel work on NumPy arrays. NumPy releases the interpreter lock, so threads suffice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from memowidgets.checks import is_tensor
from memowidgets.metrics.arrays import Array

Piece = TypeVar("Piece")


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # missing on macOS and Windows
        return os.cpu_count() or 1


def on_all_cores(array: Array, pieces: Sequence[Piece], work: Callable[[Piece], None]) -> None:
    """Call `work` on every piece; each writes to its own place, so the order has no effect.

    A tensor's device works in parallel by itself, so its pieces are processed one after another.
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
