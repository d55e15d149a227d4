"""Arrays in safetensors files, read and written through memory mappings."""

from __future__ import annotations

import errno
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import KEY, digest, opened, state_of
from memowidgets.vocabulary import quoted, visible

_FIXES = {
    errno.ENOSPC: "the disk is full; free some space and call again",
    errno.EDQUOT: "your disk quota is used up; free some space and call again",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.EACCES: "permission is denied; make the folder writable or choose another path",
    errno.EPERM: "permission is denied; make the folder writable or choose another path",
}


class StoreError(RuntimeError):
    """A run directory cannot be read, written or locked; the message says why.

    Parameters
    ----------
    message : str
        The message. It may contain names from untrusted files, so invisible characters are
        replaced by their numbers.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class LockedError(StoreError):
    """Another process holds the lock."""


class _UnusableError(StoreError):
    """A file cannot be used; the message has the fault and the remedy."""

    def __init__(self, fault: str, remedy: str = "delete it and call again") -> None:
        super().__init__(f"{fault}: {remedy}")
        self.fault = fault


class BrokenError(_UnusableError):
    """A file of a run directory differs from what was written."""


class ForeignError(_UnusableError):
    """A file of a run directory does not belong in its place."""


class MissingError(BrokenError, KeyError):
    """A file lacks an array."""

    __str__ = Exception.__str__  # KeyError's adds quotation marks


class NotThereError(StoreError, ValueError):
    """Something is not there; the message says what, where, and what to do.

    Parameters
    ----------
    what : str
        What is not there, and why if that is known.
    do : str
        What to do in Python, so that it is there; empty if nothing helps.
    where : str
        Name of the checkpoint where it is not; empty if it is nowhere.

    Attributes
    ----------
    said : str
        The message without what to do, for a page whose reader runs nothing.

    Examples
    --------
    >>> str(NotThereError("the losses were not kept", "train again", "epoch-2"))
    'the losses were not kept at epoch-2: train again'
    """

    def __init__(self, what: str, do: str = "", where: str = "") -> None:
        self.what, self.do, self.where = visible(what), do, where
        self.said = f"{self.what} at {where}" if where else self.what
        super().__init__(f"{self.said}: {do}" if do else self.said)


@dataclass(frozen=True)
class Absent:
    """What stands where something is not there, put there by whoever knows why.

    Attributes
    ----------
    what, do : str
        As in `NotThereError`.
    """

    what: str
    do: str = ""

    def error(self, where: str = "") -> NotThereError:
        """Return the error for whoever needs it at a checkpoint."""
        return NotThereError(self.what, self.do, where)

    def refuse(self, *_: object) -> NoReturn:
        """Raise the error, in place of a function whose result is not there."""
        raise self.error()


def without_advice(error: Exception) -> str:
    """Return what an error says to a reader of a page, who calls nothing."""
    return error.said if isinstance(error, NotThereError) else str(error)


@contextmanager
def explain_failures(path: Path, run: Path) -> Iterator[None]:
    """Turn the system's error about writing a file of a run into a `StoreError`."""
    try:
        yield
    except OSError as error:
        fix = _FIXES.get(cast("int", error.errno), error.strerror or str(error))
        raise StoreError(f"{path} cannot be written: {fix}. {run} is unchanged") from error


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


class _Place(NamedTuple):
    """Where an array is in a packed file: in the planes of which type, and from which number."""

    stored: str
    start: int
    shape: tuple[int, ...]
    shown: str


class Tensors(Mapping[str, NDArray[Any]]):
    """The arrays of one safetensors file, memory-mapped, so that only what is used is read.

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

    Raises
    ------
    ValueError, LookupError, TypeError
        If the file or its stamp is broken.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._start, self.state = _header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.run, self.of = _stamp(self.metadata.pop(KEY, None))
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
        if whole.run != run:
            raise ValueError("it belongs to another run")
        content = json.loads(whole.metadata["packed"])
        if digest(content) != whole.of:
            raise ValueError("its table of contents was changed")
        found = {}
        for name, about in content["files"].items():
            one = found[name] = copy(whole)
            one._names = one._packed = {k: _Place(*v[:4]) for k, v in about["arrays"].items()}
            one.metadata, one.of = about["metadata"], about["of"]
        return found, content["notes"]

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self:
            raise MissingError(f"{self._path} lacks {quoted(name)}")
        return self._mapped(name) if self._packed is None else self._unpacked(self._packed[name])

    def _mapped(self, name: str) -> NDArray[Any]:
        entry = self._entries[name]
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
        offset = self._start + entry["data_offsets"][0]
        with opened(self._path) as file:  # another file's header would be misread
            if state_of(os.fstat(file.fileno())) != self.state:
                raise StoreError(f"{self._path} was replaced while it was read; call again")
            if 0 in shape:
                return np.empty(shape, dtype)
            return np.memmap(file, dtype, mode="r", offset=offset, shape=shape)

    def _unpacked(self, place: _Place) -> NDArray[Any]:
        """Return a packed array in memory, in the type that it had."""
        end = place.start + math.prod(place.shape)
        parts = self._mapped(place.stored)[:, place.start : end]
        return join_planes(parts, np.dtype(place.stored)).reshape(place.shape).astype(place.shown)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


def whole_file(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a safetensors file; those of equal arrays and metadata are equal."""
    kinds = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    head, places, _ = _head(kinds, metadata)
    parts = (np.ascontiguousarray(arrays[name]).reshape(-1) for name in places)
    return b"".join([head, *(part.view(np.uint8).data for part in parts)])


def map_file(
    file: Path, shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str]
) -> dict[str, NDArray[Any]]:
    """Create a safetensors file of float32 arrays of these shapes, and map them."""
    kinds = {name: (np.dtype("<f4"), tuple(shape)) for name, shape in shapes.items()}
    head, places, size = _head(kinds, metadata)
    with file.open("wb") as out:
        out.write(head)
        if hasattr(os, "posix_fallocate"):  # reserves the space, so that a full disk fails now
            os.posix_fallocate(out.fileno(), len(head), size)
        else:
            out.truncate(len(head) + size)
    return {
        name: np.memmap(file, "<f4", "r+", len(head) + place, kinds[name][1])
        for name, place in places.items()
    }


def _head(
    kinds: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int], int]:
    """Return the bytes before the data, where each array begins in them, and their size.

    Arrays of wide numbers come first, so that all are aligned.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    places, end = {}, 0
    for name, (dtype, shape) in sorted(kinds.items(), key=lambda kind: -kind[1][0].itemsize):
        places[name], end = end, end + dtype.itemsize * math.prod(shape)
        offsets = [places[name], end]
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, places, end


def join_planes(parts: NDArray[np.uint8], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the array whose first bytes, second bytes and so on a recording has side by side."""
    return np.ascontiguousarray(np.moveaxis(parts, 0, -1)).view(dtype)[..., 0]


def _stamp(text: str | None) -> tuple[str | None, str]:
    """Return the run and the weights in a stamp, which anyone may have written."""
    if text is None:
        return None, ""
    found = json.loads(text)
    run, of = found["run"], found["of"]
    if not (isinstance(run, str) and isinstance(of, str)):
        raise TypeError("the run and the weights in its stamp must be texts")
    return run, of


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
