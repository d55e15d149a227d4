"""Arrays in safetensors files: read and written through memory mappings, compared with digests."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import opened, state_of
from memowidgets.stamps import (
    KEY,
    Stamp,
    array_digest,
    digest,
    digest_of_arrays,
    is_settled,
)
from memowidgets.store.errors import BrokenError, MissingError, StoreError
from memowidgets.visible import quoted

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


class _Place(NamedTuple):
    """Where an array is in a packed file: in the planes of which type, and from which number."""

    stored: str
    start: int
    shape: tuple[int, ...]
    shown: str
    digest: str


class Tensors(Mapping[str, NDArray[Any]]):
    """The arrays of one safetensors file, memory-mapped, so that only what is used is read.

    An array is compared with its digest when it is first used. A recording holds many of them in
    one file: `packed` reads that.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    metadata : dict of str
        Text that was written with the arrays.
    stamp : Stamp or None
        The file's stamp. None for weights, which are written as other tools read them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._start, self._state = _header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.stamp = Stamp.read(self.metadata.pop(KEY, None))
        self._entries: dict[str, dict[str, Any]] = header
        self._names: Mapping[str, object] = header
        self._packed: dict[str, _Place] | None = None

    @classmethod
    def packed(cls, path: Path, run: str) -> tuple[dict[str, Tensors], dict[str, Any]]:
        """Return what `pack` wrote into one file: the files with arrays by name, and the notes.

        `run` is the identity of the run that they must belong to.

        Raises
        ------
        ValueError
            If the file is not one that `pack` wrote for this run.
        """
        whole = cls(path)
        if whole.stamp is None or whole.stamp.run != run:
            raise ValueError("it belongs to another run")
        content = json.loads(whole.metadata["packed"])
        if digest(content) != whole.stamp.of:
            raise ValueError("its table of contents was changed")
        found = {}
        for name, about in content["files"].items():
            one = found[name] = copy(whole)
            one._names = one._packed = {k: _Place(*place) for k, place in about["arrays"].items()}
            digests = {key: place.digest for key, place in one._packed.items()}
            one.metadata, one.stamp = about["metadata"], Stamp(name, run, about["of"], digests)
        return found, content["notes"]

    def is_current(self) -> bool:
        """Return whether the file is certainly the one whose header was read."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        return state_of(found) == self._state and is_settled(found)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self:
            raise MissingError(f"{self._path} lacks {quoted(name)}")
        array = self._mapped(name) if self._packed is None else self._unpacked(self._packed[name])
        self._verify(name, array)
        return array

    def _mapped(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
        offset = self._start + entry["data_offsets"][0]
        with opened(self._path) as file:  # another file's header would be misread
            if state_of(os.fstat(file.fileno())) != self._state:
                raise StoreError(f"{self._path} was replaced while it was read; call again")
            if 0 in shape:
                return np.empty(shape, dtype)
            return np.memmap(file, dtype, mode="r", offset=offset, shape=shape)

    def _unpacked(self, place: _Place) -> NDArray[Any]:
        """Return a packed array in memory, in the type that it had."""
        end = place.start + math.prod(place.shape)
        parts = self._mapped(place.stored)[:, place.start : end]
        return joined(parts, np.dtype(place.stored)).reshape(place.shape).astype(place.shown)

    def check(self, *names: str) -> None:
        """Compare arrays with their digests.

        Raises
        ------
        StoreError
            If one differs or is missing.
        """
        for name in names:
            self[name]

    def content(self) -> str:
        """Return a digest of all arrays in their present state."""
        return digest_of_arrays(self)

    def _verify(self, name: str, array: NDArray[Any]) -> None:
        if self.stamp is None:
            return
        if self._digest(f"{self.stamp.name}:{name}", array) != self.stamp.arrays.get(name):
            raise BrokenError(
                f"{self._path} was changed after it was written ({name!r} differs from its digest)"
            )

    def _digest(self, name: str, array: NDArray[Any]) -> str:
        """Return an array's digest, computed once for each state of the file."""
        key = (str(self._path), self._state, name)
        found = _digests.get(key)
        if found is None:
            found = array_digest(array)
            with suppress(OSError):
                if is_settled(self._path.stat()):
                    _digests[key] = found
            while len(_digests) > _MOST_DIGESTS:
                del _digests[next(iter(_digests))]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


_digests: dict[tuple[str, tuple[int, ...], str], str] = {}  # of (file, state of the file, array)
_MOST_DIGESTS = 100_000


def entries_of(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[str, Any]]:
    """Return the header entries of consecutive float32 arrays."""
    entries, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    return entries


def head_of(
    entries: Mapping[str, dict[str, Any]], metadata: Mapping[str, str], stamp: Stamp
) -> bytes:
    """Return the bytes before the data of a safetensors file."""
    whole = {**metadata, KEY: stamp.text}
    header = json.dumps({"__metadata__": whole, **entries}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def mapped(
    file: Path, entries: Mapping[str, dict[str, Any]], head: bytes
) -> dict[str, NDArray[Any]]:
    """Create a safetensors file of the size of its arrays, and map them."""
    size = max(entry["data_offsets"][1] for entry in entries.values())
    with file.open("wb") as out:
        out.write(head)
        if hasattr(os, "posix_fallocate"):  # reserves the space, so that a full disk fails now
            os.posix_fallocate(out.fileno(), out.tell(), size)
        else:
            out.truncate(out.tell() + size)
    return {
        name: np.memmap(
            file,
            _DTYPES[entry["dtype"]],
            "r+",
            len(head) + entry["data_offsets"][0],
            tuple(entry["shape"]),
        )
        for name, entry in entries.items()
    }


def planes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return an array as bytes with an axis in front: all first bytes, all second bytes and so on.

    The high bytes of neighbouring numbers are alike, so this becomes a tenth smaller in a wheel.
    """
    return np.moveaxis(np.ascontiguousarray(array)[..., None].view(np.uint8), -1, 0)


def joined(parts: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the array that `planes` took apart.

    Examples
    --------
    >>> joined(planes(np.array([1.0, 2.5])), np.dtype("f8")).tolist()
    [1.0, 2.5]
    """
    return np.ascontiguousarray(np.moveaxis(parts, 0, -1)).view(dtype)[..., 0]


def put_rows(
    array: NDArray[Any], rows: NDArray[np.int64] | slice, values: NDArray[np.float32]
) -> None:
    """Copy values into rows of an array, which may be one of `RunDirectory.new_tensors`.

    A slice has a start and an end, and no step. Neighbouring rows of a file are written, which is
    faster than copying them through the mapping: that stops at each page for the file system.
    """
    place = _neighbours(rows)
    if place is None or os.name != "posix" or not isinstance(array, np.memmap):
        array[rows if place is None else place] = values
        return
    content = np.ascontiguousarray(values, dtype=array.dtype)
    fits = content.shape == (place.stop - place.start, *array.shape[1:])
    if not (fits and 0 <= place.start <= place.stop <= len(array)):
        raise ValueError(f"values of shape {values.shape} do not fit into {array.shape}")
    with Path(str(array.filename)).open("r+b") as file:
        file.seek(array.offset + place.start * array.strides[0])
        file.write(content.data)


def _neighbours(rows: NDArray[np.int64] | slice) -> slice | None:
    """Return rows that lie beside each other as a slice; None for others."""
    if isinstance(rows, slice):
        return rows
    if not len(rows) or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def _header(path: Path) -> tuple[dict[str, Any], int, tuple[int, ...]]:
    """Return a safetensors file's entries, start of the data, and state; the library checks it."""
    from safetensors import SafetensorError, safe_open

    with opened(path) as file:
        state = state_of(os.fstat(file.fileno()))
        try:
            with safe_open(path, framework="numpy"):
                (length,) = struct.unpack("<Q", file.read(8))
                header: dict[str, Any] = json.loads(file.read(length))
        except SafetensorError as error:
            raise ValueError(f"{error}; it has {state[-1]} bytes") from None
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] not in _DTYPES:
            raise ValueError(f"the numbers of {quoted(name)} are of an unknown type")
    return header, 8 + length, state
