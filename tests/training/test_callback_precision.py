"""A pass that a Trainer's callback recorded is made again in the precision that it was made in."""

from __future__ import annotations

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.metrics import logit_gap
from memowidgets.models import device as device_room
from memowidgets.models.tokens import word_tokenizer
from memowidgets.store import StoreError
from tests.training.test_trainer_callback import make_audit, script_rows, tiny, trainer

BOTH = ["float32", "bfloat16"]


@pytest.fixture(scope="module")
def data():
    return mw.data.make_mcqs(n=36, seed=0)


@pytest.fixture(scope="module")
def tokenizer(data):
    return word_tokenizer(data)


@pytest.fixture(params=BOTH)
def trained_in(request):
    return request.param


@pytest.fixture
def recorded(trained_in, data, tokenizer, tmp_path):
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, tmp_path / "run")
    callback = mw.training.MemorizationCallback(audit, None)
    rows = script_rows(data, tokenizer)
    bf16 = trained_in == "bfloat16"
    trainer(model, rows, tmp_path / "out", callback, bf16=bf16, num_train_epochs=2).train()
    return audit


@pytest.mark.parametrize("processor", BOTH)
def test_a_pass_is_made_again_in_its_own_precision(
    recorded, trained_in, data, processor, monkeypatch, tmp_path
):
    record = recorded.evidence.names.record(2)
    assert record.precision == trained_in
    file = tmp_path / "run/forward/epoch-2.safetensors"
    kept = recorded.run.run.read_tensors("forward/epoch-2")
    assert kept.metadata["precision"] == trained_in
    expected = recorded.score("loss", checkpoint=2)
    file.unlink()
    monkeypatch.setattr(device_room, "runs_bfloat16", lambda _device: processor == "bfloat16")
    again = mw.Audit.open(tmp_path / "run", data=data, model=recorded.run.model)
    np.testing.assert_allclose(again.score("loss", checkpoint=2), expected, atol=1e-5)
    assert again.run.run.read_tensors("forward/epoch-2").metadata["precision"] == trained_in


def test_nearly_every_sample_has_a_gap_of_its_own(recorded, data):
    made = recorded.run.forward(recorded.evidence.names.record("final"))
    assert len(np.unique(logit_gap(made.tensors()["logits"], data.labels))) > 0.9 * len(data)


def test_a_pass_in_half_precision_can_not_be_made_again(recorded, tmp_path):
    name = "checkpoints/epoch-2/record.json"
    recorded.run.run.write_note(name, recorded.run.run.read_note(name) | {"precision": "float16"})
    (tmp_path / "run/forward/epoch-2.safetensors").unlink()
    with pytest.raises(StoreError, match="pass at epoch-2 was made in float16, and an audit comp"):
        recorded.score("loss", checkpoint=2)
