"""Files that are not regular, stamps of wrong types, and names that are too long."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import save_file

import memowidgets as mw
from memowidgets import stamps
from memowidgets.decisions import from_csv
from memowidgets.models.pretrained import folder_origin
from memowidgets.store import RunDirectory, StoreError, run_at
from tests.hostile.forged import SPARSE
from tests.training.small import tiny_audit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="FIFOs are POSIX's")


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


def tensors(path):
    run = RunDirectory(path)
    run.write_tensors("x", {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)})
    return run


def forgotten_folder(path):
    (path / "x.safetensors").mkdir()
    RunDirectory(path).forget("x")


def stamped(stamp):
    def call(path):
        run = tensors(path)
        save_file({"a": np.zeros(2, np.float32)}, path / "x.safetensors", {stamps.KEY: stamp})
        run.read_tensors("x")

    return call


def too_long(path):
    run = tensors(path)
    os.truncate(path / "x.safetensors", SPARSE)
    run.read_tensors("x")


def replaced(name):
    """Read an array by the header of a file that is another one by now."""

    def call(path):
        run = tensors(path)
        found = run.read_tensors("x")
        run.write_tensors("x", {"a": np.ones((1, 2), np.float32), "b": np.zeros(2, np.float32)})
        found[name]

    return call


TWICE = "id,decision,note\n7,keep,\n8,remove,\n7,remove,x\n"
STAMPS = ["7", "[]", "null", "{", "{}", '{"run": null, "of": ""}', '{"run": "", "of": []}']
REFUSED = [  # a call with a folder, the error's type, and facts
    (forgotten_folder, StoreError, ["x.safetensors"]),
    *((stamped(stamp), StoreError, ["x.safetensors", "broken"]) for stamp in STAMPS),
    (too_long, StoreError, ["x.safetensors", str(SPARSE)]),
    *((replaced(name), StoreError, ["x.safetensors", "replaced"]) for name in "ab"),
    (lambda _: from_csv(TWICE, "d.csv"), ValueError,
     ["d.csv", "line 4", "'7'", "'remove'", "'keep'"]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "facts"), REFUSED)
def test_what_is_irregular_is_refused_in_a_sentence(call, error, facts, tmp_path):
    with pytest.raises(error) as refused:
        call(tmp_path)
    said = str(refused.value)
    assert said
    assert getattr(refused.value, "errno", None) is None  # a sentence of ours
    assert [fact for fact in facts if fact not in said] == []


def test_one_decision_twice_is_one():
    assert len(from_csv("id,decision,note\n7,keep,\n7,keep,\n")) == 1


LONG = "n" * 300
PATHS = {  # where a path enters
    "a run": RunDirectory,
    "a run or recording": run_at,
    "an audit to open": mw.Audit.open,
    "a new audit": tiny_audit,
    "a CSV": lambda path: mw.data.TextDataset.from_csv(f"{path}.csv"),
    "a JSONL": lambda path: mw.data.MCQDataset.from_jsonl(f"{path}.jsonl"),
    "a benchmark": lambda path: mw.data.fetch_mcq("mmlu", source=path),
    "pictures": mw.data.fetch_cifar10,
    "a folder": mw.data.ImageDataset.from_folder,
    "a report": lambda path: mw.Audit.from_arrays([0, 1], logits=5 * np.eye(2)).report(
        f"{path}.html"
    ),
}


@pytest.mark.parametrize("use_path", PATHS.values(), ids=PATHS)
def test_a_path_of_300_characters(use_path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (LONG, f"{LONG}/x", f"x/{LONG}"):
        with pytest.raises((ValueError, StoreError), match="255"):
            use_path(path)


def test_a_file_is_settled_once_both_of_its_times_are_past(monkeypatch):
    now, long_ago = 10**18, 10**18 - 10**12
    monkeypatch.setattr(stamps.time, "time_ns", lambda: now)
    for written, changed, settled in (
        (long_ago, long_ago, True),
        (now, long_ago, False),
        (long_ago, now, False),  # written just now, and its time set back
    ):
        found = SimpleNamespace(st_ino=1, st_size=1, st_mtime_ns=written, st_ctime_ns=changed)
        assert stamps.is_settled(found) is settled


TOKENIZER = "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json"
TOKENIZER += " vocab.json vocab.txt merges.txt spiece.model"


@pytest.mark.parametrize("name", TOKENIZER.split())
def test_each_file_of_a_tokenizer_is_in_the_digest_of_a_model(name, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    found = [folder_origin(tmp_path)]
    for content in ("a b", "b a"):
        (tmp_path / name).write_text(content)
        found.append(folder_origin(tmp_path))
    assert len({one["recipe"] for one in found}) == 3
    assert len({one["weights"] for one in found}) == 1
