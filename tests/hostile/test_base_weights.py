"""The base weights are part of a run's identity, of every loading, and of the kept activations."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

import memowidgets as mw
from memowidgets.models import pretrained as files
from memowidgets.models.pretrained import file_digest, folder_origin
from memowidgets.models.tokens import word_tokenizer
from memowidgets.store import StoreError
from tests.models.small import llama_folder
from tests.training.small import Inline

CPU = torch.device("cpu")
TRAINING = mw.TrainingConfig(epochs=1, checkpoint_every=1, lr=1e-2, precision="float32")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))
    files._known.clear()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def data():
    return mw.data.make_mcqs(40, seed=1)


@pytest.fixture
def folder(data, tmp_path):
    """A tiny Llama as `save_pretrained` leaves it."""
    return llama_folder(tmp_path / "tiny", word_tokenizer(data))


def change(folder, *, same_times: bool) -> None:
    """Other weights of equal size; where asked, with the times of the old ones."""
    file = folder / "model.safetensors"
    before = file.stat()
    weights = {name: tensor + 0.5 for name, tensor in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    assert file.stat().st_size == before.st_size
    if same_times:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def pretrained(folder, layers="top:1"):
    return mw.models.CausalLM.from_pretrained(
        folder, mw.models.LoRA(r=2, layers=layers)
    )


def made(folder, data, path):
    settings = {"training": TRAINING, "held_out": None, "device": "cpu"}
    return mw.Audit(pretrained(folder), data, path, **settings)


@pytest.mark.parametrize("same_times", [False, True])
def test_a_run_on_other_base_weights_is_refused(folder, data, tmp_path, same_times):
    made(folder, data, tmp_path / "run").train()
    change(folder, same_times=same_times)
    with pytest.raises(ValueError, match=r"holds another run: other model weights \("):
        made(folder, data, tmp_path / "run")
    with pytest.raises(ValueError, match=r"not the model of .*: other model weights"):
        mw.Audit.open(tmp_path / "run", data=data, model=pretrained(folder))
    audit = mw.Audit.open(tmp_path / "run", data=data)
    assert len(audit.checkpoints) == 2
    with pytest.raises(StoreError, match="needs the model and the data"):
        audit.run_shadows(2)


def test_an_audit_that_is_open_trains_on_no_other_base(folder, data, tmp_path):
    audit = made(folder, data, tmp_path / "run")
    audit.train()
    change(folder, same_times=True)
    said = r"have changed since this model was created.*base weights"
    with pytest.raises(ValueError, match=said):
        audit.run_shadows(1, Inline())
    with pytest.raises(ValueError, match=said):
        audit.score("psmi", checkpoint="final")


def test_another_configuration_or_tokenizer_is_another_run(folder, data, tmp_path):
    made(folder, data, tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-6
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-2}))
    with pytest.raises(ValueError, match="other model recipe"):
        made(folder, data, tmp_path / "run")


def test_a_folder_that_moved_is_the_same(folder, data, tmp_path):
    made(folder, data, tmp_path / "run").train()
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(folder, tmp_path / "elsewhere/tiny")
    shutil.rmtree(folder)
    made(tmp_path / "elsewhere/tiny", data, tmp_path / "run").score(
        "loss", checkpoint="final"
    )


def test_a_model_in_memory_with_another_tokenizer_is_another_run(
    folder, data, tmp_path
):
    raw = LlamaForCausalLM.from_pretrained(folder)

    def audit(words):
        model = mw.models.CausalLM.from_model(raw, word_tokenizer(words))
        return mw.Audit(model, data, path=tmp_path / "run", held_out=None, device="cpu")

    audit(data)
    audit(data)
    with pytest.raises(ValueError, match="other model tokenizer"):
        audit(mw.data.make_mcqs(40, seed=2))


def states_of(folder, data):
    feed = pretrained(folder).feeder(data, CPU)
    return feed(np.arange(4))["states"].clone()


def test_kept_activations_that_are_cut_short_are_made_again(folder, data, cache):
    clean = states_of(folder, data)
    (file,) = cache.rglob("states.bf16")
    file.write_bytes(file.read_bytes()[:-2])
    assert torch.equal(states_of(folder, data), clean)


def test_a_digest_is_computed_once_and_again_after_a_change(folder, monkeypatch):
    read = []
    compute = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda *a: read.append(a) or compute(*a)
    )
    file = folder / "model.safetensors"
    first = file_digest(file)
    assert first == hashlib.sha256(file.read_bytes()).hexdigest()
    assert file_digest(file) == first
    assert len(read) == 1
    change(folder, same_times=True)
    assert file_digest(file) != first
    assert len(read) == 2


TOKENIZER = (
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json"
)
TOKENIZER += " vocab.json vocab.txt merges.txt spiece.model"


@pytest.mark.parametrize("name", TOKENIZER.split())
def test_each_file_of_a_tokenizer_is_in_the_digest_of_a_model(name, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    found = [folder_origin(tmp_path)]
    for content in ("a b", "b a"):
        (tmp_path / name).write_text(content)
        found.append(folder_origin(tmp_path))
    assert len({one["recipe"] for one in found}) == 3
    assert len({one["weights"] for one in found}) == 1
