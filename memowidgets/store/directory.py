"""A run directory: a manifest, notes in JSON and safetensors files, written atomically.

A file is first written under a temporary name and then renamed, so it is never half-written. All
arrays are in safetensors files, which `Tensors` maps instead of copying. A pass with all its layers
is one such file, so it appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import (
    UNFINISHED,
    check_can_be_made,
    checked_path,
    make_private,
    read_whole,
    replaced,
    state_of,
    sync,
)
from memowidgets.stamps import (
    KEY,
    UNKNOWN,
    Stamp,
    array_digest,
    digest,
    digest_of_arrays,
    fingerprints,
)
from memowidgets.store.errors import (
    BrokenError,
    ForeignError,
    LockedError,
    OutsideError,
    StoreError,
    explained,
)
from memowidgets.store.tensors import Tensors, entries_of, head_of, mapped
from memowidgets.visible import quoted, visible

FORMAT = 3
MANIFEST = "manifest.json"
_PARTS = ("design.safetensors", "checkpoints", "forward", "scores", "shadows")
_OLD_SECONDS = 3600
# What a run has before its first checkpoint is whole, with the lock of that.
_OF_A_START = (
    *(MANIFEST, "design.safetensors", "rho.json", "trainer.json", "checkpoints", "forward"),
    ".checkpoints.lock",
)


class RunDirectory:
    """One audited run on disk, readable only by its owner.

    Every file is written under a temporary name and then renamed, so a process that is killed
    leaves either the old file or the new one. No file contains a pickle.

    Parameters
    ----------
    path : path-like
        The folder. It is created with its first file, with mode 0700.
    read_only : bool
        Whether to refuse all writing, even if the file system allows it.

    Raises
    ------
    StoreError
        If the folder does not exist and cannot be created.

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
        self._begin(checked_path(path).absolute(), self, read_only=read_only)
        if not read_only:
            with explained(self.path, self.path):
                check_can_be_made(self.path)

    def _begin(self, path: Path, whole: RunDirectory, *, read_only: bool) -> None:
        """Start without `hold`, so that any run is accepted."""
        self.path, self._whole, self.read_only = path, whole, read_only
        self._identity = ""
        self._manifest_state: tuple[int, ...] | None = None
        self._held_manifest: Mapping[str, Any] | None = None
        self._last_read: tuple[Any, str] = None, ""
        self._headers: dict[str, Tensors] = {}
        self._unsynced: list[Path] | None = None  # files written inside of `together`
        self._later: Callable[[], object] | None = None  # what writes the manifest
        self._began: Callable[[], object] | None = None  # what has written it
        self._new: list[Path] = []  # folders that the run creates, innermost first

    def part(self, name: str) -> Self:
        """Return a folder of the run as a run directory. `hold` of the run applies there, too.

        The folder need not exist: it is created with the first file.
        """
        found = type(self).__new__(type(self))
        found._begin(self.place(name), self._whole, read_only=self.read_only)
        return found

    @classmethod
    def existing(cls, path: str | os.PathLike[str], *, read_only: bool = False) -> Self:
        """Return the existing run directory at a path, without creating anything.

        Raises
        ------
        StoreError
            If there is no run at the path.
        """
        try:
            found = (checked_path(path) / MANIFEST).is_file()
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
        if not found:
            raise StoreError(f"{path} is not a run directory: it has no {MANIFEST}")
        return cls(path, read_only=read_only)

    def __repr__(self) -> str:
        return f"RunDirectory({str(self.path)!r})"

    @property
    def is_empty(self) -> bool:
        """Return whether no run was started here.

        Raises
        ------
        StoreError
            If the folder has parts of a run but no manifest.
        """
        if (self.path / MANIFEST).exists():
            return False
        parts = [name for name in _PARTS if (self.path / name).exists()]
        if parts:
            raise StoreError(
                f"{self.path} has {', '.join(parts)} of a run but no {MANIFEST}; choose another "
                "path, or delete the folder"
            )
        return True

    def place(self, name: str) -> Path:
        """Return the path of a file or folder of the run.

        Names may come from untrusted files, and anyone may have put a symbolic link anywhere below
        the run. The run directory itself may be reached through a link.

        Raises
        ------
        StoreError
            If the name leads outside of the run directory, or a link on the way to it does, or if
            the directory has another run than the one to `hold`.
        """
        self.check_held()
        return self._inside(name)

    def _inside(self, name: str) -> Path:
        found, on_the_way = _named(self.path, name)
        if any(map(os.path.islink, on_the_way)):
            run = os.path.realpath(self.path)
            if not Path(os.path.realpath(found)).is_relative_to(run):
                raise OutsideError(
                    f"{found} leads outside of the run through a symbolic link; remove the link"
                )
        return found

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest: seeds, hashes, versions and ids.

        Raises
        ------
        StoreError
            If the manifest is missing or broken, or in another format.
        """
        manifest = self._json(self._inside(MANIFEST))
        if not isinstance(manifest, dict) or "format" not in manifest:
            raise StoreError(f"{self.path / MANIFEST} is not the manifest of a run")
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{self.path} was written in format {visible(str(manifest['format']), 20)}, and "
                f"this version of memowidgets reads format {FORMAT}: make the run again, or use "
                "the version that wrote it"
            )
        check = manifest.pop("check", None)
        identity, own = fingerprints(manifest)
        if check != own:
            raise StoreError(
                f"{self.path / MANIFEST} was changed after it was written; restore it, or create "
                "the run again at another path"
            )
        self._last_read = manifest, identity
        return manifest

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        whole = {**manifest, "format": FORMAT}
        self._write_json(MANIFEST, {**whole, "check": fingerprints(whole)[1]})

    def hold(self, manifest: Mapping[str, Any], later: Callable[[], object] | None = None) -> None:
        """Accept only this run from now on.

        Written files are stamped as part of this run, and files of other runs are not read. Once
        the directory contains another run or none, every read and write raises.

        Parameters
        ----------
        manifest : mapping
            The run's manifest, as `read_manifest` returns it. It may be written later.
        later : callable, optional
            Function that writes the manifest. It is called before the first file of the run is
            written, so a run in which nothing happens leaves no folder.
        """
        known = self._last_read[0] is manifest
        self._identity = self._last_read[1] if known else fingerprints(manifest)[0]
        self._held_manifest, self._later = manifest, later
        if later is not None:
            self._new = [place for place in (self.path, *self.path.parents) if not place.exists()]
        self._manifest_state = self._state_of_manifest()

    def begin(self) -> None:
        """Write the manifest now, before any other file of the run."""
        self._check_writable()

    @contextmanager
    def or_nothing(self) -> Iterator[None]:
        """Remove the run if the block fails and nothing was made in it yet, the folder too.

        That is a run that was begun here and has neither a whole checkpoint nor any other result. A
        later file begins it again.
        """
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # another process works there
                self._take_back()
            raise

    def _take_back(self) -> None:
        if self._began is None:
            return
        with self.lock("checkpoints"):
            found = sorted(self.path.rglob("*"), reverse=True)  # what is in a folder comes first
            names = [place.relative_to(self.path).parts for place in found]
            if any(name[0] not in _OF_A_START or name[-1] == "record.json" for name in names):
                return
            for place in [*found, *self._new]:
                with suppress(OSError):
                    place.rmdir() if place.is_dir() else place.unlink()
        self._later, self._began, self._manifest_state = self._began, None, None

    @property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest of the run to `hold`, or the one on disk if none is held."""
        return self.read_manifest() if self._held_manifest is None else self._held_manifest

    def check_held(self) -> None:
        """Raise if the directory contains another run than the one to `hold`.

        Raises
        ------
        StoreError
            If it does, or contains none any more.
        """
        if self._whole is not self:
            self._whole.check_held()
        found = self._state_of_manifest() if self._identity else None
        if found == self._manifest_state:
            return
        if found is None:
            raise StoreError(
                f"{self.path} is gone; it was deleted or moved since this audit was opened"
            )
        self.read_manifest()
        if self._last_read[1] != self._identity:
            raise StoreError(
                f"{self.path} now has another run than the one that this audit was opened "
                "with; open it again, or choose another path"
            )
        self._manifest_state = found

    def _state_of_manifest(self) -> tuple[int, ...] | None:
        try:
            return state_of(_named(self.path, MANIFEST)[0].stat())
        except OSError:
            return None

    def _json(self, path: Path) -> Any:
        text = self._text(path)
        if text is None:
            name = path.relative_to(self.path)
            raise StoreError(f"{self.path} is not a run directory: it has no {name}")
        try:
            return json.loads(text)
        except RecursionError:
            raise StoreError(f"{path} is broken: it is nested too deep") from None
        except ValueError as error:  # not JSON, or a number with too many digits
            raise StoreError(f"{path} is broken: {error}") from None

    def _write_json(self, name: str, content: Any) -> None:
        self._write(name, json.dumps(content, indent=1).encode())

    def has_file(self, name: str) -> bool:
        """Return whether a file of that name (with its suffix) exists."""
        return self.place(name).exists()

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file that `write_note` wrote.

        Raises
        ------
        StoreError
            If the file is missing or broken, was changed, or belongs elsewhere.
        """
        content = self._note(name)
        check = content.pop("check", None) if isinstance(content, dict) else None
        if check is None or (self._whole._identity and check != self._note_check(name, content)):
            raise ForeignError(
                f"{self.path / name} was changed after it was written, or belongs elsewhere",
                "restore it, or delete it and call again",
            )
        return dict(content)

    def _note(self, name: str) -> Any:
        return self._json(self.place(name))

    def write_note(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file with a digest of its content and place, atomically."""
        self._write_json(name, {**content, "check": self._note_check(name, content)})

    def _note_check(self, name: str, content: Any) -> str:
        return digest([self._full_name(name), self._whole._identity, content])

    def read_text(self, name: str) -> str | None:
        """Return the content of a text file, or None if it does not exist.

        Raises
        ------
        StoreError
            If the file cannot be read.
        """
        return self._text(self.place(name))

    def _text(self, path: Path) -> str | None:
        try:
            return read_whole(path).decode()
        except FileNotFoundError:
            return None
        except ValueError as error:  # not UTF-8, not a regular file, or too large
            raise StoreError(f"{path} is broken: {error}") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None

    def write_text(self, name: str, content: str) -> None:
        """Write a text file in UTF-8, atomically."""
        self._write(name, content.encode())

    def has(self, name: str, of: str | None = None) -> bool:
        """Return whether the tensors of that name exist, are complete, and belong there.

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
        """Return why a file of tensors cannot be used, or None if it can or does not exist.

        The arrays named are compared with their digests.
        """
        try:
            self.read_tensors(name, of).check(*arrays)
        except (BrokenError, ForeignError) as error:
            return error.fault
        except StoreError:  # the file does not exist
            return None
        return None

    def state(self, name: str, suffix: str = ".safetensors") -> tuple[int, ...]:
        """Return numbers that change when a file is written again; empty without a file.

        They stay the same as long as the file stays on its disk. A copy has other numbers.
        """
        try:
            return state_of(self.place(f"{name}{suffix}").stat())
        except OSError:
            return ()

    def names(self, folder: str, suffix: str = ".safetensors") -> list[str]:
        """Return the sorted names of a folder's files with a suffix, or of all that is in it."""
        try:
            with os.scandir(self.place(folder)) as entries:
                names = [entry.name for entry in entries]
        except OSError:  # nothing that could be read
            return []
        return sorted(name.removesuffix(suffix) for name in names if name.endswith(suffix))

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
        of: str = "",
    ) -> None:
        """Write arrays to ``<name>.safetensors``, atomically.

        `of` is the digest of the weights that they were computed with.
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
        return digest_of_arrays(contiguous)

    def read_weights(self, name: str, wanted: str) -> Tensors:
        """Return the weights that `write_weights` wrote; an empty digest is not checked.

        Raises
        ------
        StoreError
            If the file is missing or broken, or has other weights.
        """
        found = self._tensors(name)
        if wanted and found.content() != wanted:
            raise ForeignError(
                f"{self._tensor_path(name)} has other weights than the ones that were written",
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
    ) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield memory-mapped float32 arrays of ``<name>.safetensors`` to be filled.

        The file appears once the block ends without an error, and not otherwise. `of` is as in
        `write_tensors`.
        """
        target = self._tensor_path(name)
        self._check_writable()
        with explained(target, self.path):
            make_private(target.parent)
            with replaced(target) as temporary:
                unknown = dict.fromkeys(shapes, UNKNOWN)
                entries = entries_of(shapes)
                head = head_of(entries, metadata or {}, self._stamp(name, of, unknown))
                arrays = mapped(temporary, entries, head)
                yield arrays
                known = {key: array_digest(array) for key, array in arrays.items()}
                with temporary.open("r+b") as file:  # all digests have the same length
                    file.write(head_of(entries, metadata or {}, self._stamp(name, of, known)))
                self._settle(temporary, target)  # what was written through the mapping, too

    def read_tensors(self, name: str, of: str | None = None) -> Tensors:
        """Return the arrays of ``<name>.safetensors``, memory-mapped.

        Parameters
        ----------
        name : str
            Name of the file, without its suffix.
        of : str, optional
            Digest of the weights that the arrays must come from. By default it is not checked.

        Raises
        ------
        StoreError
            If the file is missing or broken, or does not belong there.
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
            raise StoreError(f"{path} does not exist") from None
        except (OSError, ValueError, LookupError, TypeError, RecursionError, struct.error) as error:
            raise BrokenError(f"{path} is broken ({error})") from None
        return found

    def _why_foreign(self, name: str, stamp: Stamp | None, of: str | None) -> str | None:
        """Return why a file does not belong in its place, as the end of a sentence."""
        run = self._whole._identity
        if stamp is None:
            return "has no stamp, unlike every other file of this run"
        if stamp.name != self._full_name(name):
            return f"was written as {visible(stamp.name, 80)} and belongs there"
        if run and stamp.run != run:
            return "belongs to another run"
        if of is not None and stamp.of != of:
            return "comes from other weights than the ones in this run"
        return None

    def _stamp(self, name: str, of: str, arrays: dict[str, str]) -> Stamp:
        return Stamp(self._full_name(name), self._whole._identity, of, arrays)

    def _full_name(self, name: str) -> str:
        """Return a name relative to the run that this folder is a part of."""
        return (PurePosixPath(self.path.relative_to(self._whole.path)) / name).as_posix()

    def forget(self, *names: str) -> None:
        """Delete the tensors of these names, or the folders of these names, if they exist."""
        for name in names:
            with explained(self._tensor_path(name), self.path):
                self._tensor_path(name).unlink(missing_ok=True)
            shutil.rmtree(self.place(name), ignore_errors=True)

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Hold the run's lock for one kind of work. A killed process releases it.

        Raises
        ------
        LockedError
            If another process holds it.
        """
        from filelock import FileLock, Timeout

        self._check_writable()
        path = self.place(f".{what}.lock")
        lock = FileLock(path, timeout=0, mode=0o600)
        with explained(path, self.path):
            make_private(path.parent)
            try:
                lock.acquire()
            except Timeout:
                raise LockedError(
                    f"another process is working on the {what} of {self.path}; wait for it, or "
                    "stop it"
                ) from None
        try:
            self.sweep(what)
            yield
        finally:
            lock.release()

    @contextmanager
    def explained(self, path: Path) -> Iterator[None]:
        """Turn the system's error about writing `path` into a `StoreError`."""
        self._check_writable()
        with explained(path, self.path):
            yield

    def _tensor_path(self, name: str) -> Path:
        return self.place(f"{name}.safetensors")

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreError(f"{self.path} is a recording, which cannot be written to")
        whole = self._whole
        if whole._later is not None:
            later, whole._later = whole._later, None
            try:
                later()
            except BaseException:
                whole._later = later
                raise
            whole._began = later
        self.check_held()

    def _write(self, name: str, content: bytes) -> None:
        self._check_writable()
        target = self.place(name)
        with explained(target, self.path):
            make_private(target.parent)
            with replaced(target) as temporary:
                temporary.write_bytes(content)
                self._settle(temporary, target)

    def _settle(self, temporary: Path, target: Path) -> None:
        """Wait until a new file is on the disk; inside of `together` only note its later name."""
        if self._whole._unsynced is None:
            sync(temporary)
        else:
            self._whole._unsynced.append(target)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the files of one checkpoint, and wait for the disk once, after the last of them.

        Each file still appears whole, in the order in which they are written, so a killed process
        leaves the first ones. A power cut may damage those of the last seconds: their digests tell,
        and they are made again.
        """
        written: list[Path] = []
        self._whole._unsynced = written
        try:
            yield
        finally:
            self._whole._unsynced = None
        if written:
            last = written[-1]
            with explained(last, self.path):
                sync(last)

    def sweep(self, what: str | None = None) -> None:
        """Remove temporary files that killed processes left an hour ago.

        In the folder of `what`, whose lock is held, nobody else writes: there all go.
        """
        for left_over in self.path.rglob(f"{UNFINISHED}*"):
            with suppress(OSError):
                old = time.time() - left_over.stat().st_mtime > _OLD_SECONDS
                if old or (what is not None and left_over.is_relative_to(self.path / what)):
                    left_over.unlink()


@lru_cache(maxsize=10_000)
def _named(run: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    """Return the path of a name in a run, and every path on the way to it."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\\" in name or "\0" in name:
        raise StoreError(f"{quoted(name)} is not a name inside of {run}; the run is broken")
    on_the_way = (str(run.joinpath(*parts[: n + 1])) for n in range(len(parts)))
    return run / name, tuple(on_the_way)
