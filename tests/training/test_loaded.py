"""The weights of a checkpoint are read once for several passes, and again where they changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.models.vision import ImageModel
from memowidgets.store import RunDirectory
from memowidgets.training import learner as learner_room
from tests.training.small import Inline, tiny_audit


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
    return audit.run.gaps_of(
        audit.evidence.names.record(checkpoint), audit.evidence.pool
    )


def test_several_passes_at_a_checkpoint_read_its_weights_once(audit, reads):
    audit.score("loss", checkpoint="final")
    first, second = gaps(audit, "final"), gaps(audit, "final")
    assert len(reads) == 1
    np.testing.assert_array_equal(first, second)
    early = gaps(audit, 0)
    assert len(reads) == 2
    # read again, after another one
    np.testing.assert_array_equal(gaps(audit, "final"), first)
    assert len(reads) == 3
    assert not np.array_equal(early, first)
    np.testing.assert_array_equal(gaps(tiny_audit(audit.path), "final"), first)


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
