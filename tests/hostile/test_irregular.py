"""Files that are not regular, stamps of wrong types, and names that are too long."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets import stamps
from memowidgets.decisions import DecisionLog, from_csv
from memowidgets.edits import Edit, EditsFile
from memowidgets.models.model_files import folder_origin
from memowidgets.store import RunDirectory, StoreError
from memowidgets.store.tensors import head_of
from memowidgets.training.engine.claims import Claims
from tests.audit.conftest import small_audit, small_data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="FIFOs are POSIX's")
SPARSE = 10 * 2**30


def fifo(path):
    os.mkfifo(path)


def folder(path):
    path.mkdir()


def device(path):
    path.symlink_to("/dev/zero")


def sparse(path):
    with path.open("wb") as file:
        file.truncate(SPARSE)


KINDS = {"FIFO": fifo, "folder": folder, "device": device, str(SPARSE): sparse}


@pytest.fixture(autouse=True)
def _never_waits():
    """A FIFO would block for ever, and a sparse file fill the memory: that ends the test."""

    def too_long(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(kind, path):
    path.unlink()
    KINDS[kind](path)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    audit = small_audit(tmp_path_factory.mktemp("irregular") / "run")
    audit.train()
    audit.score("psmi", checkpoint="final")
    audit.decision_log.decide([str(audit.members[0])], "remove")
    return Path(audit.path)


def use(run):
    audit = mw.Audit.open(run, data=small_data(), model=mw.models.ConvNet(16), device="cpu")
    audit.checkpoints  # noqa: B018
    audit.score("psmi", checkpoint="final")
    audit.score("loss", checkpoint="final")
    log = audit.decision_log
    log.table()
    if log.unread:
        raise StoreError(log.unread)


@pytest.mark.parametrize("kind", KINDS)
def test_any_file_of_a_run(made, kind, tmp_path):
    names = [p.relative_to(made) for p in made.rglob("*") if p.is_file()]
    names = [name for name in names if not name.name.endswith(".lock")]
    assert {"manifest.json", "decisions.csv", "design.safetensors"} <= set(map(str, names))
    refused = {}
    for number, name in enumerate(names):
        run = shutil.copytree(made, tmp_path / str(number))
        put(kind, run / name)
        try:
            use(run)
        except (StoreError, UserWarning) as error:  # a score whose file is broken is computed again
            refused[str(name)] = str(error)
        shutil.rmtree(run)
    assert {"manifest.json", "decisions.csv", "design.safetensors"} <= set(refused)
    assert all(Path(name).name in said and "\n" not in said for name, said in refused.items())


@pytest.mark.parametrize("kind", KINDS)
def test_the_edits(kind, tmp_path):
    file = EditsFile(tmp_path / "edits.jsonl")
    file.change({"7": Edit("a text")})
    put(kind, file.path)
    with pytest.raises(ValueError, match=kind) as error:
        file.read()
    assert "edits.jsonl" in str(error.value)


def test_the_lock_of_the_edits(tmp_path):
    (tmp_path / ".edits.jsonl.lock").mkdir()
    with pytest.raises(OSError, match=r"edits.jsonl.lock") as error:
        EditsFile(tmp_path / "edits.jsonl").change({"7": Edit("a text")})
    assert error.value.errno is None  # a sentence of ours


def test_a_folder_in_place_of_tensors_stays(tmp_path):
    run = RunDirectory(tmp_path)
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(StoreError, match=r"x.safetensors"):
        run.forget("x")


def test_a_claim_that_is_a_folder(tmp_path):
    run = RunDirectory(tmp_path / "run")
    with Claims(run, "c") as claims:
        (tmp_path / "run" / "c" / "0003.lock").mkdir()
        with pytest.raises(StoreError, match=r"0003\.lock"):
            claims.take(3)


@pytest.mark.parametrize(
    "changes",
    [{"name": 7}, {"run": None}, {"of": []}, {"arrays": []}, {"arrays": {"a": 7}}, {"more": "x"}],
)
def test_a_stamp_of_wrong_types(changes, tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("x", {"a": np.zeros(2, np.float32)})
    stamp = {"name": "x", "run": "", "of": "", "arrays": {}} | changes
    entries = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}

    class Written:
        text = json.dumps(stamp)

    (tmp_path / "x.safetensors").write_bytes(head_of(entries, {}, Written) + bytes(8))
    with pytest.raises(StoreError, match=r"x.safetensors.*stamp"):
        run.read_tensors("x")["a"]


@pytest.mark.parametrize("stamp", ["7", "[]", "null", '"x"', "{"])
def test_a_stamp_that_is_no_object(stamp):
    with pytest.raises(ValueError, match=r"."):
        stamps.Stamp.read(stamp)


def test_a_file_of_tensors_that_is_longer_than_its_arrays(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("x", {"a": np.zeros(2, np.float32)})
    os.truncate(tmp_path / "x.safetensors", SPARSE)
    with pytest.raises(StoreError, match=str(SPARSE)):
        run.read_tensors("x")


LONG = "n" * 300
DATA = mw.data


@pytest.mark.parametrize(
    "use_path",
    [
        RunDirectory,
        RunDirectory.existing,
        mw.Audit.open,
        small_audit,
        EditsFile,
        lambda path: setattr(DecisionLog(), "edits_file", path),
        lambda path: DATA.TextDataset.from_csv(f"{path}.csv"),
        lambda path: DATA.TextDataset.from_jsonl(f"{path}.jsonl"),
        lambda path: DATA.TableDataset.from_csv(f"{path}.csv"),
        lambda path: DATA.MCQDataset.from_csv(f"{path}.csv"),
        lambda path: DATA.MCQDataset.from_jsonl(f"{path}.jsonl"),
        lambda path: DATA.fetch_mcq("mmlu", source=path),
        DATA.fetch_cifar10,
        DATA.ImageDataset.from_folder,
        lambda path: mw.memorization.load_gaps(f"{path}.npy"),
        lambda path: mw.Audit.from_arrays([0, 1], logits=5 * np.eye(2)).report(f"{path}.html"),
    ],
)
@pytest.mark.parametrize("path", [LONG, f"{LONG}/x", f"x/{LONG}"])
def test_a_path_of_300_characters(use_path, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, StoreError), match="255"):
        use_path(path)


def stat_of(path, **times):
    """What the system says of a file, with other times, in ns."""
    found = path.stat()

    class Found:
        st_ino, st_size = found.st_ino, found.st_size
        st_mtime_ns, st_ctime_ns = times["mtime"], times["ctime"]

    return Found


NOW, LONG_AGO = 10**18, 10**18 - 10**12


@pytest.mark.parametrize(
    ("mtime", "ctime", "settled"),
    [
        (LONG_AGO, LONG_AGO, True),
        (NOW, LONG_AGO, False),
        (LONG_AGO, NOW, False),  # written just now, and its time set back
        (NOW, NOW, False),
    ],
)
def test_a_file_is_settled_once_both_of_its_times_are_past(
    mtime, ctime, settled, tmp_path, monkeypatch
):
    monkeypatch.setattr(stamps.time, "time_ns", lambda: NOW)
    assert stamps.is_settled(stat_of(tmp_path, mtime=mtime, ctime=ctime)) is settled


def test_tensors_of_a_replaced_file_are_not_read_with_the_old_header(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("x", {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)})
    found = run.read_tensors("x")
    run.write_tensors("x", {"a": np.ones((1, 2), np.float32), "b": np.zeros(2, np.float32)})
    for name in ("a", "b"):
        with pytest.raises(StoreError, match=r"x\.safetensors was replaced"):
            found[name]


TOKENIZER = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
]


@pytest.mark.parametrize("name", TOKENIZER)
def test_each_file_of_a_tokenizer_is_in_the_digest_of_a_model(name, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    without = folder_origin(tmp_path)
    (tmp_path / name).write_text("a b")
    first = folder_origin(tmp_path)
    (tmp_path / name).write_text("b a")
    second = folder_origin(tmp_path)
    assert len({without["recipe"], first["recipe"], second["recipe"]}) == 3
    assert without["weights"] == first["weights"] == second["weights"]


def test_two_decisions_for_one_id_are_refused():
    text = "id,decision,note\n7,keep,\n8,remove,\n7,remove,x\n"
    with pytest.raises(ValueError, match=r"d\.csv, line 4.*'7'.*'remove'.*'keep'"):
        from_csv(text, "d.csv")
    assert len(from_csv("id,decision,note\n7,keep,\n7,keep,\n")) == 1
