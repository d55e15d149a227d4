"""Worker: stores the job, trains a shadow model, and returns its arrays."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import cloudpickle
from filelock import FileLock, Timeout

from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training.device import resolve_device
from memowidgets.training.engine.timing import Timing, meet, take_times
from memowidgets.training.probe import check_functions
from memowidgets.training.shadow import ShadowJob, TrainedShadow, train_shadow

if TYPE_CHECKING:
    import torch
    from filelock import BaseFileLock

_POLL_SECONDS = 0.2
_MOST_JOBS = 2  # jobs that a worker stores, so two audits at once
_MUST_AGREE = ("memowidgets", "torch")
_MAKE_MODELS = (
    "transformers",
    "peft",
    "tokenizers",
)  # of language models, if installed


@dataclass(frozen=True)
class Order:
    """Order to train one shadow model, for a worker that has the job.

    Attributes
    ----------
    job : str
        Digest of the job.
    index : int
        Index of the shadow model.
    versions : dict of str
        Versions of the libraries in the ordering process.
    beacon : str
        File that exists while the result is wanted. It is visible only on a shared disk.
    device : str or None
        Device to use instead of the job's. ``"auto"`` is the best one of the worker's machine.
    """

    job: str
    index: int
    versions: dict[str, str]
    beacon: str
    device: str | None = None


@dataclass(frozen=True)
class Result:
    """Result of a worker.

    Attributes
    ----------
    worker : str
        Name of the worker.
    trained : TrainedShadow or None
        The shadow model, if it was trained.
    lacks_job : bool
        Whether the job must be sent again.
    refusal : str
        Reason why this worker must not train, or empty.
    warning : str
        Warning about a worker that trained, or empty.
    error : bytes or None
        Exception that ended the training, by cloudpickle.
    place : str
        Address of the Dask worker's nanny, which stays when a worker is started again, or its own.
        Empty without Dask, and if there was no exception.
    """

    worker: str
    trained: TrainedShadow | None = None
    lacks_job: bool = False
    refusal: str = ""
    warning: str = ""
    error: bytes | None = None
    place: str = ""


class WorkerKilledError(StoreError):
    """Worker of a cluster that was killed while it trained."""


class _Kept:
    """Jobs that this process has received, and the GPU that it stays on."""

    jobs: ClassVar[OrderedDict[str, ShadowJob]] = OrderedDict()
    checked: ClassVar[set[str]] = set()  # jobs whose functions are those of the run here
    shared: ClassVar[tuple[tuple[str, ...], str]] = ((), "")  # GPUs of the local processes
    device: ClassVar[str | None] = None
    place: ClassVar[BaseFileLock | None] = None  # of this process among the local ones
    mutex = threading.Lock()


def fulfil(order: Order, payload: bytes | None = None) -> Result:
    """Train one shadow model in this process."""
    worker = f"{platform.node()}, process {os.getpid()}"
    refusal, warning = _compared(order.versions)
    if refusal:
        return Result(worker, refusal=refusal)
    try:
        job = _job(order.job, payload)
        if job is None:
            return Result(worker, lacks_job=True)
        if order.job not in _Kept.checked:
            check_functions(job.probe, job.recipe, job.design)
            _Kept.checked.add(order.job)
        trained = train_shadow(_on_device(job, order), order.index, _Beacon(Path(order.beacon)))
    except (Exception, Cancelled) as error:  # noqa: BLE001 - whatever it is, it is the user's
        return Result(worker, error=packed(error), place=_place_in_cluster())
    return Result(worker, trained=trained, warning=warning)


def timed(order: Order, folder: str, n: int, since: float) -> Timing:
    """Time a few steps of the job in this process, while `n` processes do the same.

    Parameters
    ----------
    order : Order
        What to train, and where.
    folder : str
        Folder in which the processes wait for each other.
    n : int
        Number of processes.
    since : float
        Time at which the processes were started, as `time.time` tells it.
    """
    start = time.time() - since
    job, progress = _job(order.job, None), _Beacon(Path(order.beacon))
    if job is None:
        raise ValueError("this worker has no job")
    job = _on_device(job, order)
    if n > 1:
        meet(Path(folder), f"ready-{os.getpid()}", n, progress)
    found = take_times(job, progress)
    return replace(found, start=start + found.start)


def packed(error: BaseException) -> bytes:
    """Return an exception as a worker sends it."""
    try:
        content: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(content)
    except Exception:  # noqa: BLE001 - some exceptions can't travel
        content = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


def unpacked(error: bytes) -> BaseException:
    """Return the exception that a worker sent."""
    found: BaseException = cloudpickle.loads(error)
    return found


def start_local(
    key: str,
    payload: bytes | str,
    parent: int,
    threads: int,
    samples: str,
    devices: Sequence[str] = (),
) -> None:
    """Prepare a local worker process: the job, its threads, its GPU, and an end with its parent.

    The folder `samples` has what all local workers map, and the job's file if `payload` is its
    path. It is removed when the parent ends. With several `devices`, each process stays on one.
    """
    import torch

    threading.Thread(target=_follow, args=(parent, samples), daemon=True).start()
    torch.set_num_threads(threads)
    _Kept.shared = tuple(devices), samples
    _job(key, payload if isinstance(payload, bytes) else _read_job(key, Path(payload)))


def library_versions() -> dict[str, str]:
    """Return the versions that must agree between the ordering process and the worker."""
    return {
        "memowidgets": importlib.metadata.version("memowidgets"),
        "torch": importlib.metadata.version("torch").split("+")[0],
        "numpy": importlib.metadata.version("numpy"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        **_installed(_MAKE_MODELS),
    }


def _installed(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _compared(wanted: dict[str, str]) -> tuple[str, str]:
    """Return a refusal if numbers or code would differ, and a warning if they might."""
    here = library_versions()
    different = [name for name in wanted if name in here and wanted[name] != here[name]]
    said = ", ".join(f"{name} {here[name]} instead of {wanted[name]}" for name in different)
    grave = any(name in (*_MUST_AGREE, "Python") for name in different)
    return (said, "") if grave else ("", said)


def _job(key: str, payload: bytes | None) -> ShadowJob | None:
    with _Kept.mutex:
        if key not in _Kept.jobs and payload is not None:
            _Kept.jobs[key] = cloudpickle.loads(payload)
            while len(_Kept.jobs) > _MOST_JOBS:
                _Kept.jobs.popitem(last=False)
        if key in _Kept.jobs:
            _Kept.jobs.move_to_end(key)
        return _Kept.jobs.get(key)


def _read_job(key: str, file: Path) -> bytes:
    """Read the job, checked to be the one that the parent wrote."""
    payload = file.read_bytes()
    if hashlib.sha256(payload).hexdigest() != key:
        raise ValueError(f"{file} is not the job that this worker was started for")
    return payload


def _on_device(job: ShadowJob, order: Order) -> ShadowJob:
    """Return the job for the GPU of this process, or for the device of the order."""
    device = _own_gpu()
    if device is None and order.device is not None:
        device = resolve_device(order.device)
    if device is None:
        return job
    return replace(job, recipe=replace(job.recipe, device=device))


def _own_gpu() -> str | None:
    """Return the GPU on which this process stays from its first task on; None if it has none."""
    import torch

    devices, folder = _Kept.shared
    with _Kept.mutex:
        if devices and _Kept.device is None:
            device = devices[_place(Path(folder)) % len(devices)]
            _make_current(torch.device(device))
            _Kept.device = device
    return _Kept.device


def _place(folder: Path) -> int:
    """Return the first place that no other local process has; its lock ends with the process."""
    place = 0
    while True:
        lock = FileLock(folder / f"place-{place}.lock", timeout=0, mode=0o600)
        with suppress(Timeout):
            lock.acquire()
            _Kept.place = lock
            return place
        place += 1


def _place_in_cluster() -> str:
    """Return `Result.place` of the thread that calls this."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return ""
    try:
        here = distributed.get_worker()
    except ValueError:  # this thread is not Dask's
        return ""
    return str(here.nanny or here.address)


def _make_current(device: torch.device) -> None:
    """Let what names no GPU use this one, so that the process takes memory on no other."""
    import torch

    set_device = getattr(torch.get_device_module(device), "set_device", None)
    if set_device is not None:
        set_device(device)


def _follow(parent: int, samples: str) -> None:
    """End this process, and remove what it shared, once its parent was killed."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(samples, ignore_errors=True)
    os._exit(1)


class _Beacon(Progress):
    """Progress that cancels the work once the given file is removed."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file, self._next = file, 0.0
        self._shared = file.exists()

    def report(self, done: int, total: int, what: str, detail: str = "") -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _POLL_SECONDS
        if self._shared and not self._file.exists():
            self.cancel()
        super().report(done, total, what, detail)
