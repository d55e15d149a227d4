"""A run opens again with the data of its file; what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaModel,
    T5Config,
    T5ForConditionalGeneration,
)

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


def test_equal_texts_are_members_together(tmp_path):
    data, *_, model = texts(tmp_path)
    audit = mw.Audit(model, data, path=tmp_path / "run", training=SHORT, seed=0, device="cpu")
    members = set(audit.members.tolist())
    for text in set(data.texts):
        same = [
            str(name) for name, other in zip(data.ids, data.texts, strict=True) if other == text
        ]
        assert len(members & set(same)) in (0, len(same))
    assert 0.35 < len(members) / len(data) < 0.55
    assert np.isin(audit.run.held_out.ids, list(members)).sum() == 0


# what an audit can't work on

QUESTIONS = mw.data.make_mcqs(40, seed=0)
DIGITS = mw.data.load_digits().take(range(60))
TEXTS = mw.data.TextDataset.from_texts(["a", "b", "c", "d"], [0, 1, 0, 1])


def small(kind, **changes):
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return kind(vocab_size=50, num_attention_heads=2, pad_token_id=0, **size, **changes)


OTHERS = {
    "LlamaForSequenceClassification": lambda: LlamaForSequenceClassification(small(LlamaConfig)),
    "LlamaModel": lambda: LlamaModel(small(LlamaConfig)),
    "BertForMaskedLM": lambda: BertForMaskedLM(small(BertConfig)),
    "T5ForConditionalGeneration": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    ),
    "Linear": lambda: nn.Linear(2, 2),
}


@pytest.mark.parametrize("name", OTHERS)
def test_from_model_takes_causal_language_models_alone(name):
    with pytest.raises(TypeError, match=f"needs a causal language model .*, not {name}; .*Auto"):
        mw.models.CausalLM.from_model(OTHERS[name](), word_tokenizer(QUESTIONS))


def linear(n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Linear(8, n_classes))


MODELS = {
    "CausalLM": lambda: mw.models.CausalLM.from_scratch(QUESTIONS, 1, 16),
    "ConvNet": lambda: mw.models.ConvNet(4),
    "WideResNet": lambda: mw.models.WideResNet(10, 1),
    "TorchClassifier": lambda: mw.models.TorchClassifier(linear, version="1"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("data", [QUESTIONS, DIGITS, TEXTS], ids=lambda data: type(data).__name__)
def test_a_dataset_that_the_model_cannot_read_is_refused(name, data, tmp_path):
    kind, reads = type(data).__name__, "MCQDataset" if name == "CausalLM" else "ImageDataset"
    make = MODELS[name]
    if kind == reads:
        mw.Audit(make(), data, path=tmp_path / "run")
        return
    with pytest.raises(TypeError, match=f"reads {reads}.*, not {kind}; pass"):
        mw.Audit(make(), data, path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_held_out_samples_are_read_too(tmp_path):
    with pytest.raises(TypeError, match="reads ImageDataset, not MCQDataset; pass"):
        mw.Audit(mw.models.ConvNet(4), DIGITS, path=tmp_path / "run", held_out=QUESTIONS)


def test_what_is_no_dataset_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"data must be a dataset of mw\.data, not ndarray"):
        mw.Audit(mw.models.ConvNet(4), np.zeros((4, 8, 8)), path=tmp_path / "run")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"device": "nowhere"}, ValueError),
        ({"members": ["nobody"]}, ValueError),
        ({"held_out": 2.0}, ValueError),
        ({"seed": 0.5}, ValueError),
        ({"training": {"epochs": 1}}, TypeError),
    ],
)
def test_a_refused_audit_leaves_no_folder(tmp_path, changed, error):
    with pytest.raises(error):
        mw.Audit(mw.models.ConvNet(4), DIGITS, path=tmp_path / "runs" / "run", **changed)
    assert not (tmp_path / "runs").exists()
