"""A pass that is made after training is made by the code that trained, or not at all."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn

import memowidgets as mw
from memowidgets.audit.evidence import Need
from memowidgets.models import device as device_room
from memowidgets.store import StoreError
from memowidgets.training import checkpoint as forward_room
from tests.training.small import Inline

USER = ModuleType("users_module")  # what stands in the cells of a notebook
CELL = """
import torch
from torch import nn
SCALE = 1.0
def bent(x):
    return x.relu()
class Part(nn.Module):
    def forward(self, x):
        return x * SCALE
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.body, self.part, self.head = nn.Linear(64, 8), Part(), nn.Linear(8, n_classes)
    def forward(self, x):
        return self.head(self.part(bent(self.body(x.flatten(1)))))
def make(n_classes):
    return Net(n_classes)
"""
EDITED = """
class Net(Net):
    def forward(self, x):
        return 1.01 * super().forward(x)
"""


@pytest.fixture
def user(monkeypatch):
    monkeypatch.setitem(sys.modules, "users_module", USER)
    for name in [name for name in vars(USER) if not name.startswith("__")]:
        delattr(USER, name)
    exec(CELL, vars(USER))
    return USER


def small_data():
    return mw.data.load_digits().take(range(200)).with_canaries(20, seed=0)


def audit_at(path, user, precision="float32", **changes) -> mw.Audit:
    training = mw.TrainingConfig(
        epochs=2, batch_size=16, precision=precision, **changes
    )

    def make(n_classes):
        return user.make(n_classes)

    model = mw.models.TorchClassifier(make)
    return mw.Audit(model, small_data(), path, training, device="cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The run, trained by the cell as it is. Tests copy it."""
    exec(CELL, vars(USER))
    audit = audit_at(tmp_path_factory.mktemp("cell") / "run", USER)
    audit.train()
    return audit.path


@pytest.fixture
def audit(source, user, tmp_path):
    shutil.copytree(source, tmp_path / "run")
    return audit_at(tmp_path / "run", user)


@pytest.fixture
def stopped(user, tmp_path):
    """Interrupted at its first checkpoint."""
    audit = audit_at(tmp_path / "run", user)
    audit.train(stop_at_drop=1e-9)
    return audit


CHANGES = {
    "a global": lambda user, patch: patch.setattr(user, "SCALE", 1.01),
    "a rebound function": lambda user, patch: patch.setattr(
        user, "bent", nn.functional.gelu
    ),
    "an edited class": lambda user, _patch: exec(EDITED, vars(user)),
    "a patched part": lambda user, patch: patch.setattr(
        user.Part, "forward", lambda _self, x: x * 1.01
    ),
    "a patched library": lambda _user, patch: patch.setattr(
        nn.Linear, "forward", lambda self, x: nn.functional.linear(x, self.weight)
    ),
}


def files(audit) -> list[str]:
    return sorted(str(file) for file in Path(audit.path).rglob("*") if file.is_file())


def at(audit, name):
    return audit.run.names.record(name)


DOORS = {
    "a pass": lambda audit: audit.score("psmi", checkpoint=1),
    "other rows": lambda audit: audit.run.gaps_of(
        at(audit, 1), audit.run.design.pool[:3]
    ),
    "the pool": lambda audit: audit.run.make([Need("pool", "epoch-1")]),
    "lost losses": lambda audit: audit.score("csl", checkpoint="final"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_makes_no_pass_and_keeps_nothing(change, audit, user, monkeypatch):
    Path(audit.path, "checkpoints/epoch-2/outputs.safetensors").unlink()
    expected, before = audit.score("loss", checkpoint=0), files(audit)
    with monkeypatch.context() as changed:
        CHANGES[change](user, changed)
        for made, door in DOORS.items():
            audit.run.loaded.drop()
            with pytest.raises(
                StoreError, match=r"epoch-[12] of .* by up to [\d.e-]+ nats"
            ):
                door(audit)
            assert files(audit) == before, made
    exec(CELL, vars(user))
    for door in DOORS.values():
        door(audit)
    assert audit.score("loss", checkpoint=0).equals(expected)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_code_neither_goes_on_nor_begins_anew(
    change, stopped, user, tmp_path, monkeypatch
):
    CHANGES[change](user, monkeypatch)
    works = (
        stopped.train,
        lambda: stopped.run_shadows(2, Inline(), "prediction"),
        lambda: stopped.run_references(1, Inline()),
        lambda: stopped.fork(tmp_path / "fork", data=stopped.data.take(range(150))),
    )
    for work in works:
        stopped.run.loaded.drop()
        with pytest.raises(StoreError, match="something else here"):
            work()
    assert not (tmp_path / "fork").exists()
    assert len(stopped.run.shadows) == 0


def test_what_no_probe_sees_is_noticed_by_the_losses(stopped, user):
    """A probe asks about eight samples."""

    class OtherOnMany(user.Net):
        def _get_name(self):
            return "Net"

        def forward(self, x):
            return super().forward(x) * (1.01 if len(x) > 8 else 1.0)

    user.Net = OtherOnMany
    for work in (stopped.train, lambda: stopped.run_shadows(2, Inline(), "prediction")):
        stopped.run.loaded.drop()
        with pytest.raises(StoreError, match="has changed since"):
            work()
    assert len(stopped.run.shadows) == 0


def test_a_shadow_model_in_a_thread_is_trained_by_the_code_of_the_run(
    audit, user, monkeypatch
):
    audit.run_shadows(1, Inline())
    monkeypatch.setattr(user, "SCALE", 1.01)  # the thread has checked this job before
    with pytest.raises(StoreError, match="something else here"):
        audit.run_shadows(2, Inline())


@pytest.mark.parametrize("precision", device_room.COMPUTED)
def test_unchanged_code_goes_on(precision, user, tmp_path, monkeypatch):
    audit = audit_at(tmp_path / "run", user, precision, label_noise=0.2)
    audit.train()
    shutil.copytree(audit.path, tmp_path / "copy")
    other = mw.Audit.open(tmp_path / "copy", data=small_data(), model=audit.run.model)
    for door in DOORS.values():
        door(audit)
    expected = audit.score("loss", checkpoint=1)
    monkeypatch.setattr(mw.models.TorchClassifier, "forward_batch", 7)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        np.testing.assert_allclose(
            other.score("loss", checkpoint=1), expected, atol=1e-4
        )
        for door in DOORS.values():
            door(other)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("value", "is_refused"), [(1.002, False), (1.5, True)])
def test_elsewhere_the_median_decides(value, is_refused, audit, user, monkeypatch):
    """Rounding on another device is larger, and a few members may lie on an edge of it."""
    monkeypatch.setattr(user, "SCALE", value)
    refused = pytest.raises(StoreError, match="nats")
    with refused:
        DOORS["a pass"](audit)
    monkeypatch.setattr(forward_room, "rounding_of", lambda _device: "another GPU")
    with refused if is_refused else nullcontext():
        DOORS["a pass"](audit)


def test_one_member_with_another_loss_is_enough(audit, user):
    class OtherInOne(user.Net):
        def forward(self, x):
            return (
                super().forward(x)
                * torch.where(torch.arange(len(x)) == 0, 1.01, 1.0)[:, None]
            )

    user.Net = OtherInOne
    with pytest.raises(StoreError, match="nats"):
        DOORS["a pass"](audit)
    exec(CELL, vars(user))  # the module that raised is not kept
    DOORS["a pass"](audit)


def test_losses_that_were_made_elsewhere_are_no_measure(audit, user, monkeypatch):
    Path(audit.path, "checkpoints/epoch-1/outputs.safetensors").unlink()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(forward_room, "rounding_of", lambda _device: "another GPU")
        elsewhere.setattr(user, "SCALE", 1.002)
        audit.run.forward(at(audit, 1))
    audit.run.loaded.drop()
    DOORS["other rows"](audit)
    audit.run.loaded.drop()
    monkeypatch.setattr(user, "SCALE", 1.002)
    with pytest.raises(StoreError, match="nats"):
        DOORS["other rows"](audit)
