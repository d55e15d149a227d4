"""Two scripts of a user's, the whole way: a loop on pictures, and a Trainer on generated notes.

    python -m benchmarks whole-way --cifar10 PATH

Each is a function of its rows. It is flagged, judged by shadow models, cleaned and judged again, as
`docs/measurements.md` shows. All seeds are fixed. With ``--runs FOLDER`` the runs and reports stay
in a folder, and a second call goes on from them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy, relu
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw
from benchmarks.cleaning import in_words, others
from benchmarks.confirm import markdown
from benchmarks.measure import Namespace, Row, left_out
from memowidgets.data import Dataset, ImageDataset, TextDataset

SHADOWS = 20  # a count for each model takes nine others on each side of a sample
PICTURES = 800
NOTES = 600
WRONG = 0.06  # share of the labels that are planted
SHARE = 0.1  # what is removed

Fit = Callable[[NDArray[np.int64], Any, int], None]


def rows(arguments: Namespace) -> list[Row]:
    """Print the tables; nothing of them is in the table of performance."""
    if arguments.cifar10 is None:
        return [left_out("whole-way", "--cifar10 names no folder or zip file")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.runs or Path(temporary)
        pictures = some_pictures(arguments.cifar10)
        notes = some_notes()
        train_set = as_pairs(pictures)
        loop = resnet_loop(train_set, len(pictures.class_names))
        trainer = trainer_script(notes)
        _show("a loop", loop, train_set, pictures, folder / "loop")
        _show("a Trainer", trainer, notes, notes, folder / "trainer")
    return []


def some_pictures(path: Path) -> ImageDataset:
    """Return pictures of four classes of CIFAR-10, some with a wrong label."""
    every = mw.data.fetch_cifar10(path)
    chosen = [np.flatnonzero(every.labels == i)[: PICTURES // 4] for i in (0, 1, 2, 7)]
    order = np.random.default_rng(0).permutation(np.concatenate(chosen))
    some = every.take(order)
    names = ["airplane", "automobile", "bird", "horse"]
    labels = np.searchsorted([0, 1, 2, 7], some.labels)
    data = ImageDataset.from_arrays(some.images, labels, names)
    return data.with_canaries(round(WRONG * PICTURES), seed=0)


def some_notes() -> TextDataset:
    """Return generated notes with the ward that takes each, some with a wrong ward."""
    made = mw.data.make_patients(n=NOTES, seed=0)
    texts = made.to_frame()["question"].tolist()
    data = TextDataset.from_texts(texts, made.labels, class_names=made.class_names)
    return data.with_canaries(round(WRONG * NOTES), seed=0)


class Block(nn.Module):
    """Two convolutions with what went into them added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what comes out, of the same shape."""
        inner = relu(self.norms[0](self.first(x)))
        return relu(x + self.norms[1](self.second(inner)))


class ResNet(nn.Module):
    """A small residual network for pictures of 32×32."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            Block(16),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            Block(32),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, (n, classes)."""
        return self.head(self.body(x))  # type: ignore[no-any-return]


def as_pairs(data: ImageDataset) -> TensorDataset:
    """Return pictures as the torch dataset that a loop of one's own has."""
    pictures = torch.tensor(data.images).permute(0, 3, 1, 2).float()
    return TensorDataset(pictures / 127.5 - 1, torch.tensor(data.labels))


def resnet_loop(train_set: TensorDataset, n_classes: int, epochs: int = 40) -> Fit:
    """Return a loop of one's own as a function of its rows."""

    def fit(rows: NDArray[np.int64], watch: Any, _seed: int) -> None:
        module = ResNet(n_classes)
        optimizer = torch.optim.AdamW(module.parameters(), lr=4e-3)
        own = Subset(train_set, rows.tolist())
        loader = DataLoader(own, batch_size=32, shuffle=True, drop_last=True)
        total = epochs * len(loader)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        watch.follow(module, steps_per_epoch=len(loader))
        for _ in range(epochs):
            for inputs, labels in loader:
                loss = cross_entropy(module(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                if watch.step():
                    return

    return fit


def trainer_script(data: TextDataset, epochs: int = 12) -> Fit:
    """Return a script with a Trainer of transformers as a function of its rows."""
    from memowidgets.models.tokens import tokenizer_of_words

    texts = list(data.texts)
    labels = data.labels.tolist()
    tokenizer = tokenizer_of_words(texts)

    def fit(rows: NDArray[np.int64], watch: Any, seed: int) -> None:
        from transformers import (
            AutoConfig,
            AutoModelForSequenceClassification,
            DataCollatorWithPadding,
            Trainer,
            TrainingArguments,
        )

        config = AutoConfig.for_model(
            "bert",
            vocab_size=len(tokenizer),
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=96,
            max_position_embeddings=128,
            num_labels=len(data.class_names),
            pad_token_id=tokenizer.pad_token_id,
        )
        model = AutoModelForSequenceClassification.from_config(config)
        watch.follow(mw.models.SequenceClassifier.from_model(model, tokenizer))
        own = []
        for i in rows.tolist():
            encoded = tokenizer(texts[i], return_token_type_ids=False)
            own.append({**encoded, "label": labels[i]})
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                output_dir=folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=16,
                learning_rate=2e-3,
                seed=seed,
                use_cpu=True,
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
            )
            Trainer(
                model,
                arguments,
                DataCollatorWithPadding(tokenizer),
                own,
                callbacks=[watch.callback],
            ).train()

    return fit


def _show(name: str, fit: Fit, given: Any, made: Dataset, folder: Path) -> None:
    """Print how a script was flagged, judged, cleaned and judged again.

    `given` is what its audit reads, and `made` the samples with what was planted.
    """
    decider = mw.Audit.from_script(
        fit, given, folder / "decide", members="all", checkpoint_every=1
    )
    decider.train(stop_at_drop=0.95)
    decider.run_references(2)
    flagged = decider.flagged("reference", share=SHARE).index.astype(str)
    judge = mw.Audit.from_script(fit, given, folder / "before", checkpoint_every=1)
    judge.train()
    judge.run_references(2)
    judge.run_shadows(SHADOWS, design="balanced")
    data = judge.data
    planted = data.ids[made.canaries]
    print(f"### {name}: {made!r}\n")
    print(f"{_found(judge, planted)}\n")
    rng = np.random.default_rng(0)
    chosen = rng.choice(decider.members, len(flagged), replace=False)
    cleaned = data.take(others(data, flagged))
    control = data.take(others(data, chosen))
    after = _judged_again(judge, cleaned, folder / "after")
    beside = _judged_again(judge, control, folder / "control")
    table = [
        ["the data", str(len(data)), *in_words(judge.memorized_per_model())],
        ["what `kept()` leaves", str(len(cleaned)), *in_words(after)],
        ["without as many random samples", str(len(control)), *in_words(beside)],
    ]
    head = ["trained on halves of", "samples", "truly", "counted"]
    page = judge.report(folder / "report.html", overwrite=True)
    print(f"{markdown(head, table)}\n\nreport: {page.stat().st_size} bytes\n")


def _judged_again(judge: mw.Audit, data: Dataset, path: Path) -> Any:
    """Return what each model memorises where all are trained on what is left of the data."""
    fork = judge.fork(path, data)
    fork.train()
    fork.run_shadows(SHADOWS, design="balanced")
    return fork.memorized_per_model()


def _found(judge: mw.Audit, planted: NDArray[Any]) -> str:
    """Return a table of scores against the truth, at one budget."""
    truth = judge.log_lira().fillna(0)
    memorized = truth.index[truth >= 4]
    body = []
    for metric in ("psmi", "loss", "reference"):
        found = judge.evaluate(metric)
        lowest = judge.flagged(metric, share=SHARE).index
        hits = np.isin(memorized, lowest).sum()
        low, high = found.auc_interval
        auc = f"{found.auc:.3f} ({low:.3f} to {high:.3f})"
        body.append([metric, auc, f"{hits} of {len(memorized)}"])
    both = np.isin(memorized, planted).sum()
    said = (
        f"{len(memorized)} of {len(truth)} members memorised, {both} of them planted."
    )
    head = ["score", "AUC", "memorised in the lowest tenth"]
    return f"{said} Looked at {judge.prediction.record.name}.\n\n{markdown(head, body)}"
