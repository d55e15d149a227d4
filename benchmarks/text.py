"""SmolLM2 with a classification head on Banking77: padding, and the gain from the cached prefix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved, left_out
from memowidgets.data import Dataset
from memowidgets.progress import Progress
from memowidgets.training.batches import epoch_order
from memowidgets.training.device import cpu_threads
from memowidgets.training.learner import Learner, Recipe

WORK = "text classifier, SmolLM2 with LoRA on Banking77"
MEMBERS, BATCH, SEED = 3000, 16, 0
TRAINED = 128  # messages of an epoch whose time is taken


def rows(arguments: Namespace) -> list[Row]:
    if arguments.smollm2 is None or arguments.banking77 is None:
        return [left_out(WORK, "needs --smollm2 FOLDER and --banking77 FILE")]
    everything = mw.data.TextDataset.from_csv(arguments.banking77, text="text", label="category")
    order = np.random.default_rng(SEED).permutation(len(everything))
    return [
        *_padding(arguments.smollm2, everything.take(order[:MEMBERS])),
        _epochs(arguments.smollm2, everything.take(order[:TRAINED])),
    ]


def _model(folder: Path, *, cache: bool = True) -> mw.models.SequenceClassifier:
    lora = mw.models.LoRA(layers="top:4")
    return mw.models.SequenceClassifier.from_pretrained(folder, lora, cache=cache)


def _padding(folder: Path, data: Dataset) -> list[Row]:
    """Measure the padding of an epoch, and of one whose batches are drawn at random."""
    lengths, members = _model(folder).lengths(data), np.arange(len(data))
    shares = [
        _share(lengths, epoch_order(members, known, BATCH, np.random.default_rng(SEED)))
        for known in (lengths, None)
    ]
    return [
        Row(
            f"{WORK}: padding in an epoch of {len(data)} messages, batches of {BATCH}",
            f"{shares[0]:.1%}",
            f"{shares[1]:.1%} in random batches",
            "",
            "< 10 %",
        )
    ]


def _share(lengths: np.ndarray, order: np.ndarray) -> float:
    batches = [lengths[order[i : i + BATCH]] for i in range(0, len(order), BATCH)]
    return 1 - lengths.sum() / sum(int(batch.max()) * len(batch) for batch in batches)


def _epochs(folder: Path, data: Dataset) -> Row:
    """Measure an epoch of a shadow model on one thread, which is what a worker has."""
    models = [_model(folder, cache=cache) for cache in (True, False)]
    with cpu_threads(1):
        cached, uncached = interleaved(*(_epoch(model, data) for model in models), repeats=5)
    return Row(
        f"{WORK}: a message trained on one thread, top 4 layers, those below kept or run",
        f"{cached / len(data) * 1e3:.0f} ms",
        f"{uncached / len(data) * 1e3:.0f} ms",
        f"{uncached / cached:.2f}× faster",
        "≥ 2.5×",
    )


def _epoch(model: mw.models.SequenceClassifier, data: Dataset) -> Callable[[], None]:
    """Return a function that trains one more epoch, the same batches each time."""
    settings = mw.TrainingConfig(epochs=1000, batch_size=BATCH).resolved(model.training_defaults)
    one = Learner(Recipe(model, data, settings, "cpu"), np.arange(len(data)), SEED)
    steps = settings.steps_per_epoch(len(data))

    def run() -> None:
        one.advance(steps, Progress(), "")
        one.step = 0

    return run
