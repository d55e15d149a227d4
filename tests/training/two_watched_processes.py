"""A loop with accelerate that two data-parallel processes run, as torchrun starts it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import memowidgets as mw
from tests.audit.test_watching import mlp, samples

if __name__ == "__main__":
    from accelerate import Accelerator  # every test worker imports this file

    folder = Path(sys.argv[1])
    data, module = samples(), mlp()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03)
    accelerator, loader = (
        Accelerator(cpu=True),
        DataLoader(data, batch_size=4, shuffle=True),
    )
    model, optimizer, loader = accelerator.prepare(module, optimizer, loader)
    course = {"checkpoint_every": 0.5, "stop_at_drop": 0.6}
    watch = mw.watch(model, data, folder / "run", len(loader), **course)
    stopped = False
    for _ in range(8):
        for inputs, classes in loader:
            accelerator.backward(cross_entropy(model(inputs), classes))
            optimizer.step()
            optimizer.zero_grad()
            stopped = watch.step()
            if stopped:
                break
        if stopped:
            break
    rank = accelerator.process_index
    weights = [p.tolist() for p in module.parameters()]
    found = (
        len(loader),
        watch.steps,
        watch.reached,
        len(watch.audit.checkpoints),
        weights,
    )
    (folder / f"ended-{rank}").write_text(repr(found))
    accelerator.end_training()
    # torch aborts if Gloo's thread lets go of its last work while Python ends
    time.sleep(1)
