"""Recordings: a run in two files, its manifest and one that holds all its arrays and notes."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

from memowidgets.files import checked_path, state_of
from memowidgets.stamps import fingerprints
from memowidgets.store.directory import MANIFEST, RunDirectory
from memowidgets.store.errors import BrokenError, StoreError
from memowidgets.store.tensors import Tensors

RECORDING = "recording.safetensors"


def run_at(path: str | os.PathLike[str], *, read_only: bool = False) -> RunDirectory:
    """Return the existing run directory or recording at a path.

    Raises
    ------
    StoreError
        If there is neither.
    """
    folder = checked_path(path)
    try:
        is_run, is_recording = (folder / MANIFEST).is_file(), (folder / RECORDING).is_file()
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if not is_run:
        raise StoreError(f"{path} is not a run directory: it has no {MANIFEST}")
    return PackedRun(folder) if is_recording else RunDirectory(folder, read_only=read_only)


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
        self._files, self._notes = {}, {}

    def hold(self, manifest: Mapping[str, Any]) -> None:
        """Read the table of contents; raise if it is not of this run."""
        super().hold(manifest)
        path = self.path / RECORDING
        try:
            self._files, self._notes = Tensors.packed(path, fingerprints(manifest)[0])
        except FileNotFoundError:
            raise StoreError(f"{path} does not exist") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise BrokenError(f"{path} is broken ({error})", "install the package again") from None

    def names(self, folder: str, suffix: str = ".safetensors") -> list[str]:
        """Return the sorted names of a folder's files with a suffix, or of all that is in it."""
        start = f"{folder}/"
        everything = [*(f"{name}.safetensors" for name in self._files), *self._notes]
        inside = [name.removeprefix(start) for name in everything if name.startswith(start)]
        found = {name.split("/")[0] for name in inside}
        return sorted(name.removesuffix(suffix) for name in found if name.endswith(suffix))

    def has_file(self, name: str) -> bool:
        """Return whether a file of that name (with its suffix) is in the recording."""
        return name in self._notes or name.removesuffix(".safetensors") in self._files

    def state(self, name: str, suffix: str = ".safetensors") -> tuple[int, ...]:
        """Return numbers that change when the recording is replaced; empty without that file."""
        if not self.has_file(f"{name}{suffix}"):
            return ()
        try:
            return state_of((self.path / RECORDING).stat())
        except OSError:
            return ()

    def read_note(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file, as `RunDirectory.read_note`."""
        if name not in self._notes:
            raise StoreError(f"{self.path} has no {name}")
        return dict(copy.deepcopy(self._notes[name]))

    def _tensors(self, name: str) -> Tensors:
        if name not in self._files:
            raise StoreError(f"{self.path} has no {name}")
        return self._files[name]
