"""A loop of PyTorch as a function of its rows."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw

pixels, labels = load_digits(return_X_y=True)
train_set = TensorDataset(torch.tensor(pixels / 16).float(), torch.tensor(labels))


def fit(rows, watch, seed):
    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-3)
    loader = DataLoader(Subset(train_set, rows), batch_size=32, shuffle=True)
    watch.follow(module, steps_per_epoch=len(loader))
    for epoch in range(20):
        for inputs, classes in loader:
            cross_entropy(module(inputs), classes).backward()
            optimizer.step()
            optimizer.zero_grad()
            if watch.step():
                return


if __name__ == "__main__":
    audit = mw.Audit.from_script(fit, train_set, path="runs/loop", checkpoint_every=1)
    audit.train()
    audit.run_references(2)
    audit.run_shadows(32)
    print(audit.flagged("reference", share=0.05))
    print(audit.evaluate("reference"))
    audit.report("loop.html")
