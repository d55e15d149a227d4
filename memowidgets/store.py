"""A run directory: a manifest and safetensors files, each written whole or not at all."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import shutil
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import UNFINISHED, make_private, replaced, write_whole
from memowidgets.stamps import (
    KEY,
    UNKNOWN,
    Stamp,
    array_digest,
    digest,
    fingerprints,
    is_settled,
    state_of,
)
from memowidgets.visible import quoted, visible

__all__ = [
    "MANIFEST",
    "BrokenError",
    "ForeignError",
    "LockedError",
    "OutsideError",
    "RunDirectory",
    "StoreError",
    "Tensors",
]

FORMAT = 2  # since 2 every file says what it is, and one that does not is refused
_STAMPED = 2
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


class _UnusableError(StoreError):
    """A file that can't be used: what is wrong with it, and what to do."""

    def __init__(self, fault: str, remedy: str = "delete it and call again") -> None:
        super().__init__(f"{fault}: {remedy}")
        self.fault = fault


class BrokenError(_UnusableError):
    """A file of a run directory that is not as it was written."""


class ForeignError(_UnusableError):
    """A file of a run directory that is not what its place says."""


class MissingError(BrokenError, KeyError):
    """A file lacks an array that it should hold."""

    __str__ = Exception.__str__  # a KeyError's puts quotation marks around it


class Tensors(Mapping[str, NDArray[Any]]):
    """The arrays of one safetensors file, memory-mapped: nothing is read before it is used.

    An array is compared with its digest, where the file has one, when it is first used.

    Parameters
    ----------
    path : Path
        The file.

    Attributes
    ----------
    metadata : dict of str
        What was written beside the arrays.
    stamp : Stamp or None
        What the file says of itself; None where an older version wrote it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        header, self._start, self._state = _header(path)
        self.metadata: dict[str, str] = header.pop("__metadata__", {})
        self.stamp = Stamp.read(self.metadata.pop(KEY, None))
        self._entries: dict[str, dict[str, Any]] = header

    def is_current(self) -> bool:
        """Return whether the file is the one whose header was read, and can't be another."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        return state_of(found) == self._state and is_settled(found)

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._entries:
            raise MissingError(f"{self._path} lacks {quoted(name)}")
        entry = self._entries[name]
        dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
        offset = self._start + entry["data_offsets"][0]
        with self._path.open("rb") as file:  # the header of another file would be read wrongly
            if state_of(os.fstat(file.fileno())) != self._state:
                raise StoreError(f"{self._path} was replaced while it was read: call again")
            if 0 in shape:
                array: NDArray[Any] = np.empty(shape, dtype)
            else:
                array = np.memmap(file, dtype, mode="r", offset=offset, shape=shape)
        self._verify(name, array)
        return array

    def check(self, *names: str) -> None:
        """Compare arrays with their digests.

        Raises
        ------
        StoreError
            If one differs, or is not there.
        """
        for name in names:
            self[name]

    def content(self) -> str:
        """Return a digest of all arrays as they are."""
        return Stamp("", arrays={name: self._digest(name, self[name]) for name in self}).content

    def _verify(self, name: str, array: NDArray[Any]) -> None:
        if self.stamp is not None and self._digest(name, array) != self.stamp.arrays.get(name):
            raise BrokenError(
                f"{self._path} was changed after it was written ({name!r} differs from its digest)"
            )

    def _digest(self, name: str, array: NDArray[Any]) -> str:
        """An array's digest, computed once for each state of the file."""
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
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


_digests: dict[tuple[str, tuple[int, ...], str], str] = {}  # of arrays of files in a state
_MOST_DIGESTS = 100_000


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
    part_of : RunDirectory, optional
        The run that this folder is a part of: then `hold` of that run counts here too.

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

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        read_only: bool = False,
        part_of: RunDirectory | None = None,
    ) -> None:
        self.read_only = read_only
        self._begin(Path(path).expanduser().absolute(), part_of or self)
        with _explained(self.path, self.path):
            make_private(self.path)

    def _begin(self, path: Path, whole: RunDirectory) -> None:
        """Before `hold`: any run's."""
        self.path, self._whole = path, whole
        self._identity, self._stamped = "", False
        self._manifest_state: tuple[int, ...] | None = None
        self._held_manifest: Mapping[str, Any] | None = None
        self._last_read: tuple[Any, str] = None, ""
        self._headers: dict[str, Tensors] = {}
        self._notes: dict[str, tuple[tuple[str, tuple[int, ...]], Any]] = {}

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
            If the name leads outside of the run directory, or a link on the way to it does; or if
            the directory holds another run than the one to `hold`.
        """
        self.check_held()
        return self._inside(name)

    def _inside(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or "\\" in name or "\0" in name:
            raise StoreError(f"{quoted(name)} is no name inside of {self.path}: the run is broken")
        found = self.path / name
        if self._has_link(parts):
            run = os.path.realpath(self.path)
            if not Path(os.path.realpath(found)).is_relative_to(run):
                raise OutsideError(
                    f"{found} leads outside of the run through a symbolic link: remove the link"
                )
        return found

    def _has_link(self, parts: Iterable[str]) -> bool:
        """Whether one of the folders on the way down, or the file itself, is a symbolic link."""
        place = str(self.path)
        for part in parts:
            place = f"{place}{os.sep}{part}"
            try:
                mode = os.lstat(place).st_mode
            except OSError:  # it is not there, and nothing below it is
                return False
            if stat.S_ISLNK(mode):
                return True
        return False

    def read_manifest(self) -> dict[str, Any]:
        """What the run is: seeds, hashes, versions, ids.

        Raises
        ------
        StoreError
            If there is none, it is broken, or a newer version of the package wrote it.
        """
        manifest = self._json(self._inside(MANIFEST))
        if not isinstance(manifest, dict) or "format" not in manifest:
            raise StoreError(f"{self.path / MANIFEST} is not the manifest of a run")
        if not isinstance(manifest["format"], int):
            raise StoreError(f"{self.path / MANIFEST} is broken: its format is no number")
        if manifest["format"] > FORMAT:
            raise StoreError(
                f"{self.path} was written in format {manifest['format']}; this version of "
                f"memowidgets reads up to {FORMAT}: update it"
            )
        check = manifest.pop("check", None)
        identity, own = fingerprints(manifest)
        if (check is not None or manifest["format"] >= _STAMPED) and check != own:
            raise StoreError(
                f"{self.path / MANIFEST} was changed after it was written: restore it, or make "
                "the run again at another path"
            )
        self._last_read = manifest, identity
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        whole = {"format": FORMAT, **manifest}
        if whole["format"] >= _STAMPED:
            whole["check"] = fingerprints(whole)[1]
        self.write_json(MANIFEST, whole)

    def hold(self, manifest: Mapping[str, Any]) -> None:
        """Serve this run alone from now on.

        What is written says that it belongs to this run, and what does not is never read. Once
        the directory holds another run, or none, every read and write is an error.

        Parameters
        ----------
        manifest : mapping
            The run's, as `read_manifest` gives it; it may be written later.
        """
        known = self._last_read[0] is manifest
        self._identity = self._last_read[1] if known else fingerprints(manifest)[0]
        self._held_manifest = manifest
        self._stamped = manifest.get("format", FORMAT) >= _STAMPED
        self._manifest_state = self._state_of_manifest()

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of the run to `hold`; the one on disk where that is not known."""
        return self.read_manifest() if self._held_manifest is None else self._held_manifest

    def check_held(self) -> None:
        """Refuse to go on where the directory holds another run than the one to `hold`.

        Raises
        ------
        StoreError
            If it does, or holds none any more.
        """
        if self._whole is not self:
            self._whole.check_held()
        found = self._state_of_manifest() if self._identity else None
        if found == self._manifest_state:
            return
        if found is None:
            raise StoreError(
                f"{self.path} is gone: it was deleted or moved since this audit was opened"
            )
        self.read_manifest()
        if self._last_read[1] != self._identity:
            raise StoreError(
                f"{self.path} holds another run now than the one that this audit was opened "
                "with: open it again, or choose another path"
            )
        self._manifest_state = found

    def _state_of_manifest(self) -> tuple[int, ...] | None:
        try:
            return state_of((self.path / MANIFEST).stat())
        except OSError:
            return None

    def read_json(self, name: str) -> Any:
        """The content of a JSON file.

        Raises
        ------
        StoreError
            If the file is not there or not JSON.
        """
        return self._json(self.place(name))

    def _json(self, path: Path) -> Any:
        try:
            if path.stat().st_size > _LARGEST_JSON:
                raise StoreError(f"{path} is broken: it has {path.stat().st_size} bytes")
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            name = path.relative_to(self.path)
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

    def has_file(self, name: str) -> bool:
        """Whether there is a file of that name, ending included."""
        return self.place(name).exists()

    def read_note(self, name: str) -> Any:
        """The content of a JSON file that `write_note` wrote, or an older version.

        Raises
        ------
        StoreError
            If the file is not there or broken, was changed, or belongs elsewhere.
        """
        state = self._settled_state(name)
        seen = self._whole._identity, state  # noqa: SLF001 - of the same class
        known = self._notes.get(name)
        if known is None or not state or known[0] != seen:
            known = self._notes[name] = seen, self._checked_note(name)
        return copy.deepcopy(known[1])

    def _checked_note(self, name: str) -> Any:
        content = self.read_json(name)
        check = content.pop("check", None) if isinstance(content, dict) else None
        if check is None and not self.is_stamped:
            return content
        if self._whole._identity and check != self._note_check(name, content):  # noqa: SLF001
            raise ForeignError(
                f"{self.path / name} was changed after it was written, or belongs elsewhere",
                "restore it, or delete it and call again",
            )
        return content

    def _settled_state(self, name: str) -> tuple[int, ...]:
        """What a later change of a file will show in; empty for one that was just written."""
        try:
            found = self.place(name).stat()
        except OSError:
            return ()
        return state_of(found) if is_settled(found) else ()

    def write_note(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file whole that says where it belongs."""
        self.write_json(name, {**content, "check": self._note_check(name, content)})

    def _note_check(self, name: str, content: Any) -> str:
        return digest([self._full_name(name), self._whole._identity, content])  # noqa: SLF001

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

    @property
    def is_stamped(self) -> bool:
        """Whether every file of the run to `hold` says what it is; those of old runs do not."""
        return self._whole._stamped  # noqa: SLF001 - of the same class

    def has(self, name: str, of: str | None = None) -> bool:
        """Whether the tensors of that name were written, are whole and what they should be.

        `of` is as in `read_tensors`.

        Raises
        ------
        OutsideError
            If a symbolic link leads outside of the run directory.
        """
        try:
            self.read_tensors(name, of)
        except OutsideError:
            raise
        except StoreError:
            return False
        return True

    def why_not(self, name: str, of: str | None = None, arrays: Iterable[str] = ()) -> str | None:
        """Why a file of tensors can't be used; None where it can, or is not there.

        The arrays named are compared with their digests.
        """
        try:
            self.read_tensors(name, of).check(*arrays)
        except (BrokenError, ForeignError) as error:
            return error.fault
        except StoreError:  # it is not there
            return None
        return None

    def state(self, name: str) -> tuple[int, ...]:
        """Numbers that differ once the tensors of that name are written again; empty without any.

        They hold as long as the file stays on its disk: a copy has others.
        """
        try:
            return state_of(self._tensor_path(name).stat())
        except OSError:
            return ()

    def names(self, folder: str) -> list[str]:
        """Names of the tensor files in a folder of the run, sorted."""
        return sorted(p.stem for p in self.place(folder).glob("*.safetensors"))

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
        of: str = "",
    ) -> None:
        """Write arrays to ``<name>.safetensors``, whole or not at all.

        `of` is the digest of the weights that they come from.
        """
        from safetensors.numpy import save

        contiguous = {key: np.asarray(value, order="C") for key, value in tensors.items()}
        stamp = self._stamp(name, of, {k: array_digest(v) for k, v in contiguous.items()})
        whole = {**(metadata or {}), KEY: stamp.text}
        self._write(f"{name}.safetensors", save(contiguous, whole))

    def write_weights(self, name: str, weights: Mapping[str, NDArray[Any]]) -> str:
        """Write weights as other tools read them, and return their digest, for `read_weights`."""
        from safetensors.numpy import save

        contiguous = {key: np.asarray(value, order="C") for key, value in weights.items()}
        self._write(f"{name}.safetensors", save(contiguous, {"format": "pt"}))
        return Stamp(name, arrays={k: array_digest(v) for k, v in contiguous.items()}).content

    def read_weights(self, name: str, wanted: str) -> Tensors:
        """The weights that `write_weights` wrote; an empty digest is not checked.

        Raises
        ------
        StoreError
            If the file is not there or broken, or holds other weights.
        """
        found = self._tensors(name)
        if wanted and found.content() != wanted:
            raise ForeignError(
                f"{self._tensor_path(name)} holds other weights than the ones that were written",
                "delete the folder of the checkpoint and train again",
            )
        return found

    @contextmanager
    def new_tensors(
        self,
        name: str,
        shapes: Mapping[str, tuple[int, ...]],
        metadata: Mapping[str, str] | None = None,
        of: str = "",
    ) -> Iterator[dict[str, NDArray[np.float32]]]:
        """float32 arrays of ``<name>.safetensors`` to fill, memory-mapped.

        The file is there once the block ends well, and not at all otherwise. `of` is as in
        `write_tensors`.
        """
        target = self._tensor_path(name)
        self._check_writable()
        with _explained(target, self.path):
            make_private(target.parent)
            with replaced(target) as temporary:
                unknown = dict.fromkeys(shapes, UNKNOWN)
                head = _head(shapes, metadata or {}, self._stamp(name, of, unknown))
                arrays = _mapped(temporary, shapes, head)
                yield arrays
                for array in arrays.values():
                    cast("np.memmap[Any, Any]", array).flush()
                known = {key: array_digest(array) for key, array in arrays.items()}
                with temporary.open("r+b") as file:  # of the same length: digests are
                    file.write(_head(shapes, metadata or {}, self._stamp(name, of, known)))

    def read_tensors(self, name: str, of: str | None = None) -> Tensors:
        """The arrays of ``<name>.safetensors``, memory-mapped.

        Parameters
        ----------
        name : str
            The file's, without its ending.
        of : str, optional
            Digest of the weights that they must come from; not checked by default.

        Raises
        ------
        StoreError
            If the file is not there or broken, or not what its place says.
        """
        path, found = self._tensor_path(name), self._tensors(name)
        reason = self._why_foreign(name, found.stamp, of)
        if reason is not None:
            raise ForeignError(f"{path} {reason}", "move it away, or delete it and call again")
        return found

    def _tensors(self, name: str) -> Tensors:
        path = self._tensor_path(name)
        known = self._headers.get(name)
        if known is not None and known.is_current():
            return known
        try:
            found = self._headers[name] = Tensors(path)
        except FileNotFoundError:
            raise StoreError(f"{path} is not there") from None
        except (OSError, ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
            raise BrokenError(f"{path} is broken ({error})") from None
        return found

    def _why_foreign(self, name: str, stamp: Stamp | None, of: str | None) -> str | None:
        """Why a file is not what its place says, as the end of a sentence."""
        run, stamped = self._whole._identity, self.is_stamped  # noqa: SLF001 - of the same class
        if stamp is None:
            return "does not say what it is, as every file of this run does" if stamped else None
        if stamp.name != self._full_name(name):
            return f"was written as {visible(stamp.name, 80)} and belongs there"
        if run and stamp.run != run:
            return "belongs to another run"
        if of is not None and stamp.of != of:
            return "comes from other weights than the ones that are there"
        return None

    def _stamp(self, name: str, of: str, arrays: dict[str, str]) -> Stamp:
        return Stamp(self._full_name(name), self._whole._identity, of, arrays)  # noqa: SLF001

    def _full_name(self, name: str) -> str:
        """A name as seen from the run that this folder is a part of."""
        return (PurePosixPath(self.path.relative_to(self._whole.path)) / name).as_posix()

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
        self.check_held()

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


def _entries(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, dict[str, Any]]:
    """What a safetensors file says of arrays of float32, one after another."""
    sizes = [4 * math.prod(shape) for shape in shapes.values()]
    ends = np.cumsum(sizes).tolist()
    return {
        name: {"dtype": "F32", "shape": list(shape), "data_offsets": [end - size, end]}
        for (name, shape), size, end in zip(shapes.items(), sizes, ends, strict=True)
    }


def _head(
    shapes: Mapping[str, tuple[int, ...]], metadata: Mapping[str, str], stamp: Stamp
) -> bytes:
    """The bytes before the data of a safetensors file of float32."""
    whole = {**metadata, KEY: stamp.text}
    header = json.dumps({"__metadata__": whole, **_entries(shapes)}).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header


def _mapped(
    file: Path, shapes: Mapping[str, tuple[int, ...]], head: bytes
) -> dict[str, NDArray[np.float32]]:
    """A safetensors file of that many float32 values, its arrays mapped."""
    entries = _entries(shapes)
    size = 4 * sum(math.prod(shape) for shape in shapes.values())
    with file.open("wb") as out:
        out.write(head)
        if hasattr(os, "posix_fallocate"):  # a full disk is told now
            os.posix_fallocate(out.fileno(), out.tell(), size)
        else:
            out.truncate(out.tell() + size)
    return {
        name: np.memmap(
            file, "<f4", "r+", len(head) + entry["data_offsets"][0], tuple(entry["shape"])
        )
        for name, entry in entries.items()
    }


def _header(path: Path) -> tuple[dict[str, Any], int, tuple[int, ...]]:
    """What a safetensors file holds, where its data start, and its state; checked by its size."""
    with path.open("rb") as file:
        state = state_of(os.fstat(file.fileno()))
        size = state[-1]
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
    return header, 8 + length, state


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
