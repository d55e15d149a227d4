"""Seconds and bytes of trainings, computed from a few timed steps or from recorded seconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memowidgets.training.engine.timing import Timing
from memowidgets.training.shadow import ShadowJob, own_steps

__all__ = [
    "announced",
    "file_bytes",
    "model_bytes",
    "model_seconds",
    "outputs_bytes",
    "pass_bytes",
    "spoken",
    "spoken_bytes",
    "target_bytes",
    "target_seconds",
    "work_seconds",
]

# Safetensors' header in bytes: for the file with its stamp, and for an array beside its name.
_OF_FILE, _OF_ARRAY, _NAMED = 400, 100, 2
_NOTE = 700  # record.json


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
