"""A thread that does the newest of the jobs it is given. No widgets here."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable

from memowidgets.widgets.background import in_background

__all__ = ["Newest"]

# A thread outlives what it tells its results to: a kernel closes its sockets before it ends.
_ending = threading.Event()
atexit.register(_ending.set)


class Newest:
    """Does jobs one after the other, away from the kernel's own thread.

    A job that still waits when a newer one comes is forgotten, as is one that waits when the
    process ends.

    Parameters
    ----------
    name : str
        Of the thread.

    Examples
    --------
    >>> done = []
    >>> newest = Newest("example")
    >>> newest.run(lambda: done.append("a job"))
    >>> newest.wait(10)
    True
    >>> done
    ['a job']
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._waiting: Callable[[], None] | None = None
        self._idle = threading.Event()
        self._idle.set()

    def run(self, job: Callable[[], None]) -> None:
        """Do a job as soon as the running one is done. A job handles its own errors."""
        with self._lock:
            self._waiting = job
            if self._idle.is_set():
                self._idle.clear()
                in_background(self._work, self._name)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do, and return whether that is so."""
        return self._idle.wait(timeout)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                job()
            except Exception:
                if not _ending.is_set():
                    raise

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            job, self._waiting = self._waiting, None
            if job is None or _ending.is_set():
                self._idle.set()
                return None
            return job
