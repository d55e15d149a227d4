"""Run directories that were damaged, moved, half-made or made read-only."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

import memowidgets as mw
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.seeds import RandomStates
from tests.audit.conftest import small_audit, small_data, view_of
from tests.hostile.forged import held
from tests.training.small import Inline


@pytest.fixture
def copied(finished, tmp_path):
    finished.score("psmi", checkpoint="final")
    shutil.copytree(finished.path, tmp_path / "run")
    return tmp_path / "run"


def test_truth_as_a_series_is_read_by_id(finished):
    truth = finished.log_lira() >= finished.log_lira().median()
    shuffled = truth.sample(frac=1, random_state=0)
    assert (
        finished.evaluate("loss", truth=shuffled).auc == finished.evaluate("loss", truth=truth).auc
    )
    some = finished.evaluate("loss", truth=truth.iloc[:100])
    assert some.n == 100
    assert any("members are left out" in note for note in some.warnings)
    with pytest.raises(ValueError, match="1 of its ids are no members'"):
        finished.evaluate("loss", truth=pd.Series([True], index=["nobody"]))


def test_a_lost_first_checkpoint_is_named_and_a_lost_later_one_trained_again(copied, finished):
    shutil.rmtree(copied / "checkpoints/epoch-2")
    audit = small_audit(copied)
    audit.train()
    assert audit.checkpoints.equals(finished.checkpoints)
    shutil.rmtree(copied / "checkpoints/epoch-0")
    with pytest.raises(StoreError, match="lost its checkpoint of step 0"):
        _ = audit.checkpoints


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_shadow_models_that_are_all_lost_or_damaged_are_not_taken_for_none(copied, damage):
    for file in (copied / "shadows").glob("*.safetensors"):
        file.unlink() if damage == "lost" else file.write_bytes(b"")
    audit = small_audit(copied)
    said = "20 of 20 shadow models are lost or damaged, such as this one: "
    assert not audit.has_ground_truth
    with pytest.raises(StoreError, match=said):
        audit.log_lira()
    assert said in audit._repr_html_()
    assert any(said in note for note in view_of(audit).view("psmi", "last", "final").warnings)


def test_broken_scores_passes_and_shadows_are_made_again(copied, finished):
    known = finished.score("psmi", checkpoint="final"), finished.log_lira()
    for name in ("forward/epoch-4", "scores/epoch-4/hidden/psmi", "shadows/0003"):
        (copied / f"{name}.safetensors").write_bytes(b"")
    audit = small_audit(copied)
    assert audit.n_shadows == 19
    with pytest.warns(UserWarning, match=r"forward/epoch-4\.safetensors is broken"):
        audit.run_shadows(20, Inline())
    with pytest.warns(UserWarning, match=r"psmi\.safetensors is broken .*made again"):
        assert audit.score("psmi", checkpoint="final").equals(known[0])
    assert audit.log_lira().equals(known[1])


def test_shadow_models_are_trained_again_for_a_checkpoint_they_lack(copied):
    audit = small_audit(copied)
    audit.run_shadows(4, Inline(), checkpoints=[1], design="balanced")
    assert not audit.has_ground_truth
    audit.run_shadows(4, Inline(), checkpoints="final", design="balanced")
    assert audit.run.shadows.checkpoints() == ("epoch-1", "epoch-4")
    assert audit.has_ground_truth


def test_scores_that_cannot_be_kept_are_returned_with_a_warning(copied, monkeypatch):
    audit = small_audit(copied)
    audit.run.forward(audit.evidence.names.record(3))
    audit.run.run.forget("scores")

    def full(*_args, **_kwargs):
        raise StoreError("the disk is full")

    monkeypatch.setattr(audit.run.run, "write_tensors", full)
    with pytest.warns(UserWarning, match="the scores are not kept: the disk is full"):
        scores = audit.score("psmi", layer=1, checkpoint=3)
    assert np.isfinite(scores).all()


def test_what_is_done_needs_no_lock(copied):
    audit = small_audit(copied)
    with audit.run.run.lock("checkpoints"), audit.run.run.lock("shadows"):
        audit.train()
        audit.run_shadows(20)


def test_another_runs_design_is_not_taken_for_this_ones(copied, tmp_path):
    other = small_audit(tmp_path / "other", seed=1)
    mine, theirs = held(copied), RunDirectory(other.path).read_tensors("design")
    mine.write_tensors("design", {name: np.array(theirs[name]) for name in theirs})
    with pytest.raises(StoreError, match="is not the design of this run"):
        mw.Audit.open(copied, data=small_data())
    with pytest.warns(UserWarning, match=r"is not the design of this run.*made again"):
        again = small_audit(copied)
    assert set(again.members) != set(other.members)


def test_held_out_samples_belong_to_a_runs_identity(tmp_path):
    aside = mw.data.load_digits().take(range(500, 550))
    audit = small_audit(tmp_path, held_out=aside)
    with pytest.raises(ValueError, match="not the held-out samples of"):
        mw.Audit.open(audit.path, data=small_data(), held_out=aside.take(range(20)))
    other = aside.with_labels((aside.labels + 1) % 10)
    with pytest.raises(ValueError, match="not the held-out samples"):
        mw.Audit.open(audit.path, data=small_data(), held_out=other)
    with pytest.raises(ValueError, match="holds another run: other held_out_labels"):
        small_audit(tmp_path, held_out=other)
    mw.Audit.open(audit.path, data=small_data(), held_out=aside, model=audit.run.model)


def test_two_trainings_in_two_threads_draw_as_if_alone():
    def drawn(seed: int) -> list[float]:
        states, found = RandomStates(seed), []
        for _ in range(200):
            with states.active():
                found.append(float(torch.rand(())))
        return found

    alone = [drawn(seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(drawn, (1, 2))) == alone


def test_a_wrapped_module_and_scalar_parameters_resume(tmp_path):
    class Scaled(mw.models.ConvNet):
        version = "scaled"

        def build(self, data):
            module = super().build(data)
            module.classifier.register_parameter("scale", torch.nn.Parameter(torch.tensor(1.0)))
            return module

        def outputs(self, module, inputs, labels):
            logits, _ = super().outputs(module, inputs, labels)
            logits = logits * module.classifier.scale
            return logits, torch.nn.functional.cross_entropy(logits, labels, reduction="none")

    training = mw.TrainingConfig(epochs=2, optimizer="sgd", lr=0.05)
    both = []
    for name in ("straight", "stopped"):
        audit = small_audit(tmp_path / name, model=Scaled(4), training=training)
        if name == "stopped":
            audit.train(stop_at_drop=1e-6)
            audit = small_audit(tmp_path / name, model=Scaled(4), training=training)
        audit.train()
        both.append(audit.checkpoints.drop(columns="prediction"))
    pd.testing.assert_frame_equal(*both)


def test_cancel_acts_while_compute_waits_for_other_work(copied):
    audit = small_audit(copied)
    audit.run.run.forget("scores/epoch-1", "forward/epoch-1")
    progress, outcome = Progress(), []

    def compute() -> None:
        try:
            audit.score("psmi", layer=2, checkpoint=1, progress=progress)
        except Cancelled as error:
            outcome.append(str(error))

    with audit.run.alone():
        thread = threading.Thread(target=compute)
        thread.start()
        assert audit.score("psmi", checkpoint="final").notna().all()  # what is stored needs no turn
        progress.cancel()
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert "waiting for other work" in outcome[0]


def test_held_out_samples_that_tell_nothing_are_refused(tmp_path):
    data = small_data()
    with pytest.raises(ValueError, match="held-out samples are members too, the first is 'digit-"):
        small_audit(tmp_path / "a", data=data, held_out=data.take(range(50)))
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 8)).astype(np.uint8)
    other = mw.data.ImageDataset.from_arrays(pixels, [0, 1, 0, 1], ["cat", "dog"])
    with pytest.raises(ValueError, match="have the classes cat, dog; the data have 0, 1"):
        small_audit(tmp_path / "b", data=data, held_out=other)
