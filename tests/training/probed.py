"""Print the probe of a few networks and optimizers, for `test_probe`, which limits this process."""

from __future__ import annotations

import json
import sys

import numpy as np
import torch
from torch import nn

import memowidgets as mw
from memowidgets.training.probe import make_probe


class Attending(nn.Module):
    """A transformer over the rows of an image."""

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.enter = nn.Linear(8, 64)
        part = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.parts = nn.TransformerEncoder(part, 3, enable_nested_tensor=False)
        self.leave = nn.Linear(64, n_classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        return self.leave(self.parts(self.enter(images[:, 0])).mean(1))


def convolving(n_classes: int) -> nn.Module:
    """Return convolutions with batch normalisation, deep enough for rounding to add up."""
    parts: list[nn.Module] = []
    for width in (1, *[32] * 11):
        parts += [
            nn.Conv2d(width, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
        ]
    return nn.Sequential(
        *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes)
    )


def small(n_classes: int) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, n_classes)
    )


OPTIMIZERS = {
    "adamw": lambda p, more: torch.optim.AdamW(p, lr=1e-3 * more),
    "sgd": lambda p, more: torch.optim.SGD(
        p, lr=0.1 * more, momentum=0.9, weight_decay=1e-4
    ),
    "adam, tiny": lambda p, more: torch.optim.Adam(p, lr=1e-6 * more),
    "rmsprop": lambda p, more: torch.optim.RMSprop(p, lr=1e-3 * more),
}
NETWORKS = {"small": small, "convolving": convolving, "attending": Attending}


def probes(more: float, networks: tuple[str, ...]) -> dict[str, object]:
    """Return the probes of networks, with learning rates that are `more` times as high."""
    data = mw.data.load_digits().take(range(20))
    rows = np.arange(20)
    found: dict[str, object] = {}
    for name in networks:
        for kind, optimizer in OPTIMIZERS.items():
            if name == "small" or kind == "adamw":
                training = mw.TrainingConfig(
                    optimizer=lambda p, of=optimizer: of(p, more)
                )
                settings = training.resolve({})
                model = mw.models.TorchClassifier(NETWORKS[name])
                found[f"{name}, {kind}"] = make_probe(model, data, rows, settings, 10)
    return found


if __name__ == "__main__":
    print(json.dumps(probes(1.0, tuple(sys.argv[1:]))))
