"""A user's functions with one value, run by `test_probe` here and in a process of its own.

Usage: python user_programs.py RUNS VALUE [VALUE …], which prints what the run of each function
came to with each value.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import memowidgets as mw


class Net(nn.Module):
    """A network whose weights, training mode or buffers depend on a value."""

    def __init__(self, n_classes: int, of: str, value: float) -> None:
        super().__init__()
        self.of, self.value = of, value
        self.body, self.head = nn.Linear(64, 8), nn.Linear(8, n_classes)
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("variance", torch.ones(8))
        if of == "initial weights":
            with torch.no_grad():
                self.head.weight.mul_(value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        x = self.body(x.flatten(1))
        if self.of == "training mode":
            x = functional.dropout(x, self.value / 2, training=self.training)
        elif self.of == "running statistics":
            x = functional.batch_norm(
                x, self.mean, self.variance, training=self.training, momentum=self.value / 5
            )
        return self.head(x)


MODULES = ("initial weights", "training mode", "running statistics")


def settings_of(value: float) -> dict[str, dict[str, object]]:
    """Return settings of a training with a user's function each."""
    return {
        "optimizer": {"optimizer": lambda p: torch.optim.SGD(p, lr=value / 10)},
        "schedule": {"schedule": lambda done: 1.0 if done < 0.5 else value},
    }


def run(name: str, path: Path, value: float) -> float:
    """Train or watch with a user's function of a value, and return a sum of losses."""
    data = mw.data.load_digits().take(range(40))
    if name == "forward":
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
        forward = lambda module, inputs: module(inputs.flatten(1) * value)  # noqa: E731
        watch = mw.watch(module, data, path, 4, forward=forward)
        return float(watch.audit.score("loss", checkpoint="epoch-0").sum())
    model = mw.models.ConvNet(1)
    if name in MODULES:
        model = mw.models.TorchClassifier(lambda n: Net(n, name, value))
    settings = settings_of(value).get(name, {})
    training = mw.TrainingConfig(epochs=1, batch_size=16, precision="float32", **settings)
    audit = mw.Audit(model, data, path, training, device="cpu")
    audit.train()
    return float(audit.evidence.losses(audit.evidence.names.final()).sum())


def results(runs: Path, value: float) -> dict[str, object]:
    """Return the number of each function, or the message of its refusal."""
    found: dict[str, object] = {}
    for name in (*MODULES, *settings_of(value), "forward"):
        try:
            found[name] = run(name, runs / name, value)
        except ValueError as error:
            found[name] = str(error)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, folder, *values = sys.argv
    print(json.dumps([results(Path(folder), float(value)) for value in values]))
