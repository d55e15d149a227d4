"""What an audit can't work on is refused when it is made, in one sentence."""

from __future__ import annotations

import numpy as np
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

QUESTIONS = mw.data.make_mcqs(40, seed=0)
DIGITS = mw.data.load_digits().take(range(60))
TEXTS = mw.data.TextDataset.from_texts(["a", "b", "c", "d"], [0, 1, 0, 1])


def small(kind, **changes):
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return kind(vocab_size=50, num_attention_heads=2, pad_token_id=0, **size, **changes)


OTHERS = {
    "LlamaForSequenceClassification has no head over its vocabulary": (
        lambda: LlamaForSequenceClassification(small(LlamaConfig))
    ),
    "LlamaModel has no head over its vocabulary": lambda: LlamaModel(small(LlamaConfig)),
    "BertForMaskedLM predicts masked words": lambda: BertForMaskedLM(small(BertConfig)),
    "T5ForConditionalGeneration has an encoder": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    ),
    "Linear is not a model of transformers": lambda: nn.Linear(2, 2),
}


@pytest.mark.parametrize("words", OTHERS)
def test_from_model_takes_causal_language_models_alone(words):
    with pytest.raises(TypeError, match=f"needs a causal language model, but {words}.*AutoModel"):
        mw.models.CausalLM.from_model(OTHERS[words](), word_tokenizer(QUESTIONS))


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
    with pytest.raises(TypeError, match=f"{kind} has none; pass an {reads}"):
        mw.Audit(make(), data, path=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_held_out_samples_are_read_too(tmp_path):
    with pytest.raises(TypeError, match="MCQDataset has none; pass an ImageDataset"):
        mw.Audit(mw.models.ConvNet(4), DIGITS, path=tmp_path / "run", held_out=QUESTIONS)


def test_what_is_no_dataset_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"data must be a dataset of mw\.data, not ndarray"):
        mw.Audit(mw.models.ConvNet(4), np.zeros((4, 8, 8)), path=tmp_path / "run")


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"states": "int8"}, ValueError),
        ({"device": "nowhere"}, ValueError),
        ({"members": ["nobody"]}, ValueError),
        ({"held_out": 2.0}, ValueError),
        ({"seed": 0.5}, ValueError),
        ({"training": {"epochs": 1}}, TypeError),
    ],
)
def test_a_refused_audit_leaves_no_folder(tmp_path, changed, error):
    data = mw.data.load_digits().take(range(60))
    with pytest.raises(error):
        mw.Audit(mw.models.ConvNet(4), data, path=tmp_path / "runs" / "run", **changed)
    assert not (tmp_path / "runs").exists()
