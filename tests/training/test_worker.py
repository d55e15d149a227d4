"""A worker's own part: once for each job, it compares a user's functions with the run's."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import cloudpickle
import pytest
from torch import nn

import memowidgets as mw
from memowidgets.store import StoreError
from memowidgets.training import worker
from memowidgets.training.shadow import ShadowJob
from memowidgets.training.worker import Order, fulfil
from tests.training.small import trained


def network(*, bias=True):
    def make(n_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes, bias=bias))

    return mw.models.TorchClassifier(make)


@pytest.fixture
def job(tmp_path):
    run = trained(tmp_path / "run", model=network()).run
    steps = {"epoch-1": 4}
    return ShadowJob(run.recipe(), run.design, 0, steps, steps, probe=run.manifest["probe"])


def fulfilled(job, index=0):
    payload = cloudpickle.dumps(job)
    return fulfil(Order(hashlib.sha256(payload).hexdigest(), index, {}), payload)


def test_functions_that_do_something_else_than_the_runs_are_refused(job, tmp_path):
    other = trained(tmp_path / "other", model=network(bias=False)).run.manifest["probe"]
    found = fulfilled(replace(job, probe=other))
    assert found.trained is None
    with pytest.raises(StoreError, match="function"):
        raise cloudpickle.loads(found.error)


def test_functions_are_compared_once_for_each_job(job, monkeypatch):
    seen, check = [], worker.check_functions
    monkeypatch.setattr(
        worker, "check_functions", lambda *given: (seen.append(given), check(*given))
    )
    assert all(fulfilled(job, index).trained is not None for index in (0, 1))
    assert len(seen) == 1
    assert fulfilled(replace(job, seed=1)).trained is not None
    assert len(seen) == 2
