"""What a worker does: it reads a job, and trains the shadow models of it that it is told to.

It needs no disk in common with the caller: an order carries the job, or its place in a file of this
machine, and the trained model goes back as arrays.
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
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets import __version__
from memowidgets.metrics import logit_gap
from memowidgets.models.device import resolve_device
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.config import derived_seed
from memowidgets.training.design import Design, ReferenceDesign, ShadowDesign
from memowidgets.training.learner import LooksAt, Recipe
from memowidgets.training.probe import check_functions
from memowidgets.training.script import Script
from memowidgets.training.travel import pack, unpack

# what the arrays of a shadow model are, before the name of a checkpoint or of a layer
GAP = "gap."
LOSS = "loss."
LAYER = "forward.layer."
_POLL_SECONDS = 0.2
_ALIGNED = 64  # bytes, for vector instructions

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
    recipe : Recipe or Script
        Model, data and settings, or the script that trains in their place.
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

    recipe: Recipe | Script
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
    seed = derived_seed(job.seed, kind.stream, index)
    asked = job.shadows.asked(design, members)
    rows = design.pool[asked]
    labels = job.recipe.data.labels[rows]
    arrays: dict[str, NDArray[Any]] = {"members": members}
    metadata = {"design": job.shadows.key, "config": job.config}

    def visit(name: str, look: LooksAt) -> None:
        if name in job.checkpoints:
            gaps = np.full(len(design.pool), np.nan, dtype=np.float32)
            gaps[asked] = logit_gap(look(rows).logits, labels)
            arrays[GAP + name] = gaps
        if job.forward is not None and name == job.forward.checkpoint:
            seen = look(own, capture=True)
            arrays["forward.logits"] = seen.logits
            arrays["forward.losses"] = seen.losses
            for layer in job.forward.layers:
                arrays[LAYER + layer] = seen.layers[layer]
            arrays[LOSS + name] = seen.losses
            metadata["forward"] = name
        elif name in job.traced:
            arrays[LOSS + name] = look(own).losses

    wanted = dict(job.checkpoints) | job.traced
    what = f"training {kind.noun} {index}"
    metadata["precision"] = job.recipe.train_one(
        own, seed, wanted, len(design.members), visit, progress, what
    )
    metadata |= {
        "seed": str(job.seed),
        "index": str(index),
        "finished": str(int(time.time())),
    }
    return arrays, {**metadata, "seconds": f"{time.monotonic() - start:.1f}"}


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
            if job.probe and isinstance(job.recipe, Recipe):
                check_functions(job.probe, job.recipe, job.design)
            _Kept.name = name
            _Kept.job = replace(job, recipe=job.recipe.in_worker())
        return _Kept.job


def _sendable(error: Exception) -> Exception:
    """Return an exception as it can be sent: some cannot be pickled, or not be read again."""
    try:
        unpack(pack(error))
    except Exception:  # noqa: BLE001 - of any kind
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
