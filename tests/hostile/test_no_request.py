"""Whatever lies on disk is used without a request: neither a name looked up nor a connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# As sitecustomize it is in every Python process below the test, such as workers.
GUARD = """
import ipaddress, os, sys

def refused(what):
    with open(os.environ["ASKED"], "a") as log:
        print(what, file=log)
    raise OSError(what)

def is_here(host):
    try:
        return host in (None, "", "localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

def guard(event, args):
    if event == "socket.getaddrinfo" and not is_here(args[0]):
        refused(f"the name {args[0]!r} was looked up")
    if event == "socket.connect" and isinstance(args[1], tuple) and not is_here(args[1][0]):
        refused(f"{args[1]} was connected to")

sys.addaudithook(guard)
"""

STEPS = """
import json, os, warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

folder = Path.cwd()
os.environ["HF_HOME"] = str(folder / "hub")  # nothing that was fetched before helps
os.environ["MEMOWIDGETS_CACHE"] = str(folder / "cache")
import memowidgets as mw

# the quickstart's lines, smaller
data = mw.data.load_digits(canaries=0.05, seed=0).take(range(200))
training = mw.TrainingConfig(epochs=2)
audit = mw.Audit(mw.models.ConvNet(8), data, folder / "digits", training=training, device="cpu")
audit.train()
audit.score("psmi")
with ThreadPoolExecutor(1) as executor:
    audit.run_shadows(4, executor=executor)
audit.dashboard().close()
audit.report(folder / "digits.html")
mw.Audit.open(folder / "digits").score("loss")
mw.open_recorded("mmlu-field-smollm2").score("psmi")

# a language model in a folder, questions in a file
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

words = ["<pad>", "<unk>", "A", "B", "C", "D", "Which", "star", "moon", "?", "Answer", ":", "."]
tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="."
).save_pretrained(folder / "model")
config = LlamaConfig(
    vocab_size=len(words), hidden_size=16, intermediate_size=16, num_hidden_layers=2,
    num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, eos_token_id=10,
)
LlamaForCausalLM(config).save_pretrained(folder / "model")
lines = [f'"Which {w} {i} ?",x,y,z,w,{"ABCD"[i % 4]}' for i in range(20) for w in ("star", "moon")]
(folder / "astronomy_test.csv").write_text("\\n".join(lines))
questions = mw.data.fetch_mcq("mmlu", source=folder)
model = mw.models.CausalLM.from_pretrained(folder / "model", lora=mw.models.LoRA(layers="top:1"))
lm = mw.Audit(model, questions, folder / "lm", training=mw.TrainingConfig(epochs=1), device="cpu")
lm.train()
lm.score("loss")
mw.Audit.open(folder / "lm", data=questions, model=model).score("loss", checkpoint="final")
mw.Audit.open(folder / "lm")

# models in memory and in a folder that say that they are somebody's on the hub
base = LlamaForCausalLM.from_pretrained(folder / "model")
base.name_or_path = base.config._name_or_path = "somebody/private"
words = PreTrainedTokenizerFast.from_pretrained(folder / "model")
for layers in ("all", "top:1"):
    lora = mw.models.LoRA(r=2, layers=layers)
    named = [mw.models.CausalLM.from_model(base, words, lora=lora) for _ in range(2)]
    own = mw.Audit(named[0], questions, folder / layers, mw.TrainingConfig(epochs=1), device="cpu")
    own.train(stop_at_drop=1e-9)
    own.train()
    with ThreadPoolExecutor(1) as executor:
        own.run_shadows(1, executor=executor)
    opened = mw.Audit.open(folder / layers, data=questions, model=named[1])
    opened.fork(folder / f"{layers}-fork", data=questions.take(range(36))).train()

from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

config = ViTConfig(image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=32, num_labels=5)
base = ViTForImageClassification(config)
base.name_or_path = base.config._name_or_path = "somebody/private"
base.save_pretrained(folder / "vit")
ViTImageProcessorPil(do_resize=False).save_pretrained(folder / "vit")
coloured = mw.data.ImageDataset.from_arrays(data.images.repeat(3, axis=-1), data.labels)
model = mw.models.ImageClassifier.from_pretrained(folder / "vit")
model.describe(coloured)
model.build(coloured)

# the same run, as if its model and its questions had been named on the hub
from memowidgets.store import RunDirectory
manifest = json.loads((folder / "lm" / "manifest.json").read_text())
manifest["model_source"]["arguments"]["name_or_path"] = "somebody/a-model"
manifest["data"]["source"]["arguments"]["source"] = "hub"
manifest.pop("check")  # as somebody would leave it who knows the format
RunDirectory(folder / "lm").write_manifest(manifest)
mw.Audit.open(folder / "lm").score("loss")
mw.Audit.open(folder / "lm", data=questions).score("loss")

from memowidgets.__main__ import main

main(["doctor"])
assert main(["audits", "."]) == 0
assert main(["report", "digits", "again.html"]) == 0
"""


def processes(folder):
    """The environment of guarded processes, and where they note what they asked for."""
    (folder / "guard").mkdir()
    (folder / "guard" / "sitecustomize.py").write_text(GUARD)
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'guard'}{os.pathsep}{ROOT}",
        "ASKED": str(folder / "asked"),
        "OMP_NUM_THREADS": "1",
    }
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        environment.pop(name, None)
    (folder / "asked").write_text("")
    return environment, folder / "asked"


def run(code, folder, environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )


@pytest.fixture
def guarded(tmp_path):
    return processes(tmp_path)


@pytest.mark.slow
def test_every_step_on_local_files_works_without_a_request(tmp_path, guarded):
    environment, asked = guarded
    done = run(STEPS, tmp_path, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert asked.read_text() == ""


def test_the_guard_of_this_test_sees_a_request(tmp_path, guarded):
    environment, asked = guarded
    look_up = "import socket\ntry:\n socket.getaddrinfo('hf.co', 443)\nexcept OSError: pass"
    assert run(look_up, tmp_path, environment).returncode == 0
    assert "hf.co" in asked.read_text()
