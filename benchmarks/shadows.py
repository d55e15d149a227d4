"""How many shadow models each variance needs, and what the engine adds to bare training.

The first part trains 320 small shadow models on digits: 256 are the truth, subsets of the other
64 are ranked against it. The second trains a few that take ten seconds or more each: with one
local process, with two, and on a Dask cluster of two workers.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
import torch
from scipy.stats import spearmanr

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from memowidgets.memorization import log_lira
from memowidgets.progress import Progress
from memowidgets.training.shadow import train_shadow

REFERENCE, OTHERS, SUBSETS = 256, 64, 12
SIZES = (4, 8, 16, 24, 32, 64)
VARIANCES = ("per-sample", "global", "shrunk")
SECONDS = 12.0


def rows(_: Namespace) -> list[Row]:
    return [*_rank_errors(), *_engine()]


def _rank_errors() -> list[Row]:
    with tempfile.TemporaryDirectory() as path:
        audit = _audit(path, epochs=12)
        audit.train()
        audit.run_shadows(REFERENCE + OTHERS, checkpoints="final")
        _, members, gaps, target = audit.member_gaps("final")
    truth = log_lira(gaps[:REFERENCE], members[:REFERENCE], target)
    errors = {
        (variance, size): _rank_error(gaps, members, target, truth, variance, size)
        for variance in VARIANCES
        for size in SIZES
    }
    found = [
        Row(
            f"rank error (1 − Spearman's ρ) of log-LiRA from {size} shadow models on digits, "
            f"against {REFERENCE} others: shrunk; beside it per-sample, global",
            f"{errors['shrunk', size]:.3f}",
            f"{errors['per-sample', size]:.3f}, {errors['global', size]:.3f}",
            f"{errors['shrunk', size] / errors['per-sample', size]:.2f}×",
        )
        for size in SIZES
    ]
    eight, many = errors["shrunk", 8], errors["per-sample", 24]
    work = "rank error on digits: shrunk from 8 shadow models, against per-sample from 24"
    return [*found, Row(work, f"{eight:.3f}", f"{many:.3f}", f"{eight / many:.2f}×", "≤ 1×")]


def _rank_error(
    gaps: np.ndarray,
    members: np.ndarray,
    target: np.ndarray,
    truth: np.ndarray,
    variance: str,
    size: int,
) -> float:
    """Mean over subsets; a sample without a value of its own ranks as one that is not memorised."""
    rng, known = np.random.default_rng(0), ~np.isnan(truth)
    found = []
    for _ in range(1 if size == OTHERS else SUBSETS):
        rows = REFERENCE + rng.choice(OTHERS, size, replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # few models: that is what is measured
            values = log_lira(gaps[rows], members[rows], target, variance)
        found.append(1 - spearmanr(np.nan_to_num(values)[known], truth[known]).statistic)
    return float(np.mean(found))


def _engine() -> list[Row]:
    epochs = _epochs_of(SECONDS)
    bare = _bare_seconds(epochs)
    one = _seconds(epochs, 1) / 2
    two = _seconds(epochs, 2) / 4
    made = [
        Row(
            f"a shadow model of {bare:.0f} s through run_shadows, one process of one thread, "
            "against bare training",
            f"{one:.2f} s",
            f"{bare:.2f} s",
            f"{one / bare:.3f}×",
            "≤ 1.03×",
        ),
        Row(
            "two processes of one thread, against one",
            f"{two:.2f} s a shadow model",
            f"{one:.2f} s",
            f"{one / two:.2f}× faster",
            "≥ 1.7×",
        ),
    ]
    return [*made, _dask(epochs, two)]


def _dask(epochs: float, local: float) -> Row:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        seconds = _seconds(epochs, 2, client.get_executor()) / 4
    work = "Dask LocalCluster of two workers, against two local processes"
    ratio = f"{seconds / local:.2f}×"
    return Row(work, f"{seconds:.2f} s a shadow model", f"{local:.2f} s", ratio, "≤ 1.10×")


def _audit(path: str, epochs: float) -> mw.Audit:
    data = mw.data.load_digits(canaries=0.05, seed=0)
    training = mw.TrainingConfig(epochs=epochs, checkpoint_every=epochs)
    return mw.Audit(mw.models.ConvNet(), data, path=path, training=training, device="cpu")


def _seconds(epochs: float, processes: int, executor: Executor | None = None) -> float:
    """What two more shadow models for each process cost: starting the workers cancels out."""

    def run(n: int) -> Callable[[], None]:
        return lambda: audit.run_shadows(n, executor, "final", processes=processes)

    times = []
    for n in (processes, 3 * processes):
        with tempfile.TemporaryDirectory() as path:
            audit = _audit(path, epochs)
            audit.train()
            times.append(_timed(run(n)))
    return times[1] - times[0]


def _bare_seconds(epochs: float) -> float:
    from memowidgets.audit.shadowing import make_job, planned

    with tempfile.TemporaryDirectory() as path:
        audit = _audit(path, epochs)
        audit.train()
        parts = audit._run, audit._catalogue  # noqa: SLF001 - what a worker gets, without workers
        plan = planned(audit.data, audit._design, "halves", None)  # noqa: SLF001
        job = make_job(
            audit._recipe(),  # noqa: SLF001
            audit._design,  # noqa: SLF001
            audit._manifest,  # noqa: SLF001
            *parts,
            "final",
            plan,
            keep_forward=False,
        )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return min(_timed(lambda: train_shadow(job, 0, Progress())) for _ in range(2))
        finally:
            torch.set_num_threads(threads)


def _epochs_of(seconds: float) -> float:
    """So many epochs that a shadow model takes this long."""
    return float(np.ceil(20 * seconds / _bare_seconds(20)))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
