"""A run directory: a manifest, notes in JSON and files of arrays, written atomically.

A recording is such a run in two files: its manifest, and one with all its arrays and notes.

A file is first written under a temporary name and then renamed, so it is never half-written. A pass
with all its layers is one file of arrays, so it appears whole or not at all.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
import struct
import time
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import (
    UNFINISHED,
    checked_path,
    digest,
    fill,
    fingerprints,
    make_private,
    read_whole,
    replacement_of,
    state_of,
    sync,
    unfinished,
)
from memowidgets.store.errors import (
    INSTALL,
    BrokenError,
    ForeignError,
    LockedError,
    StoreError,
    explain_failures,
)
from memowidgets.store.tensors import (
    Label,
    Tensors,
    map_file,
    parsed_json,
    seal,
    whole_file,
)
from memowidgets.vocabulary import quoted, visible

FORMAT = 4
MANIFEST = "manifest.json"
RECORDING = "recording.safetensors"
REVISION = "revision"
_OLD_SECONDS = 3600


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

    Attributes
    ----------
    manifest : mapping
        The manifest of the run to `hold`; empty before.

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
        self, path: str | os.PathLike[str], *, read_only: bool = False
    ) -> None:
        self.path = checked_path(path).absolute()
        self.read_only = read_only
        self.manifest: Mapping[str, Any] = {}
        self._identity = ""
        self._state_of_manifest: tuple[int, ...] = ()
        self._known: dict[str, Tensors] = {}
        self._is_amiss = False  # a file is broken or foreign: somebody may repair it
        self._looks_again = 0

    # the run

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest: seeds, hashes, versions and ids.

        Raises
        ------
        StoreError
            If the manifest is missing or broken, or in another format.
        """
        manifest = self._json(MANIFEST)
        if not isinstance(manifest, dict) or "format" not in manifest:
            raise StoreError(f"{self.path / MANIFEST} is not the manifest of a run")
        if manifest["format"] != FORMAT:
            raise StoreError(
                f"{self.path} was written in format {visible(str(manifest['format']), 20)}, and "
                f"this version of memowidgets reads format {FORMAT}: make the run again, or use "
                "the version that wrote it"
            )
        if manifest.pop("check", None) != fingerprints(manifest)[1]:
            raise StoreError(
                f"{self.path / MANIFEST} was changed after it was written; restore it, or create "
                "the run again at another path"
            )
        return manifest

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        """Replace the manifest."""
        whole = {**manifest, "format": FORMAT}
        checked = {**whole, "check": fingerprints(whole)[1]}
        self.write_text(MANIFEST, json.dumps(checked, indent=1))

    def hold(self, manifest: Mapping[str, object]) -> None:
        """Accept only the run of this manifest from now on.

        Written files are stamped as part of this run, and files of other runs are not read. Once
        the directory contains another run or none, every read and write raises.
        """
        self.manifest, self._identity = manifest, fingerprints(manifest)[0]
        self._state_of_manifest = _state(self.path / MANIFEST)

    def check_held(self) -> None:
        """Raise if the directory contains another run than the one to `hold`.

        Raises
        ------
        StoreError
            If it does, or contains none any more.
        """
        if (
            not self._identity
            or (found := _state(self.path / MANIFEST)) == self._state_of_manifest
        ):
            return
        if not found:
            raise StoreError(
                f"{self.path} is gone; it was deleted or moved since this audit was opened"
            )
        if fingerprints(self.read_manifest())[0] != self._identity:
            raise StoreError(
                f"{self.path} now has another run than the one that this audit was opened "
                "with; open it again, or choose another path"
            )
        self._state_of_manifest = found

    @contextmanager
    def lock(self, what: str) -> Iterator[None]:
        """Hold the run's lock for one kind of work. A killed process releases it.

        Raises
        ------
        LockedError
            If another process holds it.
        """
        from filelock import FileLock, Timeout

        path = self._place_to_write(f".{what}.lock")
        lock = FileLock(path, timeout=0, mode=0o600)
        with explain_failures(path, self.path):
            make_private(path.parent)
            try:
                lock.acquire()
            except Timeout:
                raise LockedError(
                    f"another process is working on the {what} of {self.path}; wait for it, or "
                    "stop it"
                ) from None
        try:
            _sweep(self.path, self.path / what)
            yield
        finally:
            lock.release()

    # the revision

    def revision(self) -> Hashable:
        """Return a value that changes when anybody writes to the run, by two look-ups of files.

        Whoever writes raises it, in whatever process, with the file that then has its name. So it
        also differs where another folder has taken this one's place. It differs each time as long
        as a file is broken or foreign, because the user repairs that by hand.
        """
        self.check_held()
        lost = [name for name, file in self._known.items() if file.is_lost]
        for name in lost:
            del self._known[name]
        if lost or self._is_amiss:
            self._is_amiss = False
            self._looks_again += 1
        return self._state_of_manifest, self._written(), self._looks_again

    def look_again(self) -> None:
        """Let the next revision be another one: a user repairs by hand what is wrong now."""
        self._is_amiss = True

    def _written(self) -> Hashable:
        """Return what the last writer left in the revision; empty if nobody did or it is lost."""
        try:
            return read_whole(self.path / REVISION, most=64)
        except (OSError, ValueError):
            return b""

    @contextmanager
    def new_revision(self) -> Iterator[None]:
        """Raise the revision once the block has ended, in which a file gets its name or goes.

        It is written before the block: where the disk is full, the run is unchanged. It is drawn,
        not counted, so nobody needs to read the last one, and a copy that went on in its own way
        never has the same. Who is killed in between leaves a whole file that open audits see with
        the next change; whoever opens the run sees it at once.
        """
        with replacement_of(self.path / REVISION) as temporary:
            temporary.write_text(secrets.token_hex(8))
            yield

    # any file

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
        return _checked_path(self.path, name)

    def has_file(self, name: str) -> bool:
        """Return whether a file of that name (with its suffix) exists."""
        return self.place(name).exists()

    def names(self, folder: str, suffix: str = ".safetensors") -> list[str]:
        """Return the sorted names of a folder's files with a suffix, or of all that is in it."""
        try:
            names = os.listdir(self.place(folder))  # noqa: PTH208 - names alone
        except OSError:  # nothing that could be read
            return []
        return sorted(
            name.removesuffix(suffix) for name in names if name.endswith(suffix)
        )

    def state(self, name: str, suffix: str = ".safetensors") -> tuple[int, ...]:
        """Return numbers that change when a file is written again; empty without a file.

        They stay the same as long as the file stays on its disk. A copy has other numbers.
        """
        return _state(self.place(f"{name}{suffix}"))

    def read_text(self, name: str) -> str | None:
        """Return the content of a text file, or None if it does not exist.

        Raises
        ------
        StoreError
            If the file cannot be read.
        """
        self.check_held()
        return self._text(name)

    def write_text(self, name: str, content: str, *, is_evidence: bool = True) -> None:
        """Write a text file in UTF-8, atomically, once what was written before is on the disk.

        Where no evidence comes from it, the revision stays.
        """
        target = self._place_to_write(name)
        with self._replacing(target, is_evidence=is_evidence) as temporary:
            fill(temporary, content.encode())

    def forget(self, *names: str) -> None:
        """Delete the tensors of these names, or the folders of these names, if they exist."""
        files = [self.place(f"{name}.safetensors") for name in names]
        folders = [self.place(name) for name in names]
        if not any(place.exists() for place in (*files, *folders)):
            return
        with explain_failures(files[0], self.path), self.new_revision():
            for file in files:
                file.unlink(missing_ok=True)
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    # notes

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file that `write_note` wrote.

        Raises
        ------
        StoreError
            If the file is missing or broken, was changed, or belongs elsewhere.
        """
        self.check_held()
        content = self._json(name)
        check = content.pop("check", None) if isinstance(content, dict) else None
        if check is None or (
            self._identity and check != digest([name, self._identity, content])
        ):
            raise ForeignError(
                f"{self.path / name} was changed after it was written, or belongs elsewhere",
                "restore it, or delete it and call again",
            )
        return dict(content)

    def write_note(self, name: str, content: Mapping[str, object]) -> None:
        """Write a JSON file with a digest of its content and place, atomically."""
        check = digest([name, self._identity, content])
        self.write_text(name, json.dumps({**content, "check": check}, indent=1))

    # arrays

    def has(self, name: str, of: str | None = None) -> bool:
        """Return whether the tensors of that name exist, are complete, and belong there.

        `of` is as in `read_tensors`.
        """
        try:
            self.read_tensors(name, of)
        except StoreError:
            return False
        return True

    def why_not(self, name: str, of: str | None = None) -> str | None:
        """Return why a file of tensors cannot be used, or None if it can or does not exist."""
        try:
            self.read_tensors(name, of)
        except (BrokenError, ForeignError) as error:
            return error.fault
        except StoreError:  # the file does not exist
            return None
        return None

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
        path = self.place(f"{name}.safetensors")
        try:
            found = self._tensors(name, path)
        except BrokenError:
            self.look_again()
            raise
        wrong = ""
        if found.run is None:
            wrong = "has no stamp, unlike every other file of this run"
        elif self._identity and found.run != self._identity:
            wrong = "belongs to another run"
        elif of is not None and found.of != of:
            wrong = "comes from other weights than the ones in this run"
        if wrong:
            self.look_again()
            raise ForeignError(
                f"{path} {wrong}", "move it away, or delete it and call again"
            )
        return found

    def write_tensors(
        self,
        name: str,
        tensors: Mapping[str, NDArray[Any]],
        metadata: Mapping[str, str] | None = None,
        of: str = "",
        *,
        is_evidence: bool = True,
    ) -> None:
        """Write arrays to ``<name>.safetensors``, atomically.

        This does not wait for the disk: what a power cut cuts short is seen by its header, and made
        again. `of` is the digest of the weights that they were computed with, or that they are.
        Where no evidence comes from them, the revision stays.
        """
        target = self._place_to_write(f"{name}.safetensors")
        arrays = {key: np.asarray(value) for key, value in tensors.items()}
        content = whole_file(arrays, self._label(metadata, of))
        with self._replacing(target, is_evidence=is_evidence) as temporary:
            temporary.write_bytes(content)

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
        target = self._place_to_write(f"{name}.safetensors")
        label = self._label(metadata, of)
        with self._replacing(target) as temporary:
            arrays = map_file(temporary, shapes, label)
            yield arrays
            seal(temporary, arrays, label)
            sync(temporary)  # what was written through the mapping, too

    # how

    def _label(self, metadata: Mapping[str, str] | None, of: str) -> Label:
        return Label(self._identity, of, metadata or {})

    @contextmanager
    def _replacing(self, target: Path, *, is_evidence: bool = True) -> Iterator[Path]:
        """Yield a temporary file that takes the target's place, with a new revision."""
        with explain_failures(target, self.path):
            make_private(target.parent)
            with unfinished(target) as temporary:
                yield temporary
                with self.new_revision() if is_evidence else nullcontext():
                    temporary.replace(target)

    def _tensors(self, name: str, path: Path) -> Tensors:
        """Return the arrays of a file, whose header is read once for each state of it."""
        known = self._known.get(name)
        if known is not None and known.state == _state(path):
            return known
        try:
            found = self._known[name] = Tensors(path)
        except FileNotFoundError:
            raise StoreError(f"{path} does not exist") from None
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            RecursionError,
            struct.error,
        ) as error:
            raise BrokenError(f"{path} is broken ({error})") from None
        return found

    def _text(self, name: str) -> str | None:
        path = _checked_path(self.path, name)
        try:
            return read_whole(path).decode()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise StoreError(
                f"{path} is broken: it is not a text in UTF-8; restore it"
            ) from None
        except ValueError as error:  # not a regular file, or too large
            raise StoreError(f"{path} is broken: {error}") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None

    def _json(self, name: str) -> Any:
        text = self._text(name)
        if text is None:
            raise StoreError(f"{self.path} is not a run directory: it has no {name}")
        try:
            return parsed_json(text)
        except ValueError as error:  # also a number with too many digits
            raise StoreError(
                f"{self.path / name} is broken: {error}; restore it"
            ) from None

    def _place_to_write(self, name: str) -> Path:
        if self.read_only:
            raise StoreError(f"{self.path} is a recording, which cannot be written to")
        return self.place(name)


class PackedRun(RunDirectory):
    """A recording. Its files are read by the names that they had in the run directory.

    Parameters
    ----------
    path : path-like
        Folder of the recording, which `pack` wrote.
    """

    _files: Mapping[str, Tensors]
    _notes: Mapping[str, Any]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, read_only=True)
        self._files = {}
        self._notes = {}

    def hold(self, manifest: Mapping[str, object]) -> None:
        """Read the table of contents; raise if it is not of this run."""
        super().hold(manifest)
        path = self.path / RECORDING
        try:
            self._files, self._notes = Tensors.open_packed(
                path, fingerprints(manifest)[0]
            )
        except FileNotFoundError:
            raise StoreError(f"{path} does not exist") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise BrokenError(f"{path} is broken ({error})", INSTALL) from None

    def names(self, folder: str, suffix: str = ".safetensors") -> list[str]:
        """Return the sorted names of a folder's files with a suffix, or of all that is in it."""
        start = f"{folder}/"
        everything = [*(f"{name}.safetensors" for name in self._files), *self._notes]
        inside = [
            name.removeprefix(start) for name in everything if name.startswith(start)
        ]
        found = {name.split("/")[0] for name in inside}
        return sorted(
            name.removesuffix(suffix) for name in found if name.endswith(suffix)
        )

    def has_file(self, name: str) -> bool:
        """Return whether a file of that name (with its suffix) is in the recording."""
        return name in self._notes or name.removesuffix(".safetensors") in self._files

    def state(self, name: str, suffix: str = ".safetensors") -> tuple[int, ...]:
        """Return numbers that change when the recording is replaced; empty without that file."""
        return _state(self.path / RECORDING) if self.has_file(f"{name}{suffix}") else ()

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file, as `RunDirectory.read_note`."""
        if name not in self._notes:
            raise StoreError(f"{self.path} has no {name}")
        return dict(copy.deepcopy(self._notes[name]))

    def _written(self) -> Hashable:
        return _state(self.path / RECORDING)

    def _tensors(self, name: str, path: Path) -> Tensors:  # noqa: ARG002
        if name not in self._files:
            raise StoreError(f"{self.path} has no {name}")
        return self._files[name]


def run_at(path: str | os.PathLike[str], *, read_only: bool = False) -> RunDirectory:
    """Return the existing run directory or recording at a path.

    Raises
    ------
    StoreError
        If there is neither.
    """
    folder = checked_path(path)
    try:
        is_run = (folder / MANIFEST).is_file()
        is_recording = (folder / RECORDING).is_file()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if not is_run:
        raise StoreError(f"{path} is not a run directory: it has no {MANIFEST}")
    return (
        PackedRun(folder) if is_recording else RunDirectory(folder, read_only=read_only)
    )


def _state(path: Path) -> tuple[int, ...]:
    try:
        return state_of(path.stat())
    except OSError:
        return ()


def _sweep(run: Path, locked: Path) -> None:
    """Remove temporary files that killed processes left an hour ago.

    In a folder whose lock is held, nobody else writes: there all go.
    """
    for left_over in run.rglob(f"{UNFINISHED}*"):
        with suppress(OSError):
            old = time.time() - left_over.stat().st_mtime > _OLD_SECONDS
            if old or left_over.is_relative_to(locked):
                left_over.unlink()


def _checked_path(run: Path, name: str) -> Path:
    """Return the path of a name in a run; raise if a symbolic link leads out of it."""
    found, on_the_way = _path_of(run, name)
    if any(map(os.path.islink, on_the_way)) and not Path(
        os.path.realpath(found)
    ).is_relative_to(os.path.realpath(run)):
        raise ForeignError(
            f"{found} leads outside of the run through a symbolic link",
            "remove the link",
        )
    return found


@lru_cache(maxsize=10_000)
def _path_of(run: Path, name: str) -> tuple[Path, tuple[str, ...]]:
    """Return the path of a name in a run, and every path on the way to it."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\\" in name or "\0" in name:
        raise StoreError(
            f"{quoted(name)} is not a name inside of {run}; the run is broken"
        )
    on_the_way = (str(run.joinpath(*parts[: n + 1])) for n in range(len(parts)))
    return run / name, tuple(on_the_way)
