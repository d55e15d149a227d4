"""A run opens again with the data of its file; what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from torch import nn
from transformers import LlamaConfig, LlamaModel

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer

SHORT = mw.TrainingConfig(epochs=1, batch_size=16, precision="float32")
WORDS = {
    "card": "my card {} is lost",
    "cash": "no cash at machine {}",
    "loan": "my loan {} is late",
}


def read_thrice(path, read):
    """The data of a file, the same once more, and those after a change."""
    found = [read(), read()]
    path.write_text(path.read_text().replace(" 3", " 4"))
    return *found, read()


def texts(folder):
    path = folder / "messages.csv"
    rows = [(text.format(i % 7), label) for i in range(24) for label, text in WORDS.items()]
    pd.DataFrame(rows, columns=["text", "intent"]).to_csv(path, index=False)
    found = read_thrice(path, lambda: mw.data.TextDataset.from_csv(path, label="intent"))
    return *found, mw.models.SequenceClassifier.from_scratch(found[0], layers=1, width=16)


def questions(folder):
    path = folder / "deeds.csv"
    lines = [f"{i % 2},I {['paid', 'lied'][i % 2]} {i} times." for i in range(60)]
    path.write_text("label,input\n" + "\n".join(lines) + "\n")
    columns = {"question": "input", "answer": "label"}
    read = mw.data.MCQDataset.from_csv
    found = read_thrice(path, lambda: read(path, columns=columns, choices=["no", "yes"]))
    return *found, mw.models.CausalLM.from_scratch(found[0], layers=1, width=16)


@pytest.mark.parametrize("make", [texts, questions])
def test_a_run_opens_again_with_its_file(tmp_path, make):
    data, again, changed, model = make(tmp_path)
    audit = mw.Audit(model, data, path=tmp_path / "run", training=SHORT, seed=0, device="cpu")
    audit.train()
    before = audit.score("loss", checkpoint="final")
    assert isinstance(mw.Audit.open(audit.path).data, mw.data.WithheldDataset)
    opened = mw.Audit.open(audit.path, data=again)
    pd.testing.assert_series_equal(opened.score("loss", checkpoint="final"), before)
    with pytest.raises(ValueError, match="samples have another content"):
        mw.Audit.open(audit.path, data=changed)


# what an audit can't work on

QUESTIONS = mw.data.make_mcqs(40, seed=0)
DIGITS = mw.data.load_digits().take(range(60))
TEXTS = mw.data.TextDataset.from_texts(["a", "b", "c", "d"], [0, 1, 0, 1])


def test_from_model_takes_causal_language_models_alone():
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    raw = LlamaModel(LlamaConfig(vocab_size=50, num_attention_heads=2, **size))
    for model, words in (
        (raw, "LlamaModel"),
        (nn.Linear(2, 2), "Linear"),
    ):
        with pytest.raises(TypeError, match=f"needs a causal language model .*, not {words}; "):
            mw.models.CausalLM.from_model(model, word_tokenizer(QUESTIONS))


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"device": "nowhere"}, ValueError),
        ({"members": ["nobody"]}, ValueError),
        ({"held_out": 2.0}, ValueError),
        ({"held_out": QUESTIONS}, TypeError),
        ({"seed": 0.5}, ValueError),
        ({"training": {"epochs": 1}}, TypeError),
        ({"data": np.zeros((4, 8, 8))}, TypeError),
        ({"data": QUESTIONS}, TypeError),
    ],
)
def test_a_refused_audit_leaves_no_folder(tmp_path, changed, error):
    given = {"data": DIGITS} | changed
    with pytest.raises(error):
        mw.Audit(mw.models.ConvNet(4), path=tmp_path / "runs" / "run", **given)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("setting", [{"epochs": 1e12}, {"checkpoint_every": 1e-9}])
def test_a_training_without_end_is_refused_before_anything_is_written(setting, tmp_path):
    training = mw.TrainingConfig(**setting)
    with pytest.raises(ValueError, match=r"more than 10000 checkpoints.*checkpoint_every"):
        mw.Audit(mw.models.ConvNet(4), DIGITS, path=tmp_path / "run", training=training)
    assert not (tmp_path / "run").exists()
