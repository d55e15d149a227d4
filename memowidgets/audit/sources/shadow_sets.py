"""The sets of shadow models in a run directory, and which of them the ground truth comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from memowidgets.audit.source import looked_up
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.shadows import ShadowSet, read_choice, write_choice
from memowidgets.visible import quoted

__all__ = [
    "config_digest",
    "content_digest",
    "current_set",
    "keys_with_forward",
    "set_of_design",
    "set_of_halves",
    "shadow_sets",
    "use_set",
]


def content_digest(content: Any) -> str:
    """Return a digest of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def config_digest(manifest: Mapping[str, Any]) -> str:
    """Return a digest of what shadow models must share with their target, as first written.

    That is model, data, training, pool and seed.
    """
    parts = ("seed", "model", "training", "pool", "content")
    kept = {part: manifest[part] for part in parts if part in manifest}
    return content_digest([kept, manifest["data"]["labels"]])


def current_set(
    run: RunDirectory, precision: str = "", why_none: StoreError | None = None
) -> ShadowSet:
    """The set of shadow models that `use_set` chose last; random halves where it never did."""
    key = str(read_choice(run).get("key", "halves"))
    return _set(run, key, precision, why_none)


def set_of_halves(run: RunDirectory, precision: str = "") -> ShadowSet:
    """The set of shadow models on random halves, whichever the truth is from."""
    return _set(run, "halves", precision)


def use_set(run: RunDirectory, key: str, precision: str = "") -> ShadowSet:
    """Take the truth from the shadow models of this design from now on.

    A recording is not written to: there the choice is the caller's to remember.
    """
    if key != current_set(run).key and not run.read_only:
        write_choice(run, {**read_choice(run), "key": key})
    return _set(run, key, precision)


def shadow_sets(run: RunDirectory) -> dict[str, ShadowSet]:
    """Sets with at least one shadow model, by key."""
    found = {key: _set(run, key, "") for key in _keys(run)}
    return {key: kept for key, kept in found.items() if len(kept)}


def keys_with_forward(run: RunDirectory, index: int, checkpoint: str) -> list[str]:
    """Sets whose shadow model of that index kept its forward pass at a checkpoint, by key."""
    found = {key: ShadowSet(run, key).state_of(index) for key in _keys(run)}
    return [
        key
        for key, state in found.items()
        if state and ShadowSet(run, key).file(index).metadata.get("forward") == checkpoint
    ]


def _keys(run: RunDirectory) -> list[str]:
    folders = run.place("shadows").glob("*")
    return ["halves", *sorted(folder.name for folder in folders if folder.is_dir())]


def set_of_design(run: RunDirectory, design: str) -> ShadowSet:
    """The set of a design, or of that key.

    Raises
    ------
    ValueError
        If there is none, or several of that design; the message lists the keys.
    """
    sets = shadow_sets(run)
    named = [key for key in sets if design in (key, key.split("-")[0])]
    if design in sets or len(named) == 1:
        return sets[design if design in sets else named[0]]
    there = ", ".join(f"{quoted(key)} ({len(kept)})" for key, kept in sets.items()) or "none yet"
    what = f"{len(named)} sets of shadow models are" if named else "no set of shadow models is"
    raise ValueError(f"{what} of the design {design!r}; there are {there}")


def _set(
    run: RunDirectory, key: str, precision: str, why_none: StoreError | None = None
) -> ShadowSet:
    config = config_digest(run.manifest)
    return ShadowSet(run, key, config, precision, why_none=why_none, looked_up=looked_up)
