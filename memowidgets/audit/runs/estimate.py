"""What training will take on this machine: seconds, disk and memory."""

from __future__ import annotations

import time
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, replace

import pandas as pd

from memowidgets.audit.run import Run, check_request, shadow_set
from memowidgets.models.device import free_memory, torch_device
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training import cost
from memowidgets.training.checkpoint import disk_use, name_of
from memowidgets.training.cost import Timing, slowest, take_times
from memowidgets.training.design import REFERENCE, ShadowDesign
from memowidgets.training.pools import default_processes, opened
from memowidgets.training.shadow import ShadowJob
from memowidgets.training.shadows import ShadowSet

_TIMED = "timed steps"
_DONE = "nothing is left to train"
_MB = 1e6
_COLUMNS = ("models", "processes", "seconds", "disk_mb", "memory_mb", "basis")
_Row = tuple[str, int, int, float, int, int, str]  # of the table, with sizes in bytes


@dataclass(frozen=True)
class _Work:
    """Models of one kind that are left to train; `why_not` says why none can be trained."""

    job: ShadowJob
    missing: int
    processes: int
    recorded: tuple[float, ...] = ()
    at_most: bool = False
    why_not: str = ""


@dataclass(frozen=True)
class _Timings:
    """Timings of the worker processes of shadow models, and of this process as the target's.

    `opening` is the number of seconds until the workers had timed their steps, which `run_shadows`
    lets them do, too. `closing` is the number of seconds until they had ended.
    """

    shadow: Timing
    target: Timing
    opening: float
    closing: float


def estimate(run: Run, n_shadows: int, n_references: int, processes: int | None) -> pd.DataFrame:
    """Return what training will take, as `Audit.estimate` describes."""
    check_request(n_shadows, None, ("prediction", "final"), processes)
    check_request(n_references, None, ("prediction",), processes, REFERENCE)
    run.refuse_recorded("its models are trained elsewhere, so their cost cannot be estimated")
    with run.alone():
        shadows = _shadows(run, int(n_shadows), processes)
        references = _references(run, int(n_references), processes)
        passes = _missing_passes(run) if not shadows.why_not else 0
        work = max(shadows, references, key=lambda one: one.processes)
        timings = None
        if work.missing or _steps_left(run):
            run.loaded.drop()
            timings = _timed(work, run if passes or _steps_left(run) else None)
    held, again = disk_use(run.run.path)
    parts = " and ".join(f"{size / _MB:.3g} MB in {name}" for name, size in again.items())
    basis = f"can be deleted and is made again when asked for: {parts}" if parts else "all needed"
    rows = [
        _target_row(run, timings),
        _row(run, "shadow models", shadows, timings, passes),
        _row(run, "reference models", references, timings),
        ("on disk", 0, 0, 0.0, held, 0, basis),
    ]
    table = pd.DataFrame(rows, columns=["work", *_COLUMNS]).set_index("work")
    return table.assign(disk_mb=table["disk_mb"] / _MB, memory_mb=table["memory_mb"] / _MB)


def _shadows(run: Run, n: int, processes: int | None) -> _Work:
    known = _planned_checkpoints(run)
    steps = {name: known[name] for name in _asked_checkpoints(run)}
    job = run.job(steps, ShadowDesign(), known=known)
    try:
        ShadowDesign.of(run.design, "halves", run.data, None)
    except ValueError as error:
        return _Work(job, 0, 0, why_not=str(error))
    made = _work(shadow_set(run.run, "halves", run.precision), n, job, processes)
    return replace(made, at_most=len(job.checkpoints) > 1 and not _is_trained(run))


def _references(run: Run, n: int, processes: int | None) -> _Work:
    known, plan, trained = _planned_checkpoints(run), run.references.plan, _is_trained(run)
    name = run.names.prediction().record.name if trained else list(known)[-1]
    job = run.job({name: known[name]}, plan, known=known)
    try:
        plan.check(run.design, run.seed, n)
    except ValueError as error:
        return _Work(job, 0, 0, why_not=str(error))
    models = n * plan.per_round
    processes = processes or run.processes_for_references(models)
    made = _work(run.references.files, models, job, processes)
    return replace(made, at_most=not trained)


def _work(files: ShadowSet, n: int, job: ShadowJob, processes: int | None) -> _Work:
    missing, job = files.missing(range(n), job)
    slots = min(processes or default_processes(job.recipe.device), len(missing))
    return _Work(job, len(missing), slots, tuple(files.seconds()))


def _planned_checkpoints(run: Run) -> dict[str, int]:
    """Return the step of each checkpoint by name, also of those that are not reached yet."""
    plan = run.training.checkpoint_steps(len(run.design.members))
    return {name_of(epoch): step for step, epoch in plan.items()}


def _asked_checkpoints(run: Run) -> list[str]:
    """Return the names of the prediction checkpoint and of the end.

    The prediction checkpoint of a target that was not trained is not known, and another one takes
    its place. A shadow model trains to the end, so only the number of checkpoints matters.
    """
    names = [name for name, step in _planned_checkpoints(run).items() if step]
    if _is_trained(run):
        names = [run.names.prediction().record.name, names[-1]]
    return list(dict.fromkeys(names[-2:]))


def _is_trained(run: Run) -> bool:
    """Return whether the target has a checkpoint after step 0, so that one is the prediction's."""
    return len(run.names.found) > 1


def _missing_passes(run: Run) -> int:
    """Return the number of passes over the members that `run_shadows` makes at its end."""
    records = {record.name: record for record in run.names.found}
    return sum(
        name not in records or not run.kept_forward(records[name]).exists
        for name in _asked_checkpoints(run)
    )


def _steps_left(run: Run) -> dict[str, int]:
    """Return the checkpoints that the target has not reached, with their steps."""
    records = run.names.found
    last = records[-1].step if records else -1
    return {name: step for name, step in _planned_checkpoints(run).items() if step > last}


def _timed(work: _Work, run: Run | None) -> _Timings:
    """Time a few steps of `run`'s target in this process, then in as many workers as needed.

    This process imports what it needs here, once, and not when it trains.
    """
    target = None if run is None else take_times(work.job, Progress(), run.run)
    free_memory(torch_device(work.job.recipe.device))
    start = time.perf_counter()
    with opened(work.job, None, max(1, work.processes)) as pool:
        try:
            shadow = slowest([future.result() for future in pool.timed()])
        except BrokenExecutor as error:
            raise StoreError(
                "a worker process was killed while it was timed (out of memory?), so the cost "
                "cannot be estimated"
            ) from error
        end = time.perf_counter()
    closing = time.perf_counter() - end
    return _Timings(shadow, target or shadow, end - start, closing)


def _target_row(run: Run, timings: _Timings | None) -> _Row:
    left = _steps_left(run)
    if timings is None or not left:
        return "target", 0, 0, 0.0, 0, 0, _DONE
    timing, memory = timings.target, timings.shadow.memory  # not what the user has in this process
    members, n_records = len(run.design.members), len(run.names.found)
    steps = max(left.values()) - (run.names.found[-1].step if n_records else 0)
    seconds = cost.target_seconds(timing, steps, len(left), members, len(run.held_out))
    n_bytes = cost.target_bytes(timing, len(left), members, resumed=n_records > 0)
    return ("target", 1, 1, seconds, n_bytes, memory, _TIMED)


def _row(run: Run, what: str, work: _Work, timings: _Timings | None, passes: int = 0) -> _Row:
    """Return the row of shadow or reference models; `passes` of the target follow them."""
    if timings is None or not work.missing:
        return (what, 0, 0, 0.0, 0, 0, work.why_not or _DONE)
    timing, members = timings.shadow, len(run.design.members)
    recorded = cost.mean_seconds(work.recorded)
    each = cost.model_seconds(timing, work.job) if recorded is None else recorded
    start = timings.opening if recorded is None else timing.start  # no steps are timed then
    seconds = cost.work_seconds(each, work.missing, work.processes, start) + timings.closing
    seconds += passes * timings.target.build + timings.target.passes(passes, passes * members)
    n_bytes = work.missing * cost.model_bytes(timing, work.job)
    n_bytes += passes * cost.pass_bytes(timing, members)
    basis = _TIMED if recorded is None else f"{len(work.recorded)} recorded"
    if work.at_most:
        basis += ", at most: the target is not trained, so the prediction checkpoint is not known"
    memory = work.processes * timing.memory
    return (what, work.missing, work.processes, seconds, n_bytes, memory, basis)
