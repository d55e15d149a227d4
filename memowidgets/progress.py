"""Progress reports and cancellation of long work. This room imports no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


class Cancelled(Exception):  # noqa: N818 - not an error: somebody asked for it
    """Raised inside long work, between two batches, after it was cancelled."""


@dataclass(frozen=True)
class Step:
    """State of a piece of work.

    Attributes
    ----------
    done, total : int
        Numbers of finished pieces and of all pieces.
    what : str
        Short name of the work.
    seconds_left : float or None
        Estimate from the pieces done so far. None before the first.
    detail : str
        Additional information, such as when the next piece will be done.
    """

    done: int
    total: int
    what: str
    seconds_left: float | None
    detail: str = ""


class Progress:
    """Thread-safe handle on long work, to report progress and to cancel it.

    Parameters
    ----------
    listener : callable, optional
        Function that is called with a `Step` on every report, in the worker's thread.

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
        """Whether the work was cancelled."""
        return self._stop.is_set()

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        self._stop.set()

    def report(self, done: int, total: int, what: str, detail: str = "") -> None:
        """Report progress; raises `Cancelled` if the work was cancelled."""
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
