"""A Trainer of Lightning as a function of its rows."""

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw

pixels, labels = load_digits(return_X_y=True)
train_set = TensorDataset(torch.tensor(pixels / 16).float(), torch.tensor(labels))


class Digits(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, inputs):
        return self.net(inputs)

    def training_step(self, batch, index):
        inputs, classes = batch
        return cross_entropy(self(inputs), classes)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def fit(rows, watch, seed):
    module = Digits()
    loader = DataLoader(Subset(train_set, rows), batch_size=32, shuffle=True)
    watch.follow(module, steps_per_epoch=len(loader))
    trainer = lightning.Trainer(
        max_epochs=20,
        callbacks=[mw.training.LightningCallback(watch)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, loader)


if __name__ == "__main__":
    audit = mw.Audit.from_script(
        fit, train_set, path="runs/lightning", checkpoint_every=1
    )
    audit.train()
    audit.run_references(2)
    audit.run_shadows(32)
    print(audit.flagged("reference", share=0.05))
    print(audit.evaluate("reference"))
    audit.report("lightning.html")
