"""What checkpoints take of somebody else's training: measured, said, and kept under a share."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

AUTO = "auto"
SHARE = 0.05  # of the training's time, which checkpoints at "auto" stay under
_PLANNED = 0.8 * SHARE  # the rest is for what no clock here sees: imports, a count at each step
_STEP = 0.2  # epochs between the steps at which "auto" decides
_MB = 1e6


def checked_every(every: Any) -> tuple[float, bool]:
    """Return the epochs between two possible checkpoints, and whether time decides among them.

    Raises
    ------
    ValueError
        If they are neither "auto" nor a positive number.
    """
    if isinstance(every, str) and every == AUTO:
        return _STEP, True
    number = isinstance(every, int | float) and not isinstance(every, bool)
    if not number or not 0 < every < math.inf:
        raise ValueError(
            f'checkpoint_every must be "{AUTO}" or a positive number of epochs, such as 0.2, not '
            f"{every!r}"
        )
    return float(every), False


class Budget:
    """Seconds of a training, and of the checkpoints that are recorded of it.

    Attributes
    ----------
    made : int
        Number of checkpoints that were made, not found.
    seconds : float
        Seconds of the last one.
    size : int
        Bytes of the last one.
    """

    def __init__(self) -> None:
        self.made, self.seconds, self.size = 0, 0.0, 0
        self._recording = 0.0  # seconds of everything but the training
        self._began, self._aside = time.monotonic(), 0.0

    def begin(self, at: float | None = None) -> None:
        """Begin to count the seconds of training, at a time of `time.monotonic`. Default: now."""
        self._began, self._aside = time.monotonic() if at is None else at, 0.0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Count the block as recording, not as training."""
        start = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - start
            self._recording += took
            self._aside += took

    def add(self, whole: float) -> None:
        """Count the seconds of the beginning, of which the first checkpoint was a part."""
        self._recording = max(self._recording, whole)

    @property
    def trained(self) -> float:
        """Seconds of training since it began, without those of recording."""
        return max(0.0, time.monotonic() - self._began - self._aside)

    def affords(self) -> bool:
        """Return whether a checkpoint now, and one at the end, stay under the share."""
        return self._recording + 2 * self.seconds <= _PLANNED * self.trained

    def report(self, every: float, per_epoch: int, total: int | None, *, by_time: bool) -> str:
        """Return what checkpoints take in time and on disk; empty if that is next to nothing.

        Parameters
        ----------
        every : float
            Epochs between two checkpoints.
        per_epoch, total : int
            Steps in an epoch, and in the whole training if that is known.
        by_time : bool
            Whether they come as their share of the time allows.
        """
        if self.seconds < _SHORT and self.size < _SMALL:
            return ""
        each = f"memowidgets: a checkpoint takes {self.seconds:.2g} s and {_mb(self.size)}"
        if by_time:
            return f"{each}; checkpoints come so that they stay under {SHARE:.0%} of the time"
        number, of = 1 / every, "an epoch"
        if total is not None:
            number, of = total / (per_epoch * every) + 1, "in all"
        share = self.seconds / self.trained if self.made > 1 and self.trained else None
        took = "" if share is None else f", {share:.0%} of the time of training"
        more = "" if share is None or share <= SHARE else f'checkpoint_every="{AUTO}" stays under '
        more += f"{SHARE:.0%}, and " if more else ""
        return (
            f"{each}; {number:.0f} checkpoints {of} take {number * self.seconds:.2g} s{took}, and "
            f'{_mb(number * self.size)} on disk. {more}keep="prediction+final" or "logits" keeps '
            "less"
        )


_SHORT, _SMALL = 0.5, 5e6  # seconds and bytes of a checkpoint of which nothing is said


def _mb(size: float) -> str:
    return f"{size / _MB / 1000:.1f} GB" if size >= 1e9 else f"{size / _MB:.3g} MB"
