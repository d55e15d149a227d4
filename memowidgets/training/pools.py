"""Pools of workers: local processes, Dask's, and those of any other executor."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    ProcessPoolExecutor,
)
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from safetensors import SafetensorError

from memowidgets.cores import cores
from memowidgets.files import write_whole
from memowidgets.models.device import count_devices
from memowidgets.training.shadow import ShadowJob
from memowidgets.training.worker import (
    Order,
    Result,
    WorkerKilledError,
    fulfil,
    given,
    library_versions,
    packed,
    start_local,
)
from memowidgets.visible import first_line

_PREFIX = "memowidgets-samples-"
_PATIENCE_SECONDS = 60.0  # before a word about no workers
_CHECK_SECONDS = 1.0
_ANSWER_SECONDS = 30.0  # for a Dask scheduler to answer
_MOST_BREAKS = 3  # times that local processes are started again without a model between


class SharedSamples:
    """Private temporary folder from which local processes map the samples.

    Whoever opened it closes it. Workers that outlive their parent remove it. If all were killed at
    once, the next process that opens such a folder removes it.

    Attributes
    ----------
    folder : str
        Path of the folder, readable only by its owner.
    """

    def __init__(self) -> None:
        if os.name == "posix":  # elsewhere nobody can tell whether a process lives
            for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
                owner = left.name.removeprefix(_PREFIX).split("-")[0]
                if owner.isdigit() and not left.is_symlink() and not _is_alive(int(owner)):
                    shutil.rmtree(left, ignore_errors=True)
        self.folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")

    def of(self, job: ShadowJob) -> ShadowJob:
        """Return the job with samples and weights in the folder; what has no room stays in it."""
        recipe = job.recipe
        with suppress(OSError):
            recipe = replace(recipe, data=recipe.data.shared(self.folder))
        with suppress(OSError, SafetensorError):
            recipe = replace(recipe, model=recipe.model.shared(self.folder))
        return replace(job, recipe=recipe)

    def keep(self, job: ShadowJob) -> tuple[bytes, str | bytes]:
        """Store a job; return it pickled, and the path of its file, or again itself if full."""
        payload: bytes = cloudpickle.dumps(self.of(job))
        file = Path(self.folder) / "job"
        try:
            write_whole(file, payload)
        except OSError:
            return payload, payload
        return payload, str(file)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


class PoolLostError(Exception):
    """The pool can't go on; the message is the beginning of a sentence without its full stop."""


class Pool:
    """Executor that the user passes.

    A worker keeps the job, and an order only names it. A worker that lacks it (because it is new)
    says so, and the order is given again with the job.
    """

    def __init__(self, job: ShadowJob, executor: Executor, processes: int | None) -> None:
        self._executor, self._asked, self._noun = executor, processes, job.shadows.kind.noun
        self._payload: bytes = cloudpickle.dumps(job)
        self._order = _order_of(self._payload, "auto" if job.recipe.anywhere else None)

    @property
    def slots(self) -> int:
        """Number of orders to have in hand."""
        return int(self._asked or getattr(self._executor, "_max_workers", 0) or cores())

    @property
    def running(self) -> int:
        """Number of workers."""
        return self.slots

    def submit(self, index: int, *, with_job: bool = False) -> Future[Result]:
        """Order a shadow model; only with the job from a worker that lacked it."""
        source = self._payload if with_job else None
        return self._executor.submit(fulfil, replace(self._order, index=index), source)

    def result(self, future: Future[Result]) -> Result:
        """Return a worker's result; any exception here is one of the pool."""
        return future.result()

    def check(self) -> None:
        """Raise `PoolLostError` if no order can be given any more."""

    def renew(self, error: BaseException) -> bool:
        """Go on after an exception of the pool; return whether all orders in hand are lost.

        Raises
        ------
        PoolLostError
            If it can't go on.
        """
        raise PoolLostError(f"the executor died while training {self._noun}s ({_said(error)})")

    def leave_out(self, place: str) -> bool:
        """Give no more orders to a worker by its `Result.place`; return whether others are left."""
        del place
        return False

    def withdraw(self, futures: list[Future[Result]]) -> None:
        """Cancel orders that no worker has begun."""
        for future in futures:
            with suppress(NotImplementedError):  # Parsl's can't be cancelled, and are trained
                future.cancel()

    def close(self, *, kill: bool) -> None:
        """End local processes; an executor of the user's stays open."""


class LocalPool(Pool):
    """Worker processes of this machine, which share its cores as threads."""

    def __init__(self, job: ShadowJob, processes: int) -> None:  # the executor is made here
        self._asked, self._noun, self._device = processes, job.shadows.kind.noun, job.recipe.device
        self._samples = SharedSamples()
        payload, self._source = self._samples.keep(job)
        self._order = _order_of(payload)
        self._breaks = 0
        self._start()

    def _start(self) -> None:
        from loky import ProcessPoolExecutor

        threads = max(1, cores() // self.slots)
        kind, _, index = self._device.partition(":")
        gpus = [self._device] if index else [f"{kind}:{i}" for i in range(count_devices(kind))]
        self._executor = ProcessPoolExecutor(
            self.slots,
            initializer=start_local,
            initargs=(
                os.getpid(),
                threads,
                self._samples.folder,
                [] if kind in ("cpu", "mps") else gpus,
            ),
            # loky ends a process that has grown by 300 MB, as one with a large model does
            env={"OMP_NUM_THREADS": str(threads), "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18"},
        )

    def submit(self, index: int, *, with_job: bool = False) -> Future[Result]:
        """Order a shadow model; the worker reads the job from the folder that all share."""
        del with_job
        return self._executor.submit(fulfil, replace(self._order, index=index), self._source)

    def result(self, future: Future[Result]) -> Result:
        """Return a worker's result, which shows that not every process dies at its first."""
        found = super().result(future)
        self._breaks = 0
        return found

    def renew(self, error: BaseException) -> bool:
        """Start the processes again after one was killed, unless they all die at their first."""
        self._breaks += 1
        if not isinstance(error, BrokenExecutor):
            raise PoolLostError(f"the worker processes failed ({_said(error)})")
        if self._breaks >= _MOST_BREAKS:
            raise PoolLostError(
                f"a worker process was killed while training {self._noun}s (out of memory?), "
                f"{_MOST_BREAKS} times in a row"
            )
        self._shutdown(kill=True)
        self._start()
        return True

    def close(self, *, kill: bool) -> None:
        """End the processes, and remove what they shared."""
        self._shutdown(kill=kill)
        self._samples.close()

    def _shutdown(self, *, kill: bool) -> None:
        shutdown: Any = self._executor.shutdown
        shutdown(wait=True, kill_workers=kill)


class DaskPool(Pool):
    """Dask's executor, whose workers come and go.

    The job is a task of its own, on which every order depends. So Dask sends it once to each
    worker, and makes it again when all workers that had it are gone. There are more orders than
    workers, so that a cluster that adapts to its work grows.

    Every order has a future of our own, which `_pass_on` completes. That of Dask's executor is
    never done if the order is cancelled while its result is fetched.
    """

    def __init__(self, job: ShadowJob, executor: Any, processes: int | None) -> None:
        super().__init__(job, executor, processes)
        self._dask, self._client = executor, executor._client  # noqa: SLF001
        self._sent: Any = None
        self._workers: dict[str, str] = {}  # addresses, and what stays when one is started again
        self._left_out: set[str] = set()
        # Dask's future of each order, and the only workers that may take it
        self._given: dict[Future[Result], tuple[Any, list[str]]] = {}
        now = time.monotonic()
        self._next_look, self._alone_since = 0.0, now
        self._told = False

    @property
    def slots(self) -> int:
        """Number of orders to have in hand; none while nobody can take one."""
        n = len(self._addresses())
        if self._client.status != "running" or (self._left_out and not n):
            return 0
        return self._asked or 2 * n + 2

    @property
    def running(self) -> int:
        """Number of workers."""
        return min(self._asked or len(self._addresses()), len(self._addresses()))

    def submit(self, index: int, *, with_job: bool = False) -> Future[Result]:
        """Order a shadow model, which waits for a worker and for the job."""
        del with_job
        if self._sent is None or self._sent.status not in ("pending", "finished"):
            import dask

            with dask.config.set({"distributed.admin.large-graph-warning-threshold": 2**60}):
                name = f"shadow_job-{self._order.job}-{uuid.uuid4().hex}"
                payload = np.frombuffer(self._payload, np.uint8)
                self._sent = self._client.submit(given, payload, key=name, pure=False)
        if self._dask._shutdown:  # noqa: SLF001 - Dask's own submit looks there too
            raise RuntimeError("cannot schedule new futures after shutdown")
        key = f"train_shadow-{index}-{uuid.uuid4().hex}"
        only = self._addresses() if self._left_out else []
        how = self._dask._kwargs | ({"workers": only} if only else {})  # noqa: SLF001
        order = replace(self._order, index=index)
        ordered = self._client.submit(fulfil, order, self._sent, key=key, **how | {"pure": False})
        future: Future[Result] = Future()
        self._given[future] = ordered, only
        self._client.loop.add_callback(_pass_on, ordered, future)
        return future

    def result(self, future: Future[Result]) -> Result:
        """Return the result of an order, or of a worker that was killed more often than allowed."""
        from distributed import KilledWorker

        self._given.pop(future, None)
        try:
            return future.result()
        except KilledWorker as error:
            last = error.last_worker
            killed = WorkerKilledError(f"was killed while training {self._noun}s (out of memory?)")
            return Result(last.address, error=packed(killed), place=last.nanny or last.address)

    def check(self) -> None:
        """Give orders free whose workers are all gone, and raise if the client was closed."""
        if self._client.status not in ("running", "connecting"):
            raise PoolLostError(f"the Dask client is {self._client.status}")
        addresses = self._addresses()
        self._cancel(
            [f for f, (_, only) in self._given.items() if only and not {*only} & {*addresses}]
        )
        now = time.monotonic()
        if addresses:
            self._alone_since = now
        elif now - self._alone_since > _PATIENCE_SECONDS and not self._told:
            self._told = True
            warnings.warn(
                f"the Dask cluster has no worker; the {self._noun}s wait for one",
                UserWarning,
                stacklevel=2,
            )

    def renew(self, error: BaseException) -> bool:
        """Give a cancelled order again: the scheduler has forgotten it, or its workers are gone."""
        return False if isinstance(error, CancelledError) else super().renew(error)

    def leave_out(self, place: str) -> bool:
        """Give no more orders to a worker by its `Result.place`; return whether others are left."""
        known = place in self._left_out  # then this order was given before
        self._left_out.add(place)
        return known or bool(self._addresses())

    def withdraw(self, futures: list[Future[Result]]) -> None:
        """Cancel orders that no worker has begun, which only the scheduler knows."""

        def executing(dask_scheduler: Any) -> set[str]:
            return {task.key for one in dask_scheduler.workers.values() for task in one.executing}

        with suppress(Exception):  # else all are waited for, and the caller asks again
            begun: set[str] = self._client.sync(
                self._client._run_on_scheduler,  # noqa: SLF001 - the public one waits without end
                executing,
                callback_timeout=_ANSWER_SECONDS,
            )
            self._cancel([one for one in futures if self._given[one][0].key not in begun])

    def _cancel(self, futures: list[Future[Result]]) -> None:
        """Cancel orders: here at once, and in the cluster when its scheduler hears of it."""
        futures = [future for future in futures if future.cancel()]
        if futures:
            with suppress(Exception):  # a closed client has no orders
                self._client.cancel([self._given[future][0] for future in futures])

    def _addresses(self) -> list[str]:
        """Return the addresses of the workers, without those that are left out."""
        now = time.monotonic()
        if now >= self._next_look and self._client.status == "running":
            self._next_look = now + _CHECK_SECONDS
            with suppress(OSError, TimeoutError):  # the scheduler is about to start again
                about = self._client.sync(
                    self._client.scheduler.identity, callback_timeout=_ANSWER_SECONDS
                )
                found = about["workers"].items()
                self._workers = {address: one.get("nanny") or address for address, one in found}
        return [address for address, place in self._workers.items() if place not in self._left_out]


async def _pass_on(ordered: Any, future: Future[Result]) -> None:
    """Complete the future of an order, whatever becomes of Dask's."""
    try:
        result = await ordered._result()  # noqa: SLF001 - as Dask's executor does
    except BaseException as error:  # noqa: BLE001 - raised where the result is read
        lost = isinstance(error, OSError) and ordered.status != "error"  # with the connection
        if lost or isinstance(error, CancelledError):
            future.cancel()  # so that the order is given again
        with suppress(InvalidStateError):  # it was cancelled meanwhile
            future.set_exception(error)
    else:
        with suppress(InvalidStateError):
            future.set_result(result)


@contextmanager
def opened(job: ShadowJob, executor: Executor | None, processes: int | None) -> Iterator[Pool]:
    """Yield a pool of workers, whose local processes end when the block does."""
    if executor is None:
        pool: Pool = LocalPool(job, processes or 1)
    elif type(executor).__module__.startswith("distributed."):
        pool = DaskPool(job, executor, processes)
    else:
        pool = Pool(job, executor, processes)
    try:
        yield pool
    except BaseException:
        pool.close(kill=True)
        raise
    pool.close(kill=False)


def check_executor(executor: Any) -> None:
    """Refuse what can't train shadow models.

    Raises
    ------
    TypeError
        If it is not an executor of `concurrent.futures`.
    ValueError
        If it starts its processes by fork.
    """
    if executor is None:
        return
    if not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (Dask: client.get_executor(); "
            f"submitit and others: docs/cluster.md), not {type(executor).__name__}"
        )
    context = getattr(executor, "_mp_context", None)
    if isinstance(executor, ProcessPoolExecutor) and context.get_start_method() == "fork":  # type: ignore[union-attr]
        raise ValueError(
            "this ProcessPoolExecutor starts its processes by fork, and they hang where this "
            "process has computed with several threads; leave executor= out, or pass "
            'mp_context=multiprocessing.get_context("spawn") to it'
        )


def default_processes(device: str) -> int:
    """Return the best number of local processes: one per GPU, else one per core."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return cores()
    return 1 if index else max(1, count_devices(kind))


def _order_of(payload: bytes, device: str | None = None) -> Order:
    return Order(hashlib.sha256(payload).hexdigest(), -1, library_versions(), device)


def _said(error: BaseException) -> str:
    said = first_line(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
