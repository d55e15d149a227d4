"""A run has one precision, whatever machine opens it, trains its shadow models, or forks it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import memowidgets as mw
from memowidgets.audit.runs.identity import read_manifest
from memowidgets.models import device as device_room
from memowidgets.store import StoreError, run_at
from tests.audit import conftest
from tests.hostile import forged
from tests.training.small import tiny_audit, tiny_data

BOTH = ["float32", "bfloat16"]


@pytest.fixture
def processor(monkeypatch):
    """Pretend that this processor multiplies in bfloat16, or that it does not."""

    def has_bfloat16(name):
        monkeypatch.setattr(
            device_room, "runs_bfloat16", lambda _device: name == "bfloat16"
        )

    return has_bfloat16


def other(precision):
    return BOTH[1 - BOTH.index(precision)]


def audit_at(path, precision="auto"):
    training = mw.TrainingConfig(epochs=2, batch_size=16, precision=precision)
    return tiny_audit(path, training=training)


def opened(path):
    return mw.Audit.open(path, data=tiny_data(), device="cpu")


def manifest_of(path):
    return json.loads((path / "manifest.json").read_text())


def change_manifest(path, **changes):
    forged.change_manifest(path, lambda manifest: manifest.update(changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed is 0 there and 1 here"),
        ({"model": mw.models.ConvNet(4)}, r'model settings is \{"width": 16\} there'),
        (
            {"training": mw.TrainingConfig(epochs=5)},
            "training epochs is 4 there and 5 here",
        ),
        (
            {"training": mw.TrainingConfig(epochs=4, deterministic=True)},
            "training deterministic is False there and True here",
        ),
        ({"members": "all"}, r"other members \("),
        ({"data": conftest.small_data(seed=1)}, "other data labels"),
        (
            {"data": conftest.small_data().take(range(399))},
            "its data have 400 samples, these 399",
        ),
        (
            {"data": replace(conftest.small_data(), canaries=np.arange(400) < 9)},
            "other data canaries",
        ),
        ({"held_out": 0.2}, "other pool"),
    ],
)
def test_a_run_directory_of_another_run_is_refused_with_the_difference(
    tmp_path, changes, message
):
    conftest.small_audit(tmp_path)
    with pytest.raises(ValueError, match=message):
        conftest.small_audit(tmp_path, **changes)


def test_other_held_out_samples_with_equal_labels_are_another_run(tmp_path):
    aside = mw.data.load_digits().take(range(500, 550))
    turned = mw.data.ImageDataset.from_arrays(
        np.flip(aside.images, axis=2), aside.labels, aside.class_names, ids=aside.ids
    )
    conftest.small_audit(tmp_path, held_out=aside)
    conftest.small_audit(tmp_path, held_out=aside)
    with pytest.raises(ValueError, match=r"other held_out \("):
        conftest.small_audit(tmp_path, held_out=turned)


def test_a_seed_is_named_before_what_a_module_of_the_users_draws_under_it(tmp_path):
    model = mw.models.TorchClassifier(
        lambda n: nn.Sequential(nn.Flatten(), nn.LazyLinear(4), nn.Linear(4, n))
    )
    conftest.small_audit(tmp_path, model=model)
    with pytest.raises(ValueError, match="seed is 0 there and 1 here"):
        conftest.small_audit(tmp_path, model=model, seed=1)


@pytest.mark.parametrize("here", BOTH)
def test_another_processor_goes_on_in_the_precision_of_the_run(
    here, processor, tmp_path
):
    """With its training, passes, shadow models and forks."""
    processor(here)
    first = audit_at(tmp_path / "run")
    assert (
        manifest_of(tmp_path / "run")["precision"] == first.training.precision == here
    )
    assert manifest_of(tmp_path / "run")["training"]["precision"] == "auto"
    first.train(stop_at_drop=1e-9)
    expected = first.score("loss", checkpoint=1)
    whole = audit_at(tmp_path / "whole", here)
    whole.train()
    whole.run_shadows(2)
    (tmp_path / "run/forward/epoch-1.safetensors").unlink()
    processor(other(here))
    for again in (audit_at(tmp_path / "run"), opened(tmp_path / "run")):
        assert again.training.precision == here
    np.testing.assert_array_equal(again.score("loss", checkpoint=1), expected)
    again.train()
    weights = [
        a.run.run.read_tensors("checkpoints/epoch-2/weights") for a in (again, whole)
    ]
    for name in weights[0]:
        np.testing.assert_array_equal(weights[0][name], weights[1][name])
    again.run_shadows(2)
    for index in range(2):
        assert again.run.shadows.file(index).metadata["precision"] == here
    some, others = (
        audit.evidence.shadows.read("epoch-2").gaps for audit in (again, whole)
    )
    np.testing.assert_allclose(some, others, atol=1e-5)
    for _ in range(2):  # made, and asked for again
        fork = again.fork(tmp_path / "fork", data=again.data.take(range(100)))
        assert (
            fork.training.precision
            == manifest_of(tmp_path / "fork")["precision"]
            == here
        )


def test_an_explicit_precision_that_differs_is_another_run(processor, tmp_path):
    processor("bfloat16")
    audit_at(tmp_path / "run")
    audit_at(tmp_path / "run", "bfloat16")
    with pytest.raises(
        ValueError, match="training precision is bfloat16 there and float32 here"
    ):
        audit_at(tmp_path / "run", "float32")
    audit_at(tmp_path / "fixed", "float32")
    with pytest.raises(
        ValueError, match="training precision is float32 there and bfloat16 here"
    ):
        audit_at(tmp_path / "fixed", "bfloat16")


def test_shadow_models_and_checkpoints_of_another_precision_are_refused(
    processor, tmp_path
):
    processor("float32")
    audit = audit_at(tmp_path / "run")
    audit.train()
    audit.run_shadows(4)
    forged.rewrite(tmp_path / "run", "shadows/0002", precision="bfloat16")
    words = r"0002\.safetensors was trained in bfloat16, and the target in float32"
    for work in (
        lambda: opened(tmp_path / "run").log_lira(),
        lambda: audit.run_shadows(5),
    ):
        with pytest.raises(StoreError, match=words):
            work()


def test_settings_of_a_training_that_cannot_be_are_named(tmp_path):
    audit_at(tmp_path / "run")
    training = manifest_of(tmp_path / "run")["training"]
    for wrong in (
        *(
            {"epochs": 100_001},
            {"epochs": 50_001, "checkpoint_every": 0.5},
            {"epochs": None},
        ),
        *({"batch_size": 0}, {"optimizer": 3}),
    ):
        change_manifest(
            tmp_path / "run", training=training | {"checkpoint_every": 1} | wrong
        )
        with pytest.raises(StoreError, match=r"manifest\.json .*training"):
            opened(tmp_path / "run")
    long = training | {"epochs": 50_000, "checkpoint_every": 0.5}
    change_manifest(tmp_path / "run", training=long)
    assert read_manifest(run_at(tmp_path / "run"))["training"] == long


def test_a_device_without_the_precision_says_so(monkeypatch, tmp_path):
    audit = audit_at(tmp_path / "run", "bfloat16")
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda _device: False)
    with pytest.raises(
        ValueError, match=r"device cpu cannot compute in bfloat16.*pass device="
    ):
        audit.train()
