"""Whatever is read from a run directory is compared with what it claims to be."""

from __future__ import annotations

import json
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import memowidgets as mw
from memowidgets.store import StoreError
from tests.audit.conftest import recording_at
from tests.training.small import tiny_audit

TRAINING = mw.TrainingConfig(epochs=3, batch_size=16, lr=1e-2)
LAST = "epoch-3"


def small(path, **changes) -> mw.Audit:
    return tiny_audit(path, **{"training": TRAINING, **changes})


def shadowed(audit: mw.Audit, n: int = 8, **how) -> mw.Audit:
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(n, executor, **how)
    return audit


def whole(path, **changes) -> mw.Audit:
    audit = small(path, **changes)
    audit.train(stop_at_drop=0.05)
    audit.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rare classes
        for checkpoint in (1, 2, 3):
            audit.score("psmi", checkpoint=checkpoint)
    return shadowed(audit, keep_forward=True)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A whole run, tests copy it, and what it answers."""
    path = tmp_path_factory.mktemp("provenance") / "run"
    audit = whole(path)
    for target in (1, 2):
        audit.as_target(target).score("psmi")
    return path, {name: ask(small(path)) for name, ask in ANSWERS.items()}


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A whole run of another seed."""
    path = tmp_path_factory.mktemp("stranger") / "run"
    whole(path, seed=1)
    return path


@pytest.fixture
def run(source, tmp_path):
    shutil.copytree(source[0], tmp_path / "run")
    return tmp_path / "run"


ANSWERS = {
    "log-LiRA": lambda audit: audit.log_lira(),
    "score": lambda audit: audit.score("psmi", checkpoint=2),
    "log-LiRA of 1": lambda audit: audit.as_target(1).log_lira(),
    "score of 2": lambda audit: audit.as_target(2).score("psmi"),
    "prediction": lambda audit: audit.prediction,
    "checkpoints": lambda audit: audit.checkpoints,
}


# What is done to a run, given the run and a stranger


def copied(name, to=None, *, strange=False):
    """A file of the run, or of the stranger, in the place of another."""
    return lambda run, stranger: shutil.copy(
        (stranger if strange else run) / name, run / (to or name)
    )


def tensors(name, change=None, **metadata):
    """Other arrays, or metadata (None: without), and an old stamp."""

    def damage(run, _stranger):
        for file in run.glob(name):
            with safe_open(file, "np") as kept:
                said = {**(kept.metadata() or {}), **metadata}
            arrays = load_file(file)
            said = {key: value for key, value in said.items() if value}
            save_file(change(arrays) if change else arrays, file, said)

    return damage


def note(name, **changes):
    """Other values in a JSON file, and an old check."""

    def damage(run, _stranger):
        kept = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(kept | changes))

    return damage


def weights_without_pass(name, **how):
    def damage(run, stranger):
        copied(name, f"checkpoints/{LAST}/weights.safetensors", **how)(run, stranger)
        (run / f"forward/{LAST}.safetensors").unlink()

    return damage


def of_other_weights(run, stranger):
    with safe_open(run / f"forward/{LAST}.safetensors", "np") as kept:
        stamp = json.loads(kept.metadata()["memowidgets"]) | {"of": "0" * 16}
    tensors(f"forward/{LAST}.safetensors", memowidgets=json.dumps(stamp))(run, stranger)


def score_of_target_1_for_2(run, _stranger):
    (one,) = run.glob("targets/**/0001/**/psmi.safetensors")
    (two,) = run.glob("targets/**/0002/**/psmi.safetensors")
    shutil.copy(one, two)


def other_members(arrays):
    outside = np.setdiff1d(arrays["pool"], arrays["members"])
    return arrays | {"members": np.sort(outside[: len(arrays["members"])])}


DESIGNS = {
    "reordered": lambda kept: kept | {"members": kept["members"][::-1].copy()},
    "other members": other_members,
    "other canaries": lambda kept: kept | {"canaries": ~kept["canaries"]},
    "held out": lambda kept: kept | {"held_out": kept["pool"][:5].copy()},
}
DESIGN, THIRD = "design.safetensors", "shadows/0003.safetensors"
PASS, PSMI = f"forward/{LAST}.safetensors", "scores/{}/hidden/psmi.safetensors"
REFUSED = {  # the damage, what is asked of an audit or else opened, and what the error says
    **{
        f"design {name}": (tensors(DESIGN, change), None, "design")
        for name, change in DESIGNS.items()
    },
    "another run's design": (copied(DESIGN, strange=True), None, "design.* another run"),
    "seed": (note("manifest.json", seed=1), None, "manifest"),
    "layers": (note("manifest.json", layers=["a", "b", "c"]), None, "manifest"),
    "members": (note("manifest.json", members="0" * 16), None, "manifest"),
    "another shadow model": (
        copied("shadows/0001.safetensors", "shadows/0002.safetensors"), "log-LiRA", "0002.*index"
    ),
    "another run's shadow model": (copied(THIRD, strange=True), "log-LiRA", "0003"),
    **{
        f"shadow model without {what}": (tensors(THIRD, **{what: None}), "log-LiRA", "0003")
        for what in ("config", "index", "design", "memowidgets")
    },
    "another checkpoint's weights": (
        weights_without_pass("checkpoints/epoch-1/weights.safetensors"), "log-LiRA", "weights",
    ),
    "another run's weights": (
        weights_without_pass("checkpoints/epoch-2/weights.safetensors", strange=True),
        "log-LiRA", "weights",
    ),
    **{
        f"record {field}": (
            note("checkpoints/epoch-2/record.json", **{field: value}), "prediction",
            "epoch-2/record",
        )
        for field, value in {"median_loss": 0.0, "step": 0, "epoch": 0.0, "weights": ""}.items()
    },
    "rule": (note("rho.json", rho=0.5), "prediction", "rho"),
}  # fmt: skip
MADE_AGAIN = {  # the damage, what is asked of an audit, and what the warning says
    "another run's design": (copied(DESIGN, strange=True), "log-LiRA", "design"),
    "another checkpoint's pass": (
        copied("forward/epoch-1.safetensors", PASS), "log-LiRA", f"{LAST}.* other weights",
    ),
    "pass of other weights": (of_other_weights, "log-LiRA", f"{LAST}.* other weights"),
    "another checkpoint's score": (
        copied(PSMI.format("epoch-1"), PSMI.format("epoch-2")), "score", "psmi",
    ),
    "another run's score": (copied(PSMI.format("epoch-2"), strange=True), "score", "psmi"),
    "score of another target": (score_of_target_1_for_2, "score of 2", "psmi"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "asked", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_as_it_was_written_is_refused(run, stranger, damage, asked, says):
    damage(run, stranger)
    with pytest.raises(StoreError, match=says):
        ANSWERS[asked](small(run)) if asked else mw.Audit.open(run)


@pytest.mark.parametrize(("damage", "asked", "says"), MADE_AGAIN.values(), ids=MADE_AGAIN)
def test_what_can_be_made_again_is_and_gives_the_same(run, source, stranger, damage, asked, says):
    damage(run, stranger)
    with pytest.warns(UserWarning, match=says):
        assert ANSWERS[asked](small(run)).equals(source[1][asked])
    assert ANSWERS[asked](small(run)).equals(source[1][asked])


def test_without_the_model_a_pass_is_not_made_again(run):
    shutil.copy(run / "forward/epoch-1.safetensors", run / PASS)
    with pytest.raises(StoreError, match=f"forward/{LAST}"):
        mw.Audit.open(run).representation(checkpoint=LAST)


# A path that holds another run by now


def replace(path, other) -> None:
    shutil.rmtree(path)
    shutil.copytree(other, path)


WORK = {
    "run_shadows": lambda audit: shadowed(audit, 10),
    "train": lambda audit: audit.train(),
    "log_lira": lambda audit: audit.log_lira(),
    "score": lambda audit: audit.score("psmi", checkpoint="final"),
    "checkpoints": lambda audit: audit.checkpoints,
    "repr": repr,
    "as_target": lambda audit: audit.as_target(0),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_an_audit_whose_path_holds_another_run_refuses_to_work(run, stranger, work):
    audit = small(run)
    audit.log_lira()
    replace(run, stranger)
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    with pytest.raises(StoreError, match="now has another run"):
        work(audit)
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_an_audit_whose_path_is_gone_refuses_to_work(run, work):
    audit = small(run)
    shutil.rmtree(run)
    with pytest.raises(StoreError, match="is gone; it was deleted or moved since"):
        work(audit)
    assert not run.exists()


def test_decisions_are_not_written_into_another_run(run, stranger):
    audit = small(run)
    log, first = audit.decision_log, audit.members[:1].tolist()
    replace(run, stranger)
    log.decide(first, "remove")
    assert "now has another run" in log.problem
    assert not (run / "decisions.csv").exists()


# Shadow models


def truncated(run, _stranger):
    (run / THIRD).write_bytes((run / THIRD).read_bytes()[:-1])


DAMAGE = {
    "truncated": truncated,
    "lost": lambda run, _stranger: (run / THIRD).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_broken_or_lost_shadow_model_is_named_and_trained_again(run, source, damage):
    damage(run, None)
    audit = small(run)
    with pytest.warns(UserWarning, match=r"1 of \d+ shadow models are lost .*0003\.safetensors"):
        audit.log_lira()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eta = float(audit.log_lira().median())
        notes = audit.evaluate("loss", checkpoint="final", eta=eta).warnings
    assert any("0003.safetensors" in note for note in notes)
    assert shadowed(audit).log_lira().equals(source[1]["log-LiRA"])


# What is lost


def test_a_lost_record_is_named(run, source):
    for name in ("epoch-2", LAST):
        (run / f"checkpoints/{name}/record.json").unlink()
        audit = small(run)
        with pytest.warns(UserWarning, match=rf"{name}/record\.json"):
            assert name not in audit.checkpoints.index
        audit.train()
        assert audit.checkpoints.equals(source[1]["checkpoints"])


def test_a_lost_rule_is_named(run):
    audit = small(run)
    assert audit.prediction.rho == 0.05
    (run / "rho.json").unlink()
    with pytest.warns(UserWarning, match=r"rho\.json"):
        assert audit.prediction.rho == 0.95


# Recordings


def test_a_recording_of_a_new_run_says_what_it_is(run, source, tmp_path):
    from benchmarks.recording import export

    export(small(run).path, tmp_path / "kept", {"title": "t", "data": "d"})
    audit = recording_at(tmp_path / "kept")
    np.testing.assert_allclose(audit.log_lira(), source[1]["log-LiRA"], rtol=0, atol=1e-6)
    for again, first in ((audit, small(run)), (audit.as_target(1), small(run).as_target(1))):
        np.testing.assert_allclose(again.score("psmi"), first.score("psmi"), rtol=1e-6)
