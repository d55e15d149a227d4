"""Worker: keeps the job, trains a shadow model, and returns its arrays."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import shutil
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

import cloudpickle
import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from memowidgets import __version__
from memowidgets.models.bases import Bases
from memowidgets.models.device import resolve_device
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training.probe import check_functions
from memowidgets.training.shadow import ShadowJob, TrainedShadow, train_shadow

if TYPE_CHECKING:
    from filelock import BaseFileLock

_POLL_SECONDS = 0.2
_IDLE_SECONDS = 60.0
_MOST_JOBS = 2  # jobs that a worker stores, so two audits at once
_CODE = "memowidgets' code"
_MUST_AGREE = ("memowidgets", _CODE, "torch", "Python")
_MAKE_MODELS = ("transformers", "peft", "tokenizers")  # of language models, if installed

# A pickled job, the path of one, or nothing if the worker has it. Dask gets an array, which it
# sends without copies.
Source = bytes | NDArray[np.uint8] | str | None


@dataclass(frozen=True)
class Order:
    """Order to train one shadow model.

    Attributes
    ----------
    job : str
        Digest of the pickled job.
    index : int
        Index of the shadow model.
    versions : dict of str
        What `library_versions` is in the ordering process.
    device : str or None
        Device to use instead of the job's. ``"auto"`` is the best one of the worker's machine.
    """

    job: str
    index: int
    versions: dict[str, str]
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
        Whether the order came without the job, and the worker does not have it.
    refusal, warning : str
        What differs here so that the worker must not train, or that it trained in spite of.
    error : bytes or None
        Exception that ended the training, by cloudpickle: not every executor can send it.
    place : str
        Address of the Dask worker's nanny, which stays when a worker is started again, or its own.
        Empty without Dask.
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
    """Jobs that this process has received, its frozen weights, and the GPU that it stays on."""

    bases = Bases()
    orders: ClassVar[int] = 0  # in hand
    idle: ClassVar[threading.Timer | None] = None  # which forgets the weights
    jobs: ClassVar[OrderedDict[str, ShadowJob]] = OrderedDict()
    checked: ClassVar[set[str]] = set()  # jobs whose functions are those of the run here
    devices: ClassVar[Sequence[str]] = ()  # GPUs that the local processes share
    folder: ClassVar[Path] = Path()  # where they agree on who has which
    device: ClassVar[str | None] = None
    place: ClassVar[BaseFileLock | None] = None  # of this process among them; freed at its end
    mutex = threading.Lock()


def fulfil(order: Order, source: Source = None) -> Result:
    """Train one shadow model in this process."""
    worker, place = f"{platform.node()}, process {os.getpid()}", _place_in_cluster()
    here, wanted = library_versions(), order.versions
    different = [name for name in wanted if name in here and here[name] != wanted[name]]
    said = ", ".join(f"{name} {here[name]} instead of {wanted[name]}" for name in different)
    if not set(different).isdisjoint(_MUST_AGREE):
        return Result(worker, refusal=said, place=place)
    try:
        with _at_work():
            job = _job(order.job, source)
            if job is None:
                return Result(worker, lacks_job=True)
            if order.job not in _Kept.checked:
                check_functions(job.probe, job.recipe, job.design)
                _Kept.checked.add(order.job)
            trained = train_shadow(_on_device(job, order), order.index, Progress())
    except (Exception, Cancelled) as error:  # noqa: BLE001 - whatever it is, it is the user's
        return Result(worker, error=packed(error), place=place)
    return Result(worker, trained=trained, warning=said)


def given(payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the job as it is: Dask's task that every order depends on."""
    return payload


def packed(error: BaseException) -> bytes:
    """Return an exception as a worker sends it."""
    try:
        content: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(content)
    except Exception:  # noqa: BLE001 - some exceptions can't travel
        content = cloudpickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return content


def start_local(parent: int, threads: int, folder: str, devices: Sequence[str]) -> None:
    """Prepare a local worker process: its threads, its GPU, and an end with its parent.

    The folder has what all local workers map. It is removed if the parent was killed. With several
    devices, each process stays on one.
    """
    import torch

    def follow() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    torch.set_num_threads(threads)
    _Kept.devices, _Kept.folder = tuple(devices), Path(folder)


@functools.cache
def library_versions() -> dict[str, str]:
    """Return what should agree between the ordering process and the worker."""
    package = Path(__file__).parents[1]
    code = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        code.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    found = {
        "memowidgets": __version__,
        _CODE: code.hexdigest()[:8],
        "torch": importlib.metadata.version("torch").split("+")[0],
        "numpy": importlib.metadata.version("numpy"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }
    for name in _MAKE_MODELS:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _job(key: str, source: Source) -> ShadowJob | None:
    """Return the job of a digest, from the source if this process does not have it."""
    with _Kept.mutex:
        if key not in _Kept.jobs and source is not None:
            payload = (
                Path(source).read_bytes() if isinstance(source, str) else cast("bytes", source)
            )
            if hashlib.sha256(payload).hexdigest() != key:  # it is code: load only what was sent
                raise ValueError(f"{source!r:.200} is not the job of this order")
            _Kept.jobs[key] = cloudpickle.loads(payload)
            while len(_Kept.jobs) > _MOST_JOBS:
                _Kept.jobs.popitem(last=False)
        if key in _Kept.jobs:
            _Kept.jobs.move_to_end(key)
        return _Kept.jobs.get(key)


def _on_device(job: ShadowJob, order: Order) -> ShadowJob:
    """Return the job for the GPU of this process, or for the device of the order.

    It uses the frozen weights that the process keeps.
    """
    device = _own_gpu()
    if device is None and order.device is not None:
        device = resolve_device(order.device)
    recipe = job.recipe if device is None else replace(job.recipe, device=device)
    return replace(job, recipe=replace(recipe, bases=_Kept.bases))


@contextmanager
def _at_work() -> Iterator[None]:
    """Free the frozen weights a while after the last order, as after the end of a run."""
    with _Kept.mutex:
        _Kept.orders += 1
        if _Kept.idle is not None:
            _Kept.idle.cancel()
    try:
        yield
    finally:
        with _Kept.mutex:
            _Kept.orders -= 1
            if not _Kept.orders:
                _Kept.idle = threading.Timer(_IDLE_SECONDS, _Kept.bases.clear)
                _Kept.idle.daemon = True
                _Kept.idle.start()


def _own_gpu() -> str | None:
    """Return the GPU on which this process stays from its first task on; None if it has none.

    It is that of the first place among the local processes whose lock is free.
    """
    import torch

    with _Kept.mutex:
        place = 0
        while _Kept.devices and _Kept.device is None:
            lock = FileLock(_Kept.folder / f"place-{place}.lock", timeout=0, mode=0o600)
            with suppress(Timeout):
                lock.acquire()
                device = _Kept.devices[place % len(_Kept.devices)]
                # What names no GPU uses this one, so the process takes memory on no other.
                module = torch.get_device_module(torch.device(device))
                if hasattr(module, "set_device"):
                    module.set_device(torch.device(device))
                _Kept.device, _Kept.place = device, lock
            place += 1
        return _Kept.device


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
