"""A thread that looks at regular times, for as long as its owner exists."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

__all__ = ["watch"]

Owner = TypeVar("Owner")


def watch(owner: Owner, look: Callable[[Owner], object], seconds: float) -> Callable[[], None]:
    """Call ``look(owner)`` at regular times, in a thread that does not keep the owner alive.

    Parameters
    ----------
    owner : object
        The thread ends when nobody else holds it any more.
    look : callable
        Deals with its own errors.
    seconds : float
        Between two looks.

    Returns
    -------
    callable
        Ends the thread.
    """
    end = threading.Event()
    reference = weakref.ref(owner)

    def work() -> None:
        while not end.wait(seconds):
            there = reference()
            if there is None:
                return
            look(there)
            del there

    threading.Thread(target=work, name="memowidgets-watch", daemon=True).start()
    return end.set
