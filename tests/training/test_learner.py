"""The loop's own optimizers: torch's, without the second that its compiler takes to import."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models import ConvNet
from memowidgets.progress import Progress
from memowidgets.training.learner import Learner, Recipe
from memowidgets.training.probe import made_probe
from tests.training.small import trained

GIVEN = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, weight_decay=0.1, momentum=0.9),
}


def learner(optimizer):
    model, data = ConvNet(4), mw.data.load_digits().take(range(40))
    training = mw.TrainingConfig(
        epochs=4, batch_size=10, optimizer=optimizer, lr=1e-3, weight_decay=0.1, precision="float32"
    )
    settings = training.resolved(model.training_defaults)
    return Learner(Recipe(model, data, settings, "cpu"), np.arange(40), seed=0)


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_an_optimizer_is_torchs_and_imports_no_compiler(name, monkeypatch):
    torchs = learner(GIVEN[name])
    torchs.advance(10, Progress(), "training")
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)  # to import it is an error
    first, second = learner(name), learner(name)
    first.advance(6, Progress(), "training")
    second.resume(*first.state())
    second.advance(10, Progress(), "training")
    wanted, found = torchs.weights(), second.weights()
    assert wanted.keys() == found.keys()
    for key in wanted:
        np.testing.assert_array_equal(found[key], wanted[key])


def test_passes_over_the_same_data_do_not_move_it_to_the_device_again(monkeypatch):
    moved = []
    real = ConvNet.feeder

    def feeder(self, data, device):
        moved.append(data)
        return real(self, data, device)

    monkeypatch.setattr(ConvNet, "feeder", feeder)
    made = learner("sgd")
    one = made.look_at(np.arange(40))
    with_layers = made.look_at(np.arange(40), capture=True)
    assert moved == [made.recipe.data]
    other = made.recipe.data.take(range(5, 15))
    there = made.look_at(np.arange(10), data=other)
    assert moved == [made.recipe.data, other]
    np.testing.assert_array_equal(one.logits, with_layers.logits)
    np.testing.assert_allclose(there.logits, one.logits[5:15], atol=1e-5)


def flat(n_classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, n_classes))


@pytest.mark.parametrize(
    "around",
    [lambda: torch.autocast("cpu", torch.bfloat16), torch.no_grad, torch.inference_mode],
    ids=["autocast", "no_grad", "inference_mode"],
)
def test_a_context_of_the_caller_changes_no_number(around):
    def trained():
        made = learner("sgd")
        made.advance(6, Progress(), "training")
        return made.weights() | {"logits": made.look_at(np.arange(40)).logits}

    wanted, recipe = trained(), learner("sgd").recipe
    model, data, settings = mw.models.TorchClassifier(flat), recipe.data, recipe.settings
    with around():
        found = trained()
        made_probe(model, data, np.arange(8), settings, 40)
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values)


def test_the_default_dtype_of_torch_changes_no_number(tmp_path):
    plain = trained(tmp_path / "float32").checkpoints
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        other = trained(tmp_path / "float64").checkpoints
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(before)
    assert other.equals(plain)
