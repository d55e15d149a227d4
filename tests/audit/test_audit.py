"""The audit as its user holds it: from training to the truth laid over the prediction."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import memowidgets as mw
from memowidgets.store import StoreError
from tests.audit.conftest import small_audit, small_data


def test_training_stops_at_rho_and_an_opened_run_goes_on_to_the_end(tmp_path):
    torch.manual_seed(7)
    np.random.seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    audit = small_audit(tmp_path)
    audit.train(stop_at_drop=0.5)
    stopped = audit.checkpoints
    assert stopped["drop"].iloc[-1] >= 0.5 > stopped["drop"].iloc[-2]
    assert stopped["prediction"].tolist() == [False] * (len(stopped) - 1) + [True]
    audit.train(stop_at_drop=0.5)
    audit.score("psmi")
    pd.testing.assert_frame_equal(audit.checkpoints, stopped)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    with pytest.raises(ValueError, match="these are not the data of"):
        mw.Audit.open(tmp_path, data=small_data(seed=1))
    with pytest.raises(ValueError, match="same ids are in another order"):
        mw.Audit.open(
            tmp_path, data=small_data().take(np.arange(len(small_data()))[::-1])
        )
    audit = mw.Audit.open(tmp_path, data=small_data())
    audit.train()
    assert audit.checkpoints["epoch"].tolist() == [0, 1, 2, 3, 4]
    assert audit.checkpoints["prediction"].idxmax() == stopped.index[-1]


def weights(audit: mw.Audit, name: str) -> bytes:
    return (audit.run.run.path / f"checkpoints/{name}/weights.safetensors").read_bytes()


def test_an_interrupted_and_scored_run_ends_bit_for_bit_like_a_straight_one(
    finished, straight
):
    assert weights(straight, "epoch-4") == weights(finished, "epoch-4")
    kept, expected = (
        one.score("csl", checkpoint="final") for one in (finished, straight)
    )
    assert kept.equals(expected), "the losses that training kept"


def test_accumulated_batches_train_like_one_of_their_size(tmp_path):
    losses = []
    for batches in ({"batch_size": 16}, {"batch_size": 4, "accumulate": 4}):
        training = mw.TrainingConfig(epochs=1, lr=0.1, optimizer="sgd", **batches)
        audit = small_audit(tmp_path / str(len(losses)), training=training)
        audit.train()
        losses.append(audit.checkpoints["train_loss"])
    np.testing.assert_allclose(*losses, rtol=1e-3)


def test_evaluation_takes_log_lira_canaries_or_a_mask_or_values_by_id(finished):
    by_canaries, mask = (
        finished.evaluate("psmi", truth="canaries"),
        finished.member_data.canaries,
    )
    truth = pd.Series(mask, finished.members)
    for given in (mask, truth, truth.sample(frac=1, random_state=0)):
        assert finished.evaluate("psmi", truth=given).auc == by_canaries.auc
    assert by_canaries.auc > 0.8
    assert by_canaries.n_memorized == mask.sum()
    some = finished.evaluate("loss", truth=truth.iloc[:100])
    assert some.n == 100
    assert any("members are left out" in note for note in some.warnings)
    with pytest.raises(ValueError, match="1 of its ids are no members'"):
        finished.evaluate("loss", truth=pd.Series([True], index=["nobody"]))


def test_gaps_at_a_checkpoint_that_shadows_did_not_keep_are_refused(finished):
    kept = finished.run.shadows.checkpoints()
    assert set(kept) == {finished.prediction.record.name, "epoch-4"}
    other = next(name for name in finished.checkpoints.index[1:] if name not in kept)
    with pytest.raises(
        StoreError, match=f"have gaps at {', '.join(kept)}, not at {other}"
    ):
        finished.log_lira(checkpoint=other)


def test_an_untrained_audit_says_what_to_call(tmp_path):
    audit = small_audit(tmp_path)
    assert audit.checkpoints.empty
    for call in (audit.score, audit.evaluate):
        with pytest.raises(ValueError, match=r"call train\(\)"):
            call("psmi")
    with pytest.raises(ValueError, match="not trained to the end"):
        audit.score("psmi", checkpoint="final")
    for work in (audit.run_shadows, audit.run_references):
        with pytest.raises(ValueError, match=r"call train\(\)"):
            work(2)
    assert "0 checkpoints" in repr(audit)
    assert "<script" not in audit._repr_html_()


def test_a_practitioners_audit_works_without_ground_truth(tmp_path):
    audit = small_audit(tmp_path, members="all", held_out=None)
    audit.train()
    assert len(audit.members) == 400
    assert len(audit.score("psmi", checkpoint="final")) == 400
    assert "log_lira" not in audit.flagged(checkpoint="final", share=0.1)
    assert audit.checkpoints["test_accuracy"].isna().all()
    with pytest.raises(ValueError, match='members="half" for ground truth'):
        audit.run_shadows(2)
    assert not audit.has_ground_truth


@pytest.mark.filterwarnings("ignore:nothing has settled")
def test_a_drop_that_is_never_reached_and_a_task_that_is_not_learned_are_said(tmp_path):
    audit = small_audit(tmp_path, training=mw.TrainingConfig(epochs=1, lr=1e-6))
    with pytest.warns(UserWarning, match="nothing has settled yet.*> 99.9 %"):
        audit.train(stop_at_drop=0.9999)
    assert any(
        "nothing has settled" in note for note in audit.evidence.notes_at("prediction")
    )
    found = audit.evaluate("psmi", truth="canaries")
    assert any("above half of log(10)" in note for note in found.warnings)
    assert any("is not above chance" in note for note in found.warnings)
    assert not audit.checkpoints["learned"].any()
    with pytest.warns(UserWarning, match="the model has not learned its task"):
        audit.flagged("loss")


def test_open_without_the_data_shows_all_that_was_computed(finished):
    known = finished.score("psmi", checkpoint="final")
    again = small_audit(finished.path)
    pd.testing.assert_frame_equal(again.checkpoints, finished.checkpoints)
    audit = mw.Audit.open(finished.path)
    assert audit.score("psmi", checkpoint="final").equals(known)
    assert audit.log_lira().equals(finished.log_lira())
    assert audit.data[3].id == "digit-0003"
    dashboard = audit.dashboard()
    assert dashboard.counts["n"] == len(audit.members)
    dashboard.close()
    with pytest.raises(StoreError, match="this needs the model and the data"):
        audit.train()


def test_no_sample_is_in_the_run_directory(finished):
    pixels = finished.data.images[finished.data.images.std(axis=(1, 2, 3)) > 0]
    everything = b"".join(
        p.read_bytes() for p in finished.run.run.path.rglob("*") if p.is_file()
    )
    as_floats = (pixels.astype(np.float32) / 255 - 0.5) / 0.25
    for i in range(0, len(pixels), 40):
        assert pixels[i].tobytes() not in everything
        assert as_floats[i].tobytes() not in everything


_NOTEBOOK = """
import sys
sys.path.insert(0, {root!r})
import memowidgets as mw
from memowidgets.models import ConvNet

class Wide(ConvNet):  # a model defined where worker processes can't import it from
    training_defaults = {{**ConvNet.training_defaults, "epochs": 1}}
    version = "wide"

data = mw.data.load_digits().take(range(200)).with_canaries(20)
audit = mw.Audit(Wide(4), data, path={path!r})
audit.train()
audit.run_shadows(2)
print(audit.n_shadows)
"""


@pytest.mark.slow
def test_a_model_from_an_unguarded_script_reaches_the_workers(tmp_path):
    root = str(Path(__file__).parents[2])
    script = tmp_path / "script.py"
    script.write_text(_NOTEBOOK.format(root=root, path=str(tmp_path / "run")))
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.strip() == "2", done.stderr
