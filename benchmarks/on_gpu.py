"""What a GPU computes, and how fast: `python -m benchmarks gpu`, with --tiny on a CPU.

Each part stands alone. One that the device has no memory for is left out, and the next one runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import memowidgets as mw
from benchmarks.device import BATCH, Loops, steps
from benchmarks.measure import Namespace, Row, left_out
from memowidgets.commands.doctor import compare_device
from memowidgets.data import Dataset
from memowidgets.metrics import PSMI
from memowidgets.models import Model
from memowidgets.models.device import resolve_device, torch_device, wait_for
from memowidgets.models.tokens import word_tokenizer
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training.learner import Learner, Recipe
from memowidgets.vocabulary import first_line

LOST = (RuntimeError, MemoryError, OSError, FloatingPointError, StoreError)
HOUR, GB = 3600, 1e9
MMLU_MEMBERS, SHADOWS = 14_042 // 2, 100
SEVEN_BILLION = {
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True)
class Size:
    """How much of each part is measured."""

    width: int  # of the WideResNet
    images: int
    steps: int  # of a loop that is timed
    epochs: int
    at_once: tuple[int, ...]
    llama: dict[str, int]
    questions: int
    layers: tuple[str, ...]
    psmi: tuple[int, int, int]  # layers, samples, features


FULL = Size(
    4,
    12_000,
    7,
    30,
    (1, 4, 6),
    SEVEN_BILLION,
    400,
    ("top:8", "all"),
    (32, 10_000, 4096),
)
TINY = Size(1, 256, 1, 2, (2,), SMALL, 24, ("top:1", "all"), (2, 500, 256))


def rows(arguments: Namespace) -> list[Row]:
    """Return the rows of all parts, or say what was left out and why."""
    try:
        device = resolve_device(arguments.device or "auto")
    except ValueError as error:
        raise SystemExit(
            f"{error}; name another with --device, or try --tiny"
        ) from None
    if device == "cpu" and not arguments.tiny:
        return [
            left_out(
                "a GPU beside the CPU", "needs a GPU; --tiny tries all parts on the CPU"
            )
        ]
    size = TINY if arguments.tiny else FULL
    parts: dict[str, Callable[[], list[Row]]] = {
        "the same results as the CPU": lambda: _results(device),
        f"WideResNet 16-{size.width}": lambda: _images(size, device, arguments.cifar10),
        "PSMI of many layers": lambda: _psmi(size, device),
    }
    for layers in size.layers:
        parts[f"Llama, {layers}"] = lambda layers=layers: _llama(size, device, layers)
    return [row for name, part in parts.items() for row in _tried(name, part)]


def _tried(name: str, part: Callable[[], list[Row]]) -> list[Row]:
    """Return the rows of a part, or one that says why there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return part()
    except LOST as error:
        return [left_out(name, first_line(error))]
    finally:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _results(device: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        checks = list(compare_device(Path(folder), device))
        half = _in_bfloat16(Path(folder), device)
    return [
        Row(f"{check.what}: the CPU, and {device}", check.there, check.here, check.said)
        for check in checks
    ] + [half]


def _in_bfloat16(folder: Path, device: str) -> Row:
    """Train a small network in bfloat16, beside the same one on the CPU in float32."""
    losses = []
    for place, precision in ((device, "bfloat16"), ("cpu", "float32")):
        training = mw.TrainingConfig(epochs=3, batch_size=32, precision=precision)
        data, path = mw.data.load_digits().take(range(400)), folder / f"of-{precision}"
        audit = mw.Audit(
            mw.models.ConvNet(8),
            data,
            path=path,
            training=training,
            device=place,
            held_out=None,
        )
        audit.train()
        losses.append(f"{audit.checkpoints['train_loss'].iloc[-1]:.3f}")
    return Row("bfloat16, loss of a small network", *losses, "the CPU in float32")


def _images(size: Size, device: str, file: Path | None) -> list[Row]:
    """Train a wide residual network beside a plain loop, and shadow models at once."""
    model = mw.models.WideResNet(depth=16, width=size.width)
    data, name = mw.data.load_digits(), "digits"
    if file is not None:
        data, name = mw.data.fetch_cifar10(file), "CIFAR-10"
    data = data.take(np.random.default_rng(0).permutation(len(data))[: size.images])
    what = f"WideResNet 16-{size.width}, {len(data)} images of {name}"
    ours, bare = (
        _seconds(one, device) / size.steps for one in _loops(size, model, data, device)
    )
    found = [
        Row(
            f"{what}: a training step of {BATCH} images, against a plain loop",
            *(
                f"{taken * 1e3:.1f} ms, {BATCH / taken:.0f} images a second"
                for taken in (ours, bare)
            ),
            f"{ours / bare:.2f}×",
        )
    ]
    with _audited(model, data, device, size.epochs) as audit:
        trained = _timed(audit.train, device)
        found.append(
            Row(f"{what}: training for {size.epochs} epochs", f"{trained:.1f} s")
        )
        for processes in size.at_once:
            n = 2 * processes
            more = audit.n_shadows + n
            taken = _timed(
                lambda n=more, at=processes: audit.run_shadows(n, processes=at), device
            )
            rate = f"{n / taken * HOUR:.0f} an hour"
            found.append(Row(f"{what}: shadow models, {processes} at once", rate))
    return found


def _loops(size: Size, model: Model, data: Dataset, device: str) -> Loops:
    settings = mw.TrainingConfig(epochs=10, batch_size=BATCH).resolve(
        model.training_defaults
    )
    members = np.arange(size.steps * BATCH) % len(data)
    return steps(Learner(Recipe(model, data, settings, device), members, 0))


def _llama(size: Size, device: str, layers: str) -> list[Row]:
    """Train adapters of a Llama with random weights: what it costs, not what it learns."""
    data = mw.data.make_mcqs(size.questions, seed=0)
    net, tokenizer = _random_llama(size.llama, data, device)
    billions = sum(weights.numel() for weights in net.parameters()) / 1e9
    what = f"Llama of {billions:.2g} billion random weights, LoRA on {layers}"
    model = mw.models.CausalLM.from_model(
        net, tokenizer, lora=mw.models.LoRA(layers=layers)
    )
    _forget_peak()
    with _audited(model, data, device, 1, batch_size=4, precision="bfloat16") as audit:
        trained = _timed(audit.train, device)
        learner = Learner(audit.run.recipe(), audit.run.design.members, 0)
        step = _seconds(
            lambda: learner.advance(learner.step + 1, Progress(), ""), device
        )
        one = _seconds(lambda: learner.look_at(learner.members), device) / len(
            learner.members
        )
        peak = _peak()
        with ThreadPoolExecutor(1) as thread:
            shadow = _timed(lambda: audit.run_shadows(1, thread), device)
    mmlu = MMLU_MEMBERS / 4 * step + 2 * MMLU_MEMBERS * one
    return [
        Row(f"{what}: peak memory of the device", peak),
        Row(f"{what}: training, with its checkpoints", f"{trained:.1f} s"),
        Row(f"{what}: a step on 4 questions", f"{step * 1e3:.0f} ms"),
        Row(f"{what}: a pass, each question", f"{one * 1e3:.1f} ms"),
        Row(f"{what}: a shadow model of {size.questions} questions", f"{shadow:.1f} s"),
        Row(
            f"{what}: {SHADOWS} shadow models on MMLU, one epoch and a pass, reckoned from these",
            f"{SHADOWS * mmlu / HOUR:.1f} h",
        ),
    ]


def _random_llama(shape: dict[str, int], data: Dataset, device: str) -> tuple[Any, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = word_tokenizer(data)
    config = LlamaConfig(
        vocab_size=max(32_000, len(tokenizer)),
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        **shape,
    )
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(device):  # which draws seven billion numbers at once
            return LlamaForCausalLM(config).eval().to("cpu"), tokenizer
    finally:
        torch.set_default_dtype(torch.float32)


def _psmi(size: Size, device: str) -> list[Row]:
    layers, n, d = size.psmi
    y, on = np.arange(n) % 4, torch_device(device)
    states = torch.randn(n, d, generator=torch.Generator().manual_seed(0))
    states += (
        0.1
        * torch.randn(4, d, generator=torch.Generator().manual_seed(1))[torch.tensor(y)]
    )
    there = states.to(on)
    theta = torch.randn(PSMI().fit(there, y).n_directions_, d).to(on)

    def score(x: Any) -> Any:
        return PSMI().fit(x, y).score_samples(x, y)

    ours, here = (
        _seconds(lambda: score(there), device),
        _seconds(lambda: score(states), "cpu"),
    )
    bare = _seconds(lambda: there @ theta.T, device)
    off = float(np.abs(score(there) - score(states)).max())
    what = f"PSMI of {n} × {d}, 4 classes"
    return [
        Row(
            f"{what}, {layers} layers, against the CPU",
            f"{layers * ours:.2f} s",
            f"{layers * here:.1f} s",
            f"{here / ours:.1f}× as fast; off by {off:.1g}",
        ),
        Row(
            f"{what}, a layer, against the bare product with its {len(theta)} directions",
            f"{ours * 1e3:.0f} ms",
            f"{bare * 1e3:.2f} ms",
            f"{ours / bare:.0f}×",
        ),
    ]


@contextmanager
def _audited(
    model: Model, data: Dataset, device: str, epochs: int, **training: Any
) -> Iterator[mw.Audit]:
    settings = mw.TrainingConfig(epochs=epochs, checkpoint_every=epochs / 2, **training)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield mw.Audit(
            model, data, path=Path(folder) / "run", training=settings, device=device
        )


def _timed(work: Callable[[], object], device: str) -> float:
    """Return the seconds until the device has done the work."""
    wait_for(torch_device(device))
    start = time.perf_counter()
    work()
    wait_for(torch_device(device))
    return time.perf_counter() - start


def _seconds(work: Callable[[], object], device: str) -> float:
    """Return the median seconds of three runs, after one that warms up."""
    return statistics.median([_timed(work, device) for _ in range(4)][1:])


def _forget_peak() -> None:
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def _peak() -> str:
    if not torch.cuda.is_available():
        return "not measured on a CPU"
    return f"{torch.cuda.max_memory_allocated() / GB:.1f} GB"
