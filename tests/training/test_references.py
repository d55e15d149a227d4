"""Reference models: what they train on, what they are asked, and the score that follows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.metrics import logit_gap
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training.config import derived_seed
from memowidgets.training.design import REFERENCE, ReferenceDesign, draw_design
from memowidgets.training.learner import Learner
from memowidgets.training.lookout import StopRule, write_stop
from tests.audit.conftest import view_of
from tests.training.small import Dying, Inline

TRAINING = mw.TrainingConfig(
    epochs=2, checkpoint_every=0.5, batch_size=16, precision="float32"
)
EPOCH = "epoch-1"


def digits_at(rows) -> mw.data.ImageDataset:
    """Digits, of which some may be copies."""
    found, rows = mw.data.load_digits(), list(rows)
    ids = [f"sample-{i}" for i in range(len(rows))]
    return replace(found, images=found.images[rows], labels=found.labels[rows], ids=ids)


CLEAN = digits_at([*range(80), *range(15), *range(5)])
DIGITS = CLEAN.with_canaries(12, seed=0)


def audit_at(path, members="half") -> mw.Audit:
    settings = {"device": "cpu", "members": members, "held_out": 0.1}
    return mw.Audit(mw.models.ConvNet(4), DIGITS, path, TRAINING, **settings)


def predicting_at(audit, name):
    """A rule that chooses this checkpoint, because its ρ is the drop there."""
    return StopRule(float(audit.checkpoints["drop"].clip(0.001)[name]))


@pytest.fixture(scope="module", params=["half", "all"])
def trained(request, tmp_path_factory):
    """Members, and the path of a target that was trained to the end. Tests copy it."""
    path = tmp_path_factory.mktemp("references") / "run"
    audit = audit_at(path, request.param)
    audit.train()
    write_stop(audit.run.run, predicting_at(audit, EPOCH))
    assert audit.prediction.record.name == EPOCH
    return request.param, path


@pytest.fixture
def audit(trained, tmp_path):
    members, path = trained
    shutil.copytree(path, tmp_path / "run")
    return audit_at(tmp_path / "run", members)


@pytest.fixture(scope="module")
def referenced(trained, tmp_path_factory):
    """With two reference models for each member. Tests only read it."""
    members, path = trained
    copy = tmp_path_factory.mktemp("referenced") / "run"
    shutil.copytree(path, copy)
    audit = audit_at(copy, members)
    audit.run_references(2, Inline())
    return audit


def per_round(audit) -> int:
    return audit.run.references.plan.per_round


# What they train on, and what they are asked


@pytest.mark.parametrize(("members", "name"), [("half", "others"), ("all", "parts")])
def test_no_copy_of_a_sample_that_a_model_is_asked_about_is_in_its_training(
    members, name
):
    hashes = np.array(DIGITS.content_hashes())
    for seed in range(5):
        design = draw_design(DIGITS, members, 0.1, seed)
        plan = ReferenceDesign.of(design)
        assert plan.name == name
        asked_by = np.zeros(len(design.pool), int)
        for index in range(3 * plan.per_round):
            trained = plan.members(design, seed, index)
            asked = plan.asked(design, trained)
            assert trained.any()
            assert not set(hashes[design.pool[trained]]) & set(
                hashes[design.pool[asked]]
            )
            asked_by += asked
        np.testing.assert_array_equal(
            asked_by, 3 * np.isin(design.pool, design.members)
        )


def test_rounds_differ_by_number_and_by_seed():
    design = draw_design(DIGITS, "all", None, 0)
    plan = ReferenceDesign.of(design)
    first, counterpart, second = (plan.members(design, 0, index) for index in range(3))
    assert not (first & counterpart).any()
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, plan.members(design, 1, 0))


@pytest.mark.parametrize(("n", "name"), [(10, "others"), (53, "others"), (54, "parts")])
def test_other_samples_are_used_while_there_are_half_as_many_as_members(n, name):
    design = draw_design(DIGITS, np.arange(len(DIGITS)) < n, None, 0)
    plan = ReferenceDesign.of(design)
    assert plan.name == name
    trained = design.pool[plan.members(design, 0, 0)]
    if name == "parts":
        assert np.isin(trained, design.members).all()
        return
    assert min(n, 27) <= len(trained) <= n
    assert np.isin(design.groups[design.members], design.groups[design.pool[n:]]).any()
    assert not np.isin(design.groups[trained], design.groups[design.members]).any()


@pytest.mark.parametrize("rows", [[0, 0, 0, 0], [0, 1], [0, 0, 0, 1]])
def test_nothing_left_to_train_on_is_said(rows):
    design = draw_design(digits_at(rows), "all", None, 0)
    said = rf"has {len(rows)} members, {len(set(rows))} different.* 0 others"
    with pytest.raises(ValueError, match=said):
        ReferenceDesign.of(design).check(design, 0, 1)


# The score


def by_hand(audit, index):
    """The gaps of one reference model, trained here without any of the machinery."""
    source, plan = audit.run, audit.run.references.plan
    design, step = source.design, audit.prediction.record.step
    rows = design.pool[plan.members(design, source.seed, index)]
    learner = Learner(
        source.recipe(), rows, derived_seed(source.seed, REFERENCE.stream, index)
    )
    whole = source.training.total_steps(len(rows))
    steps = round(step / source.training.total_steps(len(design.members)) * whole)
    assert 0 < steps < whole
    learner.advance(steps, Progress(), "by hand")
    hashes = np.array(audit.data.content_hashes())
    unseen = ~np.isin(hashes[design.members], hashes[rows])
    gaps = np.full(len(unseen), np.nan)
    labels = audit.data.labels[design.members[unseen]]
    gaps[unseen] = logit_gap(learner.look_at(design.members[unseen]).logits, labels)
    return gaps


def test_the_score_is_the_mean_gap_of_the_models_that_never_saw_the_sample(referenced):
    """Canaries with the label that the target learns."""
    gaps = np.array([by_hand(referenced, i) for i in range(2 * per_round(referenced))])
    assert (np.isfinite(gaps).sum(axis=0) == 2).all()
    scores = referenced.score("reference")
    assert scores.index.tolist() == referenced.members.tolist()
    np.testing.assert_allclose(scores, np.nanmean(gaps, axis=0), rtol=0, atol=1e-5)
    rows = referenced.evidence.member_rows
    planted = DIGITS.canaries[rows]
    assert planted.any()
    assert (CLEAN.labels[rows][planted] != referenced.labels[planted]).all()


def test_more_are_added_to_those_that_are_there(audit, referenced, trained):
    audit.run_references(1, Inline())
    files = sorted(Path(audit.path, "references").rglob("*.safetensors"))
    before = [file.read_bytes() for file in files]
    one = audit.score("reference")
    audit.run_references(2, Inline())
    assert [file.read_bytes() for file in files] == before
    two = audit.score("reference")
    assert not np.allclose(one, two)
    assert two.equals(referenced.score("reference")), (
        "one by one is as two at once, bit for bit"
    )
    assert audit_at(audit.path, trained[0]).score("reference").equals(two)
    audit.run_references(1, Inline())
    assert len(audit.evidence.references.indices) == 2 * per_round(audit)


def test_it_is_a_score_only_where_there_are_reference_models(audit, referenced):
    assert "reference" not in audit.metrics
    with pytest.raises(
        StoreError, match=r"no reference models yet: call .*run_references\(2\)"
    ):
        audit.score("reference")
    assert "reference" in referenced.metrics
    assert "reference" in mw.Audit.open(referenced.path, data=DIGITS).metrics
    table = referenced.compare(checkpoints="all", truth="canaries").set_index("metric")
    row = table.loc["reference"]
    assert (row["checkpoint"], row["layer"]) == (EPOCH, "")
    assert row["auc"] == referenced.evaluate("reference", truth="canaries").auc
    with pytest.raises(StoreError, match=r"have gaps at epoch-1, not at epoch-2\b"):
        referenced.compare("reference", checkpoints="final", truth="canaries")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        # the reference models count twice
        (
            "reference+csl",
            ("reference", "reference", "csl"),
        ),
        ("reference+psmi+csl", ("reference", "psmi", "csl")),
    ],
)
def test_sums_are_the_mean_ranks_of_their_parts(referenced, name, parts):
    """Ranks by hand: the sample with the most others below it has the highest."""
    columns = np.stack([referenced.score(part) for part in parts])
    ranks = [
        (c[:, None] > c).sum(axis=1) + (c[:, None] == c).sum(axis=1) / 2
        for c in columns
    ]
    found = referenced.score(name).to_numpy()
    by_hand = np.mean(ranks, axis=0)
    assert (
        np.argsort(found, kind="stable") == np.argsort(by_hand, kind="stable")
    ).mean() > 0.9
    assert np.corrcoef(found, by_hand)[0, 1] > 1 - 1e-9
    assert name in referenced.compare(truth="canaries")["metric"].tolist()
    assert not view_of(referenced).is_computed(name, referenced.layers[-1], "final")
    with pytest.raises(StoreError, match="epoch-2"):
        referenced.score(name, checkpoint="final")


def test_a_fork_has_none_of_its_parents(referenced, tmp_path):
    fork = referenced.fork(
        tmp_path / "fork", data=DIGITS.take(np.arange(3, len(DIGITS)))
    )
    assert "reference" not in fork.metrics
    shutil.copytree(Path(referenced.path, "references"), Path(fork.path, "references"))
    fork.train()
    with pytest.raises(StoreError, match="belongs to another run"):
        fork.score("reference", checkpoint=EPOCH)


def test_the_dashboard_trains_them_on_a_click_alone(audit, referenced, monkeypatch):
    made, metric = mw.Audit.run_references, "reference+csl"
    here = lambda self, n, progress: made(self, n, Inline(), None, progress)  # noqa: E731
    monkeypatch.setattr(mw.Audit, "run_references", here)
    models = 2 * per_round(audit)
    audit.score("psmi")
    dashboard = audit.dashboard()
    assert dashboard.wait(10)
    offered = dashboard._steps["more"]["button"]
    assert offered.startswith(f"Train {models} short models")
    dashboard.metric = metric
    dashboard.checkpoint = "epoch-2"
    dashboard.checkpoint = EPOCH
    assert dashboard._button.startswith(f"Train {models} short models, ")
    dashboard.state = dashboard.state
    assert dashboard.wait(10)
    assert not dashboard.computed
    assert not audit.evidence.references.indices
    dashboard._hear_compute(None)
    assert dashboard.wait(60)
    assert dashboard.computed
    assert audit.score(metric).equals(referenced.score(metric))
    assert not any("trainings on other samples" in note for note in dashboard._notes)
    dashboard.close()


def test_what_was_trained_before_is_not_offered_again(audit):
    with pytest.raises(StoreError):
        audit.run_references(2, Dying(per_round(audit)))
    assert audit.run.references_to_train(2) == per_round(audit)


@pytest.mark.parametrize("why", ["another checkpoint", "no data"])
def test_where_none_can_be_trained_the_score_is_listed_with_the_reason(audit, why):
    checkpoint, reason = EPOCH, f"asked at {EPOCH}"
    if why == "another checkpoint":
        checkpoint = "epoch-2"
    else:
        audit, reason = mw.Audit.open(audit.path), "needs the model and the data"
    view = view_of(audit)
    assert "reference" in {choice.value for choice in view.score_choices()}
    found = view.missing("reference", "last", checkpoint)
    assert reason in found.why_not
    assert not found.trains
    with pytest.raises((StoreError, ValueError)):
        view.view("reference", "last", checkpoint)


# Files


def test_a_model_without_its_counterpart_is_not_used(audit, referenced):
    if per_round(audit) == 1:
        return  # each is a round
    audit.run_references(2, Inline())
    audit.run.run.forget("references/parts/0003")
    with pytest.warns(
        UserWarning, match=r"0003\.safetensors is missing.*run_references to train"
    ):
        found = audit.score("reference")
    gaps = referenced.evidence.references.read(EPOCH).gaps[
        :2, referenced.evidence.member_columns
    ]
    np.testing.assert_array_equal(found, np.nanmean(gaps.astype(np.float64), axis=0))
    audit.run.run.forget("references/parts/0001")
    assert "reference" not in audit.metrics
    with pytest.raises(
        StoreError, match=r"reference model 0 is there.*call run_references\(1\)"
    ):
        audit.score("reference")
    audit.run_references(2, Inline())
    assert audit.score("reference").equals(referenced.score("reference"))


def test_another_prediction_checkpoint_needs_them_trained_again(audit):
    audit.run_references(1, Inline())
    before = audit.score("reference")
    write_stop(audit.run.run, predicting_at(audit, "epoch-0.5"))
    assert audit.prediction.record.name == "epoch-0.5"
    with pytest.raises(StoreError, match=r"have gaps at epoch-1, not at epoch-0\.5"):
        audit.score("reference")
    audit.run_references(1, Inline())
    assert not np.allclose(audit.score("reference"), before)
    np.testing.assert_array_equal(audit.score("reference", checkpoint=EPOCH), before)


# Work


def test_the_cost_is_said_first_and_a_cancel_keeps_what_is_finished(audit):
    said = []

    def hear(step):
        said.append(step)
        if step.done:
            progress.cancel()

    progress = Progress(hear)
    with pytest.raises(Cancelled):
        audit.run_references(4, Inline(), progress=progress)
    n = 4 * per_round(audit)
    assert (said[0].done, said[0].total, said[0].what) == (
        0,
        n,
        "training reference models",
    )
    assert 1 <= len(audit.run.references.files) < n


LABELS = [0, 1, 0, 1]
LOGITS = 9 * np.eye(2)[LABELS]


def test_gaps_of_reference_models_can_be_given(tmp_path):
    gaps = np.array([[1, np.nan, 3, -4], [3, 0.5, np.nan, 0]])
    arrays = mw.Audit.from_arrays(
        LABELS, logits=LOGITS, reference_gaps=gaps, path=tmp_path
    )
    for audit in (arrays, mw.Audit.open(tmp_path)):
        assert "reference" in audit.metrics
        assert audit.score("reference").tolist() == [2, 0.5, 3, -2]
    mw.Audit.from_arrays(LABELS, logits=LOGITS, reference_gaps=gaps + 1, path=tmp_path)
    assert mw.Audit.open(tmp_path).score("reference").tolist() == [3, 1.5, 4, -1]
