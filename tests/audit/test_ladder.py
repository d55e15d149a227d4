"""What is said to check a prediction next: the numbers in it, and the time."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.numbers.ladder import next_steps, offer, time_of_check
from tests.training.small import Inline, tiny_audit

TRAINING = mw.TrainingConfig(epochs=6, checkpoint_every=1, batch_size=4, lr=6e-3)


def made_at(path, **changes):
    audit = tiny_audit(path, training=TRAINING, model=mw.models.ConvNet(8), **changes)
    audit.train(stop_at_drop=0.3)
    audit.train()
    assert audit.prediction.record.epoch < TRAINING.epochs
    return audit


@pytest.fixture(scope="module", params=["half", "all"])
def trained(request, tmp_path_factory):
    return made_at(tmp_path_factory.mktemp("ladder") / "run", members=request.param)


@pytest.fixture(scope="module")
def checked(trained, tmp_path_factory):
    copy = tmp_path_factory.mktemp("checked") / "run"
    shutil.copytree(trained.path, copy)
    audit = mw.Audit.open(copy, data=trained.data)
    audit.run_references(2, Inline())
    audit.score("psmi")
    return audit


def numbers(text):
    return [int(found) for found in re.findall(r"\d+", text.replace("τ = 0", ""))]


def timed(evidence, seconds):
    """The evidence as if each checkpoint after step 0 had taken these seconds."""
    records = evidence.names.found
    found = [replace(one, seconds=seconds if one.step else 0.0) for one in records]
    return replace(evidence, names=replace(evidence.names, found=tuple(found)))


def test_training_keeps_its_seconds_and_a_fork_does_not_count_what_it_copied(trained, tmp_path):
    first, *later = trained.evidence.names.found
    assert first.seconds == 0
    assert all(record.seconds > 0 for record in later)
    if len(trained.evidence.pool) > len(trained.members):
        fork = trained.fork(tmp_path / "fork", start="prediction")
        fork.train()
        copied = fork.evidence.names.record(trained.prediction.record.name)
        assert copied.seconds == 0
        assert fork.evidence.names.found[-1].seconds > 0


def test_the_first_step_has_the_number_flagged_and_the_trainings(trained):
    evidence, models = trained.evidence, 4 if len(trained.members) == len(trained.data) else 2
    assert numbers(offer(timed(evidence, 0.0)))[:1] == [models], "nothing is computed for it"
    flagged = int((trained.score("psmi") <= 0).sum())
    said = next_steps(timed(trained.evidence, 0.0))
    assert len(said) == 1
    assert numbers(said[0])[:3] == [flagged, len(trained.members), models]
    assert "run_references(2)" in said[0]
    loss = trained.score("loss")
    lowest = int(np.ceil(0.05 * len(loss)))
    assert numbers(offer(trained.evidence, "loss"))[0] == pytest.approx(lowest, abs=1)


def test_the_time_is_that_of_the_targets_steps(trained):
    """Each checkpoint is an epoch, which took 30 s: two trainings as long as to the prediction."""
    evidence = timed(trained.evidence, 30.0)
    reached, share = trained.prediction.record.epoch, 1.0
    if len(evidence.pool) > len(evidence.member_rows):
        share = (len(evidence.pool) - len(evidence.member_rows)) / len(evidence.member_rows)
    seconds = 2 * 30 * reached * share
    expected = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    assert time_of_check(evidence) == f"about {expected}"
    assert expected in next_steps(evidence)[0]
    assert time_of_check(timed(evidence, 0.0)) == ""


def test_the_second_step_counts_what_both_scores_find(checked):
    psmi, reference = checked.score("psmi"), checked.score("reference")
    flagged = set(psmi.index[psmi <= 0])
    lowest = set(reference.index[np.argsort(reference.to_numpy(), kind="stable")[: len(flagged)]])
    said = next_steps(checked.evidence)
    n, both = len(flagged), len(flagged & lowest)
    assert numbers(said[0]) == [n, len(psmi), both, n]
    shadows = [one for one in said if "run_shadows(24)" in one]
    assert len(shadows) == (len(checked.evidence.pool) > len(checked.members))
    assert len(next_steps(checked.evidence, "reference")) == len(said) - 1, "not with itself"


def test_nothing_is_said_where_nothing_can_be_trained(trained, tmp_path):
    audit = tiny_audit(tmp_path)
    assert next_steps(audit.evidence) == (), "it is not trained"
    audit = mw.Audit.from_arrays(
        labels=np.arange(40) % 2, logits=3.0 * np.eye(2)[np.arange(40) % 2]
    )
    assert next_steps(audit.evidence) == ()
    known = replace(trained.evidence, given={"log_lira": np.zeros(len(trained.members))})
    assert next_steps(known) == (), "the truth is known"
