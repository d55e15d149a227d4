"""Broken files of a run: Python says a sentence that names the file, as the command line does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from memowidgets.commands.runs import CommandError, checked_run
from memowidgets.files import KEY
from memowidgets.store import MissingError, RunDirectory, StoreError
from tests.hostile import victim
from tests.hostile.forged import KINDS, SPARSE, put

DEEP = "[" * 100_000
NOT_JSON = ["", "null", '"x"', "[1, 2]", DEEP, "1" * 5000, b"\xff\xfe\x00"]
DECISIONS = ["no header", "\ud800"]
DECISIONS += [
    f"id,decision,note\n{rows}" for rows in ("1,burn,\n", "1\n", "7,keep,\n7,remove,\n")
]
NOTES = ["rho.json", "shadows.json", "checkpoints/epoch-2/record.json"]


def use(run):
    """Open a run and use what it holds."""
    audit = victim.opened(run)
    audit.prediction  # noqa: B018 - it reads the records and the rule
    audit.decisions  # noqa: B018
    repr(audit)
    audit.score("psmi", checkpoint="final")
    audit.score("loss", checkpoint="final")


def written(content):
    """Damage: another content, as text or bytes."""
    raw = (
        content
        if isinstance(content, bytes)
        else content.encode("utf-8", "surrogatepass")
    )
    return lambda file: file.write_bytes(raw)


def unstamped(file):
    save_file({"other": np.ones(3)}, file)


DAMAGED = [  # a file of a run, what is done to it, and what the message says besides its name
    *(("manifest.json", written(text), "") for text in NOT_JSON),
    *((name, written(text), "") for name in NOTES for text in ("", "[]", DEEP)),
    *((name, written(b"\xff{}"), "restore it") for name in (*NOTES, "decisions.csv")),
    *((name, written("{"), "restore it") for name in NOTES),
    ("design.safetensors", unstamped, "has no stamp"),
    ("forward/epoch-3.safetensors", unstamped, "has no stamp"),
    ("scores/epoch-3/hidden/psmi.safetensors", unstamped, "has no stamp"),
    *(("decisions.csv", written(text), "") for text in DECISIONS),
    *((name, lambda file, kind=kind: put(kind, file), "")
      for name in ("manifest.json", "decisions.csv") for kind in KINDS),
]  # fmt: skip


@pytest.mark.parametrize(("name", "damage", "fact"), DAMAGED)
def test_a_damaged_file_of_a_run_is_named(run, name, damage, fact):
    damage(run / name)
    with pytest.raises((StoreError, UserWarning)) as error:
        use(run)
    said = str(error.value)
    assert Path(name).name in said, said
    assert fact in said
    assert "\n" not in said
    if name == "decisions.csv":  # and nothing is trained on
        with pytest.raises(StoreError, match=r"decisions\.csv"):
            victim.opened(run).kept()
    elif name == "manifest.json":
        with pytest.raises(CommandError):
            checked_run(run)


# Values of whoever knows the format and its check; the last one stands for none.
WRONG = [None, 7, "\x1b[31m", [[7]], {"a": 7}, -(10**4000), 1e308, ...]


@pytest.mark.parametrize("value", WRONG, ids=range(len(WRONG)))
def test_a_manifest_with_another_kind_of_value(run, value):
    """Every field at a time: refused by a sentence, or all that follows works as before."""
    whole = RunDirectory(run).read_manifest()
    refused = 0
    for name in whole:
        changed = {k: v for k, v in whole.items() if k != name}
        RunDirectory(run).write_manifest(
            changed if value is ... else changed | {name: value}
        )
        said = complaint(run)
        assert said is None or str(run) in said, (name, said)
        refused += said is not None
    assert refused >= 5


def complaint(run):
    """What is said where a run can't be used; None where it can."""
    try:
        use(run)
    except (StoreError, ValueError) as error:
        return str(error)
    return None


HEADERS = [
    b"[]", b"{", b'{"x": 7}', b'{"x": {}}', b"[" * 100_000, b'{"__metadata__": 7}',
    b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
    b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
    b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}',
    b'{"x": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
    b'{"x": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}',
    b'{"x": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 6]}}',
    b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
]  # fmt: skip


STAMPS = [
    "7",
    "[]",
    "null",
    "{",
    "{}",
    '{"run": null, "of": ""}',
    '{"run": "", "of": []}',
]


def with_header(header):
    content = len(header).to_bytes(8, "little") + header + b"\0" * 8
    return lambda file: file.write_bytes(content)


def with_stamp(stamp):
    return lambda file: save_file({"a": np.zeros(2, np.float32)}, file, {KEY: stamp})


LIES = [
    *map(with_header, HEADERS),
    *map(with_stamp, STAMPS),
    lambda file: put(str(SPARSE), file),
]


@pytest.mark.parametrize("lie", LIES)
def test_a_tensor_file_that_lies(tmp_path, lie):
    lie(tmp_path / "x.safetensors")
    with pytest.raises(StoreError, match=r"x\.safetensors (is broken|has)"):
        RunDirectory(tmp_path).read_tensors("x")


def test_an_array_is_not_read_by_the_header_of_a_file_that_was_replaced(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("x", {"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)})
    found = run.read_tensors("x")
    run.write_tensors(
        "x", {"a": np.ones((1, 2), np.float32), "b": np.zeros(2, np.float32)}
    )
    for name in "ab":
        with pytest.raises(StoreError, match=r"x\.safetensors.*replaced"):
            found[name]


def test_a_missing_array_is_a_key_error_too(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_tensors("x", {"a": np.ones(1)})
    kept = run.read_tensors("x")
    with pytest.raises(MissingError, match=r"^.*lacks 'b': delete it"):
        kept["b"]
    assert kept.get("b") is None
    assert list(kept) == ["a"]
