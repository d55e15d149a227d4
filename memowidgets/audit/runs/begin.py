"""Beginning a run, and training its target, its shadow and its reference models."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.compared import set_of_design
from memowidgets.audit.kept import AUTO, check_states
from memowidgets.audit.run import Run, device_of, noise_of
from memowidgets.audit.runs import identity, shadow_plan
from memowidgets.audit.runs.fork import check_start
from memowidgets.checks import as_code, whole_number
from memowidgets.data import Dataset
from memowidgets.models import Model
from memowidgets.models.base import check_model
from memowidgets.models.memory import free_memory
from memowidgets.models.precision import resolve_precision
from memowidgets.progress import Progress, shown
from memowidgets.store import RunDirectory
from memowidgets.training import TrainingConfig
from memowidgets.training.checkpoint import write_stop
from memowidgets.training.design import REFERENCE, HeldOut, Members, draw_design
from memowidgets.training.device import torch_device
from memowidgets.training.probe import check_functions
from memowidgets.training.recorder import Recorder
from memowidgets.training.rho import StopRule
from memowidgets.training.trainer_passes import ModelPasses


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
        **identity.described_training(settings, seed, precision, used),
        **identity.described_model(model, data, design, settings),
        **identity.described_data(data, design, aside),
        "states": states,
    }
    trained_on = noise_of(data, design, manifest).applied(data)
    manifest = identity.begun(run, manifest, trained_on, design, at_once=True)
    return Run(run, manifest, model, trained_on, aside, design, device, states, settings)


def train(run: Run, stop_at_drop: float | None, progress: Progress | None, over_last: int) -> None:
    """Train the target, as `Audit.train` describes."""
    stop = _stop_rule(stop_at_drop, over_last)
    run.refuse_recorded("resume it with trainer.train(resume_from_checkpoint=True)")
    check_start(run.run, run.manifest)
    with run.alone(), shown(progress) as report:
        if stop is not None:
            write_stop(run.run, stop)
        check_functions(run.manifest.get("probe", {}), run.recipe(), run.design)
        run.target().train(stop, report)
    free_memory(torch_device(run.device))
    if stop is not None:
        for note in run.names.prediction().warnings:
            warnings.warn(note, UserWarning, stacklevel=3)


def recorder(
    run: Run,
    stop_at_drop: float | None,
    layers: str | int | Iterable[str | int],
    over_last: int,
    checkpoint_every: float | str | None = None,
    keep: str = "all",
) -> Recorder:
    """Return what keeps checkpoints of a target that is trained elsewhere."""
    stop = _stop_rule(stop_at_drop, over_last)
    recipe = run.recipe()
    names, kept = run.names.layer_names, run.names.some_layers(layers)
    passes = ModelPasses(recipe, run.design.members, run.held_out, names, kept)
    every = recipe.settings.checkpoint_every if checkpoint_every is None else checkpoint_every
    return Recorder(run.run, passes, every, shown, keep, stop)


def run_shadows(
    run: Run,
    n: int,
    executor: Executor | None,
    checkpoints: str | float | Sequence[str | float],
    design: str,
    keep_forward: bool | str | int | Sequence[str | int],
    audited: Sequence[str] | NDArray[np.bool_] | None,
    processes: int | None,
    indices: Iterable[int] | None,
    progress: Progress | None,
) -> None:
    """Train shadow models, as `Audit.run_shadows` describes."""
    shadow_plan.check_request(n, executor, checkpoints, processes)
    part = None if indices is None else shadow_plan.checked_part(indices, n)
    run.refuse_recorded(
        "shadow models must be trained as their target was; for ground truth, let "
        "audit.train() train the target of another run"
    )
    plan = shadow_plan.planned(run.data, run.design, design, audited)
    with run.alone():
        records = run.names.some_records(checkpoints)
        job = shadow_plan.make_job(run, checkpoints, plan, keep_forward)
        run.use_shadows(plan.key)
        filled = run.shadows
    run.loaded.drop()
    with shown(progress) as report:
        filled.fill(n, job, processes, report, executor, part)
        filled.note_trained(n)
        for record in records:  # what log-LiRA needs of the target
            run.forward(record, report)


def run_references(
    run: Run,
    n: int,
    executor: Executor | None,
    processes: int | None,
    progress: Progress | None,
) -> None:
    """Train reference models, as `Audit.run_references` describes."""
    shadow_plan.check_request(n, executor, ("prediction",), processes, REFERENCE)
    run.refuse_recorded(
        "reference models must be trained as their target was; let audit.train() train the target "
        "of another run"
    )
    plan, files = run.references.plan, run.references.files
    plan.check(run.design, run.seed, int(n))
    with run.alone():
        job = shadow_plan.make_job(run, "prediction", plan)
    models = int(n) * plan.per_round
    run.loaded.drop()
    with shown(progress) as report:
        files.fill(models, job, processes, report, executor)
        files.note_trained(models)


def use_shadows(run: Run, design: str) -> None:
    """Take the ground truth from the shadow models of another design."""
    key = set_of_design(run.run, design).key
    with run.alone():
        run.use_shadows(key)


def _stop_rule(rho: float | None, over_last: int) -> StopRule | None:
    if rho is not None:
        return StopRule(rho, over_last)
    if over_last != 1:
        raise ValueError("over_last goes with stop_at_drop: say at which drop to interrupt")
    return None
