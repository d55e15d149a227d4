"""The weights of a checkpoint are read once for several passes, and again where they changed."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.models.vision import ImageModel
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training import learner as learner_room
from tests.training.small import Inline, tiny_audit, trained


@pytest.fixture
def reads(monkeypatch):
    """Names of the weights that were read, in order."""
    names = []
    real = RunDirectory.read_tensors

    def noted(self, name, of=None):
        if name.endswith("/weights"):
            names.append(name)
        return real(self, name, of)

    monkeypatch.setattr(RunDirectory, "read_tensors", noted)
    return names


def gaps(audit, checkpoint):
    return audit.run.gaps_of(audit.evidence.names.record(checkpoint), audit.evidence.pool)


def test_several_passes_at_a_checkpoint_read_its_weights_once(audit, reads):
    audit.score("loss", checkpoint="final")
    first, second = gaps(audit, "final"), gaps(audit, "final")
    assert len(reads) == 1
    np.testing.assert_array_equal(first, second)
    early = gaps(audit, 0)
    assert len(reads) == 2
    np.testing.assert_array_equal(gaps(audit, "final"), first)  # read again, after another one
    assert len(reads) == 3
    assert not np.array_equal(early, first)
    np.testing.assert_array_equal(gaps(tiny_audit(audit.path), "final"), first)


def test_what_was_just_trained_is_not_read_at_all(tmp_path, reads):
    fresh = trained(tmp_path / "run")
    found = fresh.score("loss", checkpoint="final"), gaps(fresh, "final")
    assert not reads
    fresh.run.loaded.drop()
    shutil.rmtree(tmp_path / "run/forward")
    shutil.rmtree(tmp_path / "run/scores", ignore_errors=True)
    again = tiny_audit(tmp_path / "run")
    np.testing.assert_array_equal(again.score("loss", checkpoint="final"), found[0])
    np.testing.assert_array_equal(gaps(again, "final"), found[1])
    assert len(reads) == 1


def test_weights_of_another_checkpoint_are_noticed(audit):
    gaps(audit, "final")
    place = audit.run.run.path / "checkpoints"
    shutil.copy(place / "epoch-0/weights.safetensors", place / "epoch-1/weights.safetensors")
    with pytest.raises(StoreError, match="other weights"):
        gaps(audit, "final")


def test_nothing_is_kept_while_models_are_trained(audit, monkeypatch):
    gaps(audit, "final")
    assert audit.run.loaded._learner is not None
    audit.run_shadows(1, AsksWhatIsKept(audit.run.loaded))
    gaps(audit, "final")
    audit.run_references(1, AsksWhatIsKept(audit.run.loaded))


class AsksWhatIsKept(Inline):
    def __init__(self, kept):
        self.kept = kept

    def work(self, fn, *args):
        assert self.kept._learner is None
        return fn(*args)


def test_one_model_is_kept_at_a_time_and_none_that_is_large(audit, source, monkeypatch):
    gaps(audit, "final")
    other = tiny_audit(source)
    gaps(other, "final")
    assert audit.run.loaded._learner is None
    assert other.run.loaded._learner is not None
    monkeypatch.setattr(learner_room, "_FREE_BYTES", 1000)
    gaps(audit, "final")
    assert other.run.loaded._learner is audit.run.loaded._learner is None


def test_a_kept_model_has_no_state_of_its_optimizer(tmp_path):
    learner = trained(tmp_path / "run").run.loaded._learner
    assert "_optimizer" not in vars(learner)
    assert all(parameter.grad is None for parameter in learner.module.parameters())


def test_passes_in_two_threads_do_not_disturb_each_other(audit, monkeypatch):
    """A pass in training mode would draw dropout."""
    modes, real = [], ImageModel.outputs
    gaps(audit, "final")

    def noted(self, module, inputs, labels):
        modes.append(module.training)
        return real(self, module, inputs, labels)

    monkeypatch.setattr(ImageModel, "outputs", noted)
    monkeypatch.setattr(mw.models.ConvNet, "forward_batch", 4)
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda _: gaps(audit, "final"), range(6)))
    assert not any(modes)
