"""A small audit that is made once: 400 digits, four epochs, twelve shadow models."""

from __future__ import annotations

import pytest

import memowidgets as mw
from memowidgets.audit.runs.recorded import recording_in
from tests.training.small import Inline

TRAINING = mw.TrainingConfig(epochs=4, batch_size=8, lr=6e-3)


def small_data(seed: int = 0) -> mw.data.ImageDataset:
    return mw.data.load_digits().take(range(400)).with_canaries(40, seed=seed)


def small_audit(path, **changes) -> mw.Audit:
    settings = {"training": TRAINING, "seed": 0, "device": "cpu"} | changes
    model = settings.pop("model", None) or mw.models.ConvNet(16)
    data = settings.pop("data", None) or small_data()
    return mw.Audit(model, data, path=path, **settings)


def recording_at(folder, data=None) -> mw.Audit:
    """The audit in a folder that `export` wrote."""
    return mw.Audit.from_source(recording_in(folder, data))


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> mw.Audit:
    """Trained with an interruption, with shadow models; tests only read it."""
    audit = small_audit(tmp_path_factory.mktemp("audit") / "run")
    audit.train(stop_at_drop=0.5)
    audit.score("psmi")
    audit.train()
    audit.run_shadows(20, Inline())
    return audit
