"""Scores over the checkpoints so far: what training keeps for them, and when they can't be had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.evaluation import below_class
from memowidgets.store import NotThereError, StoreError, run_at
from memowidgets.training.checkpoint import outputs_of
from memowidgets.training.learner import Learner
from tests.audit.conftest import small_audit, small_data
from tests.training.small import Inline

MEANS = ("csl", "psmi_mean", "psmi+csl")


def copied(audit, path, **options):
    shutil.copytree(audit.path, path)
    return mw.Audit.open(
        path, data=small_data(), model=mw.models.ConvNet(16), **options
    )


def test_means_are_those_of_the_checkpoints_so_far(finished):
    found = finished.score("csl", checkpoint=3)
    of_passes = [finished.score("loss", checkpoint=epoch) for epoch in (1, 2, 3)]
    np.testing.assert_allclose(found, np.mean(of_passes, axis=0), rtol=1e-4)
    assert found.name == "csl"
    assert found.index.tolist() == finished.members.tolist()
    each = [
        finished.score("psmi", "last", epoch, return_std=True) for epoch in (1, 2, 3, 4)
    ]
    found, errors = finished.score("psmi_mean", checkpoint="final", return_std=True)
    np.testing.assert_allclose(found, np.mean([values for values, _ in each], axis=0))
    np.testing.assert_allclose(errors, np.mean([wide for _, wide in each], axis=0))


def test_training_keeps_the_losses_without_another_pass(tmp_path, monkeypatch):
    passes = []
    look = Learner.look_at
    monkeypatch.setattr(
        Learner,
        "look_at",
        lambda *given, **named: passes.append(1) or look(*given, **named),
    )
    audit = small_audit(tmp_path / "run")
    audit.train()
    made = len(passes)
    assert made == 2 * 5, (
        "members and held-out samples, at step 0 and after each of four epochs"
    )
    audit.score("csl", checkpoint="final")
    audit.probabilities("final")
    assert len(passes) == made
    run = run_at(audit.path)
    for name in audit.checkpoints.index:
        size = run.place(f"{outputs_of(name)}.safetensors").stat().st_size
        assert size - 4 * len(audit.members) * (10 + 1) < 1024


def test_a_mean_does_not_depend_on_what_was_scored_before(finished, tmp_path):
    """Neither the order of questions nor forward passes on disk change it, nor lost losses."""
    wanted = {metric: finished.score(metric, checkpoint=3) for metric in MEANS}
    run = Path(copied(finished, tmp_path / "run").path)
    kept = list(run.glob("checkpoints/*/outputs.safetensors"))
    assert len(kept) == 5
    for lost in ([], kept):
        for folder in ("forward", "scores"):
            shutil.rmtree(run / folder, ignore_errors=True)
        for file in lost:
            file.unlink()
        again = small_audit(run)
        for metric in MEANS[::-1]:
            assert again.score(metric, checkpoint=3).equals(wanted[metric])
    assert len(list(run.glob("forward/*.safetensors"))) == 3
    shutil.rmtree(run / "forward")
    again.run.model = None
    with pytest.raises(StoreError, match="epoch-"):
        again.score("csl", checkpoint=3)


def test_losses_of_other_weights_are_not_used(finished, tmp_path):
    again = copied(finished, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "forward")
    folder = tmp_path / "run" / "checkpoints"
    shutil.copy(folder / "epoch-1" / "outputs.safetensors", folder / "epoch-2")
    with pytest.warns(UserWarning, match=r"epoch-2.*not used, and made again"):
        found = again.score("csl", checkpoint=3)
    assert found.equals(finished.score("csl", checkpoint=3))


def test_they_are_there_from_the_second_checkpoint_on(finished):
    for checkpoint, there in ((1, "there is one"), (0, "there is none")):
        for metric in MEANS:
            with pytest.raises(
                ValueError, match=f"epoch-{checkpoint} needs two .*{there}"
            ):
                finished.score(metric, checkpoint=checkpoint)
    finished.score("psmi_mean", checkpoint=3)
    table = finished.compare(checkpoints=[1, 3])
    assert set(MEANS) <= set(table[table["checkpoint"] == "epoch-3"]["metric"])
    assert not set(MEANS) & set(table[table["checkpoint"] == "epoch-1"]["metric"])
    assert finished.compare("csl", checkpoints="all")["epoch"].tolist() == [2, 3, 4]


def test_a_comparison_makes_no_pass_at_another_checkpoint(finished, tmp_path):
    audit = copied(finished, tmp_path / "run")
    for folder in ("forward", "scores"):
        shutil.rmtree(tmp_path / "run" / folder)
    found = audit.compare(checkpoints="final", truth="canaries")["metric"].tolist()
    assert {"csl", "psmi+csl"} <= set(found) <= {*audit.metrics} - {"psmi_mean"}
    assert [file.stem for file in (tmp_path / "run/forward").glob("*.safetensors")] == [
        "epoch-4"
    ]


def test_arrays_have_one_checkpoint():
    audit = mw.Audit.from_arrays([0, 1] * 10, logits=np.eye(2)[[0, 1] * 10] * 3.0)
    assert not set(MEANS) & set(audit.metrics)
    with pytest.raises(NotThereError, match=r"metrics\.csl"):
        audit.score("csl")


def test_a_shadow_model_that_keeps_its_pass_has_its_losses_too(tmp_path):
    audit = small_audit(tmp_path / "run", training=mw.TrainingConfig(epochs=3))
    audit.train()
    audit.run_shadows(4, Inline(), checkpoints=["final"], keep_forward=True)
    own = audit.as_target(1)
    so_far = own.evidence.names.so_far(audit.prediction.record)
    assert len(so_far) > 1
    losses = [own.evidence.losses(record) for record in so_far]
    np.testing.assert_allclose(own.score("csl"), -np.mean(losses, axis=0), rtol=1e-5)
    np.testing.assert_allclose(losses[-1], -own.score("loss"), rtol=1e-5)
    assert "csl" in own.metrics
    audit.run_shadows(4, Inline(), checkpoints=["final"], design="balanced")
    without = audit.as_target(1)
    assert "csl" not in without.metrics
    with pytest.raises(StoreError, match="keep_forward=True"):
        without.score("csl")


AUCS = {  # at ρ, η = 4, from `python -m benchmarks recorded`
    "mmlu-field-smollm2": {"csl": 0.902, "psmi_mean": 0.831, "psmi+csl": 0.894},
    "banking77-smollm2": {"csl": 0.848, "psmi_mean": 0.852, "psmi+csl": 0.884},
    "cifar10-wrn": {"csl": 0.813, "psmi_mean": 0.768, "psmi+csl": 0.771},
}


@pytest.mark.parametrize("name", AUCS)
def test_the_recorded_audits_have_them(name):
    audit = mw.open_recorded(name)
    for metric, auc in AUCS[name].items():
        assert audit.evaluate(metric).auc == pytest.approx(auc, abs=6e-4)


@pytest.fixture
def arrays():
    labels, rng = np.arange(500) % 2, np.random.default_rng(0)
    return mw.Audit.from_arrays(
        labels, logits=2 * np.eye(2)[labels] + rng.normal(size=(500, 2))
    )


def test_a_score_without_a_threshold_of_its_own_opens_with_the_lowest_share(
    arrays, tmp_path
):
    """In the table, the dashboard and the report alike."""
    dashboard = arrays.dashboard()
    dashboard.metric = "loss"
    dashboard.wait(60)
    shown = dashboard.counts["flagged"]
    dashboard.close()
    arrays.report(tmp_path / "a.html", metric="loss", figures=False)
    found = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert [found["prediction"]["flagged"], len(arrays.flagged("loss")), shown] == [
        25
    ] * 3


def test_flagged_by_share_and_by_class(arrays):
    scores, gaps = arrays.score("loss"), arrays.score("logit_gap")
    assert set(arrays.flagged("loss", share=0.25).index) == set(
        scores.nsmallest(125).index
    )
    of_class = arrays.flagged("loss", tau="class")
    assert set(of_class.index) == set(scores.index[below_class(scores, arrays.labels)])
    assert len(arrays.flagged("loss", tau=-1.0)) == (scores <= -1.0).sum()
    assert set(arrays.flagged("logit_gap").index) == set(gaps.index[gaps <= 0])
