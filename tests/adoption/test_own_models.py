"""Models of others go every way that ours go, through real worker processes.

Each trains in this process, then a reference and two shadow models by a worker that never made it.
`make release-check` fills the whole table of adapters and executors.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import memowidgets as mw
from tests.adoption.own_models import EVERY, FIRST, SIZE, Brought, classifier, images
from tests.training.test_engine import client_of

LAST = "epoch-2"


def train_all(brought, place, **who):
    """Return the gaps of two shadow models, and the scores by a reference."""
    audit = brought.audit(place)
    audit.train()
    audit.run_references(1, **who)
    audit.run_shadows(2, **who)
    shadows = audit.evidence.shadows.read(LAST)
    return np.array(shadows.gaps), audit.score("reference")


def assert_whole(gaps, scores):
    assert len(gaps) == 2
    assert np.isfinite(gaps).all()
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", FIRST)
def test_each_adapter_trains_in_a_worker_process(name, tmp_path, worker):
    assert_whole(*train_all(FIRST[name], tmp_path, executor=worker))


@pytest.fixture(scope="module")
def ways(worker):
    """Who trains, by name."""
    with client_of(1) as client, ThreadPoolExecutor(1) as thread:
        yield {
            "thread": {"executor": thread},
            "local process": {"processes": 1},
            "process of an executor": {"executor": worker},
            "Dask": {"executor": client.get_executor()},
        }


@pytest.mark.matrix
@pytest.mark.own_processes
@pytest.mark.parametrize("name", EVERY)
def test_a_worker_process_trains_what_a_thread_trains(name, ways, tmp_path, capsys):
    found = {}
    for way, who in ways.items():
        place = tmp_path / way
        place.mkdir()
        found[way] = train_all(EVERY[name], place, **who)
        assert_whole(*found[way])
        with capsys.disabled():
            print(f"\n{name:50} {way:24} trained", end="")
    gaps, scores = found["thread"]
    for others, their_scores in found.values():
        np.testing.assert_allclose(others, gaps, atol=1e-3)
        np.testing.assert_allclose(their_scores, scores, atol=1e-3)


def in_place(change):
    """A change of a model that its owner makes without another object."""

    def changed(model):
        change(model)
        return model

    return changed


SEEN = []
LEFT = {  # how an owner may have left a model
    "compiled": torch.compile,
    "compiled in place": in_place(lambda m: m.compile()),
    "for several devices": nn.DataParallel,
    "hooked": in_place(
        lambda m: m.bert.encoder.layer[0].register_forward_hook(
            lambda *given: SEEN.append(given[-1])
        )
    ),
    "with activations not kept": in_place(lambda m: m.gradient_checkpointing_enable()),
    "for adapters": in_place(lambda m: m.enable_input_require_grads()),
    "answering with tuples": in_place(
        lambda m: setattr(m.config, "return_dict", False)
    ),
    "asked for hidden states": in_place(
        lambda m: m(torch.ones(1, 4, dtype=torch.int64), output_hidden_states=True)
    ),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::FutureWarning")
@pytest.mark.parametrize("how", LEFT)
def test_a_model_trains_in_a_worker_however_its_owner_left_it(how, tmp_path, worker):
    model, reader, data = classifier("Bert", **SIZE)
    made = mw.models.SequenceClassifier.from_model(LEFT[how](model), reader)
    assert_whole(*train_all(Brought(lambda _: (made, data)), tmp_path, executor=worker))


def test_what_cannot_travel_or_be_trained_is_named(tmp_path, worker):
    model, reader, data = classifier("Bert", **SIZE)
    lock = threading.Lock()

    def hook(*_given):
        with lock:
            pass

    model.bert.register_forward_hook(hook)
    held = mw.models.SequenceClassifier.from_model(model, reader)
    with pytest.raises(TypeError, match=r"lock.*executor=ThreadPoolExecutor"):
        train_all(Brought(lambda _: (held, data)), tmp_path / "held", executor=worker)
    model.bert.held = lock
    with pytest.raises(TypeError, match=r"BertForSequenceClassification.*lock"):
        mw.models.SequenceClassifier.from_model(model, reader)
    del model.bert.held
    frozen = mw.models.SequenceClassifier.from_model(
        model.requires_grad_(requires_grad=False), reader
    )
    audit = Brought(lambda _: (frozen, data)).audit(tmp_path / "frozen")
    with pytest.raises(
        ValueError, match=r"BertForSequenceClassification.*requires_grad"
    ):
        audit.train()


class Elsewhere(nn.Sequential):
    """A module that adds nothing of its own weights to what another one answers."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(768, 2))
        self.asked = [nn.Linear(768, 2)]

    def forward(self, values):
        return super().forward(values).detach() + self.asked[0](values.flatten(1))


def test_a_module_whose_own_weights_are_not_used_is_refused(tmp_path):
    model = mw.models.TorchClassifier(lambda _n: Elsewhere(), version="1")
    audit = Brought(lambda _: (model, images())).audit(tmp_path)
    with pytest.raises(ValueError, match=r"Elsewhere.*nothing would be trained"):
        audit.train()
