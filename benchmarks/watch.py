"""What a recorded checkpoint of somebody else's training costs, against a plain forward pass."""

from __future__ import annotations

import contextlib
import io
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved

TURNS = 3
BATCH = 50
IMAGES, MORE_IMAGES, LARGE_IMAGES, TEXTS = 300, 1500, 100, 500
GOAL = "≤ 1.05×"


def rows(_arguments: Namespace) -> list[Row]:
    """Measure checkpoints of mw.watch and of the callback, in float32."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        place = Path(folder)
        return [
            _smallest(place),
            _watched_images(place, IMAGES),
            _watched_images(place, MORE_IMAGES),
            _watched_large_images(place),
            _watched_tokens(place),
            _called_back(place),
        ]


def _smallest(folder: Path) -> Row:
    """300 samples of 16 numbers: next to no pass, so what a checkpoint costs beside it shows."""
    torch.manual_seed(0)
    labels = torch.arange(300) % 2
    data = TensorDataset(torch.randn(300, 16) + labels[:, None], labels)
    module = nn.Sequential(
        nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    watch = mw.watch(
        module, data, folder / "small", 1, checkpoint_every=1, stop_at_drop=None
    )
    (seconds,) = interleaved(watch.step, repeats=10 * TURNS)
    what = "watch: a checkpoint, 300 samples of 16 numbers, three linear layers"
    return Row(
        what,
        f"{1000 * seconds:.1f} ms",
        "100 ms before",
        f"{seconds / 0.1:.2f}×",
        "≤ .5×",
    )


def _row(what: str, ours: float, plain: float) -> Row:
    return Row(
        what,
        f"{ours:.2f} s",
        f"{plain:.2f} s for a plain pass",
        f"{ours / plain:.3f}×",
        GOAL,
    )


def _watched_images(folder: Path, n: int) -> Row:
    """Images of 32×32 in a network of 16 layers: with few, what each checkpoint costs shows."""
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(n, 3, 32, 32), torch.arange(n) % 10)
    digits = mw.data.ImageDataset.from_arrays(np.zeros((10, 32, 32, 3)), np.arange(10))
    module = mw.models.WideResNet(depth=16, width=2).build(digits)
    ours, plain = _watched(
        module, data, folder / f"{n}-images", lambda inputs: module(inputs[0])
    )
    return _row(f"watch: a checkpoint, {n} images, WideResNet-16-2", ours, plain)


def _watched_large_images(folder: Path) -> Row:
    """100 images of 224×224 in a ResNet-18, as people fine-tune it."""
    from transformers import AutoConfig, AutoModelForImageClassification

    torch.manual_seed(0)
    data = TensorDataset(
        torch.rand(LARGE_IMAGES, 3, 224, 224), torch.arange(LARGE_IMAGES) % 10
    )
    config = AutoConfig.for_model(
        "resnet",
        layer_type="basic",
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        num_labels=10,
    )
    module: nn.Module = AutoModelForImageClassification.from_config(config)  # type: ignore[no-untyped-call]
    ours, plain = _watched(
        module, data, folder / "large", lambda inputs: module(inputs[0])
    )
    return _row("watch: a checkpoint, 100 images of 224×224, ResNet-18", ours, plain)


def _watched_tokens(folder: Path) -> Row:
    """500 texts of 64 tokens in a transformer of 6 blocks."""
    torch.manual_seed(0)
    module = _transformer()
    tokens = torch.randint(1, 1000, (TEXTS, 64))
    data = TensorDataset(tokens, torch.arange(TEXTS) % 10)
    ours, plain = _watched(
        module, data, folder / "tokens", lambda inputs: module(inputs[0])
    )
    return _row(
        "watch: a checkpoint, 500 texts of 64 tokens, BERT of 6 blocks", ours, plain
    )


def _watched(
    module: nn.Module, data: TensorDataset, path: Path, run: Callable[[Any], Any]
) -> tuple[float, float]:
    """Return the seconds of a checkpoint, its weights changed before, and of a plain pass."""
    watch = mw.watch(module, data, path, 1, checkpoint_every=1, batch_size=BATCH)
    loader = DataLoader(data, batch_size=BATCH)

    def plain() -> None:
        module.eval()
        with torch.no_grad():
            for inputs in loader:
                run(inputs)

    ours, theirs = interleaved(watch.step, plain, repeats=TURNS)
    return ours, theirs


def _transformer() -> nn.Module:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    config = AutoConfig.for_model(
        "bert",
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=1024,
        num_labels=10,
    )
    made: nn.Module = AutoModelForSequenceClassification.from_config(config)
    return made


def _called_back(folder: Path) -> Row:
    """1000 texts in the same transformer, as the callback records them."""
    from memowidgets.models.tokens import tokenizer_of_words
    from memowidgets.progress import Progress

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(900)]
    texts = [" ".join(rng.choice(words, size=62)) for _ in range(2 * TEXTS)]
    data = mw.data.TextDataset.from_texts(texts, np.arange(2 * TEXTS) % 10)
    tokenizer, module = tokenizer_of_words(texts), _transformer()
    model = mw.models.SequenceClassifier.from_model(module, tokenizer)
    audit = mw.Audit(model, data, folder / "called", members="all", held_out=None)
    recorder = audit.recorder()
    recorder.follow(module, 1, 1000)
    recorder.start(module, 0)
    feed, steps = model.feeder(data, torch.device("cpu")), itertools.count()
    names = ("input_ids", "attention_mask")

    def ours() -> None:
        with torch.no_grad():
            # else it is the checkpoint that there is
            next(module.parameters()).add_(1e-6)
        recorder.record(module, next(steps), Progress())

    def plain() -> None:
        module.eval()
        with torch.no_grad():
            for start in range(0, len(data), model.forward_batch):
                inputs = feed(
                    np.arange(start, min(start + model.forward_batch, len(data)))
                )
                module(**{name: inputs[name] for name in names})

    seconds = interleaved(ours, plain, repeats=TURNS)
    return _row(
        "callback: a checkpoint, 1000 texts of 62 tokens, BERT of 6 blocks", *seconds
    )
