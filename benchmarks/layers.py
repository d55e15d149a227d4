"""PSMI of 30 layers, memory-mapped from disk, against one layer in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.measure import Namespace, Row, interleaved
from benchmarks.psmi import features
from memowidgets.metrics import PSMI, score_layers

N, D, LAYERS = 10_000, 576, 30


class Folder(Mapping[int, np.ndarray]):
    """Layers on disk, mapped on access."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, layer: int) -> np.ndarray:
        return np.load(self.path / f"{layer}.npy", mmap_mode="r")

    def __iter__(self) -> Iterator[int]:
        return iter(range(1, LAYERS + 1))

    def __len__(self) -> int:
        return LAYERS


def rows(_: Namespace) -> list[Row]:
    X, y = features(N, D, 4)
    with tempfile.TemporaryDirectory() as path:
        folder = Folder(Path(path))
        for layer in folder:
            np.save(folder.path / f"{layer}.npy", X)
        many, one = interleaved(
            lambda: score_layers(PSMI(), folder, y),
            lambda: [PSMI().fit(X, y).score_samples(X, y) for _ in range(3)],
            repeats=3,
        )
    one /= 3
    work = f"PSMI of {LAYERS} layers from disk against one in memory; n = {N}, d = {D}"
    return [Row(work, f"{many:.2f} s", f"{one:.3f} s", f"{many / one:.1f}×", "≤ 30×")]
