"""Reference models: what they train on, what they are asked, and the score that follows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.metrics import logit_gap
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training.design import REFERENCE, ReferenceDesign, draw_design
from memowidgets.training.learner import Learner
from memowidgets.training.seeds import derived_seed
from tests.hostile.old import held
from tests.training.small import Inline, tiny_audit

TRAINING = mw.TrainingConfig(epochs=2, checkpoint_every=0.5, batch_size=16, precision="float32")
EPOCH = "epoch-1"


def digits(n=80):
    """Some of them two or three times; some with a wrong label."""
    rows = [*range(n), *range(15), *range(5)]
    return mw.data.load_digits().take(rows).with_canaries(12, seed=0)


def audit_at(path, members="half") -> mw.Audit:
    return mw.Audit(
        mw.models.ConvNet(4), digits(), path, TRAINING, device="cpu", members=members, held_out=0.1
    )


@pytest.fixture(scope="module", params=["half", "all"])
def trained(request, tmp_path_factory):
    """Members, and a target that is trained to the end and predicted at epoch 1."""
    path = tmp_path_factory.mktemp("references") / "run"
    audit = audit_at(path, request.param)
    audit.train()
    audit.source.names.stop = predicting_at(audit, EPOCH)
    assert audit.prediction.record.name == EPOCH
    return request.param, path


def predicting_at(audit, name):
    """A rule that chooses this checkpoint, which is the nearest to its ρ."""
    from memowidgets.training.rho import StopRule

    return StopRule(float(audit.checkpoints["drop"].clip(0.001)[name]))


@pytest.fixture
def audit(trained, tmp_path):
    members, path = trained
    shutil.copytree(path, tmp_path / "run")
    return audit_at(tmp_path / "run", members)


@pytest.fixture(scope="module")
def referenced(trained, tmp_path_factory):
    """The same with two reference models for each member. Tests only read it."""
    members, path = trained
    copy = tmp_path_factory.mktemp("referenced") / "run"
    shutil.copytree(path, copy)
    audit = audit_at(copy, members)
    audit.run_references(2, Inline())
    return audit


def models_of(audit) -> int:
    return audit.source.references.plan.per_round


def design_of(audit):
    return audit.source.design


# What they train on, and what they are asked


@pytest.mark.parametrize("members", ["half", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_no_copy_of_a_sample_that_a_model_is_asked_about_is_in_its_training(members, seed):
    data = digits()
    design = draw_design(data, members, 0.1, seed)
    plan = ReferenceDesign.of(design)
    hashes = np.array(data.content_hashes())
    asked_by = np.zeros(len(design.pool), int)
    for index in range(3 * plan.per_round):
        trained = plan.members(design, seed, index)
        asked = plan.asked(design, trained)
        assert trained.any()
        assert not set(hashes[design.pool[trained]]) & set(hashes[design.pool[asked]])
        asked_by += asked
    np.testing.assert_array_equal(asked_by, 3 * np.isin(design.pool, design.members))


def test_others_are_used_while_there_are_half_as_many_as_members():
    data = digits()
    plan = {}
    for n in (10, 60, 80):
        named = np.arange(len(data)) < n  # the copies stand at the end, beyond every n
        design = draw_design(data, named, None, 0)
        plan[n] = ReferenceDesign.of(design)
        trained = design.pool[plan[n].members(design, 0, 0)]
        assert len(trained) <= n
        assert not np.isin(design.groups[trained], design.groups[trained[:0]]).any()
        if plan[n].name == "others":
            assert not np.isin(design.groups[trained], design.groups[design.members]).any()
        else:
            assert np.isin(trained, design.members).all()
    assert [found.name for found in plan.values()] == ["others", "parts", "parts"]


def test_rounds_differ_and_depend_on_the_seed():
    design = draw_design(digits(), "all", None, 0)
    plan = ReferenceDesign.of(design)
    first, counterpart, second = (plan.members(design, 0, index) for index in range(3))
    assert not (first & counterpart).any()
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, plan.members(design, 1, 0))


@pytest.mark.parametrize("rows", [[0, 0, 0, 0], [0, 1], [0, 0, 0, 1]])
def test_nothing_left_to_train_on_is_said(rows, tmp_path):
    data = mw.data.load_digits().take(rows)
    audit = mw.Audit(
        mw.models.ConvNet(4), data, tmp_path, TRAINING, members="all", held_out=None, device="cpu"
    )
    audit.train()
    different = len(set(rows))
    with pytest.raises(ValueError, match=f"trains on {len(rows)} samples, {different} of them"):
        audit.run_references(1, Inline())
    assert audit.metrics == ("psmi", "loss", "logit_gap", "mahalanobis")


# The score


def by_hand(audit, index):
    """The gaps of one reference model, trained here without any of the machinery."""
    source, plan = audit.source, audit.source.references.plan
    design, record = design_of(audit), audit.prediction.record
    rows = design.pool[plan.members(design, source.seed, index)]
    learner = Learner(
        source.recipe(), rows, derived_seed(source.seed, REFERENCE.stream, index)
    )
    whole = source.training.total_steps(len(rows))
    steps = round(record.step / source.training.total_steps(len(design.members)) * whole)
    assert 0 < steps < whole
    learner.advance(steps, Progress(), "by hand")
    hashes = np.array(audit.data.content_hashes())
    seen = np.isin(hashes[design.members], hashes[rows])
    logits = learner.look_at(design.members[~seen]).logits
    gaps = np.full(len(seen), np.nan)
    gaps[~seen] = logit_gap(logits, audit.data.labels[design.members[~seen]])
    return gaps


def test_the_score_is_the_mean_gap_of_the_models_that_never_saw_the_sample(referenced):
    gaps = np.array([by_hand(referenced, i) for i in range(2 * models_of(referenced))])
    assert (np.isfinite(gaps).sum(axis=0) == 2).all()
    scores = referenced.score("reference")
    assert scores.index.tolist() == referenced.members.tolist()
    np.testing.assert_allclose(scores, np.nanmean(gaps, axis=0), atol=1e-4)
    assert referenced.score("reference", checkpoint=EPOCH).equals(scores)


def test_canaries_are_asked_about_with_the_label_that_the_target_learns(referenced):
    planted = np.flatnonzero(referenced.data.canaries[referenced.source.member_rows])
    true = mw.data.load_digits().labels
    names = [str(name) for name in referenced.members[planted]]
    assert len(planted) > 2
    assert referenced.source.labels[planted].tolist() != [
        int(true[int(name.split("-")[1].split("#")[0])]) if "-" in name else -1 for name in names
    ]
    found = by_hand(referenced, 0)[planted]
    kept = referenced.source.references.gaps(EPOCH)[0][planted]
    np.testing.assert_allclose(kept, found, atol=1e-4)


def test_more_are_added_to_those_that_are_there(audit, referenced):
    audit.run_references(1, Inline())
    files = sorted(Path(audit.path, "references").rglob("*.safetensors"))
    before = [file.read_bytes() for file in files]
    one = audit.score("reference")
    audit.run_references(2, Inline())
    assert [file.read_bytes() for file in files] == before
    two = audit.score("reference")
    assert not np.allclose(one, two)
    assert two.equals(referenced.score("reference")), "one by one is as two at once, bit for bit"
    assert audit_at(audit.path, members_of(audit)).score("reference").equals(two)
    audit.run_references(1, Inline())
    assert len(audit.source.references) == 2 * models_of(audit)


def members_of(audit):
    return "all" if design_of(audit).all_members else "half"


def test_it_is_a_score_only_where_there_are_reference_models(audit, referenced):
    assert "reference" not in audit.metrics
    with pytest.raises(StoreError, match=r"no reference models yet; call run_references\(1\)"):
        audit.score("reference")
    assert "reference" in referenced.metrics
    assert "reference" in mw.Audit.open(referenced.path, data=digits()).metrics
    table = referenced.compare(truth="canaries")
    assert "reference" in set(table["metric"])
    flagged = referenced.flagged("reference", tau=float(referenced.score("reference").median()))
    assert len(flagged) >= len(referenced.members) // 2


# Files


def tampered(audit, index, **arrays):
    files = audit.source.references.files
    file = files.file(index)
    whole = {name: np.array(file[name]) for name in file} | arrays
    held(audit.path).write_tensors(files._name(index), whole, file.metadata)


def test_a_model_that_trained_on_what_it_is_asked_about_is_refused(audit):
    audit.run_references(1, Inline())
    file, design = audit.source.references.files.file(0), design_of(audit)
    asked = np.flatnonzero(np.isfinite(file[f"gap.{EPOCH}"]))
    mask = np.array(file["members"])
    mask[asked[0]] = True
    tampered(audit, 0, members=mask)
    twins = design.groups[design.pool[asked]] == design.groups[design.pool[asked[0]]]
    name = audit.data.ids[design.pool[asked[0]]]
    match = f"trained on {twins.sum()} samples that it is asked about.*{name}"
    with pytest.raises(StoreError, match=match):
        audit.score("reference")


def test_a_copy_of_a_sample_counts_as_the_sample(audit):
    audit.run_references(1, Inline())
    design, file = design_of(audit), audit.source.references.files.file(0)
    groups, mask = design.groups[design.pool], np.array(file["members"])
    asked = np.isfinite(file[f"gap.{EPOCH}"])
    twin = next(i for i in np.flatnonzero(asked) if (groups == groups[i]).sum() > 1)
    gap = np.array(file[f"gap.{EPOCH}"])
    mask[twin], gap[twin] = True, np.nan  # itself it is not asked about; its copies are
    tampered(audit, 0, members=mask, **{f"gap.{EPOCH}": gap})
    with pytest.raises(StoreError, match="or on copies"):
        audit.score("reference")


def test_a_missing_gap_is_refused(audit):
    audit.run_references(1, Inline())
    gap = np.array(audit.source.references.files.file(0)[f"gap.{EPOCH}"])
    gap[np.flatnonzero(np.isfinite(gap))[:2]] = np.nan
    tampered(audit, 0, **{f"gap.{EPOCH}": gap})
    with pytest.raises(StoreError, match="no logit gap of 2 samples that it never saw"):
        audit.score("reference")


def test_a_model_whose_counterpart_is_gone_is_not_used(audit, referenced):
    if models_of(audit) == 1:
        pytest.skip("one model is asked about every member")
    audit.run_references(2, Inline())
    Path(audit.source.references.files.path_of(3)).unlink()
    with pytest.warns(UserWarning, match="0003.safetensors is missing.*run_references trains it"):
        found = audit.score("reference")
    gaps = referenced.source.references.gaps(EPOCH)[:2]
    np.testing.assert_array_equal(found, np.nanmean(gaps.astype(np.float64), axis=0))
    Path(audit.source.references.files.path_of(1)).unlink()
    assert "reference" not in audit.metrics
    with (
        pytest.warns(UserWarning, match="is missing"),
        pytest.raises(StoreError, match=r"reference model 0 is there.*call run_references\(1\)"),
    ):
        audit.score("reference")
    audit.run_references(2, Inline())
    assert audit.score("reference").equals(referenced.score("reference"))


def test_models_of_other_members_or_another_precision_are_refused(audit, referenced, tmp_path):
    other = audit_at(tmp_path / "other", members=list(audit.members[:40]))
    other.train()
    assert other.source.references.config != audit.source.references.config
    files = audit.source.references.files
    assert files._precision == "float32"
    shutil.copytree(Path(referenced.path, "references"), Path(audit.path, "references"))
    for index in files.indices():
        file = referenced.source.references.files.file(index)
        metadata = {**file.metadata, "precision": "bfloat16"}
        arrays = {name: np.array(file[name]) for name in file}
        held(audit.path).write_tensors(files._name(index), arrays, metadata)
    with pytest.raises(StoreError, match="was trained in bfloat16.*run_references again"):
        audit.score("reference")


def test_another_prediction_checkpoint_needs_them_trained_again(audit, referenced):
    audit.run_references(1, Inline())
    before = audit.score("reference")
    audit.source.names.stop = predicting_at(audit, "epoch-0.5")
    assert audit.prediction.record.name == "epoch-0.5"
    with pytest.raises(StoreError, match="have gaps at epoch-1, not at epoch-0.5"):
        audit.score("reference")
    audit.run_references(1, Inline())
    after = audit.score("reference")
    assert not np.allclose(after, before)
    np.testing.assert_array_equal(audit.score("reference", checkpoint=EPOCH), before)


# Work


class Failing(Inline):
    """Dies after some models, as a killed process does: without a word to the rest."""

    def __init__(self, n):
        self.left = n

    def work(self, fn, *args):
        self.left -= 1
        if self.left < 0:
            raise MemoryError("no room")
        return super().work(fn, *args)


def test_what_is_finished_is_kept_and_the_end_is_the_same(audit, referenced):
    n = 2 * models_of(audit)
    with pytest.raises(StoreError, match=f"The {n - 1} finished reference models are kept; call run_references"):
        audit.run_references(2, Failing(n - 1))
    audit.run_references(2, Inline())
    for index in range(n):
        one, other = (a.source.references.files.file(index) for a in (audit, referenced))
        for name in ("members", f"gap.{EPOCH}"):
            np.testing.assert_array_equal(one[name], other[name])


def test_the_cost_is_said_first_and_a_cancel_keeps_what_is_finished(audit):
    said = []

    def hear(step):
        said.append(step)
        if step.done:
            progress.cancel()

    progress = Progress(hear)
    with pytest.raises(Cancelled):
        audit.run_references(4, Inline(), progress=progress)
    n, record = 4 * models_of(audit), audit.prediction.record
    whole = audit.training.total_steps(len(audit.members))
    assert (said[0].done, said[0].total, said[0].what) == (0, n, "training reference models")
    steps = record.step if models_of(audit) == 1 else said_steps(audit)
    assert said[0].detail == f"{n} to train, {steps} steps each, the whole target takes {whole}"
    assert 1 <= len(audit.source.references.files) < n


def said_steps(audit):
    """Half of an epoch's steps: each trains on half of the members."""
    plan, design = audit.source.references.plan, design_of(audit)
    n = int(plan.members(design, 0, 0).sum())
    return round(audit.training.total_steps(n) * audit.prediction.record.epoch / 2)


@pytest.mark.parametrize("n", [0, -1, 1.5])
def test_a_number_below_one_is_refused(audit, n):
    with pytest.raises(ValueError, match=f"reference models for each member.*not {n}"):
        audit.run_references(n, Inline())


def test_the_target_comes_first(tmp_path):
    with pytest.raises(ValueError, match=r"call train\(\) first"):
        tiny_audit(tmp_path).run_references(1, Inline())


def test_who_has_no_reference_models_says_why(referenced, tmp_path):
    arrays = mw.Audit.from_arrays(labels=[0, 1, 0, 1], logits=np.eye(2)[[0, 1, 0, 1]])
    for call in (arrays.run_references, lambda: arrays.score("reference")):
        with pytest.raises(StoreError, match="an audit of arrays cannot train reference models"):
            call()
    assert "reference" not in arrays.metrics
