"""Shadow models are ordered: from local processes, or from any executor.

`fill` orders all missing ones at once, and hands each over as soon as it is there. An executor that
fails, or a worker that dies, is one sentence. Calling again goes on.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
    wait,
)
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from memowidgets.cores import cores
from memowidgets.models.device import count_devices
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.travel import pack
from memowidgets.training.worker import (
    Content,
    JobFile,
    ShadowJob,
    forget_job,
    start_local,
    train_ordered,
    versions,
)
from memowidgets.vocabulary import first_line

_POLL_SECONDS = 0.2

Orders = dict[Future[Content], int]


class Files(Protocol):
    """Where trained shadow models go."""

    def write(
        self, index: int, arrays: dict[str, NDArray[Any]], metadata: dict[str, str]
    ) -> None:
        """Write the one of an index; raise if it is another."""

    def __len__(self) -> int:
        """Return how many there are."""


def fill(
    files: Files,
    job: ShadowJob,
    missing: Sequence[int],
    total: int,
    progress: Progress,
    executor: Executor | None = None,
    processes: int = 1,
) -> None:
    """Train the missing ones of `total` shadow models, each a file as soon as it is there.

    Parameters
    ----------
    files : Files
        Where the shadow models go.
    job : ShadowJob
        What they have in common.
    missing : sequence of int
        Indices of those to train.
    total : int
        Number of all, for the progress.
    progress : Progress
        Reports and cancellation, which acts between two models.
    executor : Executor, optional
        Who trains. Default: local processes, which end with the call.
    processes : int
        Number of local processes.

    Raises
    ------
    Cancelled
        After ``progress.cancel()``. Local processes are ended.
    StoreError
        If a file cannot be written, the executor or a worker has ended, or a worker has another
        version or other code.
    """
    device = "auto" if executor is not None and job.recipe.anywhere else None
    name = uuid.uuid4().hex
    orders = Orders()
    with (
        _explain_failure(files, job),
        _ready(job, executor, processes) as (workers, source),
    ):
        try:
            left = list(missing)
            while left or orders:
                if left:  # all are ordered at once, so that a cluster that adapts to work grows
                    index = left.pop(0)
                    order = workers.submit(
                        train_ordered, index, name, source, versions(), device
                    )
                    orders[order] = index
                else:
                    wait(orders, _POLL_SECONDS, FIRST_COMPLETED)
                for future in [one for one in orders if one.done()]:
                    index = orders.pop(future)
                    files.write(index, *future.result())
                done = total - len(left) - len(orders)
                progress.report(done, total, f"training {job.shadows.kind.noun}s")
        except BaseException as error:
            for future in orders:
                # Parsl's can't be cancelled, and are trained
                with suppress(NotImplementedError):
                    future.cancel()
            if isinstance(error, Exception):  # not for somebody who interrupts
                _write_rest(files, orders, waits=executor is not None)
            raise
        finally:
            forget_job()  # of an executor whose threads are in this process


def check_executor(executor: object) -> None:
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
    context: Any = getattr(executor, "_mp_context", None)
    if (
        isinstance(executor, ProcessPoolExecutor)
        and context.get_start_method() == "fork"
    ):
        raise ValueError(
            "this ProcessPoolExecutor starts its processes by fork, and they may hang; leave "
            'executor= out, or pass mp_context=multiprocessing.get_context("spawn") to it'
        )


def default_processes(device: str) -> int:
    """Return the best number of local processes: one per GPU, else one per core."""
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return cores()
    return 1 if index else max(1, count_devices(kind))


@contextmanager
def _ready(
    job: ShadowJob, executor: Executor | None, processes: int
) -> Iterator[tuple[Executor, Any]]:
    """Yield who trains, and the job as an order carries it."""
    if executor is None:
        with _local_processes(job, processes) as ready:
            yield ready
    elif not type(executor).__module__.startswith("distributed."):
        yield executor, pack(job)
    else:
        import dask

        payload = np.frombuffer(pack(job), np.uint8)
        no_warning = {"distributed.admin.large-graph-warning-threshold": 2**60}
        # A task of its own, which returns the job as it is. Dask sends it to each worker once, and
        # makes it again where all that had it are gone.
        with dask.config.set(no_warning):
            client: Any = executor._client  # type: ignore[attr-defined]  # noqa: SLF001
            sent = client.submit(np.asarray, payload, pure=False)
        yield executor, sent


@contextmanager
def _local_processes(
    job: ShadowJob, processes: int
) -> Iterator[tuple[Executor, JobFile]]:
    """Yield processes of this machine, which share its cores as threads, and its GPUs.

    The job is in a file. In the pipe of a process that dies as it starts, it would block this one.
    """
    from loky import ProcessPoolExecutor as Local
    from loky.backend import get_context

    kind, _, chosen = job.recipe.device.partition(":")
    gpus = None
    if kind not in ("cpu", "mps"):
        gpus = get_context("loky").SimpleQueue()
        n = count_devices(kind)
        for i in range(processes):
            gpus.put(job.recipe.device if chosen else f"{kind}:{i % n}")
    threads = max(1, cores() // processes)
    kill = True
    prefix = "memowidgets-samples-"
    with tempfile.TemporaryDirectory(
        prefix=prefix, ignore_cleanup_errors=True
    ) as folder:
        source = JobFile.write(job, folder)
        workers: Any = Local(
            processes,
            initializer=start_local,
            initargs=(os.getpid(), folder, threads, gpus),
            env={
                "OMP_NUM_THREADS": str(threads),
                # Threads that wait by spinning take ten times as long on a busy machine.
                "OMP_WAIT_POLICY": "PASSIVE",
                # loky ends a process that has grown by 300 MB, as one with a large model does.
                "LOKY_MAX_MEMORY_LEAK_SIZE": "1e18",
            },
        )
        try:
            yield workers, source
            kill = False
        finally:
            workers.shutdown(wait=True, kill_workers=kill)


def _write_rest(files: Files, orders: Orders, *, waits: bool) -> None:
    """Write what is done, after waiting for what threads and processes of the user's have begun."""
    begun = [one for one in orders if one.done() or (waits and one.running())]
    for future in as_completed([one for one in begun if not one.cancelled()]):
        with suppress(Exception):  # the first error is what is reported
            files.write(orders[future], *future.result())


@contextmanager
def _explain_failure(files: Files, job: ShadowJob) -> Iterator[None]:
    """Say in one sentence that an executor has failed, or one of its workers has died."""
    try:
        yield
    except Exception as error:
        of_dask = type(error).__module__.partition(".")[0] == "distributed"
        if not (of_dask or isinstance(error, BrokenExecutor | CancelledError)):
            raise
        noun = job.shadows.kind.noun
        call = job.shadows.kind.call
        raise StoreError(
            f"the workers ended while training {noun}s ({first_line(error)}). The {len(files)} "
            f"finished {noun}s are kept; call {call} again"
        ) from error
