"""TRL's SFTTrainer with the callback, and a loop with accelerate in two processes, watched."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from tests.training.small import run_in_two_processes

# importing trl, and starting two processes, take half a minute
pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")  # TRL warns of much that is fine here
def test_the_trainer_of_trl_is_recorded(tmp_path, monkeypatch):
    pytest.importorskip("trl", reason="no TRL: pip install trl")
    # TRL's own
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    from tests.training.test_trainer_callback import (
        ON_THE_CPU,
        QUIET,
        N,
        make_audit,
        tiny,
    )

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
