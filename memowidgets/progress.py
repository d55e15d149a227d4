"""Where long work says how far it is and hears that it should stop; imports nothing of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Cancelled", "Progress", "Step"]


class Cancelled(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Raised inside long work, between two batches, after somebody cancelled it."""


@dataclass(frozen=True)
class Step:
    """How far a piece of work is.

    Attributes
    ----------
    done, total : int
        Pieces finished and pieces in all.
    what : str
        What is being done, in a few words.
    seconds_left : float or None
        Estimated from the pieces done so far; None before the first.
    detail : str
        What else there is to know of the work, such as when the next piece will be done.
    """

    done: int
    total: int
    what: str
    seconds_left: float | None
    detail: str = ""


class Progress:
    """A thread-safe handle on long work.

    Parameters
    ----------
    listener : callable, optional
        Called with a `Step` on every report, in the worker's thread.

    Examples
    --------
    >>> seen = []
    >>> progress = Progress(seen.append)
    >>> progress.report(1, 2, "scoring")
    >>> seen[0].done, seen[0].total
    (1, 2)
    >>> progress.cancel()
    >>> progress.report(2, 2, "scoring")
    Traceback (most recent call last):
    ...
    memowidgets.progress.Cancelled: cancelled while scoring
    """

    def __init__(self, listener: Callable[[Step], None] | None = None) -> None:
        self._listener = listener
        self._stop = threading.Event()
        self._task: str | None = None
        self._started = time.monotonic()
        self._done_at_start = 0

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the work to stop."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Ask the work to stop; it does so at its next report."""
        self._stop.set()

    def report(self, done: int, total: int, what: str, detail: str = "") -> None:
        """Say how far the work is; raises `Cancelled` once somebody asked it to stop."""
        if self._stop.is_set():
            raise Cancelled(f"cancelled while {what}")
        now = time.monotonic()
        if what != self._task:
            self._task, self._started, self._done_at_start = what, now, done
        if self._listener is not None:
            self._listener(Step(done, total, what, self._seconds_left(done, total, now), detail))

    def _seconds_left(self, done: int, total: int, now: float) -> float | None:
        finished = done - self._done_at_start
        if finished <= 0:
            return None
        return (now - self._started) / finished * (total - done)
