"""Workers: local processes, or an executor that the user passes."""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast

import cloudpickle

from memowidgets.store import StoreError
from memowidgets.training.device import count_devices
from memowidgets.training.engine.sharing import SharedSamples
from memowidgets.training.engine.timing import Timing
from memowidgets.training.engine.worker import (
    Order,
    Result,
    WorkerKilledError,
    fulfil,
    library_versions,
    packed,
    start_local,
    timed,
)
from memowidgets.training.shadow import ShadowJob

_PATIENCE_SECONDS = 60.0  # wait for a cluster without workers
_CHECK_SECONDS = 2.0


class Workers(Protocol):
    """Workers that take orders; `patient` ones finish the current shadow model when cancelled."""

    patient: bool

    @property
    def slots(self) -> int:
        """Return the number of orders that can run at once."""

    def submit(self, index: int) -> Future[Result]:
        """Order a shadow model."""

    def submit_again(self, index: int) -> Future[Result]:
        """Order a shadow model again from a worker that lacked the job."""

    def timed(self) -> list[Future[Timing]]:
        """Let local processes time a few steps at the same time; others are not asked."""

    def has_lost(self, future: Future[Result]) -> bool:
        """Return whether an order must be given again, as what it needs went with its worker."""

    def result(self, future: Future[Result]) -> Result:
        """Return the result of an order, or raise if its worker could not return one."""

    def leave_out(self, place: str) -> bool:
        """Give no more orders to a worker by its `Result.place`; return whether others are left."""

    def check(self) -> None:
        """Raise `StoreError` if there are no workers any more."""

    def withdraw(self, future: Future[Result]) -> None:
        """Cancel an order that was not started."""

    def blame(self, error: Exception) -> str:
        """Describe an error that does not come from the training, without a full stop."""

    def close(self, *, kill: bool) -> None:
        """End local processes; an executor is not closed."""


@contextmanager
def opened(
    job: ShadowJob, executor: Executor | None, processes: int | None, beacon: Path
) -> Iterator[Workers]:
    """Yield workers that have the job, and end their work when the block ends early."""
    workers: Workers = (
        _Local(job, processes or 1, beacon)
        if executor is None
        else _Foreign(job, executor, processes, beacon)
    )
    try:
        yield workers
    except BaseException:
        with suppress(OSError):
            beacon.unlink()
        workers.close(kill=True)
        raise
    workers.close(kill=False)


def default_processes(device: str) -> int:
    """Return the best number of local processes: one per GPU, else one per core."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return _cores()
    return 1 if index else max(1, count_devices(kind))


class _Local:
    """Worker processes of this machine, which share its cores as threads."""

    patient = False

    def __init__(self, job: ShadowJob, processes: int, beacon: Path) -> None:
        from loky import ProcessPoolExecutor

        self._opened = time.time()
        self._samples = SharedSamples()
        payload = _payload(self._samples.of(job))
        self._slots, self._noun = processes, job.shadows.kind.noun
        self._order = _order(payload, beacon)
        self._stopped: dict[int, float] = {}
        self._warned: set[int] = set()
        self._next_check, self._blamed = 0.0, ""
        threads = max(1, _cores() // processes)
        self._executor = ProcessPoolExecutor(
            processes,
            initializer=start_local,
            initargs=(
                self._order.job,
                self._samples.keep(payload),
                os.getpid(),
                threads,
                self._samples.folder,
                _devices(job.recipe.device),
            ),
            env={"OMP_NUM_THREADS": str(threads)},
        )

    @property
    def slots(self) -> int:
        return self._slots

    def submit(self, index: int) -> Future[Result]:
        future: Future[Result] = self._executor.submit(fulfil, replace(self._order, index=index))
        return future

    def submit_again(self, index: int) -> Future[Result]:
        return self.submit(index)

    def timed(self) -> list[Future[Timing]]:
        given = self._samples.folder, self._slots, self._opened
        return [self._executor.submit(timed, self._order, *given) for _ in range(self._slots)]

    def has_lost(self, future: Future[Result]) -> bool:
        del future
        return False

    def result(self, future: Future[Result]) -> Result:
        return future.result()

    def leave_out(self, place: str) -> bool:
        """Return False: all local workers have the same memory."""
        del place
        return False

    def check(self) -> None:
        """Detect a stopped worker; a broken pool reports itself in its futures."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        stopped = {pid for pid in list(self._executor._processes or ()) if is_stopped(pid)}  # noqa: SLF001 - loky names them nowhere else
        self._stopped = {pid: self._stopped.get(pid, now) for pid in stopped}
        for pid, since in self._stopped.items():
            if now - since > _PATIENCE_SECONDS:
                self._blamed = f"the worker process {pid} was stopped and did not continue"
                raise StoreError(self._blamed)
            if pid not in self._warned:
                self._warned.add(pid)
                warnings.warn(
                    f"the worker process {pid} is stopped, so its {self._noun} waits; continue it "
                    f"with kill -CONT {pid}, or it is given up after {_PATIENCE_SECONDS:.0f} s",
                    UserWarning,
                    stacklevel=2,
                )

    def withdraw(self, future: Future[Result]) -> None:
        future.cancel()

    def blame(self, error: Exception) -> str:
        if self._blamed:
            return self._blamed
        if isinstance(error, BrokenExecutor):
            return f"a worker process was killed while training {self._noun}s (out of memory?)"
        return f"the worker processes failed ({_named(error)})"

    def close(self, *, kill: bool) -> None:
        self._executor.shutdown(wait=True, kill_workers=kill)
        self._samples.close()


class _Foreign:
    """Executor that the user passes.

    The first orders contain the job. A worker stores it, and later orders only name it. A worker
    that lacks it (because it joined late or was restarted) reports this and is sent the job. Dask
    itself sends it once to each worker.
    """

    patient = True

    def __init__(
        self, job: ShadowJob, executor: Executor, processes: int | None, beacon: Path
    ) -> None:
        self._executor, self._asked = executor, processes
        self._noun = job.shadows.kind.noun
        self._payload = _payload(job)
        device = "auto" if job.recipe.anywhere else None
        self._order = replace(_order(self._payload, beacon), device=device)
        self._dask = _dask_client(executor)
        self._scattered: Any = None
        self._left_out: set[str] = set()
        self._bound: dict[Future[Result], list[str]] = {}  # orders that only these workers may take
        self._sent = 0
        self._alone_since: float | None = None
        self._next_check = 0.0

    @property
    def slots(self) -> int:
        if self._asked:
            return self._asked
        if self._dask is not None:
            return len(self._addresses())
        return int(getattr(self._executor, "_max_workers", 0) or _cores())

    def submit(self, index: int) -> Future[Result]:
        order = replace(self._order, index=index)
        if self._dask is not None:
            return self._to_dask(order)
        self._sent += 1
        if self._sent <= self.slots:
            return self._executor.submit(fulfil, order, self._payload)
        return self._executor.submit(fulfil, order)

    def submit_again(self, index: int) -> Future[Result]:
        return self._executor.submit(fulfil, replace(self._order, index=index), self._payload)

    def timed(self) -> list[Future[Timing]]:
        return []

    def has_lost(self, future: Future[Result]) -> bool:
        """Detect that the last worker that had the job is gone: Dask cancels what waits for it."""
        return self._dask is not None and self._dask.status == "running" and future.cancelled()

    def result(self, future: Future[Result]) -> Result:
        """Return the result of an order, or of a worker that was killed more often than allowed."""
        self._bound.pop(future, None)
        if self._dask is None:
            return future.result()
        from distributed import KilledWorker

        try:
            return future.result()
        except KilledWorker as error:
            last = error.last_worker
            killed = WorkerKilledError(f"was killed while training {self._noun}s (out of memory?)")
            return Result(last.address, error=packed(killed), place=last.nanny or last.address)

    def leave_out(self, place: str) -> bool:
        if self._dask is None or not place:
            return False
        self._left_out.add(place)
        return bool(self._addresses())

    def check(self) -> None:
        now = time.monotonic()
        if self._dask is None or now < self._next_check:
            return
        self._next_check = now + _CHECK_SECONDS
        if self._dask.status not in {"running", "connecting"}:
            raise StoreError(f"the Dask client is {self._dask.status}")
        if self._dask.status == "connecting":  # it closes by itself where nobody answers for long
            return
        addresses = self._addresses()
        self._free_orders(addresses)
        if addresses:
            self._alone_since = None
            return
        self._alone_since = self._alone_since or now
        if now - self._alone_since > _PATIENCE_SECONDS:
            raise StoreError(
                "the Dask cluster has no worker; client.wait_for_workers(1) waits for one"
            )

    def withdraw(self, future: Future[Result]) -> None:
        if self._dask is None:  # Dask's futures do not say whether they have started
            future.cancel()

    def blame(self, error: Exception) -> str:
        return f"the executor died while training {self._noun}s ({_named(error)})"

    def close(self, *, kill: bool) -> None:
        """Do nothing: whoever holds the futures cancels what is not started."""

    def _to_dask(self, order: Order) -> Future[Result]:
        if self._scattered is None or self._scattered.status != "finished":
            self._scattered = self._dask.scatter(self._payload, broadcast=True, hash=False)
        submit: Any = self._executor.submit
        if not self._left_out:
            return cast("Future[Result]", submit(fulfil, order, self._scattered, pure=False))
        others = self._addresses()
        future: Future[Result] = submit(fulfil, order, self._scattered, pure=False, workers=others)
        self._bound[future] = others
        return future

    def _addresses(self) -> list[str]:
        """Return the addresses of Dask's workers, without those that are left out."""
        if not self._left_out:
            return list(self._dask.nthreads())
        workers = self._dask.sync(self._dask.scheduler.identity)["workers"]
        places = {address: about.get("nanny") or address for address, about in workers.items()}
        return [address for address, place in places.items() if place not in self._left_out]

    def _free_orders(self, addresses: list[str]) -> None:
        """Cancel orders whose workers are all gone, which `has_lost` then lets give again."""
        for future in [f for f, own in self._bound.items() if not set(own) & set(addresses)]:
            del self._bound[future]
            future.cancel()


def is_stopped(pid: int) -> bool:
    """Return whether a signal has halted a process; False if unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:  # the process is gone, or the system has no /proc
        return False
    return stat.rpartition(")")[2].split()[:1] == ["T"]


def _named(error: Exception) -> str:
    said = str(error).strip()
    return f"{type(error).__name__}: {said.splitlines()[0]}" if said else type(error).__name__


def _payload(job: ShadowJob) -> bytes:
    payload: bytes = cloudpickle.dumps(job)
    return payload


def _order(payload: bytes, beacon: Path) -> Order:
    digest = hashlib.sha256(payload).hexdigest()
    return Order(digest, -1, library_versions(), str(beacon))


def _dask_client(executor: Executor) -> Any:
    """Return the client behind Dask's executor; None for any other."""
    made_by_dask = type(executor).__module__.startswith("distributed.")
    return getattr(executor, "_client", None) if made_by_dask else None


def _devices(device: str) -> list[str]:
    """Return the GPUs that local processes share; none if all compute on the CPU."""
    kind, _, index = device.partition(":")
    if kind in ("cpu", "mps"):
        return []
    return [device] if index else [f"{kind}:{i}" for i in range(count_devices(kind))]


def _cores() -> int:
    from loky import cpu_count

    return int(cpu_count(only_physical_cores=False))
