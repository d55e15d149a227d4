"""What `from_pretrained` says when a model can't be had, and in which dtype it is loaded."""

import types

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets.models.tokens import word_tokenizer
from memowidgets.training.learner import Learner, Recipe
from tests.models.small import llama_folder

CPU = torch.device("cpu")


@pytest.fixture
def data():
    return mw.data.make_mcqs(40, seed=1)


@pytest.fixture
def folder(data, tmp_path):
    """A tiny Llama as `save_pretrained` leaves it, in bfloat16."""
    return llama_folder(tmp_path / "tiny", word_tokenizer(data), dtype=torch.bfloat16)


def dtypes(model, data, precision="auto"):
    settings = mw.TrainingConfig(precision=precision).resolved(model.training_defaults)
    module = Learner(Recipe(model, data, settings, "cpu"), np.arange(8), 0).module
    parameters = list(module.parameters())
    return (
        {p.dtype for p in parameters if p.requires_grad},
        {p.dtype for p in parameters if not p.requires_grad},
    )


@pytest.mark.parametrize(
    ("options", "precision", "trained", "frozen"),
    [
        ({}, "float32", {torch.float32}, {torch.float32}),
        ({}, "bfloat16", {torch.float32}, {torch.bfloat16}),
        ({"dtype": "bfloat16"}, "float32", {torch.float32}, {torch.bfloat16}),
        ({"lora": None}, "bfloat16", {torch.float32}, set()),
    ],
)
def test_frozen_weights_follow_the_precision_or_are_of_the_dtype_that_was_asked_for(
    folder, data, options, precision, trained, frozen
):
    model = mw.models.CausalLM.from_pretrained(folder, **options)
    assert dtypes(model, data, precision) == (trained, frozen)
    assert model.settings().get("dtype") == options.get("dtype")


def test_an_audit_computes_where_the_model_says(folder, data, tmp_path, monkeypatch):
    model = mw.models.CausalLM.from_pretrained(folder, device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no CUDA GPU"):
        mw.Audit(model, data, path=tmp_path / "run")
    mw.Audit(model, data, path=tmp_path / "run", device="cpu")


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_too_little_memory_is_said_before_anything_is_loaded(folder, data, monkeypatch, dtype):
    import psutil

    model = mw.models.CausalLM.from_pretrained(folder, dtype=dtype)
    needed = sum(p.numel() for p in model.skeleton(data).parameters()) * 3  # between both types
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=needed))
    if dtype == "bfloat16":
        model.build(data)
        return
    with pytest.raises(MemoryError, match=r"needs 0\.0 GB of main memory in float32.*free"):
        model.build(data)
