"""What keeping every member's logits and losses costs a training: time and disk."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved
from memowidgets.training.checkpoint import outputs_of
from memowidgets.training.learner import TargetTraining

TURNS = 5
EPOCHS = 6


def rows(_arguments: Namespace) -> list[Row]:
    """Train on digits with and without what csl is computed from, in turns."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        place = Path(folder)
        keeping, leaving = interleaved(
            _training(place / "kept"),
            _without(_training(place / "left")),
            repeats=TURNS,
        )
        size, bound = _sizes(place / "kept")
    what = f"training on 1797 digits for {EPOCHS} epochs, a checkpoint every .2 epochs"
    return [
        Row(
            f"{what}, with logits and losses kept for csl",
            f"{keeping:.2f} s",
            f"{leaving:.2f} s without",
            f"{keeping / leaving:.3f}×",
            "≤ 1.01×",
        ),
        Row(
            "disk for them, largest checkpoint",
            f"{size / 1e3:.1f} kB",
            f"{bound / 1e3:.1f} kB for 4 bytes × members × (classes + 1)",
            f"{size / bound:.3f}×",
            "≤ 1× and a header",
        ),
    ]


def _training(path: Path) -> Callable[[], None]:
    data = mw.data.load_digits()
    settings = mw.TrainingConfig(epochs=EPOCHS, checkpoint_every=0.2)

    def train() -> None:
        shutil.rmtree(path, ignore_errors=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            mw.Audit(mw.models.ConvNet(), data, path, settings, device="cpu").train()

    return train


def _without(train: Callable[[], None]) -> Callable[[], None]:
    def bare() -> None:
        with patch.object(TargetTraining, "_keep_outputs", lambda *_: None):
            train()

    return bare


def _sizes(path: Path) -> tuple[int, int]:
    """Return the size of the largest file and the bytes of its numbers."""
    audit = mw.Audit.open(path)
    names = audit.checkpoints.index
    sizes = [
        (path / f"{outputs_of(name)}.safetensors").stat().st_size for name in names
    ]
    return max(sizes), 4 * len(audit.members) * (len(audit.data.class_names) + 1)
