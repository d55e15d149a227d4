"""Evidence stays as it was taken; an audit takes another one once a file of its run differs."""

from __future__ import annotations

import shutil
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import memowidgets as mw
from benchmarks.recording import export
from memowidgets.audit import run as run_room
from memowidgets.audit.evidence import Need
from memowidgets.audit.numbers.scores import needs, score
from memowidgets.store import StoreError
from tests.audit.conftest import recording_at, small_audit

ABOUT = {"title": "digits", "data": "mw.data.load_digits()", "command": "none"}


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    for made in (tmp_path / "run/forward").glob("epoch-2.*"):  # by another test of the same audit
        made.unlink()
    shutil.rmtree(tmp_path / "run/scores/epoch-2", ignore_errors=True)
    return small_audit(tmp_path / "run")


def test_it_is_the_same_object_until_a_file_differs(copied):
    before = copied.evidence
    assert copied.evidence is before
    with pytest.raises(FrozenInstanceError):
        before.seed = 1  # type: ignore[misc]
    copied.score("psmi", checkpoint=2)
    after = copied.evidence
    assert after is not before
    assert [one.checkpoints["epoch-2"].has_pass for one in (before, after)] == [False, True]


def test_what_changes_meanwhile_is_in_the_next_one_alone(copied, tmp_path):
    before = copied.evidence
    names, indices = [one.name for one in before.names.found], before.shadows.indices
    shutil.rmtree(tmp_path / "run/checkpoints/epoch-2")
    (tmp_path / "run/shadows/0019.safetensors").unlink()
    assert [one.name for one in before.names.found] == names
    assert before.shadows.indices == indices
    with pytest.warns(UserWarning, match="epoch-2"):
        after = copied.evidence
    assert [one.name for one in after.names.found] == [n for n in names if n != "epoch-2"]
    assert after.shadows.indices == indices[:-1]


def test_figures_read_the_checkpoints_once(finished, monkeypatch):
    counted, read = [], run_room.read_records
    monkeypatch.setattr(run_room, "read_records", lambda run: counted.append(run) or read(run))
    assert {"roc", "over_training"} <= set(finished.figures(etas=[4.0]))
    assert len(counted) <= 1


def test_a_score_says_what_it_needs_and_the_run_makes_it_before(copied):
    record = copied.evidence.names.record(2)
    missing = copied.evidence.missing(needs(copied.evidence, "psmi", record))
    assert missing == [Need("pass", "epoch-2")]
    with pytest.raises(StoreError, match="epoch-2"):
        score(copied.evidence, "psmi", checkpoint=2)
    copied.run.make(missing)
    assert copied.evidence.missing(missing) == []
    found = score(copied.evidence, "psmi", checkpoint=2)
    np.testing.assert_array_equal(found.scores, copied.score("psmi", checkpoint=2))


def test_arrays_and_recordings_keep_new_scores(finished, tmp_path):
    at = finished.prediction.record.name
    export(finished.path, tmp_path / "made", ABOUT)
    recording = recording_at(tmp_path / "made")
    arrays = mw.Audit.from_arrays(np.arange(40) % 2, np.random.default_rng(0).normal(size=(40, 3)))
    for audit, layer, checkpoint in ((arrays, "last", "given"), (recording, "last", at)):
        first = audit.score("mahalanobis", layer, checkpoint)
        first.iloc[0] = 99.0  # what a user changes stays theirs
        assert audit.score("mahalanobis", layer, checkpoint).iloc[0] != first.iloc[0]
