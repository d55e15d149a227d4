"""Threads beside the kernel's own, used again and again. No widgets here."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

__all__ = ["in_background"]

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
