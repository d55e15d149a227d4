"""Which shadow models a run trains, and which of its sets the truth comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.catalogue import Catalogue
from memowidgets.audit.identity import config_digest
from memowidgets.audit.precisions import rounds_logits
from memowidgets.data import Dataset
from memowidgets.store import RunDirectory
from memowidgets.training.design import Design, ShadowDesign, audited_samples
from memowidgets.training.learner import Recipe
from memowidgets.training.shadows import (
    KeptForward,
    ShadowJob,
    ShadowSet,
    read_choice,
    write_choice,
)
from memowidgets.visible import quoted

__all__ = [
    "check_request",
    "current_set",
    "keys_with_forward",
    "make_job",
    "planned",
    "set_of_design",
    "shadow_sets",
    "use_set",
]

FEWEST_SHADOWS = 4  # two inside and two outside

Audited = Sequence[str] | NDArray[np.bool_] | None


def check_request(
    n: int, executor: Executor | None, checkpoints: Any, processes: int | None
) -> None:
    """Refuse what can't be meant.

    Raises
    ------
    ValueError, TypeError
        With what would be right.
    """
    if n != int(n) or n < 1:
        raise ValueError(f"n is the number of shadow models in all, at least 1, not {n!r}")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (Dask: client.get_executor()), not "
            f"{type(executor).__name__}"
        )
    if processes is not None and processes < 1:
        raise ValueError(f"processes must be at least 1, not {processes}")
    if not isinstance(checkpoints, int | float) and not len(checkpoints):
        raise ValueError('checkpoints is empty; the default is ("prediction", "final")')


def planned(data: Dataset, design: Design, name: str, audited: Audited) -> ShadowDesign:
    """The design of that name for these data.

    Raises
    ------
    ValueError
        If the name is unknown, nothing can be audited, or the target leaves nothing out.
    """
    plan = ShadowDesign(name)
    if name == "canaries":
        return ShadowDesign(name, audited_samples(data, design, audited))
    if audited is not None:
        raise ValueError(f'audited= goes with design="canaries", not with {name!r}')
    if design.all_members:
        raise ValueError(
            "the target trains on the whole pool, so shadow models can't tell what it would "
            'be without a sample: make the audit with members="half" for ground truth, or audit '
            'some samples with design="canaries"'
        )
    return plan


def make_job(
    recipe: Recipe,
    design: Design,
    manifest: Mapping[str, Any],
    run: RunDirectory,
    catalogue: Catalogue,
    checkpoints: Any,
    plan: ShadowDesign,
    keep_forward: bool | str | int | Sequence[str | int],
) -> ShadowJob:
    """All that a worker needs."""
    known = {record.name: record.step for record in catalogue.records()}
    records = catalogue.some_records(checkpoints)
    return ShadowJob(
        recipe,
        design,
        manifest["seed"],
        {record.name: record.step for record in records},
        known,
        plan,
        config_digest(run.manifest),
        _forward(catalogue, keep_forward),
    )


def current_set(run: RunDirectory, precision: str = "") -> ShadowSet:
    """The set of shadow models that `use_set` chose last; random halves where it never did."""
    key = str(read_choice(run).get("key", "halves"))
    return _set(run, key, precision)


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


def _set(run: RunDirectory, key: str, precision: str) -> ShadowSet:
    manifest = run.manifest
    return ShadowSet(run, key, config_digest(manifest), precision, rounds=rounds_logits(manifest))


def _forward(
    catalogue: Catalogue, keep: bool | str | int | Sequence[str | int]
) -> KeptForward | None:
    if keep is False:
        return None
    layers = catalogue.some_layers("last" if keep is True else keep)
    return KeptForward(catalogue.prediction().record.name, tuple(layers))
