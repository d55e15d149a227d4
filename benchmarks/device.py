"""A device: the overhead of going through it on the CPU, and how many shadow models at once pay.

The first user of a GPU runs `python -m benchmarks device --device cuda`.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.stats
import torch
from numpy.typing import NDArray

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.device import count_devices, resolve_device
from memowidgets.training.engine.workers import default_processes
from memowidgets.training.learner import Learner, Recipe

STEPS, BATCH, WARM, PAIRS = 7, 256, 5, 200
MODELS, EPOCHS = 8, 10
AT_ONCE = (1, 2, 4, 8, 16)


def rows(arguments: Namespace) -> list[Row]:
    device = resolve_device(arguments.device or "auto")
    return [_step(), _pass(), *_at_once(device)]


def _step() -> Row:
    """Compare training steps with a plain loop over the same network, batches and optimizer.

    Two networks would differ by where they lie in memory, by more than what is measured.
    """
    learner = _learner()
    optimizer = learner._optimizer  # noqa: SLF001
    rng = np.random.default_rng(0)

    def ours() -> None:
        learner.step = 0
        learner.advance(STEPS, Progress(), "training")

    def bare() -> None:
        learner.module.train()
        for batch in rng.permutation(learner.members).reshape(-1, BATCH):
            optimizer.zero_grad(set_to_none=True)
            _losses(learner, batch)[1].mean().backward()
            optimizer.step()

    what = f"a training step of a small network on the CPU, batch {BATCH}"
    return _overhead(what, ours, bare, STEPS)


def _pass() -> Row:
    """Compare a pass with a plain loop that keeps its logits and losses."""
    learner = _learner()
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

    what = f"a pass of a small network over {len(learner.members)} samples on the CPU"
    return _overhead(what, ours, bare, 1)


def _losses(learner: Learner, batch: NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    labels = learner._labels[torch.from_numpy(batch)]  # noqa: SLF001
    inputs = learner._feed(batch)  # noqa: SLF001
    return learner.recipe.model.outputs(learner.module, inputs, labels)


def _overhead(what: str, ours: Callable[[], None], bare: Callable[[], None], parts: int) -> Row:
    """Return the median of the ratios of neighbouring runs, with its 95 % interval."""
    pairs = np.array([_pair(ours, bare, first=i % 2) for i in range(WARM + PAIRS)])[WARM:]
    ratios = np.sort(pairs[:, 0] / pairs[:, 1])
    ranks = scipy.stats.binom.interval(0.95, PAIRS, 0.5)  # of order statistics about the median
    low, high = (ratios[int(rank)] for rank in ranks)
    one, other = (f"{taken / parts * 1e3:.2f} ms" for taken in np.median(pairs, axis=0))
    return Row(
        f"{what}, against a plain loop (processor time, {PAIRS} pairs)",
        one,
        other,
        f"{np.median(ratios):.3f}× ({low:.3f} to {high:.3f})",
        "≤ 1.02×",
    )


def _pair(ours: Callable[[], None], bare: Callable[[], None], *, first: int) -> tuple[float, float]:
    """Return the processor time of both, which other programs change little, in either order."""
    taken = [0.0, 0.0]
    for i in (first, 1 - first):
        start = time.process_time()
        (ours, bare)[i]()
        taken[i] = time.process_time() - start
    return taken[0], taken[1]


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
