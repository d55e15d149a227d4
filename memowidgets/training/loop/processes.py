"""Work that only the first of several data-parallel processes does."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_the_first_process"]

_T = TypeVar("_T")


def in_the_first_process(work: Callable[[], _T], otherwise: _T) -> _T:
    """Do work in the first process, and return its result in all of them.

    The others wait. Before a process group exists they cannot, and return `otherwise`.

    Raises
    ------
    RuntimeError
        In the other processes, if the work failed in the first one.
    """
    import torch.distributed as dist

    grouped = dist.is_available() and dist.is_initialized()
    rank = dist.get_rank() if grouped else _launched_as()
    if not grouped or dist.get_world_size() == 1:
        return work() if rank == 0 else otherwise
    answer: list[Any] = [otherwise, ""]
    failed: Exception | None = None
    if rank == 0:
        try:
            answer[0] = work()
        except Exception as error:  # noqa: BLE001 - the others must not wait for ever
            failed, answer[1] = error, f"{type(error).__name__}: {error}"
    dist.broadcast_object_list(answer, src=0)
    if failed is not None:
        raise failed
    if answer[1]:
        raise RuntimeError(f"the first process failed: {answer[1]}")
    found: _T = answer[0]
    return found


def _launched_as() -> int:
    """Return the number that a launcher gave this process; 0 without one."""
    found = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    return int(found) if found.isdigit() else 0
