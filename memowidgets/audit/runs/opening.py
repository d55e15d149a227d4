"""Beginning a run, and opening one from its directory."""

from __future__ import annotations

import os
from typing import Any

from memowidgets.audit.passes import AUTO, check_states
from memowidgets.audit.run import WATCHED, Run, device_of, noise_of
from memowidgets.audit.runs import identity
from memowidgets.audit.runs.origin import PathLike
from memowidgets.audit.runs.pairs import others, pair_data
from memowidgets.audit.runs.reopening import read_data, reopened
from memowidgets.audit.runs.shapes import read_manifest
from memowidgets.checks import as_code, whole_number
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import check_model
from memowidgets.models.precision import resolve_precision
from memowidgets.store import RunDirectory
from memowidgets.training import TrainingConfig
from memowidgets.training.design import HeldOut, Members, draw_design
from memowidgets.training.device import torch_device

__all__ = ["begun_run", "existing_run", "opened_run"]


def begun_run(
    model: Model,
    data: Dataset,
    path: str | os.PathLike[str],
    training: TrainingConfig | None,
    seed: int,
    device: str,
    members: Members,
    held_out: HeldOut,
    states: str = AUTO,
) -> Run:
    """Begin the run that `Audit` describes, or go on with it where the directory holds it."""
    check_model(model)
    seed = whole_number("seed", seed)
    check_states(states)
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a dataset of mw.data, not {type(data).__name__}")
    if training is not None and not isinstance(training, TrainingConfig):
        raise TypeError(f"training must be a mw.TrainingConfig, not {as_code(training)}")
    for samples in (data, held_out):
        if isinstance(samples, Dataset):
            model.check_data(samples)
    settings = (training or TrainingConfig()).resolved(model.training_defaults)
    design = draw_design(data, members, held_out, seed)
    aside = held_out if isinstance(held_out, Dataset) else None
    data = data.fitted(design.pool)
    if aside is not None:
        identity.check_held_out(aside, data, design)
        aside = aside.with_encoding(data.encoding)
    run = RunDirectory(path)
    used = device_of(model, device)
    precision = resolve_precision(torch_device(used), settings.precision)
    manifest = {
        **identity.describe_run(model, data, design, aside, settings, seed, precision),
        **identity.repeats(used, settings),
        "states": states,
    }
    manifest = identity.continued(run, manifest)
    trained_on = noise_of(data, design, manifest).applied(data)
    manifest = identity.settle(run, manifest, trained_on, design)
    return Run(run, manifest, model, trained_on, aside, design, device, states, settings)


def existing_run(path: str | os.PathLike[str], *, read_only: bool = False) -> RunDirectory:
    """Return the run directory at a path.

    Raises
    ------
    StoreError
        If there is no run.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the folder of a run, not {as_code(path)}")
    return RunDirectory.existing(path, read_only=read_only)


def opened_run(
    run: RunDirectory,
    data: Dataset | PathLike | None = None,
    model: Model | PathLike | None = None,
    held_out: Dataset | None = None,
    device: str = "auto",
) -> Run:
    """Open a run from its directory, as `Audit.open` describes."""
    manifest = read_manifest(run)
    run.hold(manifest)
    if manifest.get("kind") == WATCHED and _are_pairs(data):
        data = pair_data(data, manifest["data"]["class_names"], manifest["ids"])
    if _are_pairs(held_out):
        held_out = others(held_out, manifest["data"]["class_names"])
    design = identity.read_design(run, manifest)
    found, made = reopened(run, manifest, design, data, model, held_out)
    if held_out is not None:
        held_out = held_out.with_encoding(identity.read_encoding(run))
    if found is not None:
        found = noise_of(found, design, manifest).applied(found)
    known = found or read_data(run, manifest)
    return Run(run, manifest, made, known, held_out, design, device)


def _are_pairs(data: Any) -> bool:
    """Return whether data are a user's own, not a dataset of memowidgets or a path."""
    return data is not None and not isinstance(data, Dataset | str | os.PathLike)
