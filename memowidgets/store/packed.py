"""Recordings: a run in two files, its manifest and one that holds all its arrays and notes."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from memowidgets.files import make_private, state_of, write_whole
from memowidgets.stamps import KEY, Stamp, array_digest, digest, fingerprints
from memowidgets.store.directory import RunDirectory
from memowidgets.store.errors import BrokenError, StoreError
from memowidgets.store.tensors import Tensors, planes

_FILE = "recording.safetensors"


@dataclass(frozen=True)
class PackedFile:
    """What one file of a run directory is in a recording.

    Attributes
    ----------
    arrays : dict of array
        The arrays, as they are to be read.
    stored : dict of dtype
        Types that arrays are kept in, by name; those that are missing are kept as they are. Reading
        turns them back, so an array in float16 is read as float32 if it was given as such.
    metadata : dict of str
        Text beside the arrays.
    of : str
        Digest of the weights behind them.
    """

    arrays: Mapping[str, NDArray[Any]]
    stored: Mapping[str, type[np.generic]]
    metadata: Mapping[str, str]
    of: str = ""


def run_at(path: str | os.PathLike[str], *, read_only: bool = False) -> RunDirectory:
    """Return the existing run directory or recording at a path.

    Raises
    ------
    StoreError
        If there is neither.
    """
    found = RunDirectory.existing(path, read_only=read_only)
    return PackedRun(path) if (found.path / _FILE).is_file() else found


class PackedRun(RunDirectory):
    """A recording. Its files are read by the names that they had in the run directory.

    Parameters
    ----------
    path : path-like
        Folder of the recording, which `pack` wrote.
    read_only : bool
        Always true: nothing else is ever written into a recording.
    """

    _files: Mapping[str, Tensors]
    _notes: Mapping[str, Any]

    def __init__(self, path: str | os.PathLike[str], *, read_only: bool = True) -> None:
        super().__init__(path, read_only=read_only)
        self._files, self._notes = {}, {}

    def hold(self, manifest: Mapping[str, Any], later: Callable[[], object] | None = None) -> None:
        """Read the table of contents; raise if it is not of this run."""
        super().hold(manifest, later)
        path = self.path / _FILE
        try:
            self._files, self._notes = Tensors.packed(path, fingerprints(manifest)[0])
        except FileNotFoundError:
            raise StoreError(f"{path} does not exist") from None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise BrokenError(f"{path} is broken ({error})", "install the package again") from None

    def part(self, name: str) -> Self:
        """Return a folder of the recording."""
        found, start = super().part(name), f"{name}/"
        found._files = {
            k.removeprefix(start): v for k, v in self._files.items() if k.startswith(start)
        }
        found._notes = {
            k.removeprefix(start): v for k, v in self._notes.items() if k.startswith(start)
        }
        return found

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
            return state_of((self._whole.path / _FILE).stat())
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


def pack(
    folder: Path,
    manifest: Mapping[str, Any],
    files: Mapping[str, PackedFile],
    notes: Mapping[str, Any],
) -> None:
    """Write a recording into a new folder.

    Parameters
    ----------
    folder : Path
        The folder.
    manifest : mapping
        Manifest of the run.
    files : mapping
        The files with arrays, by their names without suffix.
    notes : mapping
        Content of the JSON files, by name.
    """
    from safetensors.numpy import save

    table: dict[str, Any] = {
        name: {"metadata": dict(file.metadata), "of": file.of, "arrays": {}}
        for name, file in files.items()
    }
    kinds: dict[str, list[NDArray[Any]]] = {}  # by type; arrays of one name beside each other
    starts: dict[str, int] = {}
    every = [(key, name) for name, file in files.items() for key in file.arrays]
    for key, name in sorted(every):
        values = files[name].arrays[key]
        stored = values.astype(files[name].stored.get(key, values.dtype))
        shown, kind = stored.astype(values.dtype), stored.dtype.str
        place = [kind, starts.get(kind, 0), values.shape, shown.dtype.str, array_digest(shown)]
        table[name]["arrays"][key] = place
        starts[kind] = starts.get(kind, 0) + values.size
        kinds.setdefault(kind, []).append(stored.reshape(-1))
    arrays = {
        kind: np.ascontiguousarray(planes(np.concatenate(parts))) for kind, parts in kinds.items()
    }
    content = {"files": table, "notes": dict(notes)}
    stamp = Stamp("recording", fingerprints(manifest)[0], digest(content))
    make_private(folder)
    packed = json.dumps(content, separators=(",", ":"))
    write_whole(folder / _FILE, save(arrays, {KEY: stamp.text, "packed": packed}))
    RunDirectory(folder).write_manifest(manifest)
