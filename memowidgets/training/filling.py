"""Training of shadow models in local processes or any executor, each seed only once.

Beyond giving out orders, collecting results and starting a broken pool again, each mechanism is
here because a test fails without it:

=====================================================  =============================================
Claims of a shadow model, under a lock (`Claims`)      two_audits_at_once_in_one_process,
                                                       two_processes_fill_one_directory
A worker that failed is left out (`leave_out`)         with_too_little_memory_is_left_out,
                                                       dask_worker_with_other_code_is_left_out
An order names the workers that may take it            starts_again_elsewhere_are_given_again
A model that killed two workers goes to no third       is_trained_by_another_and_never_by_a_third
An order goes again with the job (`lacks_job`)         is_sent_the_job_when_it_lacks_it
More orders than workers                               a_cluster_that_adapts_to_its_work_grows
A cancelled order has a future of our own              orders_in_transit_are_not_waited_for
Workers end with their parent (`follow`)               killed_shadow_models_are_trained_again
Samples are mapped from a file (`SharedSamples`)       workers_map_the_images_and_the_folder_goes
Files of dead processes are removed                    what_dead_processes_left_is_removed,
                                                       a_dead_process_loses_its_claims_at_once
A local process that grows stays                       needs_more_memory_than_at_first_stays
=====================================================  =============================================
"""

from __future__ import annotations

import errno
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

import cloudpickle

from memowidgets.files import make_private
from memowidgets.models.device import DeviceError
from memowidgets.progress import Cancelled, Progress, duration_in_words
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.pools import LocalPool, Pool, PoolLostError
from memowidgets.training.shadow import ShadowJob
from memowidgets.training.worker import Result, WorkerKilledError
from memowidgets.visible import first_line

if TYPE_CHECKING:
    from filelock import BaseFileLock

    from memowidgets.training.shadows import ShadowSet


_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}  # the file system has no locks
_POLL_SECONDS = 0.2
_ASK_AGAIN_SECONDS = 1.0  # interval for checking the claims of other processes
_LAST = 8  # models whose mean seconds say when the next one is done


class Claims:
    """Claims of this process on shadow models; also detects those of other processes.

    A claim is a lock on a file, which the system releases when the process dies.

    Parameters
    ----------
    run : RunDirectory
        Run directory of the shadow models.
    folder : str
        Folder of the claims in the run directory.
    parted : bool
        Whether the caller named its part of the shadow models, so that no other process trains
        them and a file system without locks will do.
    """

    def __init__(self, run: RunDirectory, folder: str, *, parted: bool = False) -> None:
        self._run, self._folder, self._parted = run, folder, parted
        self._held: dict[int, BaseFileLock] = {}

    def __enter__(self) -> Self:
        folder = self._run.place(self._folder)
        with self._run.explained(folder):
            make_private(folder)
        return self

    def __exit__(self, *_: object) -> None:
        for index in list(self._held):
            self.release(index)
        with suppress(OSError, StoreError, ValueError):
            for left in self._run.place(self._folder).glob("*.lock"):  # by a killed process
                if self.take(int(left.stem)):
                    self.forget(int(left.stem))

    def take(self, index: int) -> bool:
        """Claim a shadow model, and return False if another process trains it.

        Raises
        ------
        StoreError
            If the claim cannot be written, or the file system has no locks and the caller did not
            name its part.
        """
        from filelock import FileLock, Timeout

        file = self._file(index)
        lock = FileLock(file, timeout=0, mode=0o600)
        with self._run.explained(file):
            try:
                lock.acquire()
            except Timeout:
                return False
            except (NotImplementedError, OSError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
                    raise
                if not self._parted:
                    raise StoreError(
                        f"{self._run.path} is on a file system without locks, where two processes "
                        "could train the same models; name the part of each process, as in "
                        "run_shadows(100, indices=range(0, 25))"
                    ) from error
                return True
        self._held[index] = lock
        return True

    def release(self, index: int) -> None:
        """Release a claim, because the shadow model is no longer trained here."""
        lock = self._held.pop(index, None)
        if lock is not None:
            lock.release()

    def forget(self, index: int) -> None:
        """Release a claim on a finished shadow model, and delete its file."""
        self.release(index)
        with suppress(OSError, StoreError):
            self._file(index).unlink()

    def _file(self, index: int) -> Path:
        return self._run.place(f"{self._folder}/{index:04d}.lock")


class RefusedError(StoreError):
    """Worker whose shadow models would not be comparable."""


_OF_A_MACHINE = (DeviceError, MemoryError, WorkerKilledError, RefusedError)  # another may do it


class Filling:
    """Training of missing shadow models, each by one process only.

    This process claims a shadow model, orders it and writes it. Workers only train.

    Parameters
    ----------
    files : ShadowSet
        The shadow models.
    job : ShadowJob
        What they have in common.
    pool : Pool
        Workers that train.
    claims : Claims
        Claims of this process; also detects those of other processes.
    progress : Progress
        Progress reports and cancellation.
    """

    def __init__(
        self, files: ShadowSet, job: ShadowJob, pool: Pool, claims: Claims, progress: Progress
    ) -> None:
        self._files, self._job, self._kind = files, job, job.shadows.kind
        self._pool, self._claims, self._progress = pool, claims, progress
        self._left: list[int] = []
        self._in_hand: dict[Future[Result], int] = {}
        self._since: dict[int, float] = {}  # when each one in hand was ordered
        self._seconds = files.seconds()[-_LAST:]  # that each one took
        self._warned: set[str] = set()
        self._killed: set[int] = set()
        self._next_look = 0.0

    def run(self, missing: Sequence[int], n: int) -> None:
        """Train the missing ones of n shadow models; wait for those that other processes train."""
        self._left = list(missing)
        try:
            while self._left:
                self._order()
                self._collect()
                self._check()
                self._report(n, self._detail())
        except BaseException as error:
            self._pool.withdraw(list(self._in_hand))
            stops = isinstance(error, Cancelled) and not isinstance(self._pool, LocalPool)
            if stops or isinstance(error, _OF_A_MACHINE):
                with suppress(Exception):  # the first error is what is reported to the user
                    self._collect_rest()
            raise

    def _report(self, n: int, detail: str) -> None:
        done = n - len(self._left)
        self._progress.report(done, n, f"training {self._kind.noun}s", detail)

    def _order(self) -> None:
        """Claim and order as many as the pool can take, and drop those that others finished."""
        now = time.monotonic()
        if now < self._next_look or len(self._in_hand) >= self._pool.slots:
            return
        ours = set(self._in_hand.values())
        for index in [i for i in self._left if i not in ours]:
            if len(self._in_hand) >= self._pool.slots:
                return
            if self._files.holds(index, self._job):
                self._left.remove(index)
            elif self._claims.take(index):
                if self._files.holds(index, self._job):  # finished between the two checks
                    self._claims.forget(index)
                    self._left.remove(index)
                else:
                    self._submit(index)
        self._next_look = now + _ASK_AGAIN_SECONDS

    def _submit(self, index: int, *, with_job: bool = False) -> None:
        try:
            future = self._pool.submit(index, with_job=with_job)
        except Exception as error:  # noqa: BLE001 - any executor's
            self._claims.release(index)
            self._renew(error)
            return
        if not isinstance(future, Future):
            raise TypeError(
                "the executor's submit must return a concurrent.futures.Future, not "
                f"{type(future).__name__}; docs/cluster.md shows an adapter"
            )
        self._in_hand[future] = index
        self._since[index] = time.monotonic()

    def _collect(self) -> None:
        """Write the results that arrived, and raise errors after all others are written."""
        if not self._in_hand:
            time.sleep(_POLL_SECONDS)
            return
        done = self._arrived()
        lost, failures = None, []
        for future in done:
            index = self._in_hand.pop(future)
            try:
                result = self._pool.result(future)
            except Exception as error:  # noqa: BLE001 - the pool's, because a worker's is a result
                self._claims.release(index)
                lost = error
                continue
            try:
                self._keep(index, result)
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if done:
            self._next_look = 0.0
        if failures:
            raise failures[0]
        if lost is not None:
            self._renew(lost)

    def _keep(self, index: int, result: Result) -> None:
        """Write a shadow model, or find out who trains it instead."""
        if result.lacks_job:
            self._submit(index, with_job=True)
            return
        if result.trained is not None:
            if result.warning:
                self._warn(
                    result.worker,
                    f"the worker {result.worker} has {result.warning}, so its {self._kind.noun}s "
                    "may differ in the last digits",
                )
            self._files.write(index, result.trained, self._job)
            self._claims.forget(index)
            self._left.remove(index)
            self._seconds = [*self._seconds, result.trained.seconds][-_LAST:]
            return
        error: BaseException = (
            RefusedError(
                f"the worker {result.worker} has {result.refusal}, so its {self._kind.noun}s would "
                f"not be comparable; install the same versions there. {self._kept()}"
            )
            if result.error is None
            else cloudpickle.loads(result.error)
        )
        if self._goes_elsewhere(index, result, error):
            self._claims.release(index)
            return
        if isinstance(error, WorkerKilledError):
            raise WorkerKilledError(f"the worker {result.worker} {error}. {self._kept()}")
        if not isinstance(error, RefusedError):
            error.add_note(f"This is from the worker {result.worker}.")
        raise error

    def _goes_elsewhere(self, index: int, result: Result, error: BaseException) -> bool:
        """Leave out a worker whose machine failed; return whether another can train its model.

        A model that kills workers on two machines would kill those of all.
        """
        if not isinstance(error, _OF_A_MACHINE) or index in self._killed:
            return False
        if isinstance(error, WorkerKilledError):
            self._killed.add(index)
        if not (result.place and self._pool.leave_out(result.place)):
            return False
        reason = result.refusal or first_line(error)
        self._warn(
            result.place,
            f"the worker {result.worker} trains no more {self._kind.noun}s, and others train its "
            f"own ({reason})",
        )
        return True

    def _warn(self, about: str, said: str) -> None:
        """Warn once about each worker."""
        if about not in self._warned:
            self._warned.add(about)
            warnings.warn(said, UserWarning, stacklevel=2)

    def _check(self) -> None:
        try:
            self._pool.check()
        except PoolLostError as error:
            raise StoreError(f"{error}. {self._kept()}") from error

    def _renew(self, error: Exception) -> None:
        """Go on after the pool broke: this is the only place that does."""
        try:
            all_are_lost = self._pool.renew(error)
        except PoolLostError as said:
            raise StoreError(f"{said}. {self._kept()}") from error
        if all_are_lost:
            for index in self._in_hand.values():
                self._claims.release(index)
            self._in_hand.clear()
        self._next_look = 0.0

    def _collect_rest(self) -> None:
        """Write what workers have begun, and drop what none can take any more."""
        look = time.monotonic() + _ASK_AGAIN_SECONDS
        while self._in_hand:
            for future in self._arrived():
                index = self._in_hand.pop(future)
                if not future.cancelled() and future.exception() is None:
                    trained = future.result().trained
                    if trained is not None:
                        self._files.write(index, trained, self._job)
            self._pool.check()
            if time.monotonic() >= look:  # a worker has died, and no other begins its order
                self._pool.withdraw(list(self._in_hand))
                look = time.monotonic() + _ASK_AGAIN_SECONDS

    def _arrived(self) -> list[Future[Result]]:
        """Return the orders that are done, after waiting a little for one.

        `wait` returns a cancelled one only after the executor has noticed, which may be never.
        """
        wait(self._in_hand, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        return [future for future in self._in_hand if future.done()]

    def _kept(self) -> str:
        noun, call = self._kind.noun, self._kind.call
        return f"The {len(self._files)} finished {noun}s are kept; call {call} again"

    def _detail(self) -> str:
        n = len(self._in_hand)
        if not n:
            if not self._left or self._next_look == 0:
                return ""
            if not self._pool.running:
                return "waiting for a worker"
            return f"waiting for {len(self._left)} that another process trains"
        running = min(n, self._pool.running)
        said = f"{running} in hand" if running else f"{n} waiting for a worker"
        if not (self._seconds and running):
            return said
        seconds = sum(self._seconds) / len(self._seconds)
        oldest = min(self._since[index] for index in self._in_hand.values())
        following = max(0.0, seconds - (time.monotonic() - oldest))
        rest = (len(self._left) - running) * seconds / running + following
        return f"{said}, next in {duration_in_words(following)}, {duration_in_words(rest)} left"
