"""Loops of users in a process of their own, which a test lets go on one epoch at a time."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import memowidgets as mw
from tests.audit.test_watching import mlp, samples

EPOCHS = 40


def wait(epoch, reached):
    """Say which epoch is over, and whether the place to look is reached; stop without an answer."""
    print("epoch", epoch, reached, flush=True)
    if sys.stdin.readline() == "":
        sys.exit()


def watched(path):
    data, module = samples(), mlp()
    loader = DataLoader(data, batch_size=8, shuffle=True)
    plan = {"steps_per_epoch": len(loader), "checkpoint_every": 1.0}
    return module, loader, mw.watch(module, data, path, **plan)


def loop(path):
    module, loader, watch = watched(path)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.03)
    for epoch in range(1, EPOCHS):
        for inputs, classes in loader:
            cross_entropy(module(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
            watch.step()
        wait(epoch, watch.reached)


def lightning(path):
    from lightning.pytorch import Callback

    from tests.training.test_lightning_callback import STEPS, fitted, new_module

    class Waits(Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            wait(trainer.current_epoch + 1, watch.reached)

    module = new_module()
    plan = {"steps_per_epoch": STEPS, "checkpoint_every": 1.0}
    watch = mw.watch(module, samples(), path, **plan)
    recorder = mw.training.LightningCallback(watch, stop=False)
    fitted(module, samples(), path.parent, recorder, Waits(), epochs=EPOCHS)


def trainer(path):
    from tests.training import test_trainer_callback as trainers

    class Waits(trainers.TrainerCallback):
        def on_epoch_end(self, args, state, control, **_):
            wait(round(state.epoch), "unknown")

    data = mw.data.make_mcqs(n=trainers.N, seed=0)
    tokenizer = trainers.word_tokenizer(data)
    model = trainers.tiny(len(tokenizer))
    audit = trainers.make_audit(model, tokenizer, data, path)
    recorder = mw.training.MemorizationCallback(audit, None)
    rows = trainers.script_rows(data, tokenizer)
    course = {"num_train_epochs": EPOCHS}
    trainers.trainer(
        model, rows, path.parent / "out", recorder, Waits(), **course
    ).train()


if __name__ == "__main__":
    torch.manual_seed(0)
    kinds = {"loop": loop, "lightning": lightning, "trainer": trainer}
    kinds[sys.argv[1]](Path(sys.argv[2]))
