"""A run directory: a manifest and safetensors files, each written whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import UNFINISHED, make_private, replaced, write_whole
from memowidgets.visible import quoted, visible

__all__ = ["MANIFEST", "LockedError", "OutsideError", "RunDirectory", "StoreError", "Tensors"]

FORMAT = 1
MANIFEST = "manifest.json"
_PARTS = ("design.safetensors", "checkpoints", "forward", "scores", "shadows")
_OLD_SECONDS = 3600
_LARGEST_JSON = 2**30  # bytes; the manifest of a million samples takes a twentieth of it
_LARGEST_HEADER = 10**8  # bytes; as the format says
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
_MENDS = {
    errno.ENOSPC: "the disk is full: free some space and call again",
    errno.EDQUOT: "your disk quota is used up: free some space and call again",
    errno.EROFS: "the file system is read-only: choose another path",
    errno.EACCES: "permission is denied: make the folder writable or choose another path",
    errno.EPERM: "permission is denied: make the folder writable or choose another path",
}


class StoreError(RuntimeError):
    """A run directory that cannot be read, written or locked; the message says why.

    Parameters
    ----------
    message : str
        May hold names out of files that anyone wrote: what can't be seen shows as its number.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class LockedError(StoreError):
    """Another process holds the lock."""


class OutsideError(StoreError):
    """A symbolic link leads outside of the run directory."""


class MissingError(StoreError, KeyError):
    """A file lacks an array that it should hold."""

    __str__ = Exception.__str__  # a KeyError's puts quotation marks around it


class Tensors(Mapping[str, NDArray[Any]]):
    """The arrays of one safetensors file, memory-mapped: nothing is read before it is used.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    metadata : dict of str
        What was written beside the arrays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._start = _header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self._entries: dict[str, dict[str, Any]] = header

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._entries:
            raise MissingError(f"{self._path} lacks {quoted(name)}: delete it and call again")
        entry = self._entries[name]
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
        if 0 in shape:
            return np.empty(shape, dtype)
        offset = self._start + entry["data_offsets"][0]
        return np.memmap(self._path, dtype, mode="r", offset=offset, shape=shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


class RunDirectory:
    """One audited run on disk, readable by its owner alone.

    Every file is written to a temporary name and renamed, so a process that is killed leaves
    either the old file or the new one. No file holds a pickle.

    Parameters
    ----------
    path : path-like
        The folder; made, with mode 0700, if it is not there.
    read_only : bool
        Whether to refuse all writing, though the file system would let it pass.

    Raises
    ------
    StoreError
        If the folder cannot be made.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> run = RunDirectory(tempfile.mkdtemp())
    >>> run.write_tensors("scores/psmi", {"score": np.arange(3.0)}, {"layer": "3"})
    >>> run.read_tensors("scores/psmi")["score"].tolist()
    [0.0, 1.0, 2.0]
    >>> run.names("scores")
    ['psmi']
    """

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = False) -> None:
        self.path, self.read_only = Path(path).expanduser().absolute(), read_only
        with _explained(self.path, self.path):
            make_private(self.path)

    @classmethod
    def existing(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> Self:
        """The run directory at a path; nothing is made.

        Raises
        ------
        StoreError
            If there is no run.
        """
        try:
            found = (Path(path).expanduser() / MANIFEST).is_file()
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        if not found:
            raise StoreError(f"{path} is not a run directory: it has no {MANIFEST}")
        return cls(path, read_only=read_only)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def is_empty(self) -> bool:
        """Whether no run was started here.

        Raises
        ------
        StoreError
            If the folder holds parts of a run but not its manifest.
        """
        if (self.path / MANIFEST).exists():
            return False
        parts = [name for name in _PARTS if (self.path / name).exists()]
        if parts:
            raise StoreError(
                f"{self.path} holds {', '.join(parts)} of a run but no {MANIFEST}: choose another "
                "path, or delete the folder"
            )
        return True

    def place(self, name: str) -> Path:
        """Return where a file or folder of the run is.

        Names may come from files that anyone wrote, and a link may have been put anywhere below
        the run. The run directory itself may be reached through a link.

        Raises
        ------
        StoreError
            If the name leads outside of the run directory, or a link on the way to it does.
        """
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or "\\" in name or "\0" in name:
            raise StoreError(f"{quoted(name)} is no name inside of {self.path}: the run is broken")
        found, run = self.path / name, os.path.realpath(self.path)
        if not Path(os.path.realpath(found)).is_relative_to(run):
            raise OutsideError(
                f"{found} leads outside of the run through a symbolic link: remove the link"
            )
        return found

    def read_manifest(self) -> dict[str, Any]:
        """What the run is: seeds, hashes, versions, ids.

        Raises
        ------
        StoreError
            If there is none, it is broken, or a newer version of the package wrote it.
        """
        manifest = self.read_json(MANIFEST)
        if not isinstance(manifest, dict) or "format" not in manifest:
            raise StoreError(f"{self.path / MANIFEST} is not the manifest of a run")
        if not isinstance(manifest["format"], int):
            raise StoreError(f"{self.path / MANIFEST} is broken: its format is no number")
        if manifest["format"] > FORMAT:
            raise StoreError(
                f"{self.path} was written in format {manifest['format']}; this version of "
                f"memowidgets reads up to {FORMAT}: update it"
            )
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        self.write_json(MANIFEST, {"format": FORMAT, **manifest})

    def read_json(self, name: str) -> Any:
        """The content of a JSON file.

        Raises
        ------
        StoreError
            If the file is not there or not JSON.
        """
        path = self.place(name)
        try:
            if path.stat().st_size > _LARGEST_JSON:
                raise StoreError(f"{path} is broken: it has {path.stat().st_size} bytes")
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise StoreError(f"{self.path} is not a run directory: it has no {name}") from None
        except RecursionError:
            raise StoreError(f"{path} is broken: it is nested too deep") from None
        except ValueError as error:  # no JSON, no UTF-8, or a number of too many digits
            raise StoreError(f"{path} is broken: {error}") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None

    def write_json(self, name: str, content: Any) -> None:
        """Write a JSON file whole."""
        self._write(name, json.dumps(content, indent=1).encode())

    def read_text(self, name: str) -> str | None:
        """The content of a text file, None where it is not there.

        Raises
        ------
        StoreError
            If the file cannot be read.
        """
        path = self.place(name)
        try:
            return path.read_bytes().decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise StoreError(f"{path} is broken: {error}") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None

    def write_text(self, name: str, content: str) -> None:
        """Write a text file whole, in UTF-8."""
        self._write(name, content.encode())

    def has(self, name: str) -> bool:
        """Whether the tensors of that name were written, and are whole.

        Raises
        ------
        OutsideError
            If a symbolic link leads outside of the run directory.
        """
        try:
            self.read_tensors(name)
        except OutsideError:
            raise
        except StoreError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        """Names of the tensor files in a folder of the run, sorted."""
        return sorted(p.stem for p in self.place(folder).glob("*.safetensors"))

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Write arrays to ``<name>.safetensors``, whole or not at all."""
        from safetensors.numpy import save

        contiguous = {key: np.asarray(value, order="C") for key, value in tensors.items()}
        self._write(f"{name}.safetensors", save(contiguous, dict(metadata or {})))

    @contextmanager
    def new_tensors(
        self, name: str, shapes: Mapping[str, tuple[int, ...]]
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        """float32 arrays of ``<name>.safetensors`` to fill, memory-mapped.

        The file is there once the block ends well, and not at all otherwise.
        """
        target = self._tensor_path(name)
        self._check_writable()
        with _explained(target, self.path):
            make_private(target.parent)
            with replaced(target) as temporary:
                arrays = _mapped(temporary, shapes)
                yield arrays
                for array in arrays.values():
                    cast("np.memmap[Any, Any]", array).flush()

    def read_tensors(self, name: str) -> Tensors:
        """The arrays of ``<name>.safetensors``, memory-mapped.

        Raises
        ------
        StoreError
            If the file is not there or broken.
        """
        path = self._tensor_path(name)
        try:
            return Tensors(path)
        except FileNotFoundError:
            raise StoreError(f"{path} is not there") from None
        except (OSError, ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
            raise StoreError(f"{path} is broken ({error}): delete it and call again") from None

    def forget(self, *names: str) -> None:
        """Delete the tensors, or the folders of them, of these names, where they are there."""
        for name in names:
            self._tensor_path(name).unlink(missing_ok=True)
            shutil.rmtree(self.place(name), ignore_errors=True)

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Hold the run's lock for one kind of work; a killed process releases it.

        Raises
        ------
        LockedError
            If another process holds it.
        """
        from filelock import FileLock, Timeout

        self._check_writable()
        path = self.place(f".{what}.lock")
        lock = FileLock(path, timeout=0, mode=0o600)
        with _explained(path, self.path):
            try:
                lock.acquire()
            except Timeout:
                raise LockedError(
                    f"another process is working on the {what} of {self.path}: wait for it, or "
                    "stop it"
                ) from None
        try:
            self._sweep(what)
            yield
        finally:
            lock.release()

    @contextmanager
    def explained(self, path: Path) -> Iterator[None]:
        """Turn what the system says of a failed write to `path` into a `StoreError`."""
        self._check_writable()
        with _explained(path, self.path):
            yield

    def _tensor_path(self, name: str) -> Path:
        return self.place(f"{name}.safetensors")

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreError(f"{self.path} is a recording: it is read and never written")

    def _write(self, name: str, content: bytes) -> None:
        self._check_writable()
        target = self.place(name)
        with _explained(target, self.path):
            make_private(target.parent)
            write_whole(target, content)

    def _sweep(self, what: str) -> None:
        """Remove what killed processes left half-written: here now, elsewhere after an hour."""
        for left_over in self.path.rglob(f"{UNFINISHED}*"):
            with suppress(OSError):
                old = time.time() - left_over.stat().st_mtime > _OLD_SECONDS
                if old or left_over.is_relative_to(self.path / what):
                    left_over.unlink()


def _mapped(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[np.float32]]:
    """A safetensors file of that many float32 values, its arrays mapped."""
    sizes = [4 * math.prod(shape) for shape in shapes.values()]
    ends = np.cumsum(sizes).tolist()
    entries = {
        name: {"dtype": "F32", "shape": list(shape), "data_offsets": [end - size, end]}
        for (name, shape), size, end in zip(shapes.items(), sizes, ends, strict=True)
    }
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        if hasattr(os, "posix_fallocate"):  # a full disk is told now
            os.posix_fallocate(out.fileno(), out.tell(), ends[-1])
        else:
            out.truncate(out.tell() + ends[-1])
    start = 8 + len(header)
    return {
        name: np.memmap(file, "<f4", "r+", start + entry["data_offsets"][0], tuple(entry["shape"]))
        for name, entry in entries.items()
    }


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file holds, and where its data start; checked against its size."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        if len(start) < 8:
            raise ValueError("it is too short")
        (length,) = struct.unpack("<Q", start)
        if length > min(size, _LARGEST_HEADER):
            raise ValueError("its header is broken")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is broken")  # noqa: TRY004 - of the file, not of a caller
    for name, entry in header.items():
        if name != "__metadata__":
            _check_entry(name, entry, size - 8 - length)
    metadata = header.get("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its header is broken")
    return header, 8 + length


def _check_entry(name: str, entry: Any, room: int) -> None:
    """Refuse an array whose numbers are not all in the file, or whose shape is another."""
    start, end = entry["data_offsets"]
    numbers = [*entry["shape"], start, end]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError(f"the shape of {quoted(name)} is broken")
    if end > room:
        raise ValueError("it ends before its data do")
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"the numbers of {quoted(name)} are of no known kind")
    if math.prod(entry["shape"]) * np.dtype(_DTYPES[entry["dtype"]]).itemsize != end - start:
        raise ValueError(f"{quoted(name)} has more or fewer numbers than its shape says")


@contextmanager
def _explained(path: Path, run: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        mend = _MENDS.get(cast("int", error.errno), error.strerror or str(error))
        raise StoreError(
            f"{path} cannot be written, {mend}; what {run} held before is kept"
        ) from error
