"""The shadow models of a run directory, one file each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.models.device import free_memory, torch_device
from memowidgets.progress import Progress
from memowidgets.store import (
    Absent,
    ForeignError,
    RunDirectory,
    StoreError,
    Tensors,
)
from memowidgets.training.design import SHADOW, Kind
from memowidgets.training.engine import default_processes, fill
from memowidgets.training.worker import GAP, LAYER, KeptForward, ShadowJob
from memowidgets.vocabulary import Note

_CHOICE = "shadows.json"


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
        self.kind = kind
        self._folder = kind.folder if key == "halves" else f"{kind.folder}/{key}"

    def __len__(self) -> int:
        return len(self.indices())

    def indices(self) -> list[int]:
        """Indices of complete shadow models; the next `fill` trains a broken one again."""
        return [index for index in self._numbers() if not self._is_broken(index)]

    def opened(self) -> dict[int, Tensors | StoreError]:
        """Return the file of each model by its number, or why it cannot be used."""
        found: dict[int, Tensors | StoreError] = {}
        for index in self._numbers():
            try:
                found[index] = self.file(index)
            except StoreError as error:
                found[index] = error
        return found

    def lost(self, opened: Mapping[int, Tensors | StoreError]) -> list[Note]:
        """Return a note, if some of the trained models that were `opened` are lost or damaged."""
        trained = read_choice(self._run).get("trained", {}).get(self.key, 0)
        faults = [getattr(one, "fault", None) for one in opened.values()]
        faults += [
            f"{self.path_of(i)} is missing" for i in range(trained) if i not in opened
        ]
        wrong = [fault for fault in faults if fault is not None]
        if not wrong:
            return []
        said = f"{len(wrong)} of {len(faults)} {self.kind.noun}s are lost or damaged, such as this"
        end = f"Call audit.{self.kind.call} to train them again."
        return [Note("lost models", f"{said} one: {wrong[0]}. {end}", n=len(wrong))]

    def note_trained(self, n: int) -> None:
        """Store that the shadow models 0 to n − 1 are trained, if so: a lost one is noticed."""
        if not set(range(n)) <= {*self.indices()}:
            return  # other processes train the other parts
        kept = read_choice(self._run)
        trained = kept.get("trained", {})
        if trained.get(self.key, 0) < n:
            write_choice(self._run, {**kept, "trained": {**trained, self.key: n}})

    def file(self, index: int) -> Tensors:
        """Return the file of one shadow model.

        Raises
        ------
        StoreError
            If it is missing, broken, or of another configuration or precision.
        """
        file = self._run.read_tensors(self._name(index))
        if wrong := self._why_foreign(index, file.metadata):
            self._run.look_again()
            again = f"move it away, or delete it and call {self.kind.call} again"
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
        return gap_checkpoints(self.file(index) for index in self.indices())

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
        alone = self._run.lock(f"{self.kind.noun}s-{self.key}".replace(" ", "-"))
        with alone if indices is None else nullcontext():
            missing, job = self.missing(part, job)
            if not missing:
                return
            done = len(part) - len(missing)
            total = len(part)
            progress.report(done, total, f"training {self.kind.noun}s")
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
                f"the executor returned a {self.kind.noun} for {self.path_of(index)} that "
                f"{wrong}. It is not written: each future must have its own order's result"
            )
        self._run.write_tensors(self._name(index), arrays, metadata)

    def none_of(self, lost: Sequence[Note]) -> Absent:
        """Return why there are no models, and what to do, where some are lost or none is."""
        if self._none is not None:
            return self._none
        if lost:
            return Absent(lost[0])
        call = f"call audit.{self.kind.call}({self.kind.usual})"
        return Absent(f"{self._run.path} has no {self.kind.noun}s yet", call)

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


def gap_checkpoints(files: Iterable[Tensors]) -> tuple[str, ...]:
    """Return the checkpoints at which all of several shadow models have gaps."""
    kept = [_gaps_in(file) for file in files]
    return tuple(sorted(set.intersection(*kept))) if kept else ()


def stacked(files: Mapping[int, Tensors], checkpoint: str) -> Shadows:
    """Return what shadow models have at a checkpoint, by the numbers of their files."""
    ordered = sorted(files.items())
    return Shadows(
        np.stack([file["members"] for _, file in ordered]),
        np.stack([file[GAP + checkpoint] for _, file in ordered]),
        np.array([index for index, _ in ordered]),
    )


def _gaps_in(file: Tensors) -> set[str]:
    """Return the names of the checkpoints at which a shadow model has gaps."""
    return {key.removeprefix(GAP) for key in file if key.startswith(GAP)}


def _forward_of(file: Tensors) -> KeptForward | None:
    """Return the forward pass that a shadow model has."""
    if "forward" not in file.metadata:
        return None
    layers = [key.removeprefix(LAYER) for key in file if key.startswith(LAYER)]
    return KeptForward(file.metadata["forward"], tuple(layers))
