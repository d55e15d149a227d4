"""Return freed memory to the operating system."""

from __future__ import annotations

import ctypes
import sys

__all__ = ["give_back"]


def give_back() -> None:
    """Return freed memory to the operating system, if the C library is glibc.

    glibc keeps memory that a thread has freed, so a kernel in which a cell runs often would grow
    although no object is left.

    Examples
    --------
    >>> give_back()
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
        if trim is not None:
            trim(0)
