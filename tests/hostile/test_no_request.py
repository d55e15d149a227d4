"""Whatever lies on disk is used without a request: neither a name looked up nor a connection."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.programs import printed

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
from tests.models.small import llama_folder
from memowidgets.models.tokens import tokenizer_of_words
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

words = "A B C D Which star moon ? Answer : ."
llama_folder(folder / "model", tokenizer_of_words([words]), width=16, layers=2)
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

from tests.accelerator.recipes import image_model
from transformers import ViTImageProcessorPil

base = image_model()
base.name_or_path = base.config._name_or_path = "somebody/private"
base.save_pretrained(folder / "vit")
ViTImageProcessorPil(do_resize=False, image_mean=[0.5], image_std=[0.5]).save_pretrained(
    folder / "vit"
)
mw.models.ImageClassifier.from_pretrained(folder / "vit").build(data)

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


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What guarded processes asked for."""
    (tmp_path / "guard").mkdir()
    (tmp_path / "guard" / "sitecustomize.py").write_text(GUARD)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'guard'}{os.pathsep}{ROOT}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "asked").write_text("")
    return tmp_path / "asked"


@pytest.mark.slow
def test_every_step_on_local_files_works_without_a_request(asked):
    printed(STEPS)
    assert asked.read_text() == ""


def test_the_guard_of_this_test_sees_a_request(asked):
    printed("import socket\ntry:\n socket.getaddrinfo('hf.co', 443)\nexcept OSError: pass")
    assert "hf.co" in asked.read_text()
