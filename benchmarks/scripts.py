"""What 16 shadow models of a user's script cost, against 16 calls of the script alone."""

from __future__ import annotations

import contextlib
import io
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw
from benchmarks.measure import Namespace, Row

MODELS = 16
N, WIDTH, CLASSES, EPOCHS = 1000, 32, 4, 40
GOAL = "≤ 1.1×"


def rows(_arguments: Namespace) -> list[Row]:
    """Measure them one after the other in this process, after the target."""
    torch.manual_seed(0)
    labels = torch.arange(N) % CLASSES
    inputs = torch.randn(N, WIDTH) + nn.functional.one_hot(labels, WIDTH)
    data = TensorDataset(inputs, labels)

    def fit(rows: Any, watch: Any, _seed: int) -> None:
        module = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, CLASSES))
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
        loader = DataLoader(Subset(data, rows), batch_size=32, shuffle=True)
        watch.follow(module, steps_per_epoch=len(loader))
        for _ in range(EPOCHS):
            for batch, classes in loader:
                cross_entropy(module(batch), classes).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                optimizer.zero_grad()
                if watch.step():
                    return

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        audit = mw.Audit.from_script(fit, data, Path(folder) / "run")
        audit.train()
        half = np.arange(N // 2)
        start = time.process_time()
        for seed in range(MODELS):
            torch.manual_seed(seed)
            fit(half, _Unwatched(), seed)
        alone = time.process_time() - start
        start = time.process_time()
        with ThreadPoolExecutor(1) as executor:
            audit.run_shadows(MODELS, executor)
        ours = time.process_time() - start
    what = (
        f"scripts: {MODELS} shadow models of a loop of {EPOCHS} epochs on {N // 2} rows"
    )
    return [
        Row(
            what,
            f"{ours:.2f} s of the processor",
            f"{alone:.2f} s for {MODELS} calls",
            f"{ours / alone:.3f}×",
            GOAL,
        )
    ]


class _Unwatched:
    """A watch that does nothing."""

    def follow(self, module: nn.Module, steps_per_epoch: int) -> None:
        """Do nothing."""

    def step(self) -> bool:
        """Never end the script."""
        return False
