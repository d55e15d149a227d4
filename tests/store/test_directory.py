"""A run directory: whole files or none, one lock, closed to others, clear errors."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil

import numpy as np
import pytest

from benchmarks.recording import PackedFile, pack
from memowidgets.files import fingerprints
from memowidgets.store import (
    FORMAT,
    REVISION,
    RunDirectory,
    StoreError,
    run_at,
)


def test_a_failed_write_leaves_the_old_file_and_no_scrap(run, monkeypatch):
    run.write_note("note.json", {"is": "old"})

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        StoreError, match=r"the disk is full; free some space.*is unchanged"
    ):
        run.write_note("note.json", {"is": "new"})
    monkeypatch.undo()
    assert run.read_note("note.json") == {"is": "old"}
    assert {p.name for p in run.path.iterdir()} == {"note.json", REVISION}


def _hold(path: str, held, done) -> None:
    with RunDirectory(path).lock("checkpoints"):
        held.set()
        done.wait(30)


def test_two_processes_cannot_hold_one_lock_and_a_killed_one_lets_go(run):
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(run.path), held, done))
    other.start()
    assert held.wait(60)
    with (
        pytest.raises(
            StoreError, match="another process is working on the checkpoints"
        ),
        run.lock("checkpoints"),
    ):
        pass
    with run.lock("shadows"):
        pass
    other.kill()
    other.join()
    with run.lock("checkpoints"):
        pass


def test_the_holder_of_a_lock_sweeps_what_killed_writers_left(run, monkeypatch):
    scrap = run.path / "checkpoints" / "epoch-1" / ".unfinished-abc"
    scrap.parent.mkdir(parents=True)
    scrap.write_bytes(b"half")
    others = run.path / ".unfinished-def"
    others.write_bytes(b"half")
    with run.lock("checkpoints"):
        pass
    assert (scrap.exists(), others.exists()) == (False, True)
    os.utime(others, (0, 0))
    for seconds, is_left in ((3600, True), (3600.5, False)):
        monkeypatch.setattr("time.time", lambda now=seconds: now)
        with run.lock("checkpoints"):
            pass
        assert others.exists() == is_left


def test_manifests_that_cannot_be_trusted_are_refused(run):
    with pytest.raises(
        StoreError, match=r"not a run directory: it has no manifest\.json"
    ):
        run.read_manifest()
    for text, said in (
        (
            json.dumps({"format": FORMAT + 1}),
            f"in format {FORMAT + 1}, and .* format {FORMAT}",
        ),
        (
            json.dumps({"format": FORMAT - 1}),
            f"in format {FORMAT - 1}, and .* format {FORMAT}",
        ),
        (json.dumps({"format": "x" * 100}), "in format xxxxx"),
        (json.dumps({"format": FORMAT}), "was changed after it was written"),
        ("{}", "is not the manifest"),
        ("{", "is broken"),
        ("[]", "is not the manifest"),
        ("[" * 100_000, "is broken"),
    ):
        (run.path / "manifest.json").write_text(text)
        with pytest.raises(StoreError, match=said):
            run.read_manifest()


def test_a_file_that_was_replaced_is_read_anew(run):
    run.write_tensors("x", {"x": np.zeros(3)})
    first = run.read_tensors("x")
    assert run.read_tensors("x") is first
    run.write_tensors("x", {"x": np.ones(3)})
    assert run.read_tensors("x")["x"].tolist() == [1, 1, 1]


def test_a_relative_path_means_the_same_folder_for_ever(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDirectory("here")
    monkeypatch.chdir("/")
    run.write_note("note.json", {})
    assert (tmp_path / "here" / "note.json").exists()


def test_what_is_forgotten_is_gone_and_the_rest_stays(run):
    for name in ("a", "b/c", "d"):
        run.write_tensors(name, {"x": np.ones(1)})
    run.forget("a", "b", "nothing")
    assert {place.name for place in run.path.iterdir()} == {"d.safetensors", REVISION}


@pytest.mark.parametrize(
    "name", ["../out", "scores/../../out", "/tmp/out", "a\\..\\b", "a\0b"]
)
def test_a_name_that_leads_out_of_the_run_is_refused(run, name):
    calls = [
        lambda: run.write_tensors(name, {"x": np.ones(1)}),
        lambda: run.new_tensors(name, {"x": (1,)}).__enter__(),
        lambda: run.read_tensors(name),
        lambda: run.write_text(name, "x"),
        lambda: run.read_text(name),
        lambda: run.read_note(name),
        lambda: run.forget(name),
    ]
    for call in calls:
        with pytest.raises(StoreError, match="is not a name inside of"):
            call()
    assert not run.has(name)


@pytest.mark.parametrize("path", [5, None, "", "a\0b", "\ud800", "~nobody-here/x"])
def test_what_cannot_be_a_path_is_refused(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = ValueError if isinstance(path, str) else TypeError
    for open_it in (RunDirectory, run_at):
        with pytest.raises(error, match="path"):
            open_it(path)
    assert list(tmp_path.iterdir()) == []


def test_where_data_and_model_came_from_is_no_part_of_a_runs_identity():
    manifest = {"seed": 0, "ids": ["a", "b"], "data": {"labels": "0f", "source": None}}
    moved = {**manifest, "data": {"labels": "0f", "source": "elsewhere"}}
    identity, whole = fingerprints(manifest)
    assert fingerprints(moved)[0] == identity
    assert fingerprints(moved)[1] != whole
    for change in ({"seed": 1}, {"ids": ["b", "a"]}, {"data": {"labels": "1f"}}):
        assert fingerprints({**manifest, **change})[0] != identity


def test_what_does_not_belong_in_its_place_is_refused(run):
    manifest = {"format": FORMAT, "seed": 0}
    run.write_manifest(manifest)
    run.hold(manifest)
    assert run.manifest is manifest
    run.write_tensors("scores/a", {"x": np.ones(1)}, of="w")
    run.write_note("scores/a.json", {"is": 1})
    assert run.read_tensors("scores/a", of="w")["x"].tolist() == [1]
    assert run.read_note("scores/a.json") == {"is": 1}
    with pytest.raises(StoreError, match="other weights"):
        run.read_tensors("scores/a", of="v")
    other, theirs = RunDirectory(run.path.parent / "other"), {**manifest, "seed": 1}
    other.write_manifest(theirs)
    other.hold(theirs)
    other.write_tensors("scores/c", {"x": np.ones(1)})
    shutil.copy(other.path / "scores/c.safetensors", run.path / "scores")
    with pytest.raises(StoreError, match="belongs to another run"):
        run.read_tensors("scores/c")
    shutil.copy(run.path / "scores/a.json", run.path / "scores/b.json")
    for text in (None, "[]", '{"is": 2}'):
        if text is not None:
            (run.path / "scores/b.json").write_text(text)
        with pytest.raises(
            StoreError, match="changed after it was written, or belongs elsewhere"
        ):
            run.read_note("scores/b.json")
    (run.path / "scores/a.safetensors").unlink()
    with pytest.raises(StoreError, match="does not exist"):
        run.read_tensors("scores/a")
    RunDirectory(run.path).write_manifest({**manifest, "seed": 1})
    for use in (
        lambda: run.read_note("scores/a.json"),
        lambda: run.read_text("x"),
        lambda: run.write_note("c.json", {}),
    ):
        with pytest.raises(StoreError, match="now has another run"):
            use()
    (run.path / "manifest.json").unlink()
    with pytest.raises(StoreError, match="is gone"):
        run.read_note("scores/a.json")


def test_a_recording_gives_back_what_was_packed(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.normal(size=(3, 4)).astype("f4"),
        "n": np.arange(5),
        "no": np.ones((0, 2)),
    }
    files = {
        "forward/a": PackedFile(arrays, {"x": np.float16}, {"k": "v"}, of="w"),
        "scores/b": PackedFile({"x": rng.normal(size=6)}, {}, {}),
    }
    notes = {"note.json": {"is": [1]}, "checkpoints/e/record.json": {"step": 3}}
    pack(tmp_path / "r", {"format": FORMAT, "seed": 0}, files, notes)
    recording = run_at(tmp_path / "r")
    recording.hold(recording.read_manifest())
    found = recording.read_tensors("forward/a", of="w")
    for name, array in (arrays | {"x": arrays["x"].astype("f2")}).items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == arrays[name].dtype
    assert (sorted(found), len(found), "q" in found) == (["n", "no", "x"], 3, False)
    assert found.metadata == {"k": "v"}
    scores = recording.read_tensors("scores/b")["x"]
    np.testing.assert_array_equal(scores, files["scores/b"].arrays["x"])
    assert recording.names("checkpoints", "") == ["e"]
    assert recording.read_note("checkpoints/e/record.json") == {"step": 3}
    assert recording.has_file("note.json")
    for use, said in (
        (lambda: recording.read_tensors("forward/a", of="v"), "other weights"),
        (lambda: recording.read_note("no.json"), r"no\.json"),
        (lambda: found["q"], "lacks 'q'"),
        (lambda: recording.write_text("x", ""), "is a recording"),
    ):
        with pytest.raises(StoreError, match=said):
            use()


# the revision


CHANGES = {
    "arrays": lambda run: run.write_tensors("scores/x", {"x": np.ones(1)}),
    "a note": lambda run: run.write_note("note.json", {"is": "new"}),
    "a manifest": lambda run: run.write_manifest({"seed": 1}),
    "what goes": lambda run: run.forget("a"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_each_change_raises_the_revision_for_everybody(run, how):
    run.write_tensors("a", {"x": np.ones(1)})
    other = RunDirectory(run.path)
    before = run.revision(), other.revision()
    assert before == (run.revision(), other.revision())
    CHANGES[how](other)
    after = run.revision(), other.revision()
    assert all(new != old for new, old in zip(after, before, strict=True))
    run.forget("nothing", "neither")
    run.write_text("decisions.csv", "id\n", is_evidence=False)
    assert after == (run.revision(), other.revision())


def _end_between(path: str) -> None:
    """Write a file as `write_tensors` does, and end before its revision has its name."""
    run = RunDirectory(path)
    run.write_text("whole.txt", "whole", is_evidence=False)
    with run.new_revision():
        os._exit(1)


def test_killed_before_the_revision_the_file_is_whole_and_the_next_change_tells(run):
    run.write_tensors("a", {"x": np.ones(1)})
    before = run.revision()
    process = multiprocessing.get_context("spawn").Process(
        target=_end_between, args=(str(run.path),)
    )
    process.start()
    process.join()
    assert process.exitcode == 1
    assert run.revision() == before, "who has it open sees it with the next change"
    assert RunDirectory(run.path).read_text("whole.txt") == "whole"
    RunDirectory(run.path).write_tensors("b", {"x": np.ones(1)})
    assert run.revision() != before


def test_where_the_revision_has_no_room_the_run_is_unchanged(run, monkeypatch):
    run.write_tensors("a", {"x": np.ones(1)})
    before, kept = run.revision(), sorted(run.path.rglob("*"))

    def full(*_given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("memowidgets.store.directory.secrets.token_hex", full)
        for change in (*CHANGES.values(), lambda run: fill_one(run, "b")):
            with pytest.raises(StoreError, match=r"the disk is full.*is unchanged"):
                change(run)
    assert sorted(run.path.rglob("*")) == [*kept, *made_folders(run.path, kept)]
    assert run.revision() == before
    assert run.read_tensors("a")["x"].tolist() == [1.0]


def fill_one(run, name):
    with run.new_tensors(name, {"x": (1,)}) as arrays:
        arrays["x"][:] = 2


def made_folders(path, kept):
    """Folders, which stay: they hold nothing."""
    return [one for one in sorted(path.rglob("*")) if one not in kept and one.is_dir()]


def test_as_long_as_a_file_is_broken_each_look_is_a_new_one(run):
    """Somebody repairs it by hand, which raises no revision."""
    run.write_tensors("a", {"x": np.ones(1)})
    file = run.path / "a.safetensors"
    content = file.read_bytes()
    before = run.revision()
    file.write_bytes(content[:-1])
    for _ in range(2):
        assert not run.has("a")
        later = run.revision()
        assert later != before
        before = later
    file.write_bytes(content)
    assert run.has("a")
    assert run.revision() == before
    file.unlink()
    kept = run._known["a"]
    with pytest.raises(StoreError, match="deleted since it was opened; call again"):
        kept["x"]
    assert run.revision() != before
