"""Watched loops: numbers that would be wrong without a word are refused or said."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Subset, TensorDataset

import memowidgets as mw
from memowidgets.metrics.logits import other_columns
from tests.audit.test_watching import (
    CLASSES,
    STEPS,
    WIDTH,
    Changing,
    N,
    forward_of,
    mlp,
    samples,
    seeded,
    trained,
)


@pytest.fixture(scope="module")
def data():
    return samples()


@pytest.fixture(scope="module")
def others():
    return samples(seed=1)


# Held-out samples


def test_held_out_samples_give_the_test_curves(data, others, tmp_path):
    module = mlp()
    watch = mw.watch(
        module, data, tmp_path / "run", STEPS, checkpoint_every=1, held_out=others
    )
    trained(module, data, watch=watch)
    inputs, labels = others.tensors
    with torch.no_grad():
        logits = module.eval()(inputs)
    last = watch.audit.checkpoints.iloc[-1]
    assert last["test_loss"] == pytest.approx(
        float(cross_entropy(logits, labels)), abs=1e-6
    )
    assert last["test_accuracy"] == (logits.argmax(dim=1) == labels).double().mean()
    assert watch.audit.checkpoints["test_loss"].notna().all()
    opened = mw.Audit.open(watch.audit.path, data=data, held_out=others)
    assert (
        opened.checkpoints["test_loss"].tolist()
        == watch.audit.checkpoints["test_loss"].tolist()
    )
    with pytest.raises(ValueError, match="held_out is"):
        mw.watch(mlp(), data, tmp_path / "run", STEPS, checkpoint_every=1)


def test_held_out_samples_may_lack_a_class_and_come_from_a_loader(
    data, others, tmp_path
):
    two = Subset(others, [i for i in range(N) if i % CLASSES])
    loader = DataLoader(two, batch_size=5)
    watch = mw.watch(mlp(), data, tmp_path / "run", STEPS, held_out=loader)
    inputs, labels = (torch.stack(part) for part in zip(*two, strict=True))
    with torch.no_grad():
        logits = mlp().eval()(inputs)
    loss = float(cross_entropy(logits, labels))
    assert watch.audit.checkpoints["test_loss"].iloc[0] == pytest.approx(loss, abs=1e-6)


# Rows that are not always the same


def test_augmentation_that_is_switched_on_later_is_noticed(tmp_path):
    data, module = Changing("inputs", on=False), mlp()
    watch = mw.watch(module, data, tmp_path / "run", 1, checkpoint_every=1)
    data.on = True
    with torch.no_grad():
        module[0].bias += 1
    with pytest.raises(ValueError, match="without random augmentation"):
        watch.step()
    assert len(watch.audit.checkpoints) == 1


# Modules whose answer or layers are not what they seem


def test_probabilities_are_refused_and_their_logarithms_are_logits(data, tmp_path):
    net = nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, CLASSES), nn.Softmax(dim=1))
    with pytest.raises(ValueError, match=r"probabilities, not logits.*\.log\(\)"):
        mw.watch(net, data, tmp_path / "run", STEPS)
    watch = mw.watch(
        net, data, tmp_path / "run", STEPS, forward=lambda module, x: module(x).log()
    )
    with torch.no_grad():
        loss = cross_entropy(net[:2](data.tensors[0]), data.tensors[1])
    assert watch.audit.checkpoints["train_loss"].iloc[0] == pytest.approx(
        loss.item(), abs=1e-6
    )


def test_features_before_the_logits_are_not_taken_for_logits(data, tmp_path):
    """Labels in numbers leave room for more classes, so nothing else would notice."""

    class Both(nn.Module):
        def __init__(self, swapped):
            super().__init__()
            self.swapped = swapped
            self.body, self.head = nn.Linear(WIDTH, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            features = self.body(x).relu()
            found = features, self.head(features)
            return found[::-1] if self.swapped else found

    with pytest.raises(ValueError, match="first with 16 columns and another with 3"):
        mw.watch(Both(swapped=False), data, tmp_path / "run", STEPS)
    for module, forward in (
        (Both(swapped=True), None),
        (Both(swapped=False), lambda m, x: m(x)[1]),
    ):
        watch = mw.watch(
            module, data, tmp_path / str(module.swapped), STEPS, forward=forward
        )
        assert watch.audit.data.class_names == ("0", "1", "2")


class ChannelsLast(nn.Module):
    """As in a Swin transformer: images are (batch, height, width, channels)."""

    def __init__(self):
        super().__init__()
        self.wide, self.head = nn.Linear(3, 40), nn.Linear(40, 2)

    def forward(self, x):
        return self.head(self.wide(x.permute(0, 2, 3, 1)).mean(dim=(1, 2)))


def test_large_images_are_pooled_over_their_places_and_not_their_channels(tmp_path):
    torch.manual_seed(0)
    images, last = torch.rand(6, 3, 16, 16), ChannelsLast()
    first = nn.Sequential(
        nn.Conv2d(3, 40, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(40, 2),
    )
    data = TensorDataset(images, torch.arange(6) % 2)
    wide = last.wide(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    for module, layer, made in ((last, "wide", wide), (first, "0", first[0](images))):
        watch = mw.watch(module, data, tmp_path / layer, 5, layers=[layer])
        pooled = nn.functional.adaptive_avg_pool2d(made.detach(), 4).flatten(1)
        found = forward_of(watch)[f"layer.{layer}"]
        np.testing.assert_allclose(found, pooled, rtol=1e-5, atol=1e-6)


# The training is not the one that is watched


def test_weights_that_no_optimizer_changes_are_said(data, tmp_path):
    module, copy = mlp(), mlp()
    watch = mw.watch(module, data, tmp_path / "run", STEPS, checkpoint_every=1)
    seeded()
    with pytest.warns(
        UserWarning, match=f"at step {2 * STEPS} the weights are those of st"
    ):
        trained(copy, data, epochs=2, watch=watch)


@pytest.mark.parametrize("is_moved", [True, False])
def test_columns_of_another_order_are_said_once_labels_are_learned(
    is_moved, data, tmp_path
):
    """An untrained module may have any order, and is not warned of."""
    module, (x, y) = (
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)),
        data.tensors,
    )
    labels = (y + 1) % CLASSES if is_moved else y
    with torch.no_grad():
        module[0].weight.copy_(torch.eye(WIDTH))
        module[1].weight.copy_(torch.eye(CLASSES, WIDTH).roll(1, 0))
        assert other_columns(module(x).numpy(), y.numpy())
    watch = mw.watch(
        module, TensorDataset(x, labels), tmp_path / "run", STEPS, checkpoint_every=0.2
    )
    said = pytest.warns(UserWarning, match="in the column of another class for")
    with said if is_moved else nullcontext():  # warnings are errors
        trained(module, data, watch=watch)
