"""Recorded audits: the numbers of a run without its samples, shipped with the package."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.audit.run import Run
from memowidgets.audit.runs.opening import opened_run
from memowidgets.audit.runs.shapes import read_manifest
from memowidgets.data import Dataset
from memowidgets.files import make_private
from memowidgets.store import RunDirectory, StoreError, Tensors
from memowidgets.training.checkpoint import outputs_of
from memowidgets.visible import quoted, visible

if TYPE_CHECKING:
    import os

__all__ = ["export", "recorded_source", "recording_in"]

_FOLDER = Path(__file__).parents[1] / "recordings"
_COPIED = (
    "design.safetensors",
    "rho.json",
    "shadows.json",
    "trainer.json",
    "checkpoints/*/record.json",
    "scores",
    "targets/first",
    "targets/*/*/scores",
)


def recorded_source(name: str, data: Dataset | None = None) -> Run:
    """Return the evidence of a recording that ships with the package, as `open_recorded` says.

    Raises
    ------
    ValueError
        If there is no such recording, or the data lack some of its samples.
    """
    found = sorted(folder.name for folder in _FOLDER.glob("*") if folder.is_dir())
    if name not in found:
        raise ValueError(f"unknown recorded audit {name!r}; there are {', '.join(found) or 'none'}")
    return recording_in(_FOLDER / name, data)


def recording_in(folder: Path, data: Dataset | None = None) -> Run:
    """Return the evidence of a recording that `export` wrote; its files stay as they are."""
    run = RunDirectory.existing(folder, read_only=True)
    chosen = None if data is None else _selected(read_manifest(run), data)
    return opened_run(run, data=chosen)


def export(
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    about: Mapping[str, str],
    states: Mapping[str, tuple[str, ...]],
    exact_logits: Collection[str] | None = None,
) -> None:
    """Copy a run without its samples, weights and paths.

    Parameters
    ----------
    path : path-like
        Directory of a run that is trained, with its shadow models, reference models and scores.
    folder : path-like
        New folder.
    about : mapping
        Title, how to get the data, the command, the machine.
    states : mapping
        Layers whose hidden states are kept, in float16, by checkpoint.
    exact_logits : collection of str, optional
        Checkpoints whose logits are kept in float32; those of the others are kept in float16. By
        default all of them.

    Raises
    ------
    StoreError
        If the folder holds something.
    """
    source, target = RunDirectory.existing(path), Path(folder)
    if target.exists() and any(target.iterdir()):
        raise StoreError(f"{target} is not empty: choose a new folder")
    manifest = source.read_manifest()
    source.hold(manifest)
    manifest["data"]["source"] = manifest["model_source"] = None
    manifest["recording"] = dict(about)
    run = RunDirectory(target)
    run.hold(manifest)
    for pattern in _COPIED:
        for found in source.path.glob(pattern):
            _copy(source, found.relative_to(source.path), run.path)
    for models in ("shadows", "references"):
        for place in source.place(models).rglob("*.safetensors"):
            name = str(place.relative_to(source.path).with_suffix(""))
            run.write_tensors(name, *_gaps_of(source.read_tensors(name)))
    for name in source.names("checkpoints", ""):
        if not source.has(f"forward/{name}") and source.has(outputs_of(name)):
            _copy(source, Path(f"{outputs_of(name)}.safetensors"), run.path)
    for name in source.names("forward"):
        made = source.read_tensors(f"forward/{name}")
        of = "" if made.stamp is None else made.stamp.of
        rounded = {f"layer.{layer}": np.float16 for layer in states.get(name, ())}
        if exact_logits is not None and name not in exact_logits:
            rounded["logits"] = np.float16
        run.write_tensors(f"forward/{name}", *_kept(made, rounded), of)
    run.write_manifest(manifest)


def _gaps_of(shadow: Tensors) -> tuple[dict[str, Any], dict[str, str]]:
    """A shadow model's file without the pass that it kept, but for the losses."""
    heavy = ("forward.layer.", "forward.logits")
    return {n: np.array(shadow[n]) for n in shadow if not n.startswith(heavy)}, shadow.metadata


def _kept(made: Tensors, rounded: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The outputs and the layers that are to be rounded, each in its dtype."""
    kept = {
        key: np.array(made[key], dtype=rounded.get(key))
        for key in made
        if not key.startswith("layer.") or key in rounded
    }
    return kept, made.metadata


def _copy(source: RunDirectory, name: Path, target: Path) -> None:
    """Copy a file, or a folder without its hidden files, from a run; no link leads outside."""
    path = source.place(name.as_posix())
    if path.is_dir():
        for child in path.iterdir():
            if not child.name.startswith("."):
                _copy(source, name / child.name, target)
        return
    make_private((target / name).parent)
    shutil.copyfile(path, target / name)


def _selected(manifest: Mapping[str, Any], data: Dataset) -> Dataset:
    """The recorded samples out of a dataset that may hold more, in the recording's order."""
    positions = {str(name): i for i, name in enumerate(data.ids)}
    missing = [name for name in manifest["ids"] if name not in positions]
    if missing:
        raise ValueError(
            f"{len(missing)} of the {len(manifest['ids'])} recorded samples are not in these "
            f"data, the first is {quoted(missing[0])}: give "
            f"{visible(str(manifest['recording']['data']), 300)}"
        )
    return data.take([positions[name] for name in manifest["ids"]])
