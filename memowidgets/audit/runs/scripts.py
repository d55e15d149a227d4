"""The run of a user's script: begun, and forked on other samples of the same data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from memowidgets.audit.run import SCRIPT, Run
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.opening import (
    check_fork,
    check_given,
    check_same_kind,
    contents_by_id,
    describe_fork,
    held_out_to_fork,
    other_pairs,
    read_pairs,
    samples_of,
)
from memowidgets.checks import as_code, check_version, whole_number
from memowidgets.data import Dataset, TableDataset, TextDataset
from memowidgets.data.pairs import PairDataset
from memowidgets.store import RunDirectory
from memowidgets.training.config import CheckpointPlan
from memowidgets.training.design import (
    Design,
    HeldOut,
    Members,
    draw_design,
    follow_design,
)
from memowidgets.training.estimator import EstimatorScript
from memowidgets.training.lookout import StopRule
from memowidgets.training.script import Script
from memowidgets.vocabulary import quoted

_SCRIPT = "a script"
_LABEL = "label"
_CHECKPOINTS = 20  # of an estimator with stages


def begun_script(
    fit: Callable[..., Any],
    data: Any,
    path: str | os.PathLike[str],
    members: Members,
    held_out: HeldOut,
    seed: int,
    version: str | None,
    checkpoint_every: float,
    class_names: Sequence[str] | None,
    ids: Sequence[str] | None,
    folds: int | None = None,
) -> Run:
    """Begin the run that `Audit.from_script` describes, or go on with it.

    `folds` is the number of parts of the members of which reference models leave out one each.
    """
    if not callable(fit):
        raise TypeError(
            f"fit must be a function fit(rows, watch, seed), not {as_code(fit)}"
        )
    check_given(data, class_names, ids)
    check_version(version)
    seed = whole_number("seed", seed)
    CheckpointPlan(1, checkpoint_every)  # refuses what is no distance
    samples, pairs = samples_of(data, lambda rows: read_pairs(rows, class_names, ids))
    aside = None
    if _is_dataset(held_out):
        aside, _ = samples_of(
            held_out, lambda rows: other_pairs(rows, samples.class_names)
        )
        check_same_kind(aside, samples)
    design = draw_design(samples, members, held_out if aside is None else aside, seed)
    samples = samples.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, samples, design)
        aside = aside.with_encoding(samples.encoding)
    script = Script(fit, samples, pairs, np.arange(len(samples)))
    about: dict[str, Any] = {"class": _SCRIPT, "settings": "", "version": version or ""}
    if folds is not None:
        about["folds"] = folds
    recorded = identity.describe_recorded(checkpoint_every, seed)
    return _settled(path, about, recorded, script, design, aside)


def begun_estimator(
    estimator: Any,
    inputs: Any,
    labels: Any,
    path: str | os.PathLike[str],
    members: Members,
    held_out: HeldOut,
    seed: int,
    cv: int | None,
    version: str | None,
    ids: Sequence[str] | None,
) -> Run:
    """Begin the run that `Audit.from_estimator` describes, or go on with it."""
    data = _samples_of(inputs, labels, ids)
    classes = np.array(data.class_names)
    given = np.asarray(labels)
    own = given if given.dtype.kind in "iu" else classes[data.labels]
    inputs = inputs if hasattr(inputs, "shape") else list(inputs)
    script = EstimatorScript(estimator, inputs, own)
    every = max(1, script.n_steps // _CHECKPOINTS)
    said = f"{estimator!r} {version or ''}"
    if cv is not None:
        check_folds(cv, data, members)
        members = "all"
        held_out = None
    parts = members, held_out, seed, said, every, None, None
    return begun_script(script, data, path, *parts, folds=cv)


def check_folds(cv: int, data: Dataset, members: Members) -> None:
    """Raise for a number of folds that the samples cannot be divided into.

    Raises
    ------
    ValueError, TypeError
        If there is less than two, more than samples of the smallest class, or members are named.
    """
    whole_number("cv", cv, 2)
    fewest = int(np.bincount(data.labels).min())
    if cv > fewest:
        raise ValueError(
            f"cv={cv} folds are more than the {fewest} samples of the smallest class; choose fewer "
            "folds, or leave the class out"
        )
    if np.ndim(members) or members not in ("half", "all"):
        raise ValueError(
            "with cv= the target trains on all samples, so members= cannot name some; leave one of "
            "them out"
        )


def _samples_of(inputs: Any, labels: Any, ids: Sequence[str] | None) -> Dataset:
    """Return what an estimator reads as samples that can be shown."""
    first = inputs[0] if isinstance(inputs, list | tuple) and inputs else None
    texts: Any = inputs
    if isinstance(first, str) or isinstance(inputs, pd.Series):
        return TextDataset.from_texts(texts, labels, ids=ids)
    if hasattr(inputs, "toarray"):  # sparse: known by its rows, and not shown
        rows = [inputs[[i]].toarray()[0] for i in range(inputs.shape[0])]
        pairs = list(zip(rows, np.asarray(labels).tolist(), strict=True))
        return PairDataset.from_pairs(pairs, ids=ids)
    frame = inputs
    if not isinstance(inputs, pd.DataFrame):
        table = np.asarray(inputs)
        table = table.reshape(len(table), -1)
        frame = pd.DataFrame(table, columns=[f"x{i}" for i in range(table.shape[1])])
    if _LABEL in frame:
        raise ValueError(f"the inputs have a column {_LABEL!r}; name it otherwise")
    frame = frame.assign(**{_LABEL: np.asarray(labels)})
    if ids is not None:
        frame = frame.set_axis(list(ids), axis=0)
    return TableDataset.from_frame(frame, label=_LABEL)


def forked_script(
    run: Run, path: str | os.PathLike[str], data: Dataset, start: str
) -> Run:
    """Begin the run that `Audit.fork` describes of a script, or go on with it."""
    check_fork(run, path, data, start)
    if start != "scratch":
        raise ValueError(
            f"start={start!r} is for models whose weights are kept; a script begins from scratch"
        )
    before = contents_by_id(run.data)
    now = contents_by_id(data)
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        raise ValueError(
            f"{len(changed)} samples have another label or content than in the data of the script, "
            f"the first is {quoted(changed[0])}: fit would train on them as they were. Write fit "
            "for audit.kept(), and pass both to Audit.from_script"
        )
    aside = held_out_to_fork(run)
    design = follow_design(run.design, run.data.ids, data)
    data = data.fitted(design.pool)
    if aside is not None:
        aside = aside.with_encoding(data.encoding)
    script = cast("Script", run.script)
    place = {name: i for i, name in enumerate(run.data.ids.tolist())}
    rows = script.rows[[place[name] for name in data.ids.tolist()]]
    pairs = script.pairs
    if pairs is not None and isinstance(data, PairDataset):
        pairs = replace(pairs, rows=data.as_pairs())
    own = replace(script, data=data, pairs=pairs, rows=rows)
    every = run.manifest["training"]["checkpoint_every"]
    recorded = identity.describe_recorded(every, run.seed)
    fork = describe_fork(run, data, start, None)
    about = run.manifest["model"]
    return _settled(path, about, recorded, own, design, aside, run.rule, fork=fork)


def _is_dataset(held_out: Any) -> bool:
    """Return whether held-out samples are a dataset, and no share, mask, ids or None."""
    if isinstance(held_out, Dataset):
        return True
    is_torch = hasattr(held_out, "__getitem__") and hasattr(held_out, "__len__")
    return is_torch and not np.ndim(held_out)


def _settled(
    path: str | os.PathLike[str],
    about: dict[str, Any],
    recorded: dict[str, Any],
    script: Script,
    design: Design,
    held_out: Dataset | None,
    stop: StopRule | None = None,
    **more: Any,
) -> Run:
    """Begin the run of a script in a directory, or check that it holds this one."""
    run = RunDirectory(path)
    manifest = {
        "kind": SCRIPT,
        "model": about,
        "model_source": None,
        "layers": [],
        **recorded,
        **identity.describe_data(script.data, design, held_out),
        **more,
    }
    stored = identity.settle(run, manifest, script.data, design, stop)
    return Run(run, stored, None, script.data, held_out, design, "cpu", script=script)
