"""A loop of a user's in a process of its own, which a test lets go on one epoch at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import memowidgets as mw
from tests.audit.test_watching import mlp, samples

if __name__ == "__main__":
    torch.manual_seed(0)
    data, module = samples(), mlp()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03)
    loader = DataLoader(data, batch_size=8, shuffle=True)
    watch = mw.watch(
        module,
        data,
        Path(sys.argv[1]),
        steps_per_epoch=len(loader),
        checkpoint_every=1.0,
    )
    for epoch in range(1, 40):
        for inputs, classes in loader:
            cross_entropy(module(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step()
        print("epoch", epoch, watch.reached, flush=True)
        if sys.stdin.readline() == "":
            break
