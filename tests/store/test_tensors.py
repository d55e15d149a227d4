"""Files of arrays: mapped, aligned, and every change of them noticed."""

from __future__ import annotations

import os

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchmarks.recording import PackedFile, pack
from memowidgets.files import checksum
from memowidgets.store import (
    FORMAT,
    RECORDING,
    StoreError,
    run_at,
)


@pytest.mark.parametrize("dtype", ["bool", "u1", "i4", "i8", "f2", "f4", "f8"])
def test_tensors_come_back_memory_mapped_as_they_were(run, dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)
    written = {
        "x": array,
        "row": array[:1],
        "empty": np.empty((0, 4), dtype),
        "one": array[0, 1],
    }
    run.write_tensors("forward/a", written, {"k": "v"})
    kept = run.read_tensors("forward/a")
    assert kept.metadata == {"k": "v"}
    assert isinstance(kept["x"], np.memmap)
    assert isinstance(kept["row"], np.memmap)
    np.testing.assert_array_equal(kept["x"], array)
    assert (kept["empty"].shape, kept["one"].shape) == ((0, 4), ())
    np.testing.assert_array_equal(
        load_file(run.path / "forward/a.safetensors")["x"], array
    )


def test_broken_tensors_are_refused(run):
    run.write_tensors("x", {"x": np.ones(100)})
    whole = (run.path / "x.safetensors").read_bytes()
    (run.path / "x.safetensors").write_bytes(whole[:-1])
    with pytest.raises(
        StoreError, match=r"x\.safetensors is broken.*delete it and call again"
    ):
        run.read_tensors("x")
    assert not run.has("x")


def begin_of_arrays(content):
    return 8 + int.from_bytes(content[:8], "little")


@pytest.mark.parametrize("filled", [False, True])
def test_a_changed_bit_of_an_array_is_noticed_when_that_array_is_used(run, filled):
    arrays = {"a": np.arange(5, dtype="f4"), "b": np.ones((2, 3), "f4")}
    if filled:
        with run.new_tensors("x", {k: v.shape for k, v in arrays.items()}) as made:
            for name, array in arrays.items():
                made[name][...] = array
    else:
        run.write_tensors("x", arrays)
    file = run.path / "x.safetensors"
    whole = file.read_bytes()
    for place in range(begin_of_arrays(whole), len(whole)):
        content = bytearray(whole)
        content[place] ^= 1
        file.write_bytes(content)
        kept = run.read_tensors("x")
        is_first = place < begin_of_arrays(whole) + arrays["a"].nbytes
        broken, sound = ("a", "b") if is_first else ("b", "a")
        with pytest.raises(StoreError, match=rf"x\.safetensors.*'{broken}'.*delete it"):
            kept[broken]
        np.testing.assert_array_equal(kept[sound], arrays[sound])


def test_a_changed_bit_of_a_header_is_noticed_in_words_when_the_file_is_opened(run):
    run.write_tensors("x", {"a": np.arange(5.0), "b": np.ones(3)}, {"notes": "[]"}, "w")
    file = run.path / "x.safetensors"
    whole = file.read_bytes()
    for place in range(begin_of_arrays(whole)):
        content = bytearray(whole)
        content[place] ^= 1 << place % 7
        file.write_bytes(content)
        said = r"x\.safetensors (is broken|has no stamp)"
        with pytest.raises(StoreError, match=said) as error:
            run.read_tensors("x")
        assert "Expecting" not in str(error.value)  # as a JSONDecodeError says


def test_an_array_is_compared_once_for_each_state_of_its_file(run, monkeypatch):
    compared = []

    def counted(array):
        compared.append(array.shape)
        return checksum(array)

    run.write_tensors("x", {"a": np.ones(3), "b": np.ones(4)})
    monkeypatch.setattr("memowidgets.store.tensors.checksum", counted)
    for _ in range(3):
        kept = run.read_tensors("x")
        assert kept["a"].sum() == 3
        assert "b" in kept
    assert compared == [(3,)]
    os.utime(run.path / "x.safetensors", (0, 0))
    run.read_tensors("x")["a"]
    assert compared == [(3,), (3,)]


def test_the_numbers_of_a_file_begin_at_a_multiple_of_eight(run):
    for n in range(8):
        with run.new_tensors("x", {"x": (1,)}, {"k": "v" * n}):
            pass
        content = (run.path / "x.safetensors").read_bytes()
        assert int.from_bytes(content[:8], "little") % 8 == 0


def test_tensors_that_are_filled_are_there_once_the_block_ends(run):
    shapes = {"losses": (3,), "layer.1": (3, 2), "logits": (2,)}
    with run.new_tensors("forward/a", shapes, {"k": "v"}, "w") as arrays:
        arrays["losses"][:] = [1, 2, 3]
        arrays["layer.1"][[2, 0]] = 7
        arrays["logits"][:] = 4
        assert not run.has("forward/a")
    made = run.read_tensors("forward/a", "w")
    assert made.metadata == {"k": "v"}
    assert {made[name].dtype.str for name in made} == {"<f4"}
    assert made["logits"].tolist() == [4, 4]
    assert made["losses"].tolist() == [1, 2, 3]
    assert made["layer.1"].tolist() == [[7, 7], [0, 0], [7, 7]]
    with (
        pytest.raises(KeyboardInterrupt),
        run.new_tensors("scores/b", {"losses": (3,)}),
    ):
        raise KeyboardInterrupt
    assert list((run.path / "scores").iterdir()) == []


def test_a_changed_bit_of_a_recording_is_noticed_in_the_arrays_that_it_is_of(tmp_path):
    files = {
        name: PackedFile({"x": values}, {"x": np.float16}, {})
        for name, values in (("a", np.ones(3, "f4")), ("b", np.zeros(4, "f4")))
    }
    pack(tmp_path / "r", {"format": FORMAT, "seed": 0}, files, {})
    place = tmp_path / "r" / RECORDING
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(content)
    recording = run_at(tmp_path / "r")
    recording.hold(recording.read_manifest())
    assert recording.read_tensors("a")["x"].tolist() == [1, 1, 1]
    with pytest.raises(StoreError, match=r"'x'.*install the package again"):
        recording.read_tensors("b")["x"]
