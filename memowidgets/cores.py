"""Work on all cores at once, where each core does its own linear algebra."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from threading import Thread
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["cores", "has_threads", "on_all_cores", "one_thread_each"]

Piece = TypeVar("Piece")
Found = TypeVar("Found")


def cores() -> int:
    """Return the number of cores that this process may use, within a container's quota."""
    from joblib import cpu_count

    return int(cpu_count())


@cache
def has_threads() -> bool:
    """Return whether this process can start threads; Python in a browser's page cannot."""
    try:
        Thread(target=int).start()
    except RuntimeError:
        return False
    return True


def on_all_cores(
    work: Callable[[Piece], Found], pieces: Sequence[Piece]
) -> Iterator[Found]:
    """Yield what `work` returns for each piece, in their order; the cores do not change it."""
    if len(pieces) == 1:
        yield work(pieces[0])
        return
    with one_thread_each():
        if not has_threads():
            yield from map(work, pieces)
            return
        with ThreadPoolExecutor(min(cores(), len(pieces))) as pool:
            yield from pool.map(work, pieces)


def one_thread_each() -> AbstractContextManager[Any]:
    """Let products of matrices use one thread each.

    A product that is split over threads waits for all of them, which is slow where it is small or
    the machine is busy. Where blocks of two threads overlap, the first to begin sets the limit.
    """
    limited: AbstractContextManager[Any] = _libraries().limit(limits=1)
    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
