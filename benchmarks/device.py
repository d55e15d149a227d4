"""A device: the overhead of going through it on the CPU, and how many shadow models at once pay.

The first user of a GPU runs `python -m benchmarks device --device cuda`.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray

import memowidgets as mw
from benchmarks.measure import Namespace, Row, left_out
from memowidgets.models import Model
from memowidgets.models.device import count_devices, cpu_threads, resolve_device
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.engine import default_processes
from memowidgets.training.learner import Learner, Recipe

STEPS, BATCH, WARM, ROUNDS, TURNS = 7, 256, 3, 20, 15
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
MODELS, EPOCHS = 8, 10
AT_ONCE = (1, 2, 4, 8, 16)

Loops = tuple[Callable[[], None], Callable[[], None]]


def rows(arguments: Namespace) -> list[Row]:
    small, larger = mw.models.ConvNet(32), mw.models.WideResNet(depth=16, width=1)
    passes = [_pass(small, "a small network"), _pass(larger, "WRN16-1")]
    return [_step(small), *passes, *_at_once(arguments.device or "auto")]


def _step(model: Model) -> Row:
    """Compare training steps with a plain loop over the same network, batches and optimizer."""
    what = f"a training step of a small network on the CPU, batch {BATCH}"
    return _overhead(what, model, steps, STEPS)


def steps(learner: Learner) -> Loops:
    optimizer = learner._optimizer  # noqa: SLF001
    rng = np.random.default_rng(0)

    def ours() -> None:
        learner.step = 0
        learner.advance(len(learner.members) // BATCH, Progress(), "training")

    def bare() -> None:
        learner.module.train()
        for batch in rng.permutation(learner.members).reshape(-1, BATCH):
            optimizer.zero_grad(set_to_none=True)
            _losses(learner, batch)[1].mean().backward()
            optimizer.step()

    return ours, bare


def _pass(model: Model, name: str) -> Row:
    """Compare a pass with a plain loop that keeps its logits and losses."""
    what = f"a pass of {name} over {STEPS * BATCH} samples on the CPU"
    return _overhead(what, model, _passes, 1)


def _passes(learner: Learner) -> Loops:
    size = learner.recipe.model.forward_batch

    def ours() -> None:
        learner.look_at(learner.members)

    def bare() -> None:
        learner.module.eval()
        kept = []
        with torch.no_grad():
            for start in range(0, len(learner.members), size):
                outputs = _losses(learner, learner.members[start : start + size])
                kept.append([output.numpy() for output in outputs])
        for parts in zip(*kept, strict=True):
            np.concatenate(parts)

    return ours, bare


def _losses(
    learner: Learner, batch: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    labels = learner._labels[torch.from_numpy(batch)]  # noqa: SLF001
    inputs = learner._feed(batch)  # noqa: SLF001
    return learner.recipe.model.outputs(learner.module, inputs, labels)


def _overhead(
    what: str, model: Model, loops: Callable[[Learner], Loops], parts: int
) -> Row:
    """Return the medians of the ratios of neighbouring runs, with their 95 % intervals.

    Where a network lies in memory changes the ratio by more than what is measured, so each round
    has a new one. The plain loop runs twice in each turn: how far it is from itself is the error.
    """
    rng = np.random.default_rng(0)
    rounds = []
    with _freed_memory_kept(), cpu_threads(1):
        for _ in range(ROUNDS):
            between = [bytearray(size) for size in rng.integers(2**10, 2**18, 20)]
            ours, bare = loops(_learner(model))
            turns = [_turn((ours, bare, bare), rng) for _ in range(WARM + TURNS)][WARM:]
            rounds.append(turns)
            del between
    one, other, again = np.moveaxis(np.array(rounds), 2, 0)
    here, there = (f"{np.median(taken) / parts * 1e3:.2f} ms" for taken in (one, other))
    return Row(
        f"{what}, against a plain loop (processor time, {ROUNDS} rounds of {TURNS} turns)",
        here,
        there,
        f"{_median(one / other)}; the loop against itself {_median(again / other)}",
        "≤ 1.02×",
    )


def _median(ratios: NDArray[np.float64]) -> str:
    """Return the median of the rounds' medians, with its 95 % interval."""
    found = np.sort(np.median(ratios, axis=1))
    # of order statistics about it
    ranks = scipy.stats.binom.interval(0.95, len(found), 0.5)
    low, high = (found[int(rank)] for rank in ranks)
    return f"{np.median(found):.3f}× ({low:.3f} to {high:.3f})"


def _turn(loops: Sequence[Callable[[], None]], rng: np.random.Generator) -> list[float]:
    """Return the processor time of each, which other programs change little, in random order."""
    taken = [0.0 for _ in loops]
    for i in rng.permutation(len(loops)):
        start = time.process_time()
        loops[i]()
        taken[i] = time.process_time() - start
    return taken


@contextmanager
def _freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory within this context, elsewhere do nothing.

    Otherwise both loops take a third of their time, and most of its variance, to get pages again.
    """
    mallopt = (
        getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    )
    kept = {M_TRIM_THRESHOLD: (2**31 - 1, 2**17), M_MMAP_MAX: (0, 2**16)}
    for setting, (value, _) in kept.items() if mallopt else ():
        mallopt(setting, value)
    try:
        yield
    finally:
        for setting, (_, usual) in kept.items() if mallopt else ():
            mallopt(setting, usual)


def _learner(model: Model) -> Learner:
    data = mw.data.load_digits()
    training = mw.TrainingConfig(epochs=10, batch_size=BATCH, precision="float32")
    recipe = Recipe(model, data, training.resolve(model.training_defaults), "cpu")
    return Learner(recipe, np.arange(BATCH * STEPS) % len(data), 0)


def _at_once(name: str) -> list[Row]:
    """Train small shadow models in more and more processes on one device."""
    try:
        device = resolve_device(name)
    except ValueError as error:
        return [
            left_out(f"{MODELS} shadow models of a small network on {name}", str(error))
        ]
    kind = device.partition(":")[0]
    usual = default_processes(device)
    seconds: dict[int, float] = {}
    for processes in AT_ONCE:
        try:
            seconds[processes] = _seconds(device, processes)
        except (MemoryError, StoreError) as error:
            if not seconds:
                return [
                    left_out(
                        f"shadow models of a small network on {device}", str(error)
                    )
                ]
            break
        # more of them no longer pay
        if seconds[processes] > 1.1 * min(seconds.values()):
            break
    best = min(seconds, key=lambda processes: seconds[processes])
    return [
        Row(
            f"{MODELS} shadow models of a small network on {count_devices(kind)} × {kind}, "
            f"{processes} at once",
            f"{taken:.1f} s",
            f"{seconds[1]:.1f} s with one",
            f"{seconds[1] / taken:.2f}× as fast",
            ", ".join(_said(processes, best, usual)),
        )
        for processes, taken in seconds.items()
    ]


def _said(processes: int, best: int, usual: int) -> list[str]:
    said = {"the best, for processes= of run_shadows": best, "the default": usual}
    return [text for text, number in said.items() if number == processes]


def _seconds(device: str, processes: int) -> float:
    """Return the seconds of shadow models, with the start of their processes."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        training = mw.TrainingConfig(epochs=EPOCHS, precision="float32")
        data, path = mw.data.load_digits(), Path(folder) / "run"
        audit = mw.Audit(
            mw.models.ConvNet(), data, path=path, training=training, device=device
        )
        audit.train()
        start = time.perf_counter()
        audit.run_shadows(MODELS, processes=processes)
        return time.perf_counter() - start
