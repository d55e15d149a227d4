"""Frozen weights: in which type, and kept by a process as if they were loaded anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM

import memowidgets as mw
from memowidgets.models.base import Bases
from memowidgets.models.tokens import tokenizer_of_words, word_tokenizer
from memowidgets.progress import Progress
from memowidgets.training import learner, worker
from tests.models import test_causal_lm as causal
from tests.models import test_sequence_classifier as classifiers
from tests.models.small import llama_folder, saved
from tests.training.small import Inline, learner_of

LoRA = mw.models.LoRA
STEPS = 3


class Counted(Bases):
    """Bases that count how often one is loaded."""

    loads = 0

    def of(self, key, load):
        def counted():
            self.loads += 1
            return load()

        return super().of(key, counted)


def questioned(raw, lora, folder=None, *, cache=True):
    tokenizer = word_tokenizer(causal.questions())
    if folder is None:
        return mw.models.CausalLM.from_model(raw, tokenizer, lora=lora, cache=cache)
    return mw.models.CausalLM.from_pretrained(
        saved(folder, raw, tokenizer), lora, cache=cache
    )


def causal_of(family):
    return causal.tiny(family, len(word_tokenizer(causal.questions())))


def with_hook(hook):
    """Return a model with a buffer, whose last block's input a hook changes."""
    raw = causal_of("llama")
    raw.model.layers[-1].register_buffer("seen", torch.zeros(()))
    raw.model.layers[-1].register_forward_pre_hook(hook)
    return raw


def counts(block, inputs):
    if block.training:
        block.seen += 1
    return (inputs[0] * (1 + block.seen / 10), *inputs[1:])


def read_from(tmp_path, family, **options):
    """Return a classifier of a folder whose head is drawn anew, because its model has another."""
    tokenizer = tokenizer_of_words(classifiers.WORDS)
    raw = classifiers.tiny(family, len(tokenizer), num_labels=5)
    if options.pop("without_head", False):
        config = classifiers.tiny_config(family, len(tokenizer))
        raw = AutoModelForMaskedLM.from_config(config)
    return mw.models.SequenceClassifier.from_pretrained(
        saved(tmp_path, raw, tokenizer), **options
    )


UPPER, ALL = LoRA(r=2, layers="top:2"), LoRA(r=2)
DROPPING = LoRA(r=2, layers="top:2", dropout=0.4)
MODELS = {
    "all blocks": lambda _: questioned(causal_of("llama"), ALL),
    "upper blocks with dropout": lambda _: questioned(causal_of("opt"), DROPPING),
    "nothing kept": lambda _: questioned(causal_of("gpt2"), UPPER, cache=False),
    "a folder in bfloat16": lambda at: questioned(
        causal_of("llama").bfloat16(), ALL, at
    ),
    "tied to the head": lambda at: questioned(causal_of("gemma"), UPPER, at),
    "buffers that training changes": lambda _: questioned(with_hook(counts), ALL),
    "a classifier's own head": lambda _: classifiers.classifier(
        classifiers.tiny("bert", 32), tokenizer_of_words(classifiers.WORDS), lora=ALL
    ),
    "a drawn head of bert": lambda at: read_from(
        at, "bert", lora=LoRA(r=2, dropout=0.2)
    ),
    "a drawn head and pooler": lambda at: read_from(
        at, "bert", lora=UPPER, without_head=True
    ),
}


def trained(model, seed, bases=None, precision="auto"):
    """Train for a few steps; return logits before and after, and what is trained."""
    of_texts = isinstance(model, mw.models.SequenceClassifier)
    data = classifiers.texts() if of_texts else causal.questions()
    course = {"epochs": 1, "batch_size": 4, "lr": 1e-2, "precision": precision}
    learner = learner_of(model, data, np.arange(16), seed, bases, **course)
    every = np.arange(len(data))
    first = learner.look_at(every).logits
    learner.advance(STEPS, Progress(), "")
    return {**learner.weights(), "first": first, "last": learner.look_at(every).logits}


def assert_equal(one, other):
    assert set(one) == set(other)
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)
def test_a_kept_base_trains_as_one_that_is_loaded_anew(made, request, tmp_path):
    model, bases = made(tmp_path), Counted()
    place = list(MODELS).index(request.node.callspec.id)
    precision = ("float32", "bfloat16")[place % 2]
    for seed in (1, 2):
        kept = trained(model, seed, bases, precision)
        assert_equal(kept, trained(model, seed, precision=precision))
        assert not np.array_equal(kept["first"], kept["last"])
    assert bases.loads == 1


def test_a_worker_loads_the_base_once_and_frees_it_at_the_end(tmp_path, monkeypatch):
    made = []

    def noted():
        made.append(Counted())
        return made[-1]

    monkeypatch.setattr(learner, "Bases", noted)
    settings = mw.TrainingConfig(epochs=1, checkpoint_every=1, batch_size=8)
    model = questioned(causal_of("llama"), UPPER)
    data, path = causal.questions(), tmp_path / "run"
    audit = mw.Audit(model, data, path=path, training=settings, held_out=None)
    audit.train()
    audit.run_shadows(3, Inline())
    assert [bases.loads for bases in made] == [1]
    assert worker._Kept.job is None


def test_two_threads_share_a_base():
    model, bases = questioned(causal_of("llama"), UPPER), Counted()
    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(lambda seed: trained(model, seed, bases), (1, 2)))
    for seed, found in zip((1, 2), both, strict=True):
        assert_equal(found, trained(model, seed))
    assert bases.loads == 1


def in_bfloat16(folder):
    """Return a folder with a tiny Llama as `save_pretrained` leaves it, in bfloat16, and data."""
    data = causal.questions()
    return llama_folder(folder, word_tokenizer(data), dtype=torch.bfloat16), data


@pytest.mark.parametrize(
    ("options", "precision", "trained", "frozen"),
    [
        ({}, "float32", {torch.float32}, {torch.float32}),
        ({}, "bfloat16", {torch.float32}, {torch.bfloat16}),
        ({"lora": None}, "bfloat16", {torch.float32}, set()),
    ],
)
def test_frozen_weights_follow_the_precision(
    options, precision, trained, frozen, tmp_path
):
    folder, data = in_bfloat16(tmp_path)
    model = mw.models.CausalLM.from_pretrained(folder, **options)
    weights = list(learner_of(model, data, precision=precision).module.parameters())
    assert {weight.dtype for weight in weights if weight.requires_grad} == trained
    assert {weight.dtype for weight in weights if not weight.requires_grad} == frozen


def test_an_audit_computes_where_the_model_says(tmp_path, monkeypatch):
    folder, data = in_bfloat16(tmp_path / "tiny")
    model = mw.models.CausalLM.from_pretrained(folder, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA GPU"):
        mw.Audit(model, data, path=tmp_path / "run")
    mw.Audit(model, data, path=tmp_path / "run", device="cpu")
