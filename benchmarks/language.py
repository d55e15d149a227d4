"""Language models: SmolLM2 with LoRA and with a head, a 7 B-shaped one, a small one from scratch.

What is measured is the gain from the cached prefix, the cost of capturing, padding, and the memory
of a shadow model.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets.data import Dataset
from memowidgets.models.device import cpu_threads, runs_bfloat16
from memowidgets.progress import Progress
from memowidgets.training.checkpoint import forward
from memowidgets.training.learner import Learner, Recipe, epoch_order

WORK = "language model, SmolLM2 with LoRA"
QUESTIONS, BATCH, STEPS, SEED = 128, 8, 4, 0
SHORTEST, LONGEST = 35, 55  # tokens; about 45 per question
GB = 1e9
CPU = torch.device("cpu")


def language(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.mmlu is None:
        return [left_out(WORK, "needs --smollm2 FOLDER and --mmlu FILE"), _product()]
    data = questions(arguments.smollm2, arguments.mmlu)
    measured = [
        *_training(arguments, data),
        *_passes(arguments, data),
        _memory(arguments),
    ]
    return [*measured, _product()]


def _product() -> Row:
    """Measure one of its matrix products in both precisions, on one thread."""
    left, right = torch.randn(360, 576), torch.randn(576, 1536)
    narrow = left.bfloat16(), right.bfloat16()
    with cpu_threads(1):
        half, full = interleaved(
            lambda: narrow[0] @ narrow[1], lambda: left @ right, repeats=25
        )
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
    settings = config.resolve(model.training_defaults)
    return Learner(Recipe(model, data, settings, "cpu"), np.arange(len(data)), SEED)


def _model(folder: Path, layers: str = "top:4", *, cache: bool = True) -> Any:
    lora = mw.models.LoRA(layers=layers)
    return mw.models.CausalLM.from_pretrained(
        folder, lora, max_length=2048, cache=cache
    )


def _training(arguments: Namespace, data: Dataset) -> list[Row]:
    kinds = [("top:4", True), ("top:4", False), ("all", False)]
    learners = [
        learner(arguments.smollm2, data, layers, cache=c) for layers, c in kinds
    ]
    runs = [_steps(one) for one in learners]
    cached, uncached, everything = (
        t / (STEPS * BATCH) for t in interleaved(*runs, repeats=5)
    )
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
        order[i : i + model.forward_batch]
        for i in range(0, len(order), model.forward_batch)
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
                one.module(
                    **{k: fed[k] for k in keys}, use_cache=False, logits_to_keep=1
                )

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
    command = [
        sys.executable,
        "-m",
        "benchmarks.language",
        arguments.smollm2,
        arguments.mmlu,
    ]
    peak = int(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
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


TEXT_WORK = "text classifier, SmolLM2 with LoRA on Banking77"
MEMBERS, TEXT_BATCH = 3000, 16
TRAINED = 128  # messages of an epoch whose time is taken


def text(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.banking77 is None:
        return [left_out(TEXT_WORK, "needs --smollm2 FOLDER and --banking77 FILE")]
    everything = mw.data.TextDataset.from_csv(
        arguments.banking77, text="text", label="category"
    )
    order = np.random.default_rng(SEED).permutation(len(everything))
    return [
        *_padding(arguments.smollm2, everything.take(order[:MEMBERS])),
        _epochs(arguments.smollm2, everything.take(order[:TRAINED])),
    ]


def _text_model(folder: Path, *, cache: bool = True) -> mw.models.SequenceClassifier:
    lora = mw.models.LoRA(layers="top:4")
    return mw.models.SequenceClassifier.from_pretrained(folder, lora, cache=cache)


def _padding(folder: Path, data: Dataset) -> list[Row]:
    """Measure the padding of an epoch, and of one whose batches are drawn at random."""
    lengths, members = _text_model(folder).lengths(data), np.arange(len(data))
    shares = [
        _share(
            lengths,
            epoch_order(members, known, TEXT_BATCH, np.random.default_rng(SEED)),
        )
        for known in (lengths, None)
    ]
    return [
        Row(
            f"{TEXT_WORK}: padding in an epoch of {len(data)} messages, batches of {TEXT_BATCH}",
            f"{shares[0]:.1%}",
            f"{shares[1]:.1%} in random batches",
            "",
            "< 10 %",
        )
    ]


def _share(lengths: np.ndarray, order: np.ndarray) -> float:
    batches = [
        lengths[order[i : i + TEXT_BATCH]] for i in range(0, len(order), TEXT_BATCH)
    ]
    return 1 - lengths.sum() / sum(int(batch.max()) * len(batch) for batch in batches)


def _epochs(folder: Path, data: Dataset) -> Row:
    """Measure an epoch of a shadow model on one thread, which is what a worker has."""
    models = [_text_model(folder, cache=cache) for cache in (True, False)]
    with cpu_threads(1):
        cached, uncached = interleaved(
            *(_epoch(model, data) for model in models), repeats=5
        )
    return Row(
        f"{TEXT_WORK}: a message trained on one thread, top 4 layers, those below kept or run",
        f"{cached / len(data) * 1e3:.0f} ms",
        f"{uncached / len(data) * 1e3:.0f} ms",
        f"{uncached / cached:.2f}× faster",
        "≥ 2.5×",
    )


def _epoch(model: mw.models.SequenceClassifier, data: Dataset) -> Callable[[], None]:
    """Return a function that trains one more epoch, the same batches each time."""
    settings = mw.TrainingConfig(epochs=1000, batch_size=TEXT_BATCH).resolve(
        model.training_defaults
    )
    one = Learner(Recipe(model, data, settings, "cpu"), np.arange(len(data)), SEED)
    steps = settings.steps_per_epoch(len(data))

    def run() -> None:
        one.advance(steps, Progress(), "")
        one.step = 0

    return run


SEEDS, GENERATED, SHADOWS = range(3), 1200, 16


def wards(_arguments: Namespace) -> list[Row]:
    return [row for seed in SEEDS for row in _one_seed(seed)]


def _one_seed(seed: int) -> list[Row]:
    data = mw.data.make_mcqs(GENERATED, seed=seed)
    with tempfile.TemporaryDirectory() as path, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the rows have what it says
        audit = mw.Audit(
            mw.models.CausalLM.from_scratch(data), data, path=path, seed=seed
        )
        audit.train()
        audit.run_shadows(SHADOWS)
        found, accuracy = audit.evaluate("psmi"), audit.checkpoints["test_accuracy"]
        point, prediction = found.at(0.0), audit.prediction
    setting = (
        f"make_mcqs({GENERATED}), from_scratch, {SHADOWS} shadow models, seed {seed}"
    )
    at_rho = f"{prediction.record.name}, drop {prediction.drop:.3f}"
    low, high = found.auc_interval
    return [
        Row(
            f"{setting}: held-out accuracy at the end (at ρ)",
            f"{accuracy.iloc[-1]:.3f} ({prediction.record.test_accuracy:.3f})",
            goal="≥ .85",
        ),
        Row(
            f"{setting}: members memorised",
            f"{found.n_memorized} of {found.n}",
            goal="≥ 12",
        ),
        Row(
            f"{setting}: AUC of PSMI at ρ ({at_rho})",
            f"{found.auc:.3f} ({low:.3f} to {high:.3f})",
            goal="lower bound > .75",
        ),
        Row(
            f"{setting}: τ = 0",
            f"TPR {point.tpr:.2f}, FPR {point.fpr:.3f}",
        ),
    ]


if __name__ == "__main__":
    print(_one_shadow(Path(sys.argv[1]), Path(sys.argv[2])))
