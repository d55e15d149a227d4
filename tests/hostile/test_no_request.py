"""What lies on disk is used without a request. `tests/conftest.py` guards all other tests too."""

from __future__ import annotations

import socket

import pytest

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests import conftest
from tests.accelerator.recipes import image_model, language_model, questions
from tests.hostile.forged import change_manifest
from tests.models.small import llama_folder, saved
from tests.models.test_image_classifier import processor
from tests.training.small import Inline

TRAINING = mw.TrainingConfig(epochs=1, batch_size=16)


def test_the_guard_sees_a_request():
    with pytest.raises(OSError, match="elsewhere"):
        socket.getaddrinfo("hf.co", 443)
    with pytest.raises(OSError, match="elsewhere"), socket.socket() as one:
        one.connect(("192.0.2.1", 443))
    assert conftest.ASKED == ["hf.co", "192.0.2.1"]
    conftest.ASKED.clear()


@pytest.fixture(autouse=True)
def _empty_caches(tmp_path, monkeypatch):
    """Nothing that was fetched before helps."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(tmp_path / "cache"))


def somebodys(raw):
    """A model that says that it is somebody's on the hub, where libraries would look for it."""
    raw.name_or_path = raw.config._name_or_path = "somebody/private"
    return raw


def on_the_hub(manifest):
    manifest["model_source"]["arguments"]["name_or_path"] = "somebody/a-model"
    arguments = {"name": "mmlu", "split": "test", "source": "hub"}
    manifest["data"]["source"] = {"loader": "fetch_mcq", "arguments": arguments}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layers", ["all", "top:1"])
@pytest.mark.parametrize("place", ["memory", "folder"])
def test_language_models_at_hand_are_used_without_a_request(place, layers, tmp_path):
    data, lora = questions(), mw.models.LoRA(r=2, layers=layers)
    words = word_tokenizer(data)
    if place == "memory":
        model = mw.models.CausalLM.from_model(
            somebodys(language_model(data)), words, lora=lora
        )
    else:
        model = mw.models.CausalLM.from_pretrained(
            llama_folder(tmp_path / "model", words), lora
        )
    audit = mw.Audit(model, data, tmp_path / "run", TRAINING, device="cpu")
    audit.train()
    audit.run_shadows(1, Inline())
    opened = mw.Audit.open(tmp_path / "run", data=data, model=model)
    opened.fork(tmp_path / "fork", data=data.take(range(36))).train()
    mw.Audit.open(tmp_path / "run").score("loss")
    if place == "folder":  # as if both had been named on the hub
        change_manifest(tmp_path / "run", on_the_hub)
        for given in ({}, {"data": data}):
            mw.Audit.open(tmp_path / "run", **given).score("loss")


@pytest.mark.slow
def test_a_folder_of_images_models_is_used_without_a_request(tmp_path):
    reader = processor(do_resize=False, image_mean=[0.5], image_std=[0.5])
    folder = saved(tmp_path / "vit", somebodys(image_model()), reader)
    mw.models.ImageClassifier.from_pretrained(folder).build(mw.data.load_digits())
