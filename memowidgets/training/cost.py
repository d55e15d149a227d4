"""Cost of trainings in seconds, disk and memory, from a few timed steps or recorded seconds."""

from __future__ import annotations

import math
import secrets
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import UNFINISHED
from memowidgets.models.device import wait_for
from memowidgets.progress import Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import name_of, outputs_of, record_file
from memowidgets.training.learner import Learner, weights_in
from memowidgets.training.seeds import derived_seed, restored
from memowidgets.training.shadow import ShadowJob, own_steps
from memowidgets.training.target import write_state

if TYPE_CHECKING:
    import torch

_FEWEST_STEPS, _MOST_STEPS, _STEP_SECONDS = 3, 60, 1.0
_BATCHES, _REPEATS = 4, 3  # of a forward pass
_MOST_WRITTEN = 2**28  # bytes of a checkpoint
# Safetensors' header in bytes: for the file with its stamp, and for an array beside its name.
_OF_FILE, _OF_ARRAY, _NAMED = 400, 100, 2
_NOTE = 700  # record.json


@dataclass(frozen=True)
class Timing:
    """Seconds and sizes of one model, measured on a few batches.

    Attributes
    ----------
    build : float
        Seconds to create the module and its optimizer.
    step : float
        Seconds of an optimizer step: the mean after a warm-up.
    sample : float
        Seconds of a forward pass for each sample, after `look`.
    memory : int
        Peak memory of the process in bytes; of its GPU if it computes on one.
    logits : int
        Number of logits of a sample.
    layers : dict of int
        Number of values of a sample's representation, by layer.
    weights, optimizer : dict of int
        Bytes of each array of a checkpoint's weights, and of the optimizer's state, by name.
    start : float
        Seconds until the process is ready to train, once for all of its models.
    save : float
        Seconds to write a checkpoint of the target; 0 if that was not timed.
    look : float
        Seconds of a forward pass, however few its samples are.
    """

    build: float
    step: float
    sample: float
    memory: int
    logits: int
    layers: dict[str, int]
    weights: dict[str, int]
    optimizer: dict[str, int]
    start: float = field(default=0.0)
    save: float = field(default=0.0)
    look: float = field(default=0.0)

    def passes(self, n: int, samples: int) -> float:
        """Return the seconds of n forward passes over so many samples in all."""
        return n * self.look + samples * self.sample


def slowest(timings: Sequence[Timing]) -> Timing:
    """Return the mean of the times of several processes, the longest start and the most memory."""
    return replace(
        timings[0],
        build=float(np.mean([one.build for one in timings])),
        step=float(np.mean([one.step for one in timings])),
        sample=float(np.mean([one.sample for one in timings])),
        memory=max(one.memory for one in timings),
        start=max(one.start for one in timings),
        look=float(np.mean([one.look for one in timings])),
    )


def take_times(job: ShadowJob, progress: Progress, run: RunDirectory | None = None) -> Timing:
    """Train a throw-away model for a few steps, and run it over a part of the pool.

    All random states are restored. With a `run`, a checkpoint is written there and removed again.
    """
    import torch

    device = torch.device(job.recipe.device)
    members = job.design.pool[job.shadows.members(job.design, job.seed, 0)]
    with restored(device):
        seed = derived_seed(job.seed, job.shadows.kind.stream, 0)
        start = time.perf_counter()
        Learner(job.recipe, members, seed)  # the first in a process imports what it needs
        middle = time.perf_counter()
        learner = Learner(job.recipe, members, seed, drop_single=True)
        build = time.perf_counter() - middle
        first = max(0.0, middle - start - build)
        step = _step_seconds(learner, device, progress)
        look, sample, logits, layers = _look(learner, job.design.pool, progress)
        n_target = len(job.design.members)
        weights = job.recipe.model.weights(learner.module)
        return Timing(
            build,
            step,
            sample,
            peak_memory(device),
            logits,
            layers,
            {name: int(values.nbytes) for name, values in weights.items()},
            learner.optimizer_bytes(),
            first,
            _save_seconds(learner, run, (n_target, logits)) if run is not None else 0.0,
            look,
        )


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process in bytes, or that of its GPU."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.max_memory_reserved(device))
    with suppress(OSError, StopIteration):  # not the parent's peak, unlike that of getrusage
        status = Path("/proc/self/status").read_text("utf-8").splitlines()
        peak = next(line for line in status if line.startswith("VmHWM:"))
        return 1024 * int(peak.split()[1])
    try:
        import resource
    except ImportError:  # Windows does not tell
        return 0
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return usage if sys.platform == "darwin" else 1024 * usage


class _Enough(Exception):  # noqa: N818 - not an error
    """Raised between two steps when enough of them were timed."""


class _Clock(Progress):
    """Progress that notes the time of each step, and ends the training after some."""

    def __init__(self, device: torch.device, outer: Progress) -> None:
        super().__init__()
        self._device, self._outer = device, outer
        self.times: list[float] = []

    def report(self, done: int, total: int, what: str, detail: str = "") -> None:
        self._outer.report(done, total, what, detail)
        self.note()
        steps = len(self.times) - 1
        enough = steps > _FEWEST_STEPS and self.times[-1] - self.times[1] > _STEP_SECONDS
        if enough or steps > _MOST_STEPS:
            raise _Enough

    def note(self) -> None:
        """Note the time at which the device has finished."""
        wait_for(self._device)
        self.times.append(time.perf_counter())


def _step_seconds(learner: Learner, device: torch.device, progress: Progress) -> float:
    clock = _Clock(device, progress)
    with suppress(_Enough):
        learner.advance(learner.total_steps, clock, "timing steps")
        clock.note()
    seconds = np.diff(clock.times)  # a training takes their sum, so a few long ones count
    return float(np.mean(seconds[1:] if len(seconds) > 1 else seconds))


def _look(
    learner: Learner, pool: NDArray[np.int64], progress: Progress
) -> tuple[float, float, int, dict[str, int]]:
    """Return a pass's seconds, those for each sample, and the numbers of a sample's values."""
    one = learner.look_at(pool[:1], capture=True)
    single = _timed(learner, pool[:1], progress)
    if single < _STEP_SECONDS / _REPEATS:  # others may disturb a short pass
        single = min(single, *(_timed(learner, pool[:1], progress) for _ in range(_REPEATS - 1)))
    n = min(len(pool), _BATCHES * learner.recipe.model.forward_batch)
    spread = pool[np.linspace(0, len(pool) - 1, n).round().astype(np.int64)]
    few = spread[:: max(1, n // learner.recipe.model.forward_batch)]
    seconds, n = _timed(learner, few, progress), len(few)
    if seconds < _STEP_SECONDS and len(spread) > len(few):
        seconds, n = _timed(learner, spread, progress), len(spread)
    values = {name: _width(array) for name, array in one.layers.items()}
    # where noise hides what more samples cost, nothing of a pass counts as its start
    sample = (seconds - single) / (n - 1) if n > 1 and seconds > single else seconds / n
    return max(0.0, single - sample), sample, _width(one.logits), values


def _timed(learner: Learner, positions: NDArray[np.int64], progress: Progress) -> float:
    start = time.perf_counter()
    learner.look_at(positions, progress=progress)  # its results are copied to the CPU
    return time.perf_counter() - start


def _save_seconds(learner: Learner, run: RunDirectory, shape: tuple[int, int]) -> float:
    """Return the seconds of a checkpoint, without its passes, whose logits are of this shape.

    Only a part of a large checkpoint is written. Where nothing can be written, the result is 0, so
    that the estimate still tells how much room the training needs.
    """
    start = time.perf_counter()
    learner.advance(learner.step, Progress(), "")  # a training is interrupted at its checkpoints
    arrays, notes = learner.state()
    copied = time.perf_counter() - start
    sizes = np.cumsum([array.nbytes for array in arrays.values()])
    part = dict(list(arrays.items())[: 1 + int(np.searchsorted(sizes, _MOST_WRITTEN))])
    share = sum(array.nbytes for array in part.values()) / max(1, int(sizes[-1]))
    scratch = run.part(f"{UNFINISHED}{secrets.token_hex(8)}")  # a later training removes it
    seconds = 0.0
    try:
        for epoch in range(2):  # the first has no older state to delete
            start = time.perf_counter()
            name = name_of(epoch)
            place = f"checkpoints/{name}/{learner.recipe.model.weights_name}"
            digest = scratch.write_weights(place, weights_in(part))
            zeros = np.zeros(shape, np.float32)
            outputs = {"logits": zeros, "losses": zeros[:, 0]}
            scratch.write_tensors(outputs_of(name), outputs, {}, digest)
            scratch.write_note(record_file(name), {"weights": digest})
            write_state(scratch, name, digest, part, notes)
            seconds = copied + (time.perf_counter() - start) / share
    except (OSError, StoreError):
        return 0.0
    finally:
        shutil.rmtree(scratch.path, ignore_errors=True)
    return seconds


def _width(array: NDArray[Any]) -> int:
    return int(np.prod(array.shape[1:]))


def model_seconds(timing: Timing, job: ShadowJob) -> float:
    """Return the seconds that a worker takes for the first shadow model of a job."""
    members = job.shadows.members(job.design, job.seed, 0)
    own, asked = int(members.sum()), int(job.shadows.asked(job.design, members).sum())
    steps = own_steps(job, own)
    samples = sum(asked for name, _ in steps if name in job.checkpoints)
    kept = {*job.traced, *([job.forward.checkpoint] if job.forward is not None else [])}
    passes = len(kept) + sum(name in job.checkpoints for name, _ in steps)
    last = max(step for _, step in steps)
    seconds = timing.passes(passes, samples + own * len(kept))
    return timing.build + last * timing.step + seconds


def model_bytes(timing: Timing | None, job: ShadowJob) -> int:
    """Return the size of the file of the first shadow model of a job.

    A timing is needed only if the job keeps a forward pass.
    """
    members = job.shadows.members(job.design, job.seed, 0)
    own, pool = int(members.sum()), len(members)
    arrays = {"members": pool} | {f"gap.{name}": 4 * pool for name in job.checkpoints}
    if job.forward is not None:
        arrays |= {f"loss.{name}": 4 * own for name in {*job.traced, job.forward.checkpoint}}
        arrays |= {"forward.losses": 4 * own}
        if timing is not None:
            arrays |= {"forward.logits": 4 * own * timing.logits}
            sizes = {name: 4 * own * timing.layers[name] for name in job.forward.layers}
            arrays |= {f"forward.layer.{name}": size for name, size in sizes.items()}
    return file_bytes(arrays)


def mean_seconds(seconds: Sequence[float]) -> float | None:
    """Return the mean seconds of the last eight models, or None if there are none."""
    return sum(seconds[-8:]) / len(seconds[-8:]) if seconds else None


def work_seconds(each: float, missing: int, processes: int, start: float = 0.0) -> float:
    """Return the seconds until `missing` models are trained, `processes` at a time."""
    return start + each * math.ceil(missing / processes) if missing else 0.0


def target_seconds(
    timing: Timing, steps: int, checkpoints: int, members: int, held_out: int
) -> float:
    """Return the seconds of the rest of the target's training.

    At each checkpoint, there is a pass over the members and one over the held-out samples, and
    files are written.
    """
    passes = timing.passes(1 + (held_out > 0), members + held_out)
    at_checkpoint = passes + timing.save
    return timing.build + steps * timing.step + checkpoints * at_checkpoint


def target_bytes(timing: Timing, checkpoints: int, members: int, *, resumed: bool) -> int:
    """Return the size of the checkpoints that are left, and of the state to resume from."""
    weights = file_bytes(timing.weights)
    each = weights + outputs_bytes(timing, members) + _NOTE
    state = weights + file_bytes(timing.optimizer) + file_bytes({"random": 13_000})
    return checkpoints * each + (0 if resumed else state)


def outputs_bytes(timing: Timing, members: int) -> int:
    """Return the size of a file of logits and losses."""
    return file_bytes({"logits": 4 * members * timing.logits, "losses": 4 * members})


def pass_bytes(timing: Timing, members: int, value: int = 4) -> int:
    """Return the size of the file of a forward pass over the members, with all layers.

    `value` is the size of a number of a representation.
    """
    layers = {f"layer.{name}": value * members * n for name, n in timing.layers.items()}
    return outputs_bytes(timing, members) + file_bytes(layers) - _OF_FILE


def file_bytes(arrays: Mapping[str, int]) -> int:
    """Return the size of a safetensors file of arrays of these bytes."""
    return _OF_FILE + sum(_OF_ARRAY + _NAMED * len(name) + n for name, n in arrays.items())


def spoken(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def spoken_bytes(n: float) -> str:
    """Return a size in words."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n / 1e3:.0f} kB"


def announced(seconds: float | None, recorded: int, n_bytes: int, memory: int) -> str:
    """Return what a work will take, as the progress says it before the first model."""
    parts: Sequence[str] = [
        "" if seconds is None else f"about {spoken(seconds)}",
        f"{spoken_bytes(n_bytes)} of disk",
        f"{spoken_bytes(memory)} of memory" if memory else "",
    ]
    basis = f", from {recorded} recorded" if recorded and seconds is not None else ""
    return ", ".join(part for part in parts if part) + basis
