"""Reports of how far long work is, its cancellation, and the bar that shows it by default."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memowidgets.vocabulary import visible


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
    """

    done: int
    total: int
    what: str
    seconds_left: float | None


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

    def cancel(self) -> None:
        """Ask the work to stop at its next report."""
        self._stop.set()

    def report(self, done: int, total: int, what: str) -> None:
        """Report progress; raises `Cancelled` if the work was cancelled."""
        if self._stop.is_set():
            raise Cancelled(f"cancelled while {what}")
        now = time.monotonic()
        if what != self._task:
            self._task = what
            self._started = now
            self._done_at_start = done
        if self._listener is not None:
            self._listener(
                Step(done, total, what, self._seconds_left(done, total, now))
            )

    def _seconds_left(self, done: int, total: int, now: float) -> float | None:
        finished = done - self._done_at_start
        if finished <= 0:
            return None
        return (now - self._started) / finished * (total - done)


def duration_in_words(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> [duration_in_words(seconds) for seconds in (5.2, 300, 7300)]
    ['5 s', '5 min', '2.0 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_APART = 0.05  # seconds between two pictures of a bar


@contextmanager
def progress_or_bar(progress: Progress | None) -> Iterator[Progress]:
    """Yield the caller's own progress, or one that draws a bar until the work ends.

    Where the error output is a file, a bar would leave hundreds of lines, so there is none.
    """
    if progress is not None:
        if not callable(getattr(progress, "report", None)):
            raise TypeError(
                f"progress must be a Progress, not {type(progress).__name__}"
            )
        yield progress
        return
    from tqdm.auto import tqdm
    from tqdm.std import tqdm as of_text

    is_text = getattr(tqdm, "display", None) is of_text.display  # and not a notebook's
    with tqdm(
        total=None, leave=False, disable=is_text and not sys.stderr.isatty()
    ) as bar:
        drawn: tuple[str, float] = "", 0.0

        def draw(step: Step) -> None:
            nonlocal drawn
            now = time.monotonic()
            is_soon = (
                step.what == drawn[0]
                and now < drawn[1] + _APART
                and step.done < step.total
            )
            if bar.disable or is_soon:  # each row of a user's data is reported
                return
            drawn = step.what, now
            if step.total != bar.total:
                bar.reset(step.total)
            words = visible(step.what)  # a layer's name is from a file
            if step.done != bar.n or bar.desc != f"{words}: ":
                bar.set_description(words, refresh=step.done == bar.n)
                bar.update(step.done - bar.n)

        yield Progress(draw)
        # done, if before its end: else a red bar stays in the notebook
        bar.total = bar.n
