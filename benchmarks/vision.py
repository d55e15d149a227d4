"""Images: our training loop against a bare one, precision, capturing, loading and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets.models.device import resolve_device, runs_bfloat16
from memowidgets.progress import Progress
from memowidgets.training.config import Settings
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.worker import JobFile

_BATCHES = 6
_IMAGES = 50_000
_MIB = 2**20


def rows(arguments: Namespace) -> list[Row]:
    device = resolve_device("auto")
    width = 4 if device != "cpu" else 1
    found = [
        _throughput(device, width, "float32"),
        _precision(device),
        _compiled(device, width),
        _capture(device, 4),
        _memory(),
    ]
    return [*found, _loading(getattr(arguments, "cifar10", None))]


def _throughput(device: str, width: int, precision: str) -> Row:
    recipe = _recipe(width, precision, device)
    ours, bare = _ours(recipe), _bare(recipe)
    seconds, other = interleaved(ours, bare, repeats=5)
    count = _BATCHES * recipe.settings.batch_size
    return Row(
        f"training WRN16-{width}, {precision}, on {device}, in one process",
        f"{count / seconds:.0f} images/s",
        f"{count / other:.0f} images/s, a bare PyTorch loop",
        f"{other / seconds:.2f}×",
        "≥ 0.95×",
    )


def _precision(device: str) -> Row:
    work = f"training WRN16-4 in bfloat16 instead of float32, on {device}"
    if not runs_bfloat16(torch.device(device)):
        return left_out(work, "this machine has no instructions for it")
    slow, fast = (
        _ours(_recipe(4, precision, device)) for precision in ("float32", "bfloat16")
    )
    seconds, other = interleaved(fast, slow, repeats=2)
    count = _BATCHES * 64
    return Row(
        work,
        f"{count / seconds:.0f} images/s",
        f"{count / other:.0f} images/s",
        f"{other / seconds:.2f}×",
        "≥ 1.8× where the hardware has it",
    )


def _compiled(device: str, width: int) -> Row:
    """Measure the gain of `torch.compile`, which is not used, see docs/measurements.md."""
    recipe = _recipe(width, "float32", device)
    compiled, bare = _bare(recipe, compiled=True), _bare(recipe)
    start = time.perf_counter()
    compiled()
    first = time.perf_counter() - start
    seconds, other = interleaved(compiled, bare, repeats=5)
    count = _BATCHES * recipe.settings.batch_size
    return Row(
        f"a bare loop with torch.compile, WRN16-{width}, float32, on {device}; the first "
        f"{_BATCHES} batches took {first:.0f} s",
        f"{count / seconds:.0f} images/s",
        f"{count / other:.0f} images/s without",
        f"{other / seconds:.2f}×",
    )


def _capture(device: str, width: int) -> Row:
    recipe = _recipe(width, "float32", device)
    model, module = recipe.model, _learner(recipe).module.eval()
    batch = model.feeder(recipe.data, torch.device(device))(np.arange(64))

    def plain() -> None:
        with torch.no_grad():
            module(batch)
        _wait(device)

    def captured() -> None:
        with torch.no_grad(), model.capture_layers(module):
            module(batch)
        _wait(device)

    seconds, other = interleaved(captured, plain, repeats=5)
    return Row(
        f"forward pass of WRN16-{width} with all {len(model.layer_names(module))} layers, pooled",
        f"{seconds * 1e3:.0f} ms",
        f"{other * 1e3:.0f} ms, a bare forward pass",
        f"{seconds / other:.2f}×",
        "≤ 1.1×",
    )


def _memory() -> Row:
    """Measure the private memory of two processes that map the same images."""
    work = (
        f"{_IMAGES} images of 32×32×3 in two processes: private memory of each for them"
    )
    if not Path("/proc/self/smaps_rollup").exists():
        return left_out(work, "this system gives no account of shared memory")
    images = np.zeros((_IMAGES, 32, 32, 3), np.uint8)
    images[:, 0, 0, 0] = np.arange(_IMAGES) % 251
    data = mw.data.ImageDataset.from_arrays(images, np.arange(_IMAGES) % 10)
    with tempfile.TemporaryDirectory() as folder:
        sent = JobFile.write(cast("Any", data), folder)
        os.sync()  # unwritten pages of a file count as private
        command = [sys.executable, "-c", _CHILD, json.dumps([sent.path, sent.places])]
        children = [
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        private = [int(child.communicate("go\n")[0]) for child in children]
    worst, whole = max(private) / _MIB, images.nbytes / _MIB
    return Row(
        work,
        f"{worst:.1f} MiB",
        f"{whole:.0f} MiB, a copy",
        f"{worst / whole:.2f}×",
        "one copy",
    )


_CHILD = """
import json, re, sys
from memowidgets.training.worker import JobFile
def private():
    text = open('/proc/self/smaps_rollup').read()
    return sum(int(n) for n in re.findall(r'Private_Dirty: +(\\d+) kB', text)) * 1024
import numpy as np
data = JobFile(*json.loads(sys.argv[1])).read()
data.images[:1].sum()
before = private()
np.add.reduce(data.images, axis=None)
print(private() - before, flush=True)
sys.stdin.readline()
"""


def _loading(path: Path | None) -> Row:
    work = "reading and decoding CIFAR-10's 50 000 training images, once for all models"
    if path is None:
        return left_out(work, "give --cifar10")
    start = time.perf_counter()
    data = mw.data.fetch_cifar10(path)
    seconds = time.perf_counter() - start
    ours = _ours(_recipe(1, "auto", "cpu"))
    start = time.perf_counter()
    ours()
    rate = _BATCHES * 64 / (time.perf_counter() - start)
    shadow = 25 * len(data) / 2 / rate
    return Row(
        work,
        f"{seconds:.1f} s",
        f"{shadow:.0f} s, a WRN16-1 on half of them for 25 epochs",
        f"{seconds / shadow:.3f}×",
        "≤ 0.05×",
    )


def _recipe(width: int, precision: str, device: str) -> Recipe:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(1024, 32, 32, 3)).astype(np.uint8)
    data = mw.data.ImageDataset.from_arrays(images, np.arange(1024) % 10)
    model = mw.models.WideResNet(16, width, pool=4)
    settings = mw.TrainingConfig(precision=precision).resolve(model.training_defaults)
    return Recipe(model, data, settings, device)


def _learner(recipe: Recipe) -> Learner:
    return Learner(recipe, np.arange(len(recipe.data)), 0)


def _ours(recipe: Recipe) -> Any:
    learner = _learner(recipe)

    def work() -> None:
        learner.advance(learner.step + _BATCHES, Progress(), "training")
        _wait(recipe.device)

    return work


def _bare(recipe: Recipe, *, compiled: bool = False) -> Any:
    """Return a bare training loop on float images that are ready."""
    settings: Settings = recipe.settings
    device = torch.device(recipe.device)
    module: Any = _learner(recipe).module
    images: Any = recipe.data
    pixels = torch.from_numpy(images.images).permute(0, 3, 1, 2).to(device)
    inputs = ((pixels.float() / 255 - 0.5) / 0.25).contiguous(
        memory_format=torch.channels_last
    )
    labels = torch.from_numpy(recipe.data.labels).to(device)
    optimizer = torch.optim.SGD(
        module.parameters(),
        lr=settings.lr,
        momentum=0.9,
        weight_decay=settings.weight_decay,
    )
    if compiled:
        module = torch.compile(module)
    size = settings.batch_size
    autocast = partial(recipe.model.autocast, device, settings.precision)

    def work() -> None:
        for start in range(0, _BATCHES * size, size):
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                logits = module(inputs[start : start + size])
            torch.nn.functional.cross_entropy(
                logits.float(), labels[start : start + size]
            ).backward()
            optimizer.step()
        _wait(recipe.device)

    return work


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for row in rows(
        Namespace(cifar10=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
    ):
        print(row)
