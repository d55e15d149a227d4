"""Runs as somebody leaves them who knows the format, and files that are not regular."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from memowidgets.files import fingerprints
from memowidgets.store import RunDirectory, Tensors
from memowidgets.store.tensors import Label, whole_file


def held(path) -> RunDirectory:
    """The run directory as an audit holds it: what is written there says that it belongs there."""
    run = RunDirectory(path)
    run.hold(run.read_manifest())
    return run


def change_manifest(path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edit a manifest, with the check that a version of its format would write."""
    file = Path(path) / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest.pop("check", None)
    change(manifest)
    RunDirectory(path).write_manifest(manifest)


def rewrite(path, name, change=lambda arrays: arrays, **metadata) -> None:
    """Write a file of arrays anew, with other values or metadata, as one that belongs there."""
    run = held(path)
    kept = run.read_tensors(name)
    arrays = {key: np.array(kept[key]) for key in kept}
    run.write_tensors(name, change(arrays), dict(kept.metadata) | metadata, kept.of)


def forge(file: Path, change=lambda arrays: arrays, *, run="", of="", **metadata):
    """Write a file of arrays anew, with checksums that fit; metadata that is None is left out."""
    kept = Tensors(file)
    arrays = change({key: np.array(kept[key]) for key in kept})
    said = {key: value for key, value in (kept.metadata | metadata).items() if value}
    label = Label(run or kept.run or "", of or kept.of, said)
    file.write_bytes(whole_file(arrays, label))


def adopt(path) -> None:
    """Stamp every file of a run anew, as a part of the run that its manifest describes by now."""
    run = held(path)
    for file in Path(path).rglob("*.safetensors"):
        if Tensors(file).run is not None:
            forge(file, run=fingerprints(run.manifest)[0])
    for file in Path(path).rglob("*.json"):
        content = json.loads(file.read_text())
        if file.name != "manifest.json" and "check" in content:
            del content["check"]
            run.write_note(str(file.relative_to(path)), content)


SPARSE = 10 * 2**30


def sparse(path: Path) -> None:
    """A file that fills the memory of whoever reads it."""
    with path.open("wb") as file:
        file.truncate(SPARSE)


KINDS: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    str(SPARSE): sparse,
}


def put(kind: str, path: Path) -> None:
    """Put something that is not a regular file in a file's place."""
    path.unlink(missing_ok=True)
    KINDS[kind](path)
