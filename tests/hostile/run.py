"""Runs to break: a whole one, and twins that differ from it in one thing each."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import memowidgets as mw
from tests.training.small import Inline

SETTINGS = mw.TrainingConfig(epochs=3, batch_size=4, lr=6e-3, precision="float32")
SHADOWS = 6


@dataclass(frozen=True)
class Victim:
    """A run directory with the model and the data that open it.

    Attributes
    ----------
    path : Path
        Of the run directory.
    data : ImageDataset
        What it was made with.
    """

    path: Path
    data: mw.data.ImageDataset

    def at(self, path: Path) -> Victim:
        """A copy of the run at another path."""
        shutil.copytree(self.path, path)
        return replace(self, path=path)

    def open(self) -> mw.Audit:
        return mw.Audit.open(self.path, data=self.data, model=model(), device="cpu")


def model() -> mw.models.ConvNet:
    return mw.models.ConvNet(8)


def data() -> mw.data.ImageDataset:
    return mw.data.load_digits().take(range(200)).with_canaries(20, seed=0)


def made(path: Path, samples: mw.data.ImageDataset, seed: int = 0) -> Victim:
    """Train a run: target, passes, scores, shadow models, one of them in the target's place."""
    audit = mw.Audit(model(), samples, path=path, seed=seed, device="cpu", training=SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so short a training may not reach it
        audit.train(stop_at_drop=0.1)
    audit.train()
    audit.run_shadows(SHADOWS, Inline(), keep_forward=True, design="balanced")
    audit.run_references(2, Inline())
    for checkpoint in (2, "final"):
        audit.score("psmi", checkpoint=checkpoint)
    audit.as_target(1).score("psmi")
    audit.decision_log.decide([str(audit.members[0])], "remove")
    return Victim(path, samples)


def twins(folder: Path, samples: mw.data.ImageDataset) -> dict[str, Victim]:
    """Runs that are the victim's but for one thing: the seed, or the order of the samples."""
    reversed_order = samples.take(range(len(samples) - 1, -1, -1))
    return {
        "another seed": made(folder / "seed", samples, seed=1),
        "another order": made(folder / "order", reversed_order),
    }
