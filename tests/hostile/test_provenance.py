"""Whatever is read from a run directory is compared with what it claims to be."""

from __future__ import annotations

import json
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import memowidgets as mw
from memowidgets.store import FORMAT, StoreError
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
    return shadowed(audit)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A whole run, tests copy it, and what it answers."""
    path = tmp_path_factory.mktemp("provenance") / "run"
    return path, whole(path).log_lira()


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


def rewritten(file: Path, change=None, **metadata) -> None:
    """The same file with other arrays, or metadata (None: without), and an old stamp."""
    with safe_open(file, "np") as kept:
        said = {**(kept.metadata() or {}), **metadata}
    arrays = load_file(file)
    save_file(change(arrays) if change else arrays, file, {k: v for k, v in said.items() if v})


# The design


def reordered(arrays):
    return arrays | {"members": arrays["members"][::-1].copy()}


def others(arrays):
    outside = np.setdiff1d(arrays["pool"], arrays["members"])
    return arrays | {"members": np.sort(outside[: len(arrays["members"])])}


def relabelled(arrays):
    return arrays | {"labels": (arrays["labels"] + 1) % 10}


def regrouped(arrays):
    return arrays | {"groups": arrays["groups"][::-1].copy()}


def uncanaried(arrays):
    return arrays | {"canaries": ~arrays["canaries"]}


def unheld(arrays):
    return arrays | {"held_out": arrays["pool"][:5].copy()}


CHANGES = [reordered, others, relabelled, regrouped, uncanaried, unheld]


@pytest.mark.parametrize("change", CHANGES)
def test_a_design_that_is_not_the_manifests_is_refused(run, change):
    rewritten(run / "design.safetensors", change)
    with pytest.raises(StoreError, match=r"design\.safetensors (was changed|is not the design)"):
        mw.Audit.open(run)


def test_a_design_of_another_run_is_refused_and_made_again_by_its_owner(run, stranger, source):
    shutil.copy(stranger / "design.safetensors", run)
    with pytest.raises(StoreError, match=r"design\.safetensors belongs to another run"):
        mw.Audit.open(run)
    with pytest.warns(UserWarning, match=r"design\.safetensors belongs to another run.*made again"):
        audit = small(run)
    assert audit.log_lira().equals(source[1])
    assert mw.Audit.open(run).log_lira().equals(source[1])


@pytest.mark.parametrize(
    "changes",
    [{"seed": 1}, {"layers": ["a", "b", "c"]}, {"members": "0" * 16}],
    ids=lambda changes: next(iter(changes)),
)
def test_an_edited_manifest_is_refused(run, changes):
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | changes))
    with pytest.raises(StoreError, match=r"manifest\.json was changed after it was written"):
        mw.Audit.open(run)


# A path that holds another run by now


def replaced_by(path, make) -> None:
    shutil.rmtree(path)
    make(path)


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
    replaced_by(run, lambda path: shutil.copytree(stranger, path))
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
    replaced_by(run, lambda path: shutil.copytree(stranger, path))
    log.decide(first, "remove")
    assert "now has another run" in log.problem
    assert not (run / "decisions.csv").exists()


def test_an_equal_run_in_its_place_is_the_same(run, source):
    audit = small(run)
    replaced_by(run, lambda path: shutil.copytree(source[0], path))
    assert audit.log_lira().equals(source[1])


# Shadow models


def test_a_copy_of_a_shadow_model_over_another_is_refused(run):
    shutil.copy(run / "shadows/0001.safetensors", run / "shadows/0002.safetensors")
    with pytest.raises(StoreError, match=r"0002\.safetensors was written as shadows/0001"):
        small(run).log_lira()


@pytest.mark.parametrize("what", ["config", "index", "design", "memowidgets"])
def test_a_shadow_model_that_does_not_say_what_it_is_is_refused(run, what):
    rewritten(run / "shadows/0003.safetensors", **{what: None})
    with pytest.raises(
        StoreError, match=r"0003\.safetensors (says that|has no stamp|was trained with another)"
    ):
        small(run).log_lira()


def doubled(arrays):
    return {k: 2 * v if k.startswith("gap.") else v for k, v in arrays.items()}


def swapped(arrays):
    return arrays | {"members": ~arrays["members"]}


def truncated(file):
    file.write_bytes(file.read_bytes()[:-1])


DAMAGE = {
    "gaps": lambda file: rewritten(file, doubled),
    "members": lambda file: rewritten(file, swapped),
    "truncated": truncated,
    "lost": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_broken_or_lost_shadow_model_is_named_and_trained_again(run, source, damage):
    damage(run / "shadows/0003.safetensors")
    audit = small(run)
    with pytest.warns(UserWarning, match=r"0003\.safetensors .*The shadow model is left out"):
        audit.log_lira()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eta = float(audit.log_lira().median())
        notes = audit.evaluate("loss", checkpoint="final", eta=eta).warnings
    assert any("0003.safetensors" in note for note in notes)
    assert shadowed(audit).log_lira().equals(source[1])


def test_log_lira_in_memory_follows_the_files(run, stranger):
    audit = small(run)
    known = audit.log_lira()
    (run / "shadows/0003.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"0003\.safetensors is missing"):
        assert not audit.log_lira().equals(known)
    assert shadowed(audit).log_lira().equals(known)
    shutil.copy(stranger / "shadows/0003.safetensors", run / "shadows")
    with pytest.raises(StoreError, match="was trained with another"):
        audit.log_lira()


# Passes, scores, weights, records


def test_another_checkpoints_pass_is_made_again(run, source):
    shutil.copy(run / "forward/epoch-1.safetensors", run / f"forward/{LAST}.safetensors")
    with pytest.raises(StoreError, match="was written as forward/epoch-1"):
        mw.Audit.open(run).representation(checkpoint=LAST)
    with pytest.warns(UserWarning, match="was written as forward/epoch-1.*made again"):
        assert small(run).log_lira().equals(source[1])


def test_a_pass_from_other_weights_is_made_again(run, source):
    stamp = json.loads(_metadata(run / f"forward/{LAST}.safetensors")["memowidgets"])
    rewritten(
        run / f"forward/{LAST}.safetensors", memowidgets=json.dumps({**stamp, "of": "0" * 16})
    )
    with pytest.warns(
        UserWarning, match=f"{LAST}.safetensors comes from other weights.*made again"
    ):
        assert small(run).log_lira().equals(source[1])


def _metadata(file):
    with safe_open(file, "np") as kept:
        return kept.metadata()


def test_a_changed_pass_is_no_answer(run):
    file = run / f"forward/{LAST}.safetensors"
    rewritten(file, lambda arrays: arrays | {"logits": arrays["logits"][::-1].copy()})
    with pytest.raises(StoreError, match="was changed after it was written"):
        small(run).log_lira()


@pytest.mark.parametrize("how", ["another checkpoint", "another run", "changed"])
def test_scores_that_are_not_of_the_pass_are_computed_again(run, stranger, how):
    known = small(run).score("psmi", checkpoint=2)
    place = "scores/{}/" + f"{small(run).layers[-1]}/psmi.safetensors"
    if how == "another checkpoint":
        shutil.copy(run / place.format("epoch-1"), run / place.format("epoch-2"))
    elif how == "another run":
        shutil.copy(stranger / place.format("epoch-2"), run / place.format("epoch-2"))
    else:
        rewritten(run / place.format("epoch-2"), lambda a: a | {"score": -a["score"]})
    with pytest.warns(UserWarning, match=r"psmi\.safetensors .*made again"):
        assert small(run).score("psmi", checkpoint=2).equals(known)
    assert small(run).score("psmi", checkpoint=2).equals(known)


@pytest.mark.parametrize("name", ["epoch-1/weights", "epoch-2/weights"])
def test_weights_of_another_checkpoint_or_run_are_refused(run, stranger, name):
    place = f"checkpoints/{LAST}/weights.safetensors"
    origin = run if name.startswith("epoch-1") else stranger
    shutil.copy(origin / f"checkpoints/{name}.safetensors", run / place)
    (run / f"forward/{LAST}.safetensors").unlink()
    with pytest.raises(StoreError, match=r"weights\.safetensors has other weights"):
        small(run).log_lira()


def test_a_lost_record_is_named(run, source):
    clean = small(run).checkpoints
    for name in ("epoch-2", LAST):
        (run / f"checkpoints/{name}/record.json").unlink()
        audit = small(run)
        with pytest.warns(UserWarning, match=rf"{name}/record\.json is missing"):
            assert name not in audit.checkpoints.index
        audit.train()
        assert audit.checkpoints.equals(clean)


@pytest.mark.parametrize("field", ["median_loss", "step", "epoch", "weights"])
def test_an_edited_record_is_refused(run, field):
    file = run / "checkpoints/epoch-2/record.json"
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {field: type(record[field])(0)}))
    with pytest.raises(StoreError, match=r"epoch-2/record\.json was changed after it was written"):
        _ = small(run).prediction


def test_a_lost_or_edited_rule_is_named(run):
    audit = small(run)
    assert audit.prediction.rho == 0.05
    (run / "rho.json").write_text(json.dumps({"rho": 0.5, "over_last": 1}))
    with pytest.raises(StoreError, match=r"rho\.json was changed after it was written"):
        _ = audit.prediction
    (run / "rho.json").unlink()
    with pytest.warns(UserWarning, match=r"rho\.json is missing, so the prediction checkpoint"):
        assert audit.prediction.rho == 0.95


# Leave one out


def test_the_first_targets_gaps_are_those_of_its_weights(run):
    audit = shadowed(small(run), 8, keep_forward=True)
    known = audit.as_target(1).log_lira()
    for file in (run / "targets/first").glob("*.safetensors"):
        rewritten(file, lambda arrays: {"gap": -arrays["gap"]})
    with pytest.warns(UserWarning, match="targets/first/.* was changed after it was written"):
        assert small(run).as_target(1).log_lira().equals(known)


def test_scores_of_one_shadow_target_are_no_other_ones(run):
    audit = shadowed(small(run), 8, keep_forward=True)
    known = [audit.as_target(i).score("psmi") for i in (1, 2)]
    (one,) = run.glob("targets/**/0001/**/psmi.safetensors")
    (two,) = run.glob("targets/**/0002/**/psmi.safetensors")
    shutil.copy(one, two)
    with pytest.warns(UserWarning, match=r"psmi\.safetensors was written as .*made again"):
        assert small(run).as_target(2).score("psmi").equals(known[1])


def test_a_run_of_another_format_is_refused_in_one_sentence(run):
    """No earlier format is read, and none that is unknown."""
    manifest = json.loads((run / "manifest.json").read_text())
    for other in (1, FORMAT - 1, FORMAT + 1, None, "3"):
        (run / "manifest.json").write_text(json.dumps({**manifest, "format": other}))
        with pytest.raises(StoreError, match=f"in format {other}, and .* reads format {FORMAT}"):
            mw.Audit.open(run)
        with pytest.raises(StoreError, match=f"in format {other}, and"):
            small(run)


# Recordings


def test_the_shipped_recordings_open():
    for name in ("banking77-smollm2", "cifar10-wrn", "mmlu-field-smollm2"):
        audit = mw.open_recorded(name)
        assert len(audit.log_lira()) > 0
        assert len(audit.score("psmi")) > 0


def test_a_recording_of_a_new_run_says_what_it_is(run, source, tmp_path):
    from benchmarks.recording import export

    shadowed(small(run), 8, keep_forward=True).as_target(1).score("psmi")
    export(small(run).path, tmp_path / "kept", {"title": "t", "data": "d"})
    audit = recording_at(tmp_path / "kept")
    np.testing.assert_allclose(audit.log_lira(), source[1], rtol=0, atol=1e-6)
    for again, first in ((audit, small(run)), (audit.as_target(1), small(run).as_target(1))):
        np.testing.assert_allclose(again.score("psmi"), first.score("psmi"), rtol=1e-6)
