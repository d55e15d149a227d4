"""The loop: its own optimizers, what its caller has set, and the order of an epoch."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models import ConvNet
from memowidgets.progress import Progress
from memowidgets.training.learner import epoch_order
from memowidgets.training.probe import make_probe
from tests.training.small import learner_of

GIVEN = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, lr=1e-3, weight_decay=0.1, momentum=0.9),
}


def learner(optimizer):
    settings = {"epochs": 4, "batch_size": 10, "lr": 1e-3, "weight_decay": 0.1}
    data = mw.data.load_digits().take(range(40))
    return learner_of(ConvNet(4), data, optimizer=optimizer, **settings)


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


def flat(n_classes):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, n_classes))


def in_bfloat16():
    return torch.autocast("cpu", torch.bfloat16)


@contextmanager
def in_doubles():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(before)


@pytest.mark.parametrize(
    "around", [in_bfloat16, in_doubles, torch.no_grad, torch.inference_mode]
)
def test_a_context_of_the_caller_changes_no_number(around):
    def trained():
        made = learner("sgd")
        made.advance(6, Progress(), "training")
        return made.weights() | {"logits": made.look_at(np.arange(40)).logits}

    wanted, recipe = trained(), learner("sgd").recipe
    model, data, settings = (
        mw.models.TorchClassifier(flat),
        recipe.data,
        recipe.settings,
    )
    with around():
        found = trained()
        make_probe(model, data, np.arange(8), settings, 40)
    for key, values in wanted.items():
        np.testing.assert_array_equal(found[key], values)


def test_accumulated_batches_give_the_step_of_one_batch_of_all_their_samples():
    """The last step of an epoch has a smaller batch, too."""
    data = mw.data.load_digits().take(range(35))
    settings = {"epochs": 3, "optimizer": "sgd", "lr": 0.1}
    whole, parts = (
        learner_of(
            mw.models.TorchClassifier(flat),
            data,
            batch_size=20 // accumulate,
            accumulate=accumulate,
            **settings,
        )
        for accumulate in (1, 2)
    )
    before = whole.weights()
    for one in (whole, parts):
        one.advance(6, Progress(), "training")
    wanted, found = whole.weights(), parts.weights()
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, atol=1e-6)
        assert np.abs(values - before[key]).max() > 1e-3


# The order of an epoch in which texts of similar length are in the same batch


def shares_of_padding(order, lengths, size):
    batches = [lengths[order[i : i + size]] for i in range(0, len(order), size)]
    return 1 - lengths.sum() / sum(batch.max() * len(batch) for batch in batches)


@pytest.mark.parametrize("n", [1, 5, 16, 17, 100, 3000, 3007])
def test_every_sample_occurs_once_and_the_seed_decides_the_order(n):
    lengths = np.random.default_rng(0).geometric(0.05, size=2 * n)
    members = np.arange(0, 2 * n, 2)
    first, again = (
        epoch_order(members, lengths, 16, np.random.default_rng(3)) for _ in range(2)
    )
    other = epoch_order(members, lengths, 16, np.random.default_rng(4))
    np.testing.assert_array_equal(np.sort(first), members)
    np.testing.assert_array_equal(first, again)
    assert n == 1 or (first != other).any()


def test_batches_have_samples_of_similar_length_and_are_not_in_order_of_length():
    lengths = np.random.default_rng(0).geometric(0.05, size=3000)
    order = epoch_order(np.arange(3000), lengths, 16, np.random.default_rng(0))
    plain = epoch_order(np.arange(3000), None, 16, np.random.default_rng(0))
    assert shares_of_padding(order, lengths, 16) < 0.1
    assert shares_of_padding(plain, lengths, 16) > 0.4
    means = lengths[order[:2992]].reshape(-1, 16).mean(axis=1)
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.2


def test_the_last_smaller_batch_is_random():
    lengths = np.arange(1000)
    rests = [
        epoch_order(np.arange(1000), lengths, 16, np.random.default_rng(seed))[992:]
        for seed in range(50)
    ]
    assert abs(np.mean(rests) - 499.5) < 4 * 1000 / np.sqrt(12 * 400)
