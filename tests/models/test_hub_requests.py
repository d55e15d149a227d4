"""What a model named by a hub asks of that hub: nothing that its user did not ask for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub import Hub

ROOT = Path(__file__).parents[2]
LIFE = """
import tempfile
from concurrent.futures import ThreadPoolExecutor
import memowidgets as mw
from transformers import LlamaConfig, LlamaForCausalLM
from memowidgets.models.tokens import word_tokenizer

data = mw.data.make_mcqs(40, seed=0)
tokenizer = word_tokenizer(data)
tokenizer.name_or_path = "someone/private"
config = LlamaConfig(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64,
    num_hidden_layers=2, num_attention_heads=2, pad_token_id=0)
base = LlamaForCausalLM(config)
base.name_or_path = base.config._name_or_path = "someone/private"
training = mw.TrainingConfig(epochs=1, checkpoint_every=0.5, precision="float32")
for layers in ("all", "top:1"):
    folder = tempfile.mkdtemp()

    def model():
        lora = mw.models.LoRA(r=2, layers=layers)
        return mw.models.CausalLM.from_model(base, tokenizer, lora=lora)

    audit = mw.Audit(model(), data, path=folder + "/run", training=training)
    audit.train(stop_at_drop=1e-9)
    audit.score("loss")
    audit.train()
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(1, executor)
    opened = mw.Audit.open(folder + "/run", data=data, model=model())
    opened.score("loss", checkpoint="final")
    mw.Audit.open(folder + "/run")
    fork = opened.fork(folder + "/fork", data=data.take(range(36)))
    fork.train()
    print("lived with", layers)
"""
FOLDER = """
import numpy as np
from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

folder = tempfile.mkdtemp()
config = ViTConfig(image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=32, num_labels=5)
base = ViTForImageClassification(config)
base.name_or_path = base.config._name_or_path = "someone/private"
base.save_pretrained(folder)
ViTImageProcessorPil(do_resize=False).save_pretrained(folder)
pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3)).astype(np.uint8)
data = mw.data.ImageDataset.from_arrays(pixels, np.arange(20) % 2, ["a", "b"])
model = mw.models.ImageClassifier.from_pretrained(folder)
model.describe(data)
model.build(data)
print("lived in a folder")
"""


ASK = """
try:
    mw.models.CausalLM.from_pretrained("another/model")
except ConnectionError:
    print("asked for another")
"""


@pytest.mark.slow
def test_runs_and_a_model_in_a_folder_ask_the_hub_nothing(tmp_path):
    """A hub on this machine has nothing, and hears only of the model that is asked for."""
    gone = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE")
    with Hub().open() as hub:
        environment = {k: v for k, v in os.environ.items() if k not in gone} | {
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "MEMOWIDGETS_CACHE": str(tmp_path / "cache"),
            "OMP_NUM_THREADS": "1",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": str(ROOT),
        }
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", LIFE + FOLDER + ASK],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        asked = list(hub.asked)
    lived = ["lived with all", "lived with top:1", "lived in a folder", "asked for another"]
    assert ended.stdout.splitlines() == lived, ended.stderr
    assert asked
    assert all("another/model" in line for line in asked)
