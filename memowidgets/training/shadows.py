"""Shadow models: each trains on a random half of the pool and leaves one file of logit gaps."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics import logit_gap
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.design import Design
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.seeds import derived_seed

__all__ = ["ShadowJob", "ShadowSet", "Shadows", "TrainedShadow", "train_shadow"]

_SHADOW_STREAM = 4
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class ShadowJob:
    """What a worker process needs to train any shadow model of a run.

    Attributes
    ----------
    recipe : Recipe
        What to train and how.
    design : Design
        The pool.
    seed : int
        The audit's; a shadow's own follow from it and its index.
    checkpoints : dict of int
        The steps at which gaps are taken, by checkpoint name.
    known : dict of int
        The steps of all of the target's checkpoints, by name.
    """

    recipe: Recipe
    design: Design
    seed: int
    checkpoints: Mapping[str, int]
    known: Mapping[str, int]


@dataclass(frozen=True)
class Shadows:
    """The shadow models of a run.

    Attributes
    ----------
    members : array of shape (n_shadows, n_pool), bool
        Who trained on what.
    gaps : array of shape (n_shadows, n_pool), float32
        Logit gaps at one checkpoint.
    """

    members: NDArray[np.bool_]
    gaps: NDArray[np.float32]


@dataclass(frozen=True)
class TrainedShadow:
    """What one shadow model leaves.

    Attributes
    ----------
    members : array of shape (n_pool,), bool
        The half of the pool it trained on.
    gaps : dict of array of shape (n_pool,), float32
        Logit gap of each sample of the pool, by checkpoint.
    seconds : float
        How long it took.
    """

    members: NDArray[np.bool_]
    gaps: dict[str, NDArray[np.float32]]
    seconds: float


def train_shadow(job: ShadowJob, index: int, progress: Progress) -> TrainedShadow:
    """Train one shadow model and take its logit gaps over the pool."""
    start = time.monotonic()
    design = job.design
    members = design.shadow_members(job.seed, index)
    learner = Learner(
        job.recipe, design.pool[members], derived_seed(job.seed, _SHADOW_STREAM, index)
    )
    labels = job.recipe.data.labels[design.pool]
    gaps: dict[str, NDArray[np.float32]] = {}
    for name, step in sorted(job.checkpoints.items(), key=lambda item: item[1]):
        learner.advance(step, progress, f"training shadow {index}")
        seen = learner.look_at(design.pool)
        gaps[name] = logit_gap(seen.logits, labels).astype(np.float32)
    return TrainedShadow(members, gaps, time.monotonic() - start)


class ShadowSet:
    """The shadow models in a run directory, one file each.

    Parameters
    ----------
    run : RunDirectory
        Where they are.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._run = run

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> list[str]:
        """Those that are whole; a broken one is trained again by the next `fill`."""
        return [name for name in self._run.names("shadows") if self._run.has(f"shadows/{name}")]

    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints at which every shadow model holds gaps."""
        kept: set[str] | None = None
        for name in self._names():
            file = self._run.read_tensors(f"shadows/{name}")
            here = {key.removeprefix("gap.") for key in file if key.startswith("gap.")}
            kept = here if kept is None else kept & here
        return tuple(sorted(kept or ()))

    def read(self, checkpoint: str) -> Shadows:
        """All shadow models' gaps at a checkpoint.

        Raises
        ------
        StoreError
            If there are none, or none at that checkpoint.
        """
        names = self._names()
        if not names:
            raise StoreError(f"{self._run.path} holds no shadow models yet: call run_shadows(64)")
        held = self.checkpoints()
        if checkpoint not in held:
            raise StoreError(
                f"the shadow models hold gaps at {', '.join(held)}, not at {checkpoint}: "
                f"run_shadows(…, checkpoints=[{checkpoint!r}]) trains them again for it"
            )
        files = [self._run.read_tensors(f"shadows/{name}") for name in names]
        return Shadows(
            np.stack([file["members"] for file in files]),
            np.stack([file[f"gap.{checkpoint}"] for file in files]),
        )

    def fill(self, n: int, job: ShadowJob, processes: int | None, progress: Progress) -> None:
        """Train the shadow models 0 to n − 1 that are not there yet.

        Raises
        ------
        Cancelled
            After ``progress.cancel()``; finished shadow models are kept.
        StoreError
            If another process fills the set, it cannot be written, or a worker was killed.
        """
        if not self._missing(n, job):
            return
        with self._run.lock("shadows"):
            missing = self._missing(n, job)
            progress.report(n - len(missing), n, "training shadow models")
            if not missing:
                return
            job = replace(job, checkpoints=dict(job.checkpoints) | self._kept_steps(job))
            with _workers(job, min(processes or _default_processes(), len(missing))) as pool:
                self._collect(pool, missing, n, job, progress)

    def _missing(self, n: int, job: ShadowJob) -> list[int]:
        """Shadow models that are not there, are broken, or lack a checkpoint that is asked for."""
        return [i for i in range(n) if not self._holds(i, job)]

    def _holds(self, index: int, job: ShadowJob) -> bool:
        if not self._run.has(_name(index)):
            return False
        return {f"gap.{name}" for name in job.checkpoints} <= set(
            self._run.read_tensors(_name(index))
        )

    def _kept_steps(self, job: ShadowJob) -> dict[str, int]:
        """The checkpoints that all shadow models hold: new ones hold them too."""
        held = self.checkpoints()
        return {name: step for name, step in job.known.items() if name in held}

    def _collect(
        self, pool: _Pool, missing: Sequence[int], n: int, job: ShadowJob, progress: Progress
    ) -> None:
        waiting = {pool.submit(index): index for index in missing}
        while waiting:
            done, _ = wait(waiting, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                self._keep(waiting.pop(future), future, job)
            progress.report(n - len(waiting), n, "training shadow models")

    def _keep(self, index: int, future: Future[Any], job: ShadowJob) -> None:
        from loky.process_executor import BrokenProcessPool

        try:
            trained: TrainedShadow = future.result()
        except BrokenProcessPool:
            raise StoreError(
                f"a worker process was killed while training shadow models (out of memory?); "
                f"the {len(self)} finished ones are kept: call run_shadows again"
            ) from None
        self._run.write_tensors(
            _name(index),
            {"members": trained.members}
            | {f"gap.{name}": gap for name, gap in trained.gaps.items()},
            {
                "seed": str(job.seed),
                "index": str(index),
                "seconds": f"{trained.seconds:.1f}",
                "finished": str(int(time.time())),
            },
        )


class _Pool:
    """Local worker processes that hold the job and look out for a cancel flag."""

    def __init__(self, job: ShadowJob, processes: int, flag: Path) -> None:
        from loky import ProcessPoolExecutor

        self._executor = ProcessPoolExecutor(
            processes,
            initializer=_start_worker,
            initargs=(job, flag, os.getpid(), _threads(processes)),
            env={"OMP_NUM_THREADS": str(_threads(processes))},
        )

    def submit(self, index: int) -> Future[Any]:
        future: Future[Any] = self._executor.submit(_train_in_worker, index)
        return future

    def close(self, *, kill: bool) -> None:
        self._executor.shutdown(wait=True, kill_workers=kill)


@contextmanager
def _workers(job: ShadowJob, processes: int) -> Iterator[_Pool]:
    with tempfile.TemporaryDirectory() as folder:
        flag = Path(folder) / "cancel"
        pool = _Pool(job, processes, flag)
        try:
            yield pool
        except BaseException:
            flag.touch()
            pool.close(kill=True)
            raise
        pool.close(kill=False)


class _WorkerState:
    job: ShadowJob
    progress: Progress


def _start_worker(job: ShadowJob, flag: Path, parent: int, threads: int) -> None:
    import torch

    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    torch.set_num_threads(threads)
    _WorkerState.job = job
    _WorkerState.progress = _FlagProgress(flag)


def _follow(parent: int) -> None:
    """End this process once its parent was killed: nobody else would."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)


def _train_in_worker(index: int) -> TrainedShadow:
    return train_shadow(_WorkerState.job, index, _WorkerState.progress)


class _FlagProgress(Progress):
    """Ends the work once a flag file appears."""

    def __init__(self, flag: Path) -> None:
        super().__init__()
        self._flag, self._next = flag, 0.0

    def report(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _POLL_SECONDS
        if self._flag.exists():
            self.cancel()
        super().report(done, total, what)


def _name(index: int) -> str:
    return f"shadows/{index:04d}"


def _default_processes() -> int:
    from loky import cpu_count

    return int(cpu_count(only_physical_cores=False))


def _threads(processes: int) -> int:
    return max(1, _default_processes() // processes)
