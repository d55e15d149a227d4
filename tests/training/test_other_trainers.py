"""TRL's SFTTrainer with the callback, and a loop with accelerate in two processes, watched."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.models.quantized import is_packed
from memowidgets.models.tokens import tokenizer_of_words, word_tokenizer
from tests.models.small import llama_folder
from tests.training.small import run_in_two_processes
from tests.training.test_trainer_callback import (
    ON_THE_CPU,
    QUIET,
    N,
    make_audit,
    tiny,
)

# importing trl, and starting two processes, take half a minute
pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")  # TRL warns of much that is fine here
def test_the_trainer_of_trl_is_recorded(tmp_path, monkeypatch):
    pytest.importorskip("trl", reason="no TRL: pip install trl")
    # TRL's own
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    data = mw.data.make_mcqs(n=N, seed=0)
    tokenizer = word_tokenizer(data)
    tokenizer.add_special_tokens({"eos_token": "<end>"})
    model = tiny(len(tokenizer))
    audit = make_audit(model, tokenizer, data, tmp_path / "run")
    callback = mw.training.MemorizationCallback(audit, stop_at_drop=None)
    rows = [
        {"prompt": data.prompt(i), "completion": data.replies(i)[label]}
        for i, label in enumerate(data.labels)
    ]
    course = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "max_length": None,
    }
    arguments = SFTConfig(
        str(tmp_path / "out"), bf16=False, **course, **ON_THE_CPU, **QUIET
    )
    given = {
        "train_dataset": Dataset.from_list(rows[::-1]),
        "processing_class": tokenizer,
    }
    SFTTrainer(model, arguments, callbacks=[callback], **given).train()
    assert audit.checkpoints["step"].tolist() == [0, 9, 18]
    drop = audit.checkpoints["drop"].iloc[-1]
    assert drop > 0
    assert np.isfinite(audit.score("psmi")).all()


def chatting(data):
    """A tokenizer of words with a chat template."""
    marks = ["user", "assistant", "end"]
    tokenizer = tokenizer_of_words(data.prompts(), [*marks, *"ABCDEF"])
    tokenizer.add_special_tokens({"eos_token": "end"})
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }} {{ m['content'] }} end\n{% endfor %}"
    )
    return tokenizer


@pytest.mark.filterwarnings("ignore")  # TRL and peft warn of much that is fine here
def test_the_first_example_of_the_page_on_language_models_runs(tmp_path, monkeypatch):
    """On a CPU, with a model made here in place of the hub's."""
    trl = pytest.importorskip("trl", reason="no TRL: pip install trl")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    monkeypatch.chdir(tmp_path)
    data = mw.data.make_mcqs(n=24, seed=0)
    data.to_jsonl("questions.jsonl")
    llama_folder(tmp_path / "llama", chatting(data), width=64, layers=2)
    on_the_cpu = partial(
        trl.SFTConfig, **ON_THE_CPU, bf16=False, report_to=[], learning_rate=3e-3
    )
    monkeypatch.setattr(trl, "SFTConfig", on_the_cpu)
    page = Path(mw.__file__).parents[1] / "docs/language_models.md"
    example = page.read_text("utf-8").split("```python\n")[1].split("```")[0]
    assert "Qwen/Qwen2.5-0.5B-Instruct" in example
    names = {}
    exec(example.replace("Qwen/Qwen2.5-0.5B-Instruct", "llama"), names)
    audit = names["audit"]
    assert audit.checkpoints["drop"].iloc[-1] > 0
    assert np.isfinite(audit.score("psmi")).all()
    assert Path("questions.html").stat().st_size > 0
    assert audit.checkpoints["epoch"].iloc[-1] == 3
    assert any(map(is_packed, names["model"].parameters()))
    folder = Path(audit.path, "checkpoints", audit.checkpoints.index[-1])
    assert (folder / "adapter_model.safetensors").exists()


def test_two_processes_of_accelerate_record_once_and_stop_together(tmp_path):
    pytest.importorskip("accelerate", reason="no accelerate: pip install accelerate")
    run_in_two_processes("two_watched_processes.py", tmp_path)
    ended = [
        ast.literal_eval((tmp_path / f"ended-{rank}").read_text()) for rank in (0, 1)
    ]
    assert ended[0] == ended[1]
    steps_per_epoch, steps, reached, n_checkpoints, _ = ended[0]
    assert steps_per_epoch == 6
    assert reached
    audit = mw.Audit.open(tmp_path / "run")
    assert audit.prediction.record.step == steps
    assert len(audit.checkpoints) == n_checkpoints == steps // 3 + 1
    assert np.isfinite(audit.score("psmi")).all()
