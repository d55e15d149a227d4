"""Shadow models of a run directory, one file each, which any process may add."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.memory import free_memory
from memowidgets.progress import Progress
from memowidgets.store import ForeignError, RunDirectory, StoreError, Tensors
from memowidgets.training.cost import model_bytes, model_seconds
from memowidgets.training.design import SHADOW, Kind
from memowidgets.training.device import torch_device
from memowidgets.training.engine.claims import Claims
from memowidgets.training.engine.filling import Filling, Pace
from memowidgets.training.engine.timing import Timing
from memowidgets.training.engine.workers import Workers, default_processes, opened
from memowidgets.training.made_in import are_rounded
from memowidgets.training.shadow import (
    KeptForward,
    ShadowJob,
    TrainedShadow,
    own_steps,
    train_shadow,
)
from memowidgets.visible import listed

__all__ = [
    "LOSS",
    "KeptForward",
    "ShadowJob",
    "ShadowSet",
    "Shadows",
    "TrainedShadow",
    "read_choice",
    "train_shadow",
    "write_choice",
]

_CHOICE = "shadows.json"
_OLD_SECONDS = 600
_LAYER = "forward.layer."
LOSS = "loss."  # before the name of a checkpoint


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


def _read_again(_question: Hashable, read: Callable[[], Any]) -> Any:
    return read()


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
    rounds : bool
        Whether logits of bfloat16 are known to be rounded in files that lack their precision.
    why_none : StoreError or None
        Error of `read` if there are no shadow models. By default it says how to train some.
    kind : Kind
        What they are called, and where their files are.
    looked_up : callable, optional
        Function of a question and of a function that answers it, which may return an earlier
        answer. By default the folder is read each time.
    """

    def __init__(
        self,
        run: RunDirectory,
        key: str = "halves",
        config: str = "",
        precision: str = "",
        *,
        rounds: bool = False,
        why_none: StoreError | None = None,
        kind: Kind = SHADOW,
        looked_up: Callable[[Hashable, Callable[[], Any]], Any] = _read_again,
    ) -> None:
        self._run, self.key, self._config = run, key, config
        self._looked_up = looked_up
        self._why_none, self._kind = why_none, kind
        self._precision, self._rounds = precision, rounds
        self._seen: dict[str, tuple[tuple[int, ...], bool]] = {}
        self._lost: tuple[Any, list[str]] | None = None
        self._folder = kind.folder if key == "halves" else f"{kind.folder}/{key}"

    def __len__(self) -> int:
        return len(self.indices())

    def indices(self) -> list[int]:
        """Indices of complete shadow models; the next `fill` trains a broken one again."""
        return list(self._looked_up((self, "indices"), self._complete))

    def _complete(self) -> list[int]:
        return [index for index in self._numbers() if not self._is_broken(index)]

    def state(self) -> tuple[tuple[int, ...], ...]:
        """Return a value that changes when a shadow model is added, removed or trained again."""
        return cast("tuple[tuple[int, ...], ...]", self._looked_up((self, "state"), self._state))

    def _state(self) -> tuple[tuple[int, ...], ...]:
        return tuple((index, *self.state_of(index)) for index in self._numbers())

    def state_of(self, index: int) -> tuple[int, ...]:
        """Return a value that changes when one shadow model is trained again; empty if missing."""
        return self._run.state(self._name(index))

    def lost(self) -> list[str]:
        """Return sentences about trained shadow models that are lost or cannot be used."""
        seen = self.state(), self._trained()
        if self._lost is None or self._lost[0] != seen:
            self._lost = seen, self._found_lost(seen[1])
        return self._lost[1]

    def _found_lost(self, trained: int) -> list[str]:
        numbers = self._numbers()
        missing = [index for index in range(trained) if index not in numbers]
        faults = [self._run.why_not(self._name(i), arrays=self._needed(i)) for i in numbers]
        gone = [f"{self.path_of(index)} is missing" for index in missing]
        return [
            f"{fault}. The {self._kind.noun} is left out; {self._kind.call} trains it again."
            for fault in (*faults, *gone)
            if fault is not None
        ]

    def note_trained(self, n: int) -> None:
        """Store that the shadow models 0 to n − 1 are trained, if so: a lost one is noticed."""
        if not set(range(n)) <= {*self.indices()}:
            return  # other processes train the other parts
        kept = read_choice(self._run)
        trained = kept.get("trained", {})
        if trained.get(self.key, 0) < n:
            write_choice(self._run, {**kept, "trained": {**trained, self.key: n}})

    def check(self, index: Any) -> None:
        """Raise a `StoreError` if there is no model of that index, broken or not."""
        is_number = isinstance(index, int | np.integer) and not isinstance(index, bool)
        there = self.indices()
        if is_number and (index in there or self.path_of(index).exists()):
            return
        if not there:
            raise self._none()
        valid = listed(str(one) for one in there)
        raise StoreError(f"unknown {self._kind.noun} {index!r}; valid: {valid}")

    def _none(self) -> StoreError:
        return self._why_none or StoreError(
            f"{self._run.path} has no {self._kind.noun}s yet; call {self._kind.call}"
            f"({self._kind.usual})"
        )

    def file(self, index: int) -> Tensors:
        """Return the file of one shadow model.

        Raises
        ------
        StoreError
            If it is missing, broken, or of another configuration or precision.
        """
        try:
            file = self._run.read_tensors(self._name(index))
        except ForeignError:
            self._check_config(index, Tensors(self.path_of(index)))
            raise
        self._check_config(index, file)
        self._check_place(index, file)
        self._check_precision(index, file.metadata.get("precision", self._precision))
        return file

    def _check_config(self, index: int, file: Tensors) -> None:
        found = file.metadata.get("config")
        if self._config and found is not None and found != self._config:
            raise StoreError(
                f"{self.path_of(index)} was trained with another "
                f"model, data or configuration ({found}, here {self._config}); move it away, or "
                f"delete it and call {self._kind.call} again"
            )

    def _check_place(self, index: int, file: Tensors) -> None:
        """Raise for a copy of another shadow model; old files can be checked less."""
        wanted = {"index": str(index), "design": self.key, "config": self._config}
        for what, value in wanted.items():
            found = file.metadata.get(what)
            if found is None and not self._run.is_stamped:
                continue
            if value and found != value:
                raise ForeignError(
                    f"{self.path_of(index)} says that its {what} is {found}, not {value}",
                    f"delete it and call {self._kind.call} again",
                )

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._run.names(self._folder) if name.isdigit()]

    def _is_broken(self, index: int) -> bool:
        """Return whether a file is unusable; a file of another run is an error when it is read."""
        name = self._name(index)
        state = self._run.state(name)
        if name not in self._seen or self._seen[name][0] != state:
            try:
                self._run.read_tensors(name).check(*self._needed(index))
                broken = False
            except ForeignError:
                broken = False
            except StoreError:
                broken = True
            self._seen[name] = state, broken
        return self._seen[name][1]

    def _needed(self, index: int) -> list[str]:
        """Return the names of the arrays for log-LiRA."""
        try:
            file = self._run.read_tensors(self._name(index))
        except StoreError:
            return []
        return ["members", *(name for name in file if name.startswith("gap."))]

    def _trained(self) -> int:
        return int(read_choice(self._run).get("trained", {}).get(self.key, 0))

    def path_of(self, index: int) -> Path:
        """Return the path of the file of one shadow model."""
        return self._run.path / f"{self._name(index)}.safetensors"

    def checkpoints(self) -> tuple[str, ...]:
        """Return the checkpoints at which every shadow model has gaps."""
        kept: set[str] | None = None
        for index in self.indices():
            here = _gaps_in(self.file(index))
            kept = here if kept is None else kept & here
        return tuple(sorted(kept or ()))

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
            raise self._none()
        held = self.checkpoints()
        if checkpoint not in held:
            raise StoreError(
                f"the {self._kind.noun}s have gaps at {', '.join(held)}, not at {checkpoint}; "
                f"{self._kind.again.format(checkpoint)}"
            )
        for sentence in self.lost():
            warnings.warn(sentence, UserWarning, stacklevel=3)
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
        indices: Sequence[int] | None = None,
    ) -> None:
        """Train those of the shadow models 0 to n − 1 that are missing, or the missing `indices`.

        Other processes may fill the same directory: each shadow model is trained by one of them.

        Raises
        ------
        Cancelled
            After ``progress.cancel()``. Finished shadow models are kept.
        StoreError
            If they cannot be written, or the workers ended or are unsuitable.
        """
        part = range(n) if indices is None else indices
        missing, job = self.missing(part, job)
        n = len(part)
        if not missing:
            return
        progress.report(n - len(missing), n, f"training {self._kind.noun}s", _cost(job, missing))
        if executor is None:
            processes = min(processes or default_processes(job.recipe.device), len(missing))
            free_memory(torch_device(job.recipe.device))
        self._sweep()
        beacon = self._run.place(f".claims/{uuid.uuid4().hex}.wanted")
        parted = indices is not None
        with Claims(self._run, f".claims/{self.key}", parted=parted) as claims:
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
                f"{self.path_of(index)} was trained in {found}, and the "
                f"target in {self._precision}, so their logit gaps cannot be compared; move it "
                f"away, or delete it and call {self._kind.call} again"
            )

    def _check_unmarked(self, index: int, gaps: NDArray[np.float32]) -> None:
        """Raise for a file without a precision if its gaps show another one than the target's."""
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

        def each(timing: Timing | None) -> tuple[float | None, int]:
            return None if timing is None else model_seconds(timing, job), model_bytes(timing, job)

        return Filling(
            holds,
            keep,
            lambda: len(self),
            claims,
            workers,
            beacon,
            Pace(self.seconds()),
            progress,
            self._kind,
            each,
        )

    def seconds(self) -> list[float]:
        """Return the recorded seconds of each shadow model that has them."""
        before = [self.file(index).metadata.get("seconds") for index in self.indices()]
        return [float(seconds) for seconds in before if seconds]

    def missing(self, part: Sequence[int], job: ShadowJob) -> tuple[list[int], ShadowJob]:
        """Return those of the shadow models that `fill` would train, and its job."""
        job = self._with_kept(job)
        return [index for index in part if not self._holds(index, job)], job

    def _with_kept(self, job: ShadowJob) -> ShadowJob:
        """Return the job with everything that all existing shadow models have."""
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
        """Return the forward pass that every shadow model has, or None."""
        passes = {_forward_of(self.file(index)) for index in self.indices()}
        return passes.pop() if len(passes) == 1 else None

    def _holds(self, index: int, job: ShadowJob) -> bool:
        """Return whether a shadow model is complete, with everything that the job requires."""
        if not self._run.has(self._name(index)) or self._is_broken(index):
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
        losses = {f"{LOSS}{name}": values for name, values in trained.losses.items()}
        arrays = {"members": trained.members} | gaps | losses | kept
        self._run.write_tensors(self._name(index), arrays, metadata)

    def _name(self, index: int | str) -> str:
        return f"{self._folder}/{int(index):04d}"

    def _sweep(self) -> None:
        """Remove temporary files of killed processes, judged by the disk's own clock."""
        folder = self._run.place(self._folder)
        with suppress(OSError):
            probe = folder / f".clock-{uuid.uuid4().hex}"
            probe.touch(mode=0o600)
            now = probe.stat().st_mtime
            probe.unlink()
            for left_over in folder.glob(".unfinished-*"):
                if now - left_over.stat().st_mtime > _OLD_SECONDS:
                    left_over.unlink()


def read_choice(run: RunDirectory) -> dict[str, Any]:
    """Return the set of shadow models behind the truth, and the number trained of each."""
    kept = run.read_note(_CHOICE) if run.has_file(_CHOICE) else {}
    table = kept if isinstance(kept, dict) else {"key": None}
    if not (isinstance(table.get("trained", {}), dict) and isinstance(table.get("key", ""), str)):
        raise StoreError(f"{run.path / _CHOICE} is broken; delete it")
    return kept


def write_choice(run: RunDirectory, choice: dict[str, Any]) -> None:
    """Store what `read_choice` returns."""
    run.write_note(_CHOICE, choice)


def _cost(job: ShadowJob, missing: Sequence[int]) -> str:
    """Return what is going to be trained, in steps, beside what the target's training takes."""
    own = int(job.shadows.members(job.design, job.seed, missing[0]).sum())
    steps = max(step for _, step in own_steps(job, own))
    whole = job.recipe.settings.total_steps(len(job.design.members))
    return f"{len(missing)} to train, {steps} steps each, the whole target takes {whole}"


def _gaps_in(file: Tensors) -> set[str]:
    """Return the names of the checkpoints at which a shadow model has gaps."""
    return {key.removeprefix("gap.") for key in file if key.startswith("gap.")}


def _forward_of(file: Tensors) -> KeptForward | None:
    """Return the forward pass that a shadow model has."""
    if "forward" not in file.metadata:
        return None
    layers = [key.removeprefix(_LAYER) for key in file if key.startswith(_LAYER)]
    return KeptForward(file.metadata["forward"], tuple(layers))
