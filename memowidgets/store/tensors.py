"""Files of arrays: safetensors files that say what they belong to, and are mapped when read.

The header of a file has a digest of itself, which is checked when it is opened, and a checksum of
each array, which is checked when that array is first used. A recording has many files in one.
"""

from __future__ import annotations

import copy
import json
import math
import os
import struct
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import KEY, checksum, digest, open_regular, state_of
from memowidgets.store.errors import (
    DELETE_IT,
    INSTALL,
    BrokenError,
    MissingError,
    StoreError,
)
from memowidgets.vocabulary import quoted

_DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_NAMES = {np.dtype(kind): name for name, kind in _DTYPES.items()}
# as long as a checksum, so that a header can be written before its arrays
_NO_CHECKSUM = "0" * 32


class _Place(NamedTuple):
    """Where an array is in a packed file: in the planes of which type, and from which number."""

    stored: str
    start: int
    shape: tuple[int, ...]
    shown: str
    checksum: str


class Tensors(Mapping[str, NDArray[Any]]):
    """The arrays of one safetensors file, memory-mapped, so that only what is used is read.

    The first use of an array reads it once as a whole, to compare it with its checksum.

    A recording holds many such files in one: `packed` reads that.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    metadata : dict of str
        Text that was written with the arrays.
    run : str or None
        Identity of the run that the file belongs to, empty if unknown. None: it has no stamp.
    of : str
        Digest of the weights behind the arrays. Empty if there are none.
    state : tuple of int
        State of the file whose header was read.
    is_lost : bool
        Whether an array could not be read, because the file is gone, replaced or broken by now.

    Raises
    ------
    ValueError, LookupError, TypeError
        If the file or its stamp is broken.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._remedy = DELETE_IT
        header, self._start, self.state = _header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.run, self.of, self._checksums = _read_stamp(self.metadata, header)
        self._entries: dict[str, dict[str, Any]] = header
        self._names: Mapping[str, object] = header
        self._packed: dict[str, _Place] | None = None
        self._checked: set[str] = set()
        self._mapping: weakref.ref[NDArray[np.uint8]] | None = None
        self.is_lost = False

    __eq__ = object.__eq__  # a file is equal to itself alone, without reading arrays
    __hash__ = object.__hash__

    @classmethod
    def open_packed(
        cls, path: Path, run: str
    ) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return what `pack` wrote into one file: the files with arrays by name, and the notes.

        `run` is the identity of the run that they must belong to.

        Raises
        ------
        ValueError
            If the file is not one that `pack` wrote for this run.
        """
        whole = cls(path)
        if whole.run != run:
            raise ValueError("it belongs to another run")
        content = parsed_json(whole.metadata["packed"])
        files = {}
        for name, about in content["files"].items():
            one = files[name] = copy.copy(whole)
            packed = {k: _Place(*v) for k, v in about["arrays"].items()}
            one._names = one._packed = packed
            one._checksums = {k: place.checksum for k, place in packed.items()}
            one._checked = set()
            one._remedy = INSTALL
            one.metadata = about["metadata"]
            one.of = about["of"]
        return files, content["notes"]

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self:
            raise MissingError(f"{self._path} lacks {quoted(name)}", self._remedy)
        if self._packed is None:
            array = self._map(name)
            self._check(name, array)
            return array
        place = self._packed[name]
        array = self._unpack(place)
        self._check(name, array)
        return array.reshape(place.shape).astype(place.shown)

    def _check(self, name: str, array: NDArray[Any]) -> None:
        """Raise if an array that was not used before differs from what was written."""
        if name in self._checked:
            return
        if checksum(array) != self._checksums.get(name):
            self.is_lost = True
            raise BrokenError(
                f"{self._path} is broken (the values of {quoted(name)} were changed after they "
                "were written)",
                self._remedy,
            )
        self._checked.add(name)

    def _map(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(entry["shape"])
        if 0 in shape:
            return np.empty(shape, dtype)
        begin, end = (self._start + offset for offset in entry["data_offsets"])
        return self._whole()[begin:end].view(dtype).reshape(shape)

    def _whole(self) -> NDArray[np.uint8]:
        """Return the bytes of the file, mapped once for all arrays that are in use."""
        mapped = None if self._mapping is None else self._mapping()
        if mapped is not None:
            return mapped
        with suppress(OSError, ValueError), open_regular(self._path) as file:
            # another file's header would be misread
            if state_of(os.fstat(file.fileno())) == self.state:
                mapped = np.memmap(file, np.uint8, mode="r")
        if mapped is None:
            self.is_lost = True
            what = "was replaced or deleted since it was opened"
            raise StoreError(f"{self._path} {what}; call again")
        self._mapping = weakref.ref(mapped)
        return mapped

    def _unpack(self, place: _Place) -> NDArray[Any]:
        """Return a packed array in memory, flat and in the type in which it is stored.

        A recording has first bytes of all numbers side by side, then second bytes, and so on.
        """
        end = place.start + math.prod(place.shape)
        planes = self._map(place.stored)[:, place.start : end]
        return np.ascontiguousarray(np.moveaxis(planes, 0, -1)).view(place.stored)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


class Label(NamedTuple):
    """What a file of arrays says of itself.

    Attributes
    ----------
    run : str
        Identity of the run that it belongs to.
    of : str
        Digest of the weights behind its arrays. Empty if there are none.
    metadata : mapping of str
        Text beside the arrays.
    """

    run: str
    of: str
    metadata: Mapping[str, str]


def whole_file(arrays: Mapping[str, NDArray[Any]], label: Label) -> bytes:
    """Return the bytes of a safetensors file; those of equal arrays and labels are equal."""
    kinds = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    head, places, _ = _head(kinds, label, _checksums_of(arrays))
    parts = (np.ascontiguousarray(arrays[name]).reshape(-1) for name in places)
    return b"".join([head, *(part.view(np.uint8).data for part in parts)])


def map_file(
    file: Path, shapes: Mapping[str, tuple[int, ...]], label: Label
) -> dict[str, NDArray[Any]]:
    """Create a safetensors file of float32 arrays of these shapes, and map them.

    It cannot be read before `seal` was called.
    """
    kinds = {name: (np.dtype("<f4"), tuple(shape)) for name, shape in shapes.items()}
    head, places, size = _head(kinds, label, dict.fromkeys(kinds, _NO_CHECKSUM))
    with file.open("wb") as out:
        out.write(head)
        # reserves the space, so that a full disk fails now
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(out.fileno(), len(head), size)
        else:
            out.truncate(len(head) + size)
    return {
        name: np.memmap(file, "<f4", "r+", len(head) + place, kinds[name][1])
        for name, place in places.items()
    }


def seal(file: Path, arrays: Mapping[str, NDArray[Any]], label: Label) -> None:
    """Write the checksums of what was filled in into the header that `map_file` wrote."""
    kinds = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    head, _, _ = _head(kinds, label, _checksums_of(arrays))
    with file.open("rb+") as out:
        out.write(head)


def _checksums_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    return {name: checksum(array) for name, array in arrays.items()}


def _head(
    kinds: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]],
    label: Label,
    checksums: Mapping[str, str],
) -> tuple[bytes, dict[str, int], int]:
    """Return the bytes before the data, where each array begins in them, and their size.

    Arrays of wide numbers come first, so that all are aligned. Whatever the checksums are, there
    are as many bytes.
    """
    entries: dict[str, Any] = {}
    places = {}
    end = 0
    for name, (dtype, shape) in sorted(
        kinds.items(), key=lambda kind: -kind[1][0].itemsize
    ):
        places[name], end = end, end + dtype.itemsize * math.prod(shape)
        offsets = [places[name], end]
        entries[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(shape),
            "data_offsets": offsets,
        }
    metadata = dict(label.metadata)
    stamp: dict[str, Any] = {"run": label.run, "of": label.of, "checksums": checksums}
    stamp["check"] = digest([stamp, metadata, entries])
    metadata[KEY] = json.dumps(stamp)
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, places, end


def _read_stamp(
    metadata: dict[str, str], entries: Mapping[str, object]
) -> tuple[str | None, str, dict[str, str]]:
    """Take the stamp out of the metadata; return its run, its weights and its checksums.

    Anyone may have written it.
    """
    text = metadata.pop(KEY, None)
    if text is None:
        return None, "", {}
    stamp = parsed_json(text)
    check = stamp.pop("check", None) if isinstance(stamp, dict) else None
    if check is None or check != digest([stamp, metadata, entries]):
        raise ValueError("its header was changed after it was written")
    run = stamp["run"]
    of = stamp["of"]
    checksums = stamp["checksums"]
    if not (
        isinstance(run, str) and isinstance(of, str) and isinstance(checksums, dict)
    ):
        raise TypeError("the run and the weights in its stamp must be texts")
    return run, of, checksums


def parsed_json(text: str | bytes) -> Any:
    """Return what a header or a note holds in JSON; raise an error in words if it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it is not JSON from {place} on") from None
    except UnicodeDecodeError:
        raise ValueError("it is not a text in UTF-8") from None
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def _header(path: Path) -> tuple[dict[str, Any], int, tuple[int, ...]]:
    """Return a safetensors file's entries, start of the data, and state; the library checks it."""
    from safetensors import SafetensorError, safe_open

    with open_regular(path) as file:
        state = state_of(os.fstat(file.fileno()))
        try:
            with safe_open(path, framework="numpy"):
                (length,) = struct.unpack("<Q", file.read(8))
                header: dict[str, Any] = parsed_json(file.read(length))
        except SafetensorError as error:
            raise ValueError(f"{error}; it has {state[-1]} bytes") from None
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] not in _DTYPES:
            raise ValueError(f"the numbers of {quoted(name)} are of an unknown type")
    return header, 8 + length, state
