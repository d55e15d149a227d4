"""A run so small that it is trained in a moment, once for all tests of this folder."""

from __future__ import annotations

import shutil

import pytest

from tests.audit.conftest import _passes_at_their_places  # noqa: F401 - a fixture of both rooms
from tests.training.small import tiny_audit, trained


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The run, trained and without shadow models. Tests copy it."""
    path = tmp_path_factory.mktemp("tiny") / "run"
    trained(path)
    return path


@pytest.fixture
def audit(source, tmp_path):
    """The audit of a copy, which this test may change."""
    shutil.copytree(source, tmp_path / "run")
    return tiny_audit(tmp_path / "run")


@pytest.fixture
def in_the_audits_order(monkeypatch):
    """A Trainer that takes the samples as `audit.train` took them, which is noted here."""
    from transformers import Trainer

    from memowidgets.training.learner import Learner

    order, original = [], Learner._samples

    def noted(learner):
        samples = original(learner)
        order.extend(samples.tolist())
        return samples

    class Sampler:
        def __init__(self, n):
            assert sorted(order[:n]) == list(range(n))
            self.n, self.epoch = n, 0

        def __len__(self):
            return self.n

        def __iter__(self):
            yield from order[self.epoch * self.n : (self.epoch + 1) * self.n]
            self.epoch += 1

    class InTheAuditsOrder(Trainer):
        def _get_train_sampler(self, *_args):
            return Sampler(len(self.train_dataset))

    monkeypatch.setattr(Learner, "_samples", noted)
    return InTheAuditsOrder
