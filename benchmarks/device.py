"""A device: the overhead of going through it on the CPU, and how many shadow models at once pay.

The first user of a GPU runs `python -m benchmarks device --device cuda`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.device import count_devices, resolve_device
from memowidgets.training.engine.workers import default_processes
from memowidgets.training.learner import Learner, Recipe, _optimizer

STEPS, BATCH, REPEATS = 7, 256, 25
MODELS, EPOCHS = 8, 10
AT_ONCE = (1, 2, 4, 8, 16)


def rows(arguments: Namespace) -> list[Row]:
    device = resolve_device(arguments.device or "auto")
    return [_overhead(), *_at_once(device)]


def _overhead() -> Row:
    """Compare training steps with a plain loop over the same network, batches and optimizer."""
    learner, plain = _learner(), _learner()
    optimizer = _optimizer(plain.module, plain.recipe.settings)
    rng = np.random.default_rng(0)

    def ours() -> None:
        learner.step = 0
        learner.advance(STEPS, Progress(), "training")

    def bare() -> None:
        plain.module.train()
        for batch in rng.permutation(plain.members).reshape(-1, BATCH):
            optimizer.zero_grad(set_to_none=True)
            labels = plain._labels[torch.from_numpy(batch)]  # noqa: SLF001
            inputs = plain._feed(batch)  # noqa: SLF001
            _, losses = plain.recipe.model.outputs(plain.module, inputs, labels)
            losses.mean().backward()
            optimizer.step()

    through, alone = _processor_seconds(ours, bare)
    return Row(
        f"a training step of a small network on the CPU, batch {BATCH}, against a plain loop "
        "(processor time)",
        f"{through / STEPS * 1e3:.2f} ms",
        f"{alone / STEPS * 1e3:.2f} ms",
        f"{through / alone:.3f}×",
        "≤ 1.02×",
    )


def _processor_seconds(*functions: Callable[[], None]) -> list[float]:
    """Return the median processor time of each function, which other programs do not change."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS):
        for function, kept in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            kept.append(time.process_time() - start)
    return [statistics.median(kept) for kept in times]


def _learner() -> Learner:
    data, model = mw.data.load_digits(), mw.models.ConvNet(32)
    training = mw.TrainingConfig(epochs=10, batch_size=BATCH, precision="float32")
    recipe = Recipe(model, data, training.resolved(model.training_defaults), "cpu")
    return Learner(recipe, np.arange(BATCH * STEPS) % len(data), 0)


def _at_once(device: str) -> list[Row]:
    """Train small shadow models in more and more processes on one device."""
    kind = device.partition(":")[0]
    usual = default_processes(device)
    seconds: dict[int, float] = {}
    for processes in AT_ONCE:
        try:
            seconds[processes] = _seconds(device, processes)
        except (MemoryError, StoreError):
            break
        if seconds[processes] > 1.1 * min(seconds.values()):  # more of them no longer pay
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
        audit = mw.Audit(mw.models.ConvNet(), data, path=path, training=training, device=device)
        audit.train()
        start = time.perf_counter()
        audit.run_shadows(MODELS, processes=processes)
        return time.perf_counter() - start
