"""Recorded audits: the numbers of a run without its samples, shipped with the package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memowidgets.audit.run import Run
from memowidgets.audit.runs.identity import read_manifest
from memowidgets.audit.runs.opening import opened_run
from memowidgets.data import Dataset
from memowidgets.store import PackedRun
from memowidgets.visible import quoted, visible

_FOLDER = Path(__file__).parents[1] / "recordings"


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
    run = PackedRun.existing(folder, read_only=True)
    chosen = None if data is None else _selected(read_manifest(run), data)
    return opened_run(run, data=chosen)


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
