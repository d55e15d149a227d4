"""The scripts of people who audit what they train already, run as they would run them.

Each stands in a file of its own. The files that they read are made here.
"""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import memowidgets as mw
from memowidgets.models.tokens import tokenizer_of_words
from tests.models.small import llama_folder

SCRIPTS = Path(__file__).parent / "scripts"
N, MOST_LINES = 60, 25
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n"
    "{{ message['content'] }}\n{% endfor %}"
)


def made_texts(folder):
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 2
    words = [["cough", "fever", "lung"], ["fracture", "bone", "cast"]]
    texts = [
        " ".join([*rng.choice(words[label], 4), f"note{i}"])
        for i, label in enumerate(labels)
    ]
    pd.DataFrame({"text": texts, "label": labels}).to_csv(
        folder / "notes.csv", index=False
    )
    data = mw.data.TextDataset.from_texts(texts, labels)
    module = mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16).build(
        data
    )
    module.save_pretrained(folder / "classifier")
    tokenizer_of_words(texts).save_pretrained(folder / "classifier")


def made_questions(folder):
    rows = [
        {
            "question": f"Ward of bed {i}?",
            "choices": ["north", "south"],
            "answer": "AB"[i % 2],
        }
        for i in range(N)
    ]
    lines = "\n".join(map(json.dumps, rows))
    (folder / "questions.jsonl").write_text(lines, encoding="utf-8")
    texts = [row["question"] for row in rows]
    tokenizer = tokenizer_of_words(
        [*texts, "<|user|>\n<|assistant|>\nA. north\nB. south"]
    )
    tokenizer.chat_template = CHAT
    llama_folder(folder / "chat", tokenizer, width=16, layers=1)


def made_arrays(folder):
    torch.manual_seed(0)
    labels = torch.arange(N) % 2
    torch.save((torch.randn(N, 8) + 2 * labels[:, None], labels), folder / "arrays.pt")


def made_pictures(folder):
    rng = np.random.default_rng(0)
    for i in range(N):
        place = folder / "pictures" / ("dark", "light")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        values = rng.integers(0, 100, (16, 16, 3)) + 150 * (i % 2)
        Image.fromarray(values.astype(np.uint8)).save(place / f"{i}.png")


def made_table(folder):
    rng = np.random.default_rng(0)
    outcome = np.arange(N) % 2
    columns = {
        "number": [f"p{i}" for i in range(N)],
        "age": rng.integers(20, 60, N) + 20 * outcome,
        "pressure": rng.normal(120, 9, N).round(1) + 20 * outcome,
        "outcome": np.array(["well", "ill"])[outcome],
    }
    pd.DataFrame(columns).to_csv(folder / "patients.csv", index=False)


def run(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few samples, and of libraries
        return runpy.run_path(str(SCRIPTS / f"{name}.txt"))


MADE = {
    "trainer_classification": made_texts,
    "trainer_sft_messages": made_questions,
    "trl_sft": made_questions,
    "peft_lora": made_questions,
    "frame_of_anything": made_table,
    "lightning_module": made_arrays,
    "loop_of_dicts": made_arrays,
    "folder_of_pictures": made_pictures,
    "table_from_csv": made_table,
    "scikit_learn": made_table,
    "notebook_cell": lambda _: None,  # no file
    "resumed": made_arrays,
}
WHOLE = {
    "whole_loop": made_arrays,
    "whole_lightning": made_arrays,
    "whole_trainer": made_texts,
    "whole_scikit_learn": made_table,
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_script_has_its_files():
    assert {file.stem for file in SCRIPTS.glob("*.txt")} == {*MADE, *WHOLE}


SLOW = {"lightning_module"}  # to import Lightning takes five seconds
ELSEWHERE = {"trl_sft", "peft_lora", "frame_of_anything"}  # in test_versions.py
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
    for name in MADE
    if name not in ELSEWHERE
]


@pytest.mark.parametrize("name", NAMES)
def test_a_script_of_25_lines_ends_in_an_audit_that_flags(place, name):
    MADE[name](place)
    lines = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    assert sum(bool(line.strip()) for line in lines) <= MOST_LINES
    made = run(name)
    audit = made["audit"]
    if "dashboard" in made:
        made["dashboard"].close()
    metric = "loss" if name == "scikit_learn" else "psmi"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        flagged = audit.flagged(metric, share=0.1)
    assert 0 < len(flagged) < N
    if name != "scikit_learn":
        assert isinstance(audit, mw.Audit)
        assert len(audit.checkpoints) > 2
        assert (
            audit.checkpoints["median_loss"].iloc[-1]
            < audit.checkpoints["median_loss"].iloc[0]
        )


@pytest.mark.slow
@pytest.mark.own_processes
@pytest.mark.parametrize("name", WHOLE)
def test_a_script_is_audited_from_its_first_line_to_the_report(place, name):
    """Workers know what a main script defines; those of the loop are processes."""
    WHOLE[name](place)
    command = [sys.executable, "-W", "ignore", str(SCRIPTS / f"{name}.txt")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    audit = mw.Audit.open(next(Path("runs").iterdir()))
    assert audit.n_shadows == 8
    assert len(audit.log_lira()) == len(audit.members)
    found = audit.evidence.references
    assert len(found.indices) == 1
    assert (place / "report.html").stat().st_size > 10_000
    assert json.loads((place / "report.json").read_text(encoding="utf-8"))


def test_the_resumed_loop_has_the_checkpoints_of_both_parts(place, monkeypatch):
    made_arrays(place)
    saved = torch.save

    def killed(state, file):
        saved(state, file)
        if file == "state.pt" and state[2] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        run("resumed")
    monkeypatch.setattr(torch, "save", saved)
    audit = run("resumed")["audit"]
    assert audit.checkpoints["step"].tolist() == [4 * i for i in range(13)]
