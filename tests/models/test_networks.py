"""Logits come from a layer in float32, whatever the precision below it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import linear

import memowidgets as mw
from memowidgets.metrics import logit_gap
from memowidgets.models import networks
from memowidgets.models.networks import head_in_float32
from memowidgets.progress import Progress
from tests.training.small import learner_of

N = 300


def images():
    return mw.data.load_digits().take(range(N))


def questions():
    return mw.data.make_mcqs(N, seed=1)


def gaps(model, data, precision):
    learner = learner_of(model, data, precision=precision, batch_size=16, epochs=1)
    learner.advance(3, Progress(), "training")
    return logit_gap(learner.look_at(np.arange(N)).logits, data.labels)


def texts():
    return mw.data.TextDataset.from_texts(questions().questions, np.arange(N) % 3)


MODELS = {
    "SequenceClassifier": (texts, mw.models.SequenceClassifier.from_scratch),
    "CausalLM": (questions, lambda data: mw.models.CausalLM.from_scratch(data, 1, 32)),
    "ConvNet": (images, lambda _data: mw.models.ConvNet(4)),
    "WideResNet": (images, lambda _data: mw.models.WideResNet(10, 1)),
}


@pytest.mark.parametrize("name", MODELS)
def test_nearly_every_sample_has_a_gap_of_its_own_in_bfloat16(name):
    make_data, make_model = MODELS[name]
    data = make_data()
    found = gaps(make_model(data), data, "bfloat16")
    assert len(np.unique(found)) > 0.95 * N


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("trained", [True, False])
def test_values_and_gradients_are_those_of_float32(bias, trained, monkeypatch):
    # several parts, the last smaller
    monkeypatch.setattr(networks, "_MOST_VALUES", 3 * 8)
    torch.manual_seed(0)
    head = nn.Linear(8, 7, bias=bias).bfloat16().requires_grad_(trained)
    hidden = torch.randn(5, 8, dtype=torch.bfloat16, requires_grad=True)
    weight = head.weight.detach().float()
    shift = head.bias.detach().float() if bias else None
    exact = hidden.detach().float().requires_grad_()
    factors = torch.randn(5, 7)
    expected = linear(exact, weight, shift)
    (expected * factors).sum().backward()
    with torch.autocast("cpu", torch.bfloat16), head_in_float32(head):
        logits = head(hidden)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-6)
    (logits * factors).sum().backward()
    torch.testing.assert_close(hidden.grad, exact.grad.bfloat16(), rtol=0.01, atol=0.01)
    if trained:
        found, gradient = head.weight.grad.float(), factors.T @ exact.detach()
        torch.testing.assert_close(found, gradient, rtol=0.02, atol=0.02)
    else:
        assert head.weight.grad is None


def test_the_head_is_left_as_it_was():
    head = nn.Linear(4, 3)
    before = copy.copy(vars(head))
    with pytest.raises(RuntimeError, match="stop"), head_in_float32(head):
        raise RuntimeError("stop")
    assert vars(head) == before
    with head_in_float32(head), head_in_float32(head):
        pass
    assert vars(head) == before
    with head_in_float32(None):
        pass


def test_frozen_weights_are_upcast_once_and_again_after_they_were_changed(monkeypatch):
    weight = nn.Parameter(torch.randn(7, 8).bfloat16(), requires_grad=False)
    changes = (
        lambda: weight.mul_(2),
        lambda: setattr(weight, "data", torch.randn(7, 8).bfloat16()),
    )
    for change in changes:
        first = networks._in_full(weight)
        assert networks._in_full(weight) is first
        change()
        assert networks._in_full(weight) is not first
        torch.testing.assert_close(
            networks._in_full(weight), weight.float(), rtol=0, atol=0
        )
    monkeypatch.setattr(networks, "_MOST_KEPT", 8)
    assert networks._in_full(weight) is weight


def test_the_logits_are_one_product_for_all_texts():
    """torch copies the weights for each text where the input is a slice of the hidden states."""
    data = questions()
    model = mw.models.CausalLM.from_scratch(data, 2, 32)
    module = model.build(data)
    packed = []
    module.lm_head.register_forward_pre_hook(
        lambda _, given: packed.append(given[0].is_contiguous())
    )
    feed = model.feeder(data, torch.device("cpu"))
    model.outputs(module, feed(np.arange(5)), torch.from_numpy(data.labels[:5]))
    assert packed == [True]
