"""Threads beside the kernel's own, and what they leave behind. No widgets here."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

_idle: deque[_Thread] = deque()
if hasattr(os, "register_at_fork"):  # a fork has none of its parent's threads
    os.register_at_fork(after_in_child=_idle.clear)


def in_background(job: Callable[[], None], name: str) -> threading.Event:
    """Do a job in an idle thread, or else in a new one. None keeps the process from ending.

    glibc keeps memory for each thread that has used some. In a kernel with many threads each new
    one gets another share, so a cell that is run again would take more memory each time.

    Parameters
    ----------
    job : callable
        An exception goes to `threading.excepthook`.
    name : str
        Of the thread, meanwhile.

    Returns
    -------
    threading.Event
        Set when the job is done.

    Examples
    --------
    >>> in_background(lambda: None, "example").wait(10)
    True
    """
    done = threading.Event()
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    thread.jobs.put((job, name, done))
    return done


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: SimpleQueue[tuple[Callable[[], None], str, threading.Event]] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            self._do(*self.jobs.get())

    def _do(self, job: Callable[[], None], name: str, done: threading.Event) -> None:
        self.name = name
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - as a thread of its own would
            hook = (type(error), error, error.__traceback__, self)
            threading.excepthook(threading.ExceptHookArgs(hook))
        finally:
            self.name = "memowidgets-idle"
            _idle.append(self)  # before it is done: who waited for it starts no second thread
            done.set()


# A thread outlives what it tells its results to: a kernel closes its sockets before it ends.
# And a process that ends takes its pools of threads first, so a job may fail before this is set.
_ending = threading.Event()
atexit.register(_ending.set)
_LAST_SECONDS = 5.0


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
                if not _ending.wait(_LAST_SECONDS):
                    raise

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            job, self._waiting = self._waiting, None
            if job is None or _ending.is_set():
                self._idle.set()
                return None
            return job


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
