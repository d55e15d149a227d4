"""Shadow models of a run directory, one file each, trained by local processes or any executor.

`train_shadow` trains one. `fill` orders all missing ones at once, and writes each to its file as
soon as it is there. What workers run is below: they only train, so they need no disk in common with
the caller. An executor that fails, or a worker that dies, is one sentence. Calling again goes on.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import mmap
import multiprocessing
import os
import platform
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
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
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets import __version__
from memowidgets.checks import warn_user
from memowidgets.cores import cores
from memowidgets.metrics import logit_gap
from memowidgets.models.base import Bases
from memowidgets.models.device import (
    count_devices,
    free_memory,
    resolve_device,
    torch_device,
)
from memowidgets.progress import Progress
from memowidgets.store import (
    Absent,
    ForeignError,
    NotThereError,
    RunDirectory,
    StoreError,
    Tensors,
)
from memowidgets.training.config import derived_seed
from memowidgets.training.design import (
    SHADOW,
    Design,
    Kind,
    ReferenceDesign,
    ShadowDesign,
)
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.probe import check_functions
from memowidgets.training.travel import pack, unpack
from memowidgets.vocabulary import Note, first_line, listed

_POLL_SECONDS = 0.2
_ALIGNED = 64  # bytes, for vector instructions
# before the name of a checkpoint
_GAP = "gap."
_LOSS = "loss."
_LAYER = "forward.layer."
_CHOICE = "shadows.json"

# of a file: arrays and metadata
Content = tuple[dict[str, NDArray[Any]], dict[str, str]]


@dataclass(frozen=True)
class KeptForward:
    """Forward pass over its own members that a shadow model stores, for use as a target.

    Its losses at the checkpoints before are stored too.

    Attributes
    ----------
    checkpoint : str
        Name of the checkpoint.
    layers : tuple of str
        Names of the layers whose representations are stored.
    """

    checkpoint: str
    layers: tuple[str, ...]


@dataclass(frozen=True)
class ShadowJob:
    """Everything that a worker process needs to train any shadow model of a run.

    Attributes
    ----------
    recipe : Recipe
        Model, data and settings.
    design : Design
        Split with the pool.
    seed : int
        The audit's seed. A shadow model's seed follows from it and the index.
    checkpoints : dict of int
        Steps of the target at which gaps are computed, by checkpoint name.
    known : dict of int
        Steps of all of the target's checkpoints, by name.
    shadows : ShadowDesign or ReferenceDesign
        Rule for the part of the pool that each shadow model trains on, and is asked about.
    config : str
        Digest of model, data and training. Shadow models of different digests are never mixed.
    forward : KeptForward or None
        Forward pass to store in addition to the gaps.
    probe : dict
        What the user's functions do where the run was begun, see `memowidgets.training.probe`.
    """

    recipe: Recipe
    design: Design
    seed: int
    checkpoints: Mapping[str, int]
    known: Mapping[str, int]
    shadows: ShadowDesign | ReferenceDesign = field(default_factory=ShadowDesign)
    config: str = ""
    forward: KeptForward | None = None
    probe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def traced(self) -> dict[str, int]:
        """Steps of the checkpoints after step 0, up to that of the forward pass, by name."""
        if self.forward is None:
            return {}
        last = self.known[self.forward.checkpoint]
        return {name: step for name, step in self.known.items() if 0 < step <= last}


def train_shadow(job: ShadowJob, index: int, progress: Progress) -> Content:
    """Train one shadow model and compute the logit gaps of the samples that it is asked about.

    The training ends at the last checkpoint of the job.

    Returns
    -------
    arrays : dict of array
        ``members``, (n_pool,), whether it trained on each sample of the pool; ``gap.<checkpoint>``,
        (n_pool,), logit gaps, NaN of what it was not asked about; and for a target, of its own
        members in the pool's order, ``loss.<checkpoint>``, ``forward.logits``, ``forward.losses``
        and ``forward.layer.<layer>``.
    metadata : dict of str
        What it is, and how it was made.
    """
    start = time.monotonic()
    design = job.design
    kind = job.shadows.kind
    members = job.shadows.members(design, job.seed, index)
    own = design.pool[members]
    # no other thread uses this model: a pass keeps what it captures there; copy would pickle it
    model = object.__new__(type(job.recipe.model))
    vars(model).update(vars(job.recipe.model))
    seed = derived_seed(job.seed, kind.stream, index)
    learner = Learner(replace(job.recipe, model=model), own, seed)
    asked = job.shadows.asked(design, members)
    rows = design.pool[asked]
    arrays: dict[str, NDArray[Any]] = {"members": members}
    metadata = {
        "design": job.shadows.key,
        "config": job.config,
        "precision": learner.precision,
    }
    for name, step in own_steps(job, len(own)):
        learner.advance(step, progress, f"training {kind.noun} {index}")
        if name in job.checkpoints:
            gaps = np.full(len(design.pool), np.nan, dtype=np.float32)
            gaps[asked] = logit_gap(
                learner.look_at(rows).logits, learner.recipe.data.labels[rows]
            )
            arrays[_GAP + name] = gaps
        if job.forward is not None and name == job.forward.checkpoint:
            seen = learner.look_at(own, capture=True)
            arrays |= {"forward.logits": seen.logits, "forward.losses": seen.losses}
            arrays |= {
                _LAYER + layer: seen.layers[layer] for layer in job.forward.layers
            }
            arrays[_LOSS + name] = seen.losses
            metadata["forward"] = name
        elif name in job.traced:
            arrays[_LOSS + name] = learner.look_at(own).losses
    metadata |= {
        "seed": str(job.seed),
        "index": str(index),
        "finished": str(int(time.time())),
    }
    return arrays, {**metadata, "seconds": f"{time.monotonic() - start:.1f}"}


def own_steps(job: ShadowJob, n_members: int) -> list[tuple[str, int]]:
    """Return the checkpoints in order, each at the shadow's own step of the target's epoch."""
    wanted = dict(job.checkpoints) | job.traced
    settings = job.recipe.settings
    n_target = len(job.design.members)
    if settings.steps_per_epoch(n_members) != settings.steps_per_epoch(n_target):
        own = settings.total_steps(n_members)
        of = settings.total_steps(n_target)
        for (
            name,
            step,
        ) in wanted.items():  # none after step 0 is a model that was never trained
            wanted[name] = max(round(step / of * own), min(step, 1))
    return sorted(wanted.items(), key=lambda item: item[1])


# who trains them

Orders = dict[Future[Content], int]


def fill(
    files: ShadowSet,
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
    files : ShadowSet
        The shadow models.
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


def _write_rest(files: ShadowSet, orders: Orders, *, waits: bool) -> None:
    """Write what is done, after waiting for what threads and processes of the user's have begun."""
    begun = [one for one in orders if one.done() or (waits and one.running())]
    for future in as_completed([one for one in begun if not one.cancelled()]):
        with suppress(Exception):  # the first error is what is reported
            files.write(orders[future], *future.result())


@contextmanager
def _explain_failure(files: ShadowSet, job: ShadowJob) -> Iterator[None]:
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


# in a worker


@dataclass(frozen=True)
class JobFile:
    """Job in a private file that local processes map, so that its arrays exist once in memory.

    Attributes
    ----------
    path : str
        Path of the file.
    places : tuple of (int, int)
        First byte and number of bytes of the pickled job, and of each array.
    """

    path: str
    places: tuple[tuple[int, int], ...]

    @classmethod
    def write(cls, job: ShadowJob, folder: str) -> Self:
        """Write a job to a new file.

        Raises
        ------
        StoreError
            If the disk has no room for it.
        """
        arrays: list[Any] = []
        pickled = pack(job, arrays.append)
        path = Path(folder) / "job"
        places = []
        try:
            with path.open("xb") as file:
                for content in (pickled, *(array.raw() for array in arrays)):
                    file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)
                    places.append((file.tell(), len(content)))
                    file.write(content)
        except OSError as error:
            what = f"the samples cannot be written to {path} ({error.strerror})"
            raise StoreError(
                f"{what}; set TMPDIR to a folder that has room for them"
            ) from error
        return cls(str(path), tuple(places))

    def read(self) -> ShadowJob:
        """Return the job. What is written to its arrays stays in this process."""
        with Path(self.path).open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        pickled, *arrays = (mapped[start : start + size] for start, size in self.places)
        return cast("ShadowJob", unpack(pickled, buffers=arrays))


Source = JobFile | bytes | NDArray[np.uint8]


class _Kept:
    """The last job that this process has read, and the GPU that it stays on."""

    mutex = threading.Lock()
    name = ""
    job: ShadowJob | None = None
    gpu: str | None = None


def train_ordered(
    index: int, name: str, source: Source, wanted: str, device: str | None
) -> Content:
    """Train one shadow model in this process.

    Parameters
    ----------
    index : int
        Index of the shadow model.
    name : str
        Name of the job, which this process reads once.
    source : JobFile, bytes or array of uint8
        The pickled job.
    wanted : str
        `versions` of the ordering process.
    device : str or None
        Device to use instead of the job's. ``"auto"`` is the best one of this machine.

    Raises
    ------
    StoreError
        If this process has another version or other code than the ordering one.
    """
    worker = f"{platform.node()}, process {os.getpid()}"
    if versions() != wanted:
        raise StoreError(
            f"the worker {worker} has {versions()} instead of {wanted}; install the same there"
        )
    try:
        job = _job_of(name, source)
        chosen = _Kept.gpu or (device and resolve_device(device)) or job.recipe.device
        recipe = replace(job.recipe, device=chosen)
        return train_shadow(replace(job, recipe=recipe), index, Progress())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the user's
        error.add_note(f"This is from the worker {worker}.")
        raise _sendable(error) from None


def forget_job() -> None:
    """Free the samples and the frozen weights that this process keeps for its next order."""
    with _Kept.mutex:
        _Kept.name = ""
        _Kept.job = None


def start_local(parent: int, folder: str, threads: int, gpus: Any) -> None:
    """Prepare a local worker process: an end with its parent, its threads, and its GPU.

    Parameters
    ----------
    parent : int
        Process that started it.
    folder : str
        Folder of the job, removed if the parent was killed.
    threads : int
        Number of threads to compute with.
    gpus : queue of str or None
        The GPU of each process, if there are any. A process stays on the one that it takes.
    """
    import torch

    def follow() -> None:
        if os.name == "posix":
            while os.getppid() == parent:
                time.sleep(_POLL_SECONDS)
        elif (process := multiprocessing.parent_process()) is not None:
            process.join()
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    torch.set_num_threads(threads)
    if gpus is not None:
        _Kept.gpu = gpus.get()
        # What names no GPU uses this one, so the process takes memory on no other.
        module = torch.get_device_module(torch.device(_Kept.gpu))
        if hasattr(module, "set_device"):
            module.set_device(torch.device(_Kept.gpu))


@functools.cache
def versions() -> str:
    """Return what must be the same in all processes, with a digest of the package's code."""
    package = Path(__file__).parents[1]
    code = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        code.update(
            file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes()
        )
    torch = importlib.metadata.version("torch").split("+")[0]
    python = ".".join(platform.python_version_tuple()[:2])
    digest = code.hexdigest()[:8]
    return f"memowidgets {__version__} (code {digest}), torch {torch}, Python {python}"


def _job_of(name: str, source: Source) -> ShadowJob:
    """Return the job of a name: read, with its functions compared, at its first order here."""
    with _Kept.mutex:
        if _Kept.job is None or _Kept.name != name:
            _Kept.job = None  # its memory is free before the next job needs it
            job = source.read() if isinstance(source, JobFile) else unpack(source)
            if job.probe:
                check_functions(job.probe, job.recipe, job.design)
            _Kept.name = name
            _Kept.job = replace(job, recipe=replace(job.recipe, bases=Bases()))
        return _Kept.job


def _sendable(error: Exception) -> Exception:
    """Return an exception as it can be sent: some cannot be pickled, or not be read again."""
    try:
        unpack(pack(error))
    except Exception:  # noqa: BLE001 - of any kind
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# the models of a run directory


@dataclass(frozen=True)
class Shadows:
    """Shadow models of a run.

    Attributes
    ----------
    members : array of shape (n_shadows, n_pool), bool
        Whether each shadow model trained on each sample.
    gaps : array of shape (n_shadows, n_pool), float32
        Logit gaps at one checkpoint.
    indices : array of shape (n_shadows,), int64
        Indices of the shadow models.
    """

    members: NDArray[np.bool_]
    gaps: NDArray[np.float32]
    indices: NDArray[np.int64]

    def without(self, index: int) -> Shadows:
        """Return all shadow models but one."""
        kept = self.indices != index
        return Shadows(self.members[kept], self.gaps[kept], self.indices[kept])


class ShadowSet:
    """Shadow models of one design in a run directory, one file each.

    Parameters
    ----------
    run : RunDirectory
        Run directory.
    key : str
        Key of the design. That of random halves is "halves".
    config : str
        Digest of model, data and training. A file with another digest is refused. An empty digest
        is not checked.
    precision : str
        Precision of the target. A file with another one is refused. An empty precision is not
        checked.
    none : Absent or None
        Why there are no shadow models. By default it says how to train some.
    kind : Kind
        What they are called, and where their files are.
    """

    def __init__(
        self,
        run: RunDirectory,
        key: str = "halves",
        config: str = "",
        precision: str = "",
        *,
        none: Absent | None = None,
        kind: Kind = SHADOW,
    ) -> None:
        self._run = run
        self.key = key
        self._config = config
        self._precision = precision
        self._none = none
        self._kind = kind
        self._folder = kind.folder if key == "halves" else f"{kind.folder}/{key}"

    def __len__(self) -> int:
        return len(self.indices())

    def indices(self) -> list[int]:
        """Indices of complete shadow models; the next `fill` trains a broken one again."""
        return [index for index in self._numbers() if not self._is_broken(index)]

    def state(self) -> tuple[tuple[int, ...], ...]:
        """Return a value that changes when a shadow model is added, removed or trained again."""
        return tuple((index, *self.state_of(index)) for index in self._numbers())

    def state_of(self, index: int) -> tuple[int, ...]:
        """Return a value that changes when one shadow model is trained again; empty if missing."""
        return self._run.state(self._name(index))

    def lost(self) -> list[Note]:
        """Return a note, if trained shadow models are lost or cannot be used."""
        trained = read_choice(self._run).get("trained", {}).get(self.key, 0)
        numbers = self._numbers()
        faults = [self._run.why_not(self._name(i)) for i in numbers]
        faults += [
            f"{self.path_of(i)} is missing" for i in range(trained) if i not in numbers
        ]
        wrong = [fault for fault in faults if fault is not None]
        if not wrong:
            return []
        said = f"{len(wrong)} of {len(faults)} {self._kind.noun}s are lost or damaged, such as this"
        end = f"Call audit.{self._kind.call} to train them again."
        return [Note("lost models", f"{said} one: {wrong[0]}. {end}", n=len(wrong))]

    def note_trained(self, n: int) -> None:
        """Store that the shadow models 0 to n − 1 are trained, if so: a lost one is noticed."""
        if not set(range(n)) <= {*self.indices()}:
            return  # other processes train the other parts
        kept = read_choice(self._run)
        trained = kept.get("trained", {})
        if trained.get(self.key, 0) < n:
            write_choice(self._run, {**kept, "trained": {**trained, self.key: n}})

    def check(self, index: Any) -> None:
        """Raise an error if there is no model of that index, broken or not."""
        there = self.indices()
        is_number = isinstance(index, int | np.integer) and not isinstance(index, bool)
        if is_number and (index in there or self.path_of(index).exists()):
            return
        if not there:
            raise self.none.error()
        valid = listed(str(one) for one in there)
        raise ValueError(f"unknown {self._kind.noun} {index!r}; valid: {valid}")

    def file(self, index: int) -> Tensors:
        """Return the file of one shadow model.

        Raises
        ------
        StoreError
            If it is missing, broken, or of another configuration or precision.
        """
        file = self._run.read_tensors(self._name(index))
        if wrong := self._why_foreign(index, file.metadata):
            again = f"move it away, or delete it and call {self._kind.call} again"
            raise ForeignError(f"{self.path_of(index)} {wrong}", again)
        return file

    def _why_foreign(self, index: int, metadata: Mapping[str, str]) -> str:
        """Return why a model is not the one of this index in this set; empty if it is."""
        of_config = "model, data or configuration"
        for what, value, said in (
            ("config", self._config, f"was trained with another {of_config}: {{}}"),
            ("precision", self._precision, "was trained in {}, and the target in {}"),
            ("design", self.key, "has the design {}, not {}"),
            ("index", str(index), "has the index {}, not {}"),
        ):
            found = metadata.get(what)
            if value and found != value:
                return said.format(found, value)
        return ""

    def path_of(self, index: int | np.integer[Any]) -> Path:
        """Return the path of the file of one shadow model."""
        return self._run.path / f"{self._name(index)}.safetensors"

    def checkpoints(self) -> tuple[str, ...]:
        """Return the checkpoints at which every shadow model has gaps."""
        kept = [_gaps_in(self.file(index)) for index in self.indices()]
        return tuple(sorted(set.intersection(*kept))) if kept else ()

    def read(self, checkpoint: str) -> Shadows:
        """Return all shadow models' gaps at a checkpoint.

        Raises
        ------
        StoreError
            If there are none, none at that checkpoint, or one is of another configuration or
            precision.
        """
        indices = self.indices()
        if not indices:
            raise self.none.error()
        held = self.checkpoints()
        if checkpoint not in held:
            what = f"the {self._kind.noun}s have gaps at {', '.join(held)}, not"
            raise NotThereError(
                what, f"call {self._kind.call} again for it", checkpoint
            )
        for sentence in self.lost():
            warn_user(sentence)
        files = [self.file(index) for index in indices]
        return Shadows(
            np.stack([file["members"] for file in files]),
            np.stack([file[_GAP + checkpoint] for file in files]),
            np.array(indices),
        )

    def fill(
        self,
        n: int,
        job: ShadowJob,
        processes: int | None,
        progress: Progress,
        executor: Executor | None = None,
        indices: Sequence[int] | None = None,
    ) -> None:
        """Train those of the shadow models 0 to n − 1 that are missing, or the missing `indices`.

        One process fills the set at a time, unless each names its part of the `indices`.

        Raises
        ------
        Cancelled
            After ``progress.cancel()``. Finished shadow models are kept.
        StoreError
            If another process fills the set, they cannot be written, or the workers ended or are
            unsuitable.
        """
        part = range(n) if indices is None else indices
        alone = self._run.lock(f"{self._kind.noun}s-{self.key}".replace(" ", "-"))
        with alone if indices is None else nullcontext():
            missing, job = self.missing(part, job)
            if not missing:
                return
            done = len(part) - len(missing)
            total = len(part)
            progress.report(done, total, f"training {self._kind.noun}s")
            if executor is None:
                free_memory(torch_device(job.recipe.device))
            at_once = min(
                processes or default_processes(job.recipe.device), len(missing)
            )
            fill(self, job, missing, total, progress, executor, at_once)

    def missing(
        self, part: Sequence[int], job: ShadowJob
    ) -> tuple[list[int], ShadowJob]:
        """Return those of the shadow models that `fill` would train, and its job.

        The job then asks for everything that all existing shadow models have.
        """
        held = self.checkpoints()
        kept = {name: step for name, step in job.known.items() if name in held}
        passes = {_forward_of(self.file(index)) for index in self.indices()}
        before = passes.pop() if len(passes) == 1 else None
        forward = job.forward
        if forward is None:
            forward = before
        elif before is not None and before.checkpoint == forward.checkpoint:
            layers = dict.fromkeys((*before.layers, *forward.layers))
            forward = replace(forward, layers=tuple(layers))
        job = replace(job, checkpoints=dict(job.checkpoints) | kept, forward=forward)
        return [index for index in part if not self.holds(index, job)], job

    def holds(self, index: int, job: ShadowJob) -> bool:
        """Return whether a shadow model is complete, with everything that the job requires."""
        if not self._run.has(self._name(index)):
            return False
        file = self.file(index)
        wanted = job.forward
        kept = _forward_of(file)
        if wanted is not None and (
            kept is None or kept.checkpoint != wanted.checkpoint
        ):
            return False
        layers = {*wanted.layers} - {*kept.layers} if wanted and kept else set()
        return set(job.checkpoints) <= _gaps_in(file) and not layers

    def write(
        self, index: int, arrays: dict[str, NDArray[Any]], metadata: dict[str, str]
    ) -> None:
        """Write a shadow model that a worker returned.

        Raises
        ------
        StoreError
            If it is not the one of this index.
        """
        if wrong := self._why_foreign(index, metadata):
            raise StoreError(
                f"the executor returned a {self._kind.noun} for {self.path_of(index)} that "
                f"{wrong}. It is not written: each future must have its own order's result"
            )
        self._run.write_tensors(self._name(index), arrays, metadata)

    @property
    def none(self) -> Absent:
        """Why there are no models, and what to do."""
        if self._none is not None:
            return self._none
        if lost := self.lost():
            return Absent(lost[0])
        call = f"call audit.{self._kind.call}({self._kind.usual})"
        return Absent(f"{self._run.path} has no {self._kind.noun}s yet", call)

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._run.names(self._folder) if name.isdigit()]

    def _is_broken(self, index: int) -> bool:
        """Return whether a file is unusable; a file of another run is an error when it is read."""
        try:
            self._run.read_tensors(self._name(index))
        except ForeignError:
            return False
        except StoreError:
            return True
        return False

    def _name(self, index: int | np.integer[Any]) -> str:
        return f"{self._folder}/{int(index):04d}"


def read_choice(run: RunDirectory) -> dict[str, Any]:
    """Return the set of shadow models behind the truth, and the number trained of each."""
    kept = run.read_note(_CHOICE) if run.has_file(_CHOICE) else {}
    if not (
        isinstance(kept.get("trained", {}), dict)
        and isinstance(kept.get("key", ""), str)
    ):
        raise StoreError(f"{run.path / _CHOICE} is broken; delete it")
    return kept


def write_choice(run: RunDirectory, choice: dict[str, Any]) -> None:
    """Store what `read_choice` returns."""
    run.write_note(_CHOICE, choice)


def _gaps_in(file: Tensors) -> set[str]:
    """Return the names of the checkpoints at which a shadow model has gaps."""
    return {key.removeprefix(_GAP) for key in file if key.startswith(_GAP)}


def _forward_of(file: Tensors) -> KeptForward | None:
    """Return the forward pass that a shadow model has."""
    if "forward" not in file.metadata:
        return None
    layers = [key.removeprefix(_LAYER) for key in file if key.startswith(_LAYER)]
    return KeptForward(file.metadata["forward"], tuple(layers))
