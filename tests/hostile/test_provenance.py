"""Whatever is read from a run directory is compared with what it claims to be."""

from __future__ import annotations

import json
import shutil
import warnings

import pytest
from safetensors.numpy import load_file, save_file

import memowidgets as mw
from memowidgets.store import StoreError
from tests.hostile.forged import forge
from tests.hostile.victim import LAST, QUESTIONS, begun, fill, opened, same

# What is done to a run, given the run and a stranger


def copied(name, to=None, *, strange=False):
    """A file of the run, or of the stranger, in the place of another."""
    return lambda run, stranger: shutil.copy(
        (stranger if strange else run) / name, run / (to or name)
    )


def tensors(name, change=lambda arrays: arrays, **metadata):
    """Other arrays or metadata (None: without), in the run and of the weights as before."""
    return lambda run, _stranger: forge(run / name, change, **metadata)


def without_stamp(name):
    return lambda run, _stranger: save_file(load_file(run / name), run / name)


def note(name, **changes):
    """Other values in a JSON file, and an old check."""

    def damage(run, _stranger):
        kept = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(kept | changes))

    return damage


def weights_without_pass(name, **how):
    def damage(run, stranger):
        copied(name, f"checkpoints/{LAST}/weights.safetensors", **how)(run, stranger)
        (run / PASS).unlink()

    return damage


def of_other_weights(run, _stranger):
    forge(run / PASS, of="0" * 16)


def score_of_target_1_for_2(run, _stranger):
    (one,) = run.glob("targets/**/0001/**/psmi.safetensors")
    (two,) = run.glob("targets/**/0002/**/psmi.safetensors")
    shutil.copy(one, two)


DESIGNS = {
    "reordered": lambda kept: kept | {"members": kept["members"][::-1].copy()},
    "other canaries": lambda kept: kept | {"canaries": ~kept["canaries"]},
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
    "members": (note("manifest.json", members="0" * 16), None, "manifest"),
    "another shadow model": (
        copied("shadows/0001.safetensors", "shadows/0002.safetensors"), "log_lira", "0002.*index"
    ),
    "another run's shadow model": (copied(THIRD, strange=True), "log_lira", "0003"),
    **{
        f"shadow model without {what}": (tensors(THIRD, **{what: None}), "log_lira", "0003")
        for what in ("config", "index", "design")
    },
    "shadow model without a stamp": (without_stamp(THIRD), "log_lira", "0003.* no stamp"),
    "another checkpoint's weights": (
        weights_without_pass("checkpoints/epoch-1/weights.safetensors"), "evaluate", "weights",
    ),
    "another run's weights": (
        weights_without_pass("checkpoints/epoch-2/weights.safetensors", strange=True),
        "evaluate", "weights",
    ),
    **{
        f"record {field}": (
            note("checkpoints/epoch-2/record.json", **{field: value}), "checkpoints",
            "epoch-2/record",
        )
        for field, value in {"median_loss": 0.0, "step": 0, "epoch": 0.0, "weights": ""}.items()
    },
    "rule": (note("rho.json", rho=0.5), "checkpoints", "rho"),
}  # fmt: skip
MADE_AGAIN = {  # the damage, what is asked of an audit, and what the warning says
    "another checkpoint's pass": (
        copied("forward/epoch-1.safetensors", PASS), "log_lira", f"{LAST}.* other weights",
    ),
    "pass of other weights": (of_other_weights, "log_lira", f"{LAST}.* other weights"),
    "another checkpoint's score": (
        copied(PSMI.format("epoch-1"), PSMI.format("epoch-2")), "score", "psmi",
    ),
    "another run's score": (copied(PSMI.format("epoch-2"), strange=True), "score", "psmi"),
    "score of another target": (score_of_target_1_for_2, "as_target", "psmi"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "asked", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_as_it_was_written_is_refused(run, stranger, damage, asked, says):
    damage(run, stranger)
    with pytest.raises(StoreError, match=says):
        QUESTIONS[asked](opened(run)) if asked else mw.Audit.open(run)


@pytest.mark.parametrize(
    ("damage", "asked", "says"), MADE_AGAIN.values(), ids=MADE_AGAIN
)
def test_what_can_be_made_again_is_and_gives_the_same(
    run, answers, stranger, damage, asked, says
):
    damage(run, stranger)
    with pytest.warns(UserWarning, match=says):
        assert same(QUESTIONS[asked](opened(run)), answers[asked])
    assert same(QUESTIONS[asked](opened(run)), answers[asked])


def test_without_the_model_a_pass_is_not_made_again(run):
    shutil.copy(run / "forward/epoch-1.safetensors", run / PASS)
    with pytest.raises(StoreError, match=f"forward/{LAST}"):
        mw.Audit.open(run).representation(checkpoint=LAST)


WORK = {
    "run_shadows": lambda audit: fill(audit, 10),
    "train": lambda audit: audit.train(),
    "log_lira": lambda audit: audit.log_lira(),
    "checkpoints": lambda audit: audit.checkpoints,
    "repr": repr,
    "as_target": lambda audit: audit.as_target(0),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_an_audit_whose_path_is_gone_or_holds_another_run_refuses_to_work(
    run, stranger, work
):
    audit = opened(run)
    audit.log_lira()
    log, first = audit.decision_log, audit.members[:1].tolist()
    shutil.rmtree(run)
    with pytest.raises(StoreError, match="is gone; it was deleted or moved since"):
        work(audit)
    assert not run.exists()
    shutil.copytree(stranger, run)
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    with pytest.raises(StoreError, match="now has another run"):
        work(audit)
    log.decide(first, "keep")
    assert "now has another run" in log.problem
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before


# What is lost


def test_a_lost_shadow_model_is_named_and_trained_again(run, answers):
    (run / THIRD).unlink()
    audit = opened(run)
    with pytest.warns(
        UserWarning, match=r"1 of \d+ shadow models are lost .*0003\.safetensors"
    ):
        audit.log_lira()
    with pytest.warns(UserWarning, match="are lost"):
        notes = audit.evaluate("psmi", checkpoint="final", eta=0.5).warnings
    assert any("0003.safetensors" in note for note in notes)
    fill(audit)
    assert same(QUESTIONS["log_lira"](audit), answers["log_lira"])


@pytest.mark.parametrize("break_it", ["unlink", "damage"])
def test_a_broken_design_is_made_again_by_what_the_error_says(run, answers, break_it):
    file = run / DESIGN
    if break_it == "unlink":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    with pytest.raises(
        StoreError, match=r"design\.safetensors.*restore it, or make the audit"
    ) as error:
        opened(run)
    assert "delete" not in str(error.value)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun(run)
    warned = any("design.safetensors" in str(one.message) for one in said)
    assert warned == (break_it == "damage")
    assert same(QUESTIONS["score"](opened(run)), answers["score"])


def test_a_lost_record_is_named(run, answers):
    for name in ("epoch-2", LAST):
        (run / f"checkpoints/{name}/record.json").unlink()
        audit = opened(run)
        with pytest.warns(UserWarning, match=rf"{name}/record\.json") as said:
            assert name not in audit.checkpoints.index
        assert {str(one.message).count(f"{name}/record") for one in said} == {1}
        audit.train()
        assert same(QUESTIONS["checkpoints"](audit), answers["checkpoints"])


def test_a_lost_rule_is_named(run):
    audit = opened(run)
    assert audit.prediction.rho == 0.1
    (run / "rho.json").unlink()
    with pytest.warns(UserWarning, match=r"rho\.json"):
        assert opened(run).prediction.rho == 0.95
