"""Which shadow models a run trains, and on what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.compared import config_digest
from memowidgets.audit.run import Run
from memowidgets.checks import as_code, whole_number
from memowidgets.data import Dataset
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
from memowidgets.training.shadow import KeptForward, ShadowJob

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
    run: Run,
    checkpoints: Any,
    plan: ShadowDesign | ReferenceDesign,
    keep: bool | str | int | Sequence[str | int] = False,
) -> ShadowJob:
    """Return all that a worker needs to train any shadow or reference model of a run."""
    forward = None
    if keep is not False:
        layers = run.names.some_layers("last" if keep is True else keep)
        forward = KeptForward(run.names.prediction().record.name, tuple(layers))
    return ShadowJob(
        run.recipe(),
        run.design,
        run.seed,
        {record.name: record.step for record in run.names.some_records(checkpoints)},
        {record.name: record.step for record in run.names.records()},
        plan,
        run.references.config if plan.kind is REFERENCE else config_digest(run.manifest),
        forward,
        run.manifest.get("probe", {}),
    )
