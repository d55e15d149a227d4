"""Which shadow models a run trains, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.compared import config_digest
from memowidgets.audit.names import Names
from memowidgets.checks import as_code, whole_number
from memowidgets.data import Dataset
from memowidgets.store import RunDirectory
from memowidgets.training.design import (
    NOTHING_LEFT_OUT,
    REFERENCE,
    SHADOW,
    Design,
    Kind,
    ReferenceDesign,
    ShadowDesign,
    audited_samples,
)
from memowidgets.training.engine.pools import check_executor
from memowidgets.training.learner import Recipe
from memowidgets.training.shadow import KeptForward, ShadowJob

__all__ = ["check_request", "checked_part", "make_job", "planned"]

Audited = Sequence[str] | NDArray[np.bool_] | None


def check_request(
    n: Any,
    executor: Executor | None,
    checkpoints: Any,
    processes: int | None,
    kind: Kind = SHADOW,
) -> None:
    """Refuse what can't be meant.

    Raises
    ------
    ValueError, TypeError
        With what would be right.
    """
    each = " for each member" if kind is REFERENCE else ""
    whole_number(f"n, the number of {kind.noun}s{each} in all,", n, 1)
    check_executor(executor)
    if processes is not None:
        whole_number("processes", processes, 1)
    if isinstance(checkpoints, Sized) and not len(checkpoints):
        raise ValueError('checkpoints is empty; the default is ("prediction", "final")')


def checked_part(indices: Any, n: int) -> list[int]:
    """Return the indices of the shadow models that this process trains, each once.

    Raises
    ------
    ValueError, TypeError
        If it is no series, is empty, or one is no whole number from 0 to n − 1.
    """
    if not isinstance(indices, Iterable) or isinstance(indices, str | bytes):
        raise TypeError(f"indices are whole numbers such as range(0, 10), not {as_code(indices)}")
    part = [whole_number("each of indices", index, 0, n - 1) for index in indices]
    if not part:
        raise ValueError("indices is empty; leave it out to train all that are missing")
    return list(dict.fromkeys(part))


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
        raise ValueError(NOTHING_LEFT_OUT)
    return plan


def make_job(
    recipe: Recipe,
    design: Design,
    manifest: Mapping[str, Any],
    run: RunDirectory,
    names: Names,
    checkpoints: Any,
    plan: ShadowDesign | ReferenceDesign,
    keep_forward: bool | str | int | Sequence[str | int],
) -> ShadowJob:
    """All that a worker needs."""
    known = {record.name: record.step for record in names.records()}
    records = names.some_records(checkpoints)
    return ShadowJob(
        recipe,
        design,
        manifest["seed"],
        {record.name: record.step for record in records},
        known,
        plan,
        config_digest(run.manifest),
        _forward(names, keep_forward),
        manifest.get("probe", {}),
    )


def _forward(names: Names, keep: bool | str | int | Sequence[str | int]) -> KeptForward | None:
    if keep is False:
        return None
    layers = names.some_layers("last" if keep is True else keep)
    return KeptForward(names.prediction().record.name, tuple(layers))
