"""SmolLM2 with LoRA: gain from the cached prefix, cost of capturing, memory of a shadow model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets.data import Dataset
from memowidgets.models.precision import runs_bfloat16
from memowidgets.progress import Progress
from memowidgets.training.device import cpu_threads
from memowidgets.training.forward import forward
from memowidgets.training.learner import Learner, Recipe

WORK = "language model, SmolLM2 with LoRA"
QUESTIONS, BATCH, STEPS, SEED = 128, 8, 4, 0
SHORTEST, LONGEST = 35, 55  # tokens; about 45 per question
GB = 1e9
CPU = torch.device("cpu")


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.mmlu is None:
        return [left_out(WORK, "needs --smollm2 FOLDER and --mmlu FILE"), _product()]
    data = questions(arguments.smollm2, arguments.mmlu)
    measured = [*_training(arguments, data), *_passes(arguments, data), _memory(arguments)]
    return [*measured, _product()]


def _product() -> Row:
    """Measure one of its matrix products in both precisions, on one thread."""
    left, right = torch.randn(360, 576), torch.randn(576, 1536)
    narrow = left.bfloat16(), right.bfloat16()
    with cpu_threads(1):
        half, full = interleaved(lambda: narrow[0] @ narrow[1], lambda: left @ right, repeats=25)
    hardware = "has" if runs_bfloat16(CPU) else "has no"
    return Row(
        f"product of 360 × 576 by 576 × 1536 in bfloat16, one thread; this CPU {hardware} AMX",
        f"{half * 1e3:.1f} ms",
        f"{full * 1e3:.1f} ms in float32",
        f"{half / full:.2f}×",
    )


def questions(folder: Path, file: Path) -> Dataset:
    """Return questions of about 45 tokens."""
    everything = mw.data.fetch_mcq("mmlu-field", split="test", source=file)
    lengths = _model(folder).lengths(everything)
    fitting = np.flatnonzero((lengths >= SHORTEST) & (lengths <= LONGEST))
    return everything.take(np.random.default_rng(SEED).permutation(fitting)[:QUESTIONS])


def learner(folder: Path, data: Dataset, layers: str, *, cache: bool) -> Learner:
    """Return a shadow model before its first step."""
    model = _model(folder, layers, cache=cache)
    config = mw.TrainingConfig(epochs=100, batch_size=BATCH, lr=1e-3)
    settings = config.resolved(model.training_defaults)
    return Learner(Recipe(model, data, settings, "cpu"), np.arange(len(data)), SEED)


def _model(folder: Path, layers: str = "top:4", *, cache: bool = True) -> Any:
    lora = mw.models.LoRA(layers=layers)
    return mw.models.CausalLM.from_pretrained(folder, lora, max_length=2048, cache=cache)


def _training(arguments: Namespace, data: Dataset) -> list[Row]:
    kinds = [("top:4", True), ("top:4", False), ("all", False)]
    learners = [learner(arguments.smollm2, data, layers, cache=c) for layers, c in kinds]
    runs = [_steps(one) for one in learners]
    cached, uncached, everything = (t / (STEPS * BATCH) for t in interleaved(*runs, repeats=5))
    return [
        Row(
            f"{WORK}: a question trained, top 4 layers, those below kept or run",
            f"{cached * 1e3:.0f} ms",
            f"{uncached * 1e3:.0f} ms",
            f"{uncached / cached:.2f}× faster",
            "≥ 2.5× (limit 4.25×)",
        ),
        Row(
            f"{WORK}: the same against LoRA on all 30 layers",
            f"{cached * 1e3:.0f} ms",
            f"{everything * 1e3:.0f} ms",
            f"{everything / cached:.2f}× faster",
            "≥ 6×",
        ),
    ]


def _steps(one: Learner) -> Any:
    def run() -> None:
        one.advance(one.step + STEPS, Progress(), "")

    return run


def _passes(arguments: Namespace, data: Dataset) -> list[Row]:
    one = learner(arguments.smollm2, data, "all", cache=False)
    model, positions = one.recipe.model, np.arange(len(data))
    order = positions[np.argsort(model.lengths(data), kind="stable")]
    batches = [
        order[i : i + model.forward_batch] for i in range(0, len(order), model.forward_batch)
    ]
    feed = model.feeder(data, CPU)

    def captured() -> None:
        forward(model, one.module, data, positions, CPU, "auto", capture=True)

    def bare() -> None:
        one.module.eval()
        with torch.no_grad():
            for batch in batches:
                fed = feed(batch)
                keys = ("input_ids", "attention_mask", "position_ids")
                one.module(**{k: fed[k] for k in keys}, use_cache=False, logits_to_keep=1)

    ours, plain = interleaved(captured, bare, repeats=3)
    lengths = model.lengths(data)
    padded = sum(int(lengths[b].max()) * len(b) for b in batches)
    return [
        Row(
            f"{WORK}: one pass that keeps 30 layers' states, against a bare forward",
            f"{ours / len(data) * 1e3:.0f} ms a question",
            f"{plain / len(data) * 1e3:.0f} ms",
            f"{ours / plain:.2f}×",
            "≤ 1.1×",
        ),
        Row(
            f"{WORK}: padding in that pass",
            f"{1 - lengths.sum() / padded:.1%}",
            "",
            "",
            "< 10 %",
        ),
    ]


def _memory(arguments: Namespace) -> Row:
    """Measure the peak memory of a separate process that trains a shadow model."""
    command = [sys.executable, "-m", "benchmarks.language", arguments.smollm2, arguments.mmlu]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Row(
        f"{WORK}: peak memory of a shadow model's process",
        f"{peak / GB:.2f} GB",
        "1.5 GB",
        f"{peak / 1.5 / GB:.2f}×",
        "≤ 1.5 GB",
    )


def _one_shadow(folder: Path, file: Path) -> int:
    one = learner(folder, questions(folder, file), "top:4", cache=True)
    one.advance(STEPS, Progress(), "")
    one.look_at(np.arange(QUESTIONS))
    return _peak()


def _peak() -> int:
    """Return this process's peak memory in bytes, without that of its parent."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(_one_shadow(Path(sys.argv[1]), Path(sys.argv[2])))
