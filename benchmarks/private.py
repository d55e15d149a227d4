"""Differential privacy beside the audit: Opacus in a script, and in a `TorchClassifier`.

    pip install opacus
    python -m benchmarks private

Prints the table of docs/differential_privacy.md. All seeds are fixed.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw
from benchmarks.confirm import markdown
from benchmarks.measure import Namespace, Row, left_out

SHADOWS = 16
EPOCHS = 40
BATCH = 64
RATE = 1e-2
EPSILON = 8.0
DELTA = 1e-4
CLIP = 1.0


def rows(_arguments: Namespace) -> list[Row]:
    """Print the table; nothing of it is in the table of performance."""
    if importlib.util.find_spec("opacus") is None:
        return [left_out("private", "pip install opacus")]
    data = mw.data.load_digits(canaries=0.05, seed=0)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for name, audit in _audits(data, Path(folder)):
            audit.train()
            audit.run_shadows(SHADOWS, design="balanced")
            truth = audit.log_lira().fillna(0)
            planted = audit.data.ids[data.canaries]
            memorized = truth.index[truth >= 4]
            both = int(np.isin(memorized, planted).sum())
            right = audit.checkpoints["test_accuracy"].iloc[-1]
            counts = f"{len(memorized)} of {len(truth)}"
            table.append([name, f"{right:.3f}", counts, str(both)])
            print(table[-1], file=sys.stderr)
    head = ["training", "held-out accuracy", "memorised", "of these planted"]
    print(markdown(head, table))
    return []


def _audits(data: mw.data.ImageDataset, folder: Path) -> Any:
    """Yield what a row is called, with its audit."""
    pixels = torch.tensor(np.asarray(data.images), dtype=torch.float32)
    pixels = pixels.reshape(len(data), -1)
    train_set = TensorDataset(pixels / pixels.max(), torch.tensor(data.labels))
    from_script = partial(mw.Audit.from_script, checkpoint_every=5)
    members = round(0.5 * (1 - 1 / 9) * len(data))
    noise = noise_for(members)
    plain = script(train_set)
    yield "a script", from_script(plain, train_set, folder / "plain")
    private = script(train_set, noise)
    yield "the script with Opacus", from_script(private, train_set, folder / "private")
    model = mw.models.TorchClassifier(wrapped)
    training = mw.TrainingConfig(
        epochs=EPOCHS,
        batch_size=BATCH,
        lr=RATE,
        checkpoint_every=5,
        precision="float32",
        optimizer=partial(private_optimizer, noise=noise),
        version="Opacus",  # it cannot be probed without a pass of the module
    )
    audit = mw.Audit(model, data, folder / "ours", training=training)
    yield "`TorchClassifier` with Opacus", audit


def network(n_classes: int) -> nn.Sequential:
    """Return a network for digits of 8×8."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_classes)
    )


def script(train_set: TensorDataset, noise: float = 0.0) -> Any:
    """Return a loop as a function of its rows, with noise by Opacus or without it."""

    def fit(rows: NDArray[np.int64], watch: Any, _seed: int) -> None:
        module: Any = network(10)
        optimizer: Any = torch.optim.AdamW(module.parameters(), lr=RATE)
        own = Subset(train_set, rows.tolist())
        loader: Any = DataLoader(own, batch_size=BATCH, shuffle=True)
        if noise:
            from opacus import PrivacyEngine

            # its batches are Poisson samples, as the accountant takes them to be
            module, optimizer, loader = PrivacyEngine().make_private(
                module=module,
                optimizer=optimizer,
                data_loader=loader,
                noise_multiplier=noise,
                max_grad_norm=CLIP,
            )
        watch.follow(module, steps_per_epoch=len(loader))
        for _ in range(EPOCHS):
            for inputs, labels in loader:
                optimizer.zero_grad()
                loss = cross_entropy(module(inputs), labels)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                if watch.step():
                    return

    return fit


def wrapped(n_classes: int) -> nn.Module:
    """Return the network with a gradient for each sample."""
    from opacus import GradSampleModule

    module: nn.Module = GradSampleModule(network(n_classes))
    return module


def noise_for(n_members: int) -> float:
    """Return the noise that the accountant asks for where batches are Poisson samples."""
    from opacus.accountants.utils import get_noise_multiplier

    noise: float = get_noise_multiplier(
        target_epsilon=EPSILON,
        target_delta=DELTA,
        sample_rate=BATCH / n_members,
        epochs=EPOCHS,
        accountant="rdp",
    )
    return noise


def private_optimizer(parameters: Any, noise: float, **settings: Any) -> Any:
    """Return AdamW that clips each sample's gradient and adds noise."""
    from opacus.optimizers import DPOptimizer

    return DPOptimizer(
        torch.optim.AdamW(parameters, **settings),
        noise_multiplier=noise,
        max_grad_norm=CLIP,
        expected_batch_size=BATCH,
    )
