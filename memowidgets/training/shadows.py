"""The shadow models of a run directory: one file each, filled by anybody's workers."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.engine.claims import Claims
from memowidgets.training.engine.filling import Filling, Pace
from memowidgets.training.engine.workers import Workers, default_processes, opened
from memowidgets.training.made_in import are_rounded
from memowidgets.training.shadow import KeptForward, ShadowJob, TrainedShadow, train_shadow

__all__ = ["KeptForward", "ShadowJob", "ShadowSet", "Shadows", "TrainedShadow", "train_shadow"]

_OLD_SECONDS = 600
_LAYER = "forward.layer."
_WHAT = "training shadow models"


@dataclass(frozen=True)
class Shadows:
    """The shadow models of a run.

    Attributes
    ----------
    members : array of shape (n_shadows, n_pool), bool
        Who trained on what.
    gaps : array of shape (n_shadows, n_pool), float32
        Logit gaps at one checkpoint.
    indices : array of shape (n_shadows,), int64
        Which shadow models they are.
    """

    members: NDArray[np.bool_]
    gaps: NDArray[np.float32]
    indices: NDArray[np.int64]

    def without(self, index: int) -> Shadows:
        """All but one."""
        kept = self.indices != index
        return Shadows(self.members[kept], self.gaps[kept], self.indices[kept])


class ShadowSet:
    """The shadow models of one design in a run directory, one file each.

    Parameters
    ----------
    run : RunDirectory
        Where they are.
    key : str
        Of the design; that of random halves is "halves".
    config : str
        Digest of model, data and training; a file of another is refused. Empty: not checked.
    precision : str
        Of the target; a file of another is refused. Empty: not checked.
    rounds : bool
        Whether logits of bfloat16 were surely rounded to it in files that lack their precision.
    """

    def __init__(
        self,
        run: RunDirectory,
        key: str = "halves",
        config: str = "",
        precision: str = "",
        *,
        rounds: bool = False,
    ) -> None:
        self._run, self.key, self._config = run, key, config
        self._precision, self._rounds = precision, rounds
        self._folder = "shadows" if key == "halves" else f"shadows/{key}"

    def __len__(self) -> int:
        return len(self.indices())

    def indices(self) -> list[int]:
        """Those that are whole; a broken one is trained again by the next `fill`."""
        names = self._run.names(self._folder)
        return [int(name) for name in names if name.isdigit() and self._run.has(self._name(name))]

    def state(self) -> tuple[tuple[int, ...], ...]:
        """What differs once a shadow model is there, gone, or trained again."""
        return tuple((index, *self.state_of(index)) for index in self.indices())

    def state_of(self, index: int) -> tuple[int, ...]:
        """What differs once one shadow model is trained again; empty where there is none."""
        return self._run.state(self._name(index))

    def file(self, index: int) -> Tensors:
        """What one shadow model left.

        Raises
        ------
        StoreError
            If it is not there, broken, or of another configuration or precision.
        """
        file = self._run.read_tensors(self._name(index))
        found = file.metadata.get("config", self._config)
        if self._config and found != self._config:
            raise StoreError(
                f"{self._run.path / self._name(index)}.safetensors was trained with another "
                f"model, data or configuration ({found}, here {self._config}): move it away, or "
                "delete it and call run_shadows again"
            )
        self._check_precision(index, file.metadata.get("precision", self._precision))
        return file

    def checkpoints(self) -> tuple[str, ...]:
        """Checkpoints at which every shadow model holds gaps."""
        kept: set[str] | None = None
        for index in self.indices():
            here = _gaps_in(self.file(index))
            kept = here if kept is None else kept & here
        return tuple(sorted(kept or ()))

    def read(self, checkpoint: str) -> Shadows:
        """All shadow models' gaps at a checkpoint.

        Raises
        ------
        StoreError
            If there are none, none at that checkpoint, or one is of another configuration or
            precision.
        """
        indices = self.indices()
        if not indices:
            raise StoreError(f"{self._run.path} holds no shadow models yet: call run_shadows(64)")
        held = self.checkpoints()
        if checkpoint not in held:
            raise StoreError(
                f"the shadow models hold gaps at {', '.join(held)}, not at {checkpoint}: "
                f"run_shadows(…, checkpoints=[{checkpoint!r}]) trains them again for it"
            )
        files = [self.file(index) for index in indices]
        gaps = np.stack([file[f"gap.{checkpoint}"] for file in files])
        for index, file, own in zip(indices, files, gaps, strict=True):
            if "precision" not in file.metadata:
                self._check_unmarked(index, own)
        return Shadows(np.stack([file["members"] for file in files]), gaps, np.array(indices))

    def fill(
        self,
        n: int,
        job: ShadowJob,
        processes: int | None,
        progress: Progress,
        executor: Executor | None = None,
    ) -> None:
        """Train the shadow models 0 to n − 1 that are not there yet.

        Another process may fill the same directory: each shadow model is trained by one of them.

        Raises
        ------
        Cancelled
            After ``progress.cancel()``; finished shadow models are kept.
        StoreError
            If they cannot be written, or the workers are gone or unfit.
        """
        job = self._with_kept(job)
        missing = [index for index in range(n) if not self._holds(index, job)]
        if not missing:
            return
        progress.report(n - len(missing), n, _WHAT)
        if executor is None:
            processes = min(processes or default_processes(job.recipe.device), len(missing))
        self._sweep()
        beacon = self._run.place(f".claims/{uuid.uuid4().hex}.wanted")
        with Claims(self._run, f".claims/{self.key}") as claims:
            with self._run.explained(beacon):
                beacon.touch(mode=0o600)
            try:
                with opened(job, executor, processes, beacon) as workers:
                    self._filling(job, claims, workers, beacon, progress).run(missing, n)
            finally:
                with suppress(OSError):
                    beacon.unlink()

    def _check_precision(self, index: int, found: str) -> None:
        if self._precision and found != self._precision:
            raise StoreError(
                f"{self._run.path / self._name(index)}.safetensors was trained in {found}, and the "
                f"target in {self._precision}, so their logit gaps can't be compared: move it "
                "away, or delete it and call run_shadows again"
            )

    def _check_unmarked(self, index: int, gaps: NDArray[np.float32]) -> None:
        """Refuse a file without a precision where its gaps show another one than the target's."""
        rounded = are_rounded(gaps, gaps=True)
        if rounded:
            self._check_precision(index, "bfloat16")
        elif rounded is not None and self._rounds:
            self._check_precision(index, "float32")

    def _filling(
        self, job: ShadowJob, claims: Claims, workers: Workers, beacon: Path, progress: Progress
    ) -> Filling:
        def holds(index: int) -> bool:
            return self._holds(index, job)

        def keep(index: int, trained: TrainedShadow) -> None:
            self._write(index, trained, job)

        before = [self.file(index).metadata.get("seconds") for index in self.indices()]
        pace = Pace([float(seconds) for seconds in before if seconds])
        return Filling(holds, keep, lambda: len(self), claims, workers, beacon, pace, progress)

    def _with_kept(self, job: ShadowJob) -> ShadowJob:
        """The job with what all shadow models hold already: new ones hold it too."""
        held = self.checkpoints()
        kept = {name: step for name, step in job.known.items() if name in held}
        before, forward = self._kept_forward(), job.forward
        if forward is None:
            forward = before
        elif before is not None and before.checkpoint == forward.checkpoint:
            layers = dict.fromkeys((*before.layers, *forward.layers))
            forward = replace(forward, layers=tuple(layers))
        return replace(job, checkpoints=dict(job.checkpoints) | kept, forward=forward)

    def _kept_forward(self) -> KeptForward | None:
        """The forward pass that every shadow model keeps; None where one has none."""
        passes = {_forward_of(self.file(index)) for index in self.indices()}
        return passes.pop() if len(passes) == 1 else None

    def _holds(self, index: int, job: ShadowJob) -> bool:
        """Whether a shadow model is there, whole, with all that is asked for."""
        if not self._run.has(self._name(index)):
            return False
        file = self.file(index)
        if not set(job.checkpoints) <= _gaps_in(file):
            return False
        kept = _forward_of(file)
        return job.forward is None or (
            kept is not None
            and kept.checkpoint == job.forward.checkpoint
            and set(job.forward.layers) <= set(kept.layers)
        )

    def _write(self, index: int, trained: TrainedShadow, job: ShadowJob) -> None:
        metadata = {
            "seed": str(job.seed),
            "index": str(index),
            "config": job.config,
            "design": self.key,
            "precision": trained.precision,
            "seconds": f"{trained.seconds:.1f}",
            "finished": str(int(time.time())),
        }
        if trained.forward and job.forward is not None:
            metadata["forward"] = job.forward.checkpoint
        gaps = {f"gap.{name}": gap for name, gap in trained.gaps.items()}
        kept = {f"forward.{name}": values for name, values in trained.forward.items()}
        self._run.write_tensors(
            self._name(index), {"members": trained.members} | gaps | kept, metadata
        )

    def _name(self, index: int | str) -> str:
        return f"{self._folder}/{int(index):04d}"

    def _sweep(self) -> None:
        """Remove what killed processes left half-written; by the disk's own clock."""
        folder = self._run.place(self._folder)
        with suppress(OSError):
            probe = folder / f".clock-{uuid.uuid4().hex}"
            probe.touch(mode=0o600)
            now = probe.stat().st_mtime
            probe.unlink()
            for left_over in folder.glob(".unfinished-*"):
                if now - left_over.stat().st_mtime > _OLD_SECONDS:
                    left_over.unlink()


def _gaps_in(file: Tensors) -> set[str]:
    """Names of the checkpoints at which a shadow model holds gaps."""
    return {key.removeprefix("gap.") for key in file if key.startswith("gap.")}


def _forward_of(file: Tensors) -> KeptForward | None:
    """The forward pass that a shadow model keeps."""
    if "forward" not in file.metadata:
        return None
    layers = [key.removeprefix(_LAYER) for key in file if key.startswith(_LAYER)]
    return KeptForward(file.metadata["forward"], tuple(layers))
