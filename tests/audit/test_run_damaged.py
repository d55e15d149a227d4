"""Run directories that were damaged, moved, half-made or made read-only."""

from __future__ import annotations

import shutil
import threading

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.run import read_names
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import read_records
from tests.audit.conftest import small_audit, small_data, view_of
from tests.training.small import Inline


@pytest.fixture
def copied(finished, tmp_path):
    finished.score("psmi", checkpoint="final")
    shutil.copytree(finished.path, tmp_path / "run")
    return tmp_path / "run"


def test_a_lost_first_checkpoint_is_named_and_a_lost_later_one_trained_again(
    copied, finished
):
    shutil.rmtree(copied / "checkpoints/epoch-2")
    audit = small_audit(copied)
    audit.train()
    assert audit.checkpoints.equals(finished.checkpoints)
    shutil.rmtree(copied / "checkpoints/epoch-0")
    with pytest.raises(StoreError, match="lost its checkpoint of step 0"):
        _ = small_audit(copied).checkpoints


@pytest.mark.parametrize("damage", ["lost", "damaged"])
def test_shadow_models_that_are_all_lost_or_damaged_are_not_taken_for_none(
    copied, damage
):
    for file in (copied / "shadows").glob("*.safetensors"):
        file.unlink() if damage == "lost" else file.write_bytes(b"")
    audit = small_audit(copied)
    said = "20 of 20 shadow models are lost or damaged, such as this one: "
    assert not audit.has_ground_truth
    with pytest.raises(StoreError, match=said):
        audit.log_lira()
    assert said in audit._repr_html_()
    assert any(
        said in note for note in view_of(audit).view("psmi", "last", "final").warnings
    )


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


def test_held_out_samples_belong_to_a_runs_identity(tmp_path):
    aside, data = mw.data.load_digits().take(range(500, 550)), small_data()
    audit = small_audit(tmp_path / "run", held_out=aside)
    other = aside.with_labels((aside.labels + 1) % 10)
    for wrong in (aside.take(range(20)), other):
        with pytest.raises(ValueError, match="not the held-out samples of"):
            mw.Audit.open(audit.path, data=data, held_out=wrong)
    with pytest.raises(ValueError, match="holds another run: other held_out_labels"):
        small_audit(tmp_path / "run", held_out=other)
    mw.Audit.open(audit.path, data=data, held_out=aside, model=audit.run.model)
    with pytest.raises(
        ValueError, match="held-out samples are members too, the first is 'digit-"
    ):
        small_audit(tmp_path / "a", data=data, held_out=data.take(range(50)))
    pixels = np.random.default_rng(0).integers(0, 255, (4, 8, 8)).astype(np.uint8)
    pets = mw.data.ImageDataset.from_arrays(pixels, [0, 1, 0, 1], ["cat", "dog"])
    with pytest.raises(
        ValueError, match="have the classes cat, dog; the data have 0, 1"
    ):
        small_audit(tmp_path / "b", data=data, held_out=pets)


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
        # what is stored needs no turn
        assert audit.score("psmi", checkpoint="final").notna().all()
        progress.cancel()
        thread.join(timeout=10)
        assert not thread.is_alive()
    assert "waiting for other work" in outcome[0]


def test_a_checkpoint_that_is_written_while_records_are_read_is_not_taken_for_lost(
    copied, finished, monkeypatch
):
    newest, later = copied / "checkpoints/epoch-4", copied / "later"
    (copied / "forward/epoch-4.safetensors").unlink()
    newest.rename(later)

    def read_before(run):
        records = read_records(run)
        later.rename(newest)
        return records

    monkeypatch.setattr("memowidgets.audit.run.read_records", read_before)
    run = RunDirectory(copied)
    # and warns of nothing
    names = read_names(run, run.read_manifest(), finished.labels)
    assert names.found[-1].name == "epoch-3"
    assert newest.exists()
