"""Representations in half the disk: float16 with the same scores, and never mistaken."""

from __future__ import annotations

import shutil
from collections import UserDict
from contextlib import contextmanager

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit import kept as pass_files
from memowidgets.audit.kept import halved
from memowidgets.audit.views.answers import AuditView
from memowidgets.store import TooLargeError, put_rows
from tests.training.small import TRAINING


def audit_at(path, **changes):
    data = mw.data.load_digits(canaries=0.05, seed=0).take(range(400))
    settings = {"training": TRAINING, "device": "cpu"} | changes
    return mw.Audit(mw.models.ConvNet(8), data, path, **settings)


def trained(path, **changes):
    audit = audit_at(path, **changes)
    audit.train()
    return audit


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same training with representations in float32 and in float16."""
    folder = tmp_path_factory.mktemp("states")
    audits = [trained(folder / states, states=states) for states in ("float32", "float16")]
    for audit in audits:
        audit.score("psmi")
    return audits


def size_of(audit):
    name = audit.evidence.names.prediction().record.name
    return (audit.run.run.path / f"forward/{name}.safetensors").stat().st_size


def test_scores_differ_by_less_than_a_tenth_of_their_standard_error(both):
    for layer in both[0].layers:
        (single, errors), (half, _) = (with_errors(audit, layer) for audit in both)
        assert (half != single).any(), "nothing was rounded"
        assert (np.abs(half - single) / errors).max() < 0.1


def with_errors(audit, layer):
    states = audit.run.forward(audit.evidence.names.prediction().record).tensors()[f"layer.{layer}"]
    psmi = mw.metrics.PSMI(random_state=0).fit(states, audit.evidence.labels)
    return psmi.score_samples(states, audit.evidence.labels, return_std=True)


def test_the_file_takes_half_the_disk_and_is_read_memory_mapped(both):
    single, half = (size_of(audit) for audit in both)
    assert half < 0.55 * single
    kept = both[1].run.forward(both[1].evidence.names.prediction().record)
    states = kept.tensors()[f"layer.{both[1].evidence.names.layer('last')}"]
    assert isinstance(states, np.memmap)
    assert states.dtype == np.float16
    assert both[1].representation().dtype == np.float32
    np.testing.assert_array_equal(both[1].representation(), states.astype(np.float32))


def test_logits_and_losses_stay_in_float32(both):
    record = both[0].evidence.names.prediction().record
    single, half = (audit.run.forward(record) for audit in both)
    np.testing.assert_array_equal(single.tensors()["logits"], half.tensors()["logits"])
    np.testing.assert_array_equal(single.tensors()["losses"], half.tensors()["losses"])


def test_what_a_users_metric_gets_is_float32(both):
    seen = []

    def metric(representation, _logits, labels):
        seen.append(representation.dtype)
        return np.arange(len(labels))

    for audit in both:
        audit.score(metric)
    assert set(seen) == {np.dtype(np.float32)}


def test_a_score_of_one_type_is_never_taken_for_one_of_the_other(both, tmp_path):
    shutil.copytree(both[1].path, tmp_path / "run")
    assert mw.Audit.open(tmp_path / "run").run.states == "float16"
    again = audit_at(tmp_path / "run", states="float32").score("psmi")
    single, half = (audit.score("psmi") for audit in both)
    assert (single != half).any(), "the score from float16 was taken for one from float32"
    np.testing.assert_array_equal(again, single)


def test_a_finished_pass_in_float32_is_not_made_again_and_says_nothing(both, tmp_path):
    """Passes and scores from before this setting have no such entry."""
    shutil.copytree(both[0].path, tmp_path / "run")
    again = audit_at(tmp_path / "run", states="float16")
    again.score("mahalanobis")
    assert size_of(again) == size_of(both[0])
    for file in (tmp_path / "run/forward").rglob("*.safetensors"):
        assert b"float16" not in file.read_bytes()[:4000]
    assert b"float16" not in next((tmp_path / "run/scores").rglob("psmi.*")).read_bytes()[:4000]


def test_by_itself_only_a_large_pass_is_halved(monkeypatch, tmp_path):
    shapes = {"logits": (10**6, 10), "losses": (10**6,), "layer.a": (10**6, 200)}
    assert halved(shapes, "auto") == ()
    assert halved(shapes | {"layer.b": (10**6, 100)}, "auto") == ("layer.a", "layer.b")
    assert halved(shapes, "float16") == ("layer.a",)
    assert halved(shapes | {"layer.b": (10**6, 100)}, "float32") == ()
    monkeypatch.setattr(pass_files, "LARGE", 1000)
    audit = trained(tmp_path / "run")
    audit.score("psmi")
    record = audit.evidence.names.prediction().record
    assert audit.run.forward(record).states == "float16"
    assert audit.run.states == "auto"


@pytest.mark.parametrize("value", [70_000.0, -70_000.0, np.inf, np.nan])
def test_a_number_that_float16_cannot_hold_is_not_written(value):
    array = np.zeros((2, 2), np.float16)
    with pytest.raises(TooLargeError):
        put_rows(array, np.array([0]), np.array([[1.0, value]], np.float32))
    assert not array.any()


class Loud(mw.models.ConvNet):
    """A model whose representations are larger than any float16."""

    version = "loud"

    def outputs(self, module, inputs, labels):
        return super().outputs(module, inputs * 1e7, labels)


def test_representations_too_large_for_float16_are_kept_in_float32(tmp_path):
    data = mw.data.load_digits().take(range(200))
    loud = mw.Audit(Loud(8), data, tmp_path / "loud", training=TRAINING, states="float16")
    loud.train()
    with pytest.warns(UserWarning, match="are kept in float32, because a number is larger"):
        loud.score("mahalanobis", checkpoint="final")
    assert loud.run.forward(loud.evidence.names.record("final")).states == "float32"
    assert np.abs(loud.representation(checkpoint="final")).max() > 65504


class Faint(mw.models.ConvNet):
    """A model whose representations float16 holds with two digits at most."""

    version = "faint"

    @contextmanager
    def captured(self, module):
        with super().captured(module) as kept:
            yield _Fainter(kept)


class _Fainter(UserDict):
    def __init__(self, kept):
        self.data = kept

    def items(self):
        return {name: 1e-6 * values for name, values in self.data.items()}.items()


def test_representations_too_fine_for_float16_are_kept_in_float32(tmp_path):
    """PSMI doesn't depend on their scale; float16 has no digits left below 6e-8."""
    data = mw.data.load_digits().take(range(200))
    faint = mw.Audit(Faint(8), data, tmp_path / "faint", training=TRAINING, states="float16")
    faint.train()
    plain = mw.Audit(mw.models.ConvNet(8), data, tmp_path / "run", training=TRAINING)
    plain.train()
    with pytest.warns(UserWarning, match="are kept in float32, because the values of layer"):
        found = faint.score("psmi")
    assert faint.run.forward(faint.evidence.names.prediction().record).states == "float32"
    np.testing.assert_allclose(found, plain.score("psmi"), atol=1e-3)


@pytest.mark.parametrize(
    ("scale", "offset", "spread", "is_coarse"),
    [(1, 0, 1, False), (1, 5, 1, False), (1, 100, 1, True), (1e-6, 0, 1, True), (1, 0, 99, True)],
)
def test_what_rounding_changes_is_told_by_the_spread_within_classes(
    scale, offset, spread, is_coarse
):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=600)
    within = rng.normal(size=(600, 20))
    exact = scale * (within + offset + spread * rng.normal(size=(3, 20))[labels])
    kept = exact.astype(np.float16)
    left = (np.eye(3)[labels].T @ exact) / np.bincount(labels)[:, None]
    share = ((kept - exact) ** 2).sum() / ((exact - left[labels]) ** 2).sum()
    assert pass_files._rounding(kept, labels) == pytest.approx(share, rel=0.2)
    assert (share > pass_files._MOST_ROUNDING) == is_coarse
    as_bfloat16 = (exact.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert (pass_files._rounding(as_bfloat16.astype(np.float16), labels) == 0) == (scale == 1)


def test_an_unknown_type_names_the_valid_ones(tmp_path):
    with pytest.raises(ValueError, match="unknown states 'int8'; valid: auto, float16, float32"):
        audit_at(tmp_path / "run", states="int8")
    assert not (tmp_path / "run").exists()


def test_compute_says_what_it_takes(tmp_path):
    audit = audit_at(tmp_path / "run", training=mw.TrainingConfig(epochs=3, checkpoint_every=1))
    audit.train()
    view, layer = AuditView(audit), audit.layers[-1]
    n = len(audit.members)
    assert view.missing("psmi", layer, "epoch-1").cost == f"1 forward pass over {n} members"
    audit.score("psmi", checkpoint="epoch-1")
    assert view.missing("psmi", layer, "epoch-1").cost == ""
    said = view.missing("psmi_mean", layer, "epoch-3").cost
    file = tmp_path / "run/forward/epoch-1.safetensors"
    assert said.startswith(f"2 forward passes over {n} members: about ")
    assert f"{2 * file.stat().st_size / 1e3:.0f} kB of disk" in said
    dashboard = audit.dashboard()
    dashboard.wait(60)
    dashboard.checkpoint = "epoch-2"
    assert f"press Compute (1 forward pass over {n} members: about" in dashboard._message["text"]
    dashboard.close()
