"""Memory of closed widgets, given back to the system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back"]


def give_back() -> None:
    """Give freed memory back to the system, where the C library is glibc.

    Threads allocate from arenas of their own. glibc keeps what is freed inside an arena, so a
    kernel in which a cell is run often would grow although no object stays.

    Examples
    --------
    >>> give_back()
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
