"""Loop that sends orders to workers and writes results until all shadow models exist."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training.cost import announced, spoken, work_seconds
from memowidgets.training.design import SHADOW, Kind
from memowidgets.training.device import DeviceError
from memowidgets.training.engine.claims import Claims
from memowidgets.training.engine.timing import Timing, slowest
from memowidgets.training.engine.worker import Result, WorkerKilledError, unpacked
from memowidgets.training.engine.workers import Workers
from memowidgets.training.shadow import TrainedShadow
from memowidgets.visible import first_line

_POLL_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 1.0  # interval for checking the claims of other processes
_MOST_SENDINGS = 5  # times that the job is sent to workers that lack it, per shadow model

_OF_A_MACHINE = (DeviceError, MemoryError, WorkerKilledError)  # another one may do it

_T = TypeVar("_T")


class Filling:
    """Training of the missing shadow models, each by one process only.

    Parameters
    ----------
    holds : callable
        Function that returns whether a shadow model exists.
    keep : callable
        Function that writes a shadow model.
    finished : callable
        Function that returns the number of shadow models.
    claims : Claims
        Claims of this process; also detects those of other processes.
    workers : Workers
        Workers that train.
    beacon : Path
        File whose removal tells the workers to stop.
    pace : Pace
        Speed of the shadow models that were trained before.
    progress : Progress
        Progress reports and cancellation.
    kind : Kind
        What the models are called.
    each : callable, optional
        Function that returns the seconds and the bytes of one from a `Timing`, or from None if
        nothing was timed.
    """

    def __init__(
        self,
        holds: Callable[[int], bool],
        keep: Callable[[int, TrainedShadow], None],
        finished: Callable[[], int],
        claims: Claims,
        workers: Workers,
        beacon: Path,
        pace: Pace,
        progress: Progress,
        kind: Kind = SHADOW,
        each: Callable[[Timing | None], tuple[float | None, int]] | None = None,
    ) -> None:
        self._kind, self._each = kind, each
        self._holds, self._write, self._finished = holds, keep, finished
        self._claims, self._workers, self._beacon = claims, workers, beacon
        self._pace, self._progress = pace, progress
        self._in_hand: dict[Future[Result], int] = {}
        self._started: dict[int, float] = {}
        self._sendings: dict[int, int] = {}
        self._warned: set[str] = set()
        self._killed: set[int] = set()
        self._next_look = 0.0

    def run(self, missing: Sequence[int], n: int) -> None:
        """Train all missing shadow models, and wait for those that other processes train."""
        left = list(missing)
        try:
            self._announce(len(left), n)
            while left:
                self._order(left)
                for index in self._collected():
                    left.remove(index)
                self._or_say_why(self._workers.check)
                self._progress.report(
                    n - len(left), n, f"training {self._kind.noun}s", self._detail(left)
                )
        except Cancelled:
            self._withdraw()
            raise
        except _OF_A_MACHINE:
            self._finish()
            raise
        except BaseException:
            self._extinguish()
            for future in self._in_hand:
                future.cancel()
            raise

    def _announce(self, missing: int, n: int) -> None:
        """Say what the work will take, from recorded seconds or from a few timed steps."""
        if self._each is None:
            return
        recorded, timing = self._pace.recorded, None
        if not recorded:
            timing = self._timed(n - missing, n)
        seconds, n_bytes = self._each(timing)
        if recorded:
            seconds = self._pace.seconds
        elif seconds is not None:
            self._pace.expect(seconds)
        slots = self._or_say_why(lambda: self._workers.slots)
        running = max(1, min(slots, missing))
        whole = None if seconds is None else work_seconds(seconds, missing, running)
        memory = 0 if timing is None else running * timing.memory
        said = announced(whole, recorded, missing * n_bytes, memory)
        self._progress.report(n - missing, n, f"training {self._kind.noun}s", said)

    def _timed(self, done: int, n: int) -> Timing | None:
        """Return what local processes timed; None if they can't, which training will explain."""
        found: list[Timing] = []
        try:
            waiting = set(self._workers.timed())
        except Exception:  # noqa: BLE001
            return None
        while waiting:
            finished, waiting = wait(waiting, timeout=_POLL_SECONDS)
            self._or_say_why(self._workers.check)
            self._progress.report(done, n, f"training {self._kind.noun}s", "timing a few steps")
            if any(future.exception() is not None for future in finished):
                return None
            found += [future.result() for future in finished]
        return slowest(found) if found else None

    def _order(self, left: list[int]) -> None:
        """Claim and order as many as the workers can take, and drop those that others finished."""
        now = time.monotonic()
        slots = self._or_say_why(lambda: self._workers.slots)
        if now < self._next_look or len(self._in_hand) >= slots:
            return
        ours = set(self._in_hand.values())
        for index in [i for i in left if i not in ours]:
            if len(self._in_hand) >= slots:
                return
            if self._holds(index):
                left.remove(index)
            elif self._claims.take(index):
                if self._holds(index):  # finished between the two checks
                    self._claims.forget(index)
                    left.remove(index)
                else:
                    self._submit(index)
        self._next_look = now + _ASK_AGAIN_SECONDS

    def _submit(self, index: int) -> None:
        future = self._or_say_why(lambda: self._workers.submit(index))
        self._in_hand[future] = index
        self._started.setdefault(index, time.monotonic())

    def _collected(self) -> list[int]:
        """Write the results that arrived, and raise errors after all others are written."""
        if not self._in_hand:
            time.sleep(_POLL_SECONDS)
            return []
        done, _ = wait(self._in_hand, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        written, failures = [], []
        for future in done:
            index = self._in_hand.pop(future)
            try:
                if self._keep(index, future):
                    written.append(index)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if done:
            self._next_look = 0.0
        if failures:
            raise failures[0]
        return written

    def _keep(self, index: int, future: Future[Result]) -> bool:
        """Write a shadow model, and return False if it must be ordered again."""
        if self._workers.has_lost(future):
            self._claims.release(index)  # until it is ordered again
            return False
        result = self._or_say_why(lambda: self._workers.result(future))
        if result.refusal:
            raise StoreError(
                f"the worker {result.worker} has {result.refusal}, so its {self._kind.noun}s would "
                f"not be comparable; install the same versions there. {self._kept()}"
            )
        if result.error is not None:
            error = unpacked(result.error)
            if self._goes_elsewhere(index, result, error):
                self._claims.release(index)
                return False
            if isinstance(error, WorkerKilledError):
                raise WorkerKilledError(f"the worker {result.worker} {error}. {self._kept()}")
            error.add_note(f"This is from the worker {result.worker}.")
            raise error
        if result.lacks_job or result.trained is None:
            self._send_again(index, result.worker)
            return False
        if result.warning and result.worker not in self._warned:
            self._warned.add(result.worker)
            warnings.warn(
                f"the worker {result.worker} has {result.warning}, so its {self._kind.noun}s may "
                "differ in the last digits",
                UserWarning,
                stacklevel=2,
            )
        self._write(index, result.trained)
        self._claims.forget(index)
        self._pace.add(result.trained.seconds)
        self._started.pop(index, None)
        return True

    def _goes_elsewhere(self, index: int, result: Result, error: BaseException) -> bool:
        """Leave out a worker whose machine failed; return whether another can train its model.

        A model that kills workers on two machines would kill those of all.
        """
        if not isinstance(error, _OF_A_MACHINE) or index in self._killed:
            return False
        if isinstance(error, WorkerKilledError):
            self._killed.add(index)
        if not self._workers.leave_out(result.place):
            return False
        if result.place not in self._warned:
            self._warned.add(result.place)
            warnings.warn(
                f"the worker {result.worker} trains no more {self._kind.noun}s, and others train "
                f"its own ({first_line(error)})",
                UserWarning,
                stacklevel=2,
            )
        return True

    def _send_again(self, index: int, worker: str) -> None:
        self._sendings[index] = self._sendings.get(index, 0) + 1
        if self._sendings[index] > _MOST_SENDINGS:
            raise StoreError(
                f"the worker {worker} does not keep what it receives; one process must train a "
                f"whole {self._kind.noun}. {self._kept()}"
            )
        future = self._or_say_why(lambda: self._workers.submit_again(index))
        self._in_hand[future] = index

    def _withdraw(self) -> None:
        """Let workers stop after this batch (without a shared disk, this shadow model)."""
        self._extinguish()
        for future in self._in_hand:
            self._workers.withdraw(future)
        with suppress(Exception):  # the cancellation is what is reported to the user
            while self._in_hand and self._workers.patient:
                self._collect_last()
                self._workers.check()

    def _finish(self) -> None:
        """Let other workers finish what they train, when the GPU or the memory of one failed."""
        for future in self._in_hand:
            self._workers.withdraw(future)
        with suppress(Exception):  # the failure is what is reported to the user
            while self._in_hand:
                self._collect_last()
                self._workers.check()
        self._extinguish()

    def _extinguish(self) -> None:
        with suppress(OSError):  # the file is gone, or the disk is read-only now
            self._beacon.unlink()

    def _collect_last(self) -> None:
        done, _ = wait(self._in_hand, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            index = self._in_hand.pop(future)
            if not future.cancelled() and future.exception() is None:
                trained = future.result().trained
                if trained is not None:
                    self._write(index, trained)

    def _or_say_why(self, call: Callable[[], _T]) -> _T:
        """Return the workers' answer, or raise a clear sentence if they are gone."""
        try:
            return call()
        except Exception as error:
            raise StoreError(f"{self._workers.blame(error)}. {self._kept()}") from error

    def _kept(self) -> str:
        noun, call = self._kind.noun, self._kind.call
        return f"The {self._finished()} finished {noun}s are kept; call {call} again"

    def _detail(self, left: Collection[int]) -> str:
        if not self._in_hand and (not left or self._next_look == 0):
            return ""
        if not self._in_hand and not self._workers.slots:
            return "waiting for a worker"
        if not self._in_hand:
            return f"waiting for {len(left)} that another process trains"
        seconds = self._pace.seconds
        said = f"{len(self._in_hand)} in hand"
        if seconds is None:
            return said
        oldest = min(self._started[index] for index in self._in_hand.values())
        following = max(0.0, seconds - (time.monotonic() - oldest))
        rest = (len(left) - len(self._in_hand)) * seconds / len(self._in_hand) + following
        return f"{said}, next in {spoken(following)}, {spoken(rest)} left"


class Pace:
    """Estimate of the duration of a shadow model, from the last ones.

    Parameters
    ----------
    known : sequence of float
        Seconds of earlier shadow models.

    Attributes
    ----------
    recorded : int
        Number of earlier shadow models.
    """

    def __init__(self, known: Sequence[float] = ()) -> None:
        self._known = list(known)[-8:]
        self._ours: list[float] = []
        self.recorded = len(known)

    def expect(self, seconds: float) -> None:
        """Give the seconds of one by which to estimate until the first is finished."""
        self._known = [seconds]

    def add(self, seconds: float) -> None:
        """Add the duration of a finished shadow model."""
        self._ours = [*self._ours[-7:], seconds]

    @property
    def seconds(self) -> float | None:
        """Return the seconds for one, or None before the first."""
        seen = self._ours or self._known
        return sum(seen) / len(seen) if seen else None
