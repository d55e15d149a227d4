"""A small audit that is made once: 400 digits, four epochs, twelve shadow models."""

from __future__ import annotations

import os
import shutil

import pytest
from filelock import FileLock

import memowidgets as mw
from memowidgets.audit.views.answers import AuditView
from tests.training.small import Inline

TRAINING = mw.TrainingConfig(epochs=4, batch_size=8, lr=6e-3)


def small_data(seed: int = 0) -> mw.data.ImageDataset:
    return mw.data.load_digits().take(range(400)).with_canaries(40, seed=seed)


def small_audit(path, **changes) -> mw.Audit:
    settings = {"training": TRAINING, "seed": 0, "device": "cpu"} | changes
    model = settings.pop("model", None) or mw.models.ConvNet(16)
    data = settings.pop("data", None) or small_data()
    return mw.Audit(model, data, path=path, **settings)


def view_of(audit: mw.Audit) -> AuditView:
    """What the dashboard of an audit asks."""
    return AuditView(audit)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> mw.Audit:
    """Trained with an interruption, with shadow models; tests only read it.

    The first worker that needs it makes it, and each one opens a copy of its own.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # the same for all workers
    made = shared / "finished"
    with FileLock(shared / "finished.lock"):
        if not (made / "run").exists():
            _make(made / "unfinished")
            (made / "unfinished").rename(made / "run")
    copy = tmp_path_factory.mktemp("audit") / "run"
    shutil.copytree(made / "run", copy)
    return mw.Audit.open(
        copy, data=small_data(), model=mw.models.ConvNet(16), device="cpu"
    )


@pytest.fixture(scope="session")
def recorded() -> mw.Audit:
    return mw.open_recorded("mmlu-field-smollm2")


@pytest.fixture(scope="session")
def straight(tmp_path_factory) -> mw.Audit:
    """The same target trained without an interruption; tests only read it."""
    audit = small_audit(tmp_path_factory.mktemp("straight") / "run")
    audit.train()
    return audit


def _make(path) -> None:
    audit = small_audit(path)
    audit.train(stop_at_drop=0.5)
    audit.score("psmi")
    audit.train()
    audit.run_shadows(20, Inline())


@pytest.fixture(autouse=True)
def _passes_at_their_places(monkeypatch):
    """However long passes take on a machine, a watched loop makes them where they are due."""
    monkeypatch.setattr("memowidgets.audit.watching._RARELY", 0.2)
