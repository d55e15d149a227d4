"""Overhead of the engine of shadow models, compared with bare training.

Each shadow model takes ten seconds or more. They are trained in one local process, in two, and on
a Dask cluster of two workers.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import numpy as np
import torch

import memowidgets as mw
from benchmarks.measure import Namespace, Row
from memowidgets.progress import Progress
from memowidgets.training.worker import train_shadow

SECONDS, TURNS = 10.0, 2
ONE_AFTER_ANOTHER = 4


def rows(_: Namespace) -> list[Row]:
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
        epochs = _epochs_of(SECONDS)
        through, bare = beside_bare(epochs)
        one, two, dask = _in_turns(
            lambda: _seconds(epochs, 1) / 2,
            lambda: _seconds(epochs, 2) / 4,
            lambda: _seconds(epochs, 2, client.get_executor()) / 4,
        )
    return [
        Row(
            f"a shadow model of {bare:.0f} s through run_shadows, one process of one thread, "
            "against bare training",
            f"{through:.2f} s",
            f"{bare:.2f} s",
            f"{through / bare:.3f}×",
            "≤ 1.03×",
        ),
        Row(
            "two processes of one thread, against one",
            f"{two:.2f} s a shadow model",
            f"{one:.2f} s",
            f"{one / two:.2f}× faster",
            "≥ 1.7×",
        ),
        Row(
            "Dask LocalCluster of two workers, against two local processes",
            f"{dask:.2f} s a shadow model",
            f"{two:.2f} s",
            f"{dask / two:.2f}×",
            "≤ 1.10×",
        ),
    ]


def _in_turns(*ways: Callable[[], float]) -> list[float]:
    """Return the mean seconds of each way, interleaved because the machine's speed varies."""
    times = [[way() for way in ways] for _ in range(TURNS)]
    return [float(np.mean(of_one)) for of_one in zip(*times, strict=True)]


def digits_audit(path: str, epochs: float) -> mw.Audit:
    data = mw.data.load_digits(canaries=0.05, seed=0)
    training = mw.TrainingConfig(epochs=epochs, checkpoint_every=epochs)
    return mw.Audit(
        mw.models.ConvNet(), data, path=path, training=training, device="cpu"
    )


def _seconds(epochs: float, processes: int, executor: Executor | None = None) -> float:
    """Return the seconds of two more shadow models per process, without starting the workers."""

    def run(n: int) -> Callable[[], None]:
        local = processes if executor is None else None
        return lambda: audit.run_shadows(n, executor, "final", processes=local)

    times = []
    for n in (processes, 3 * processes):
        with tempfile.TemporaryDirectory() as path:
            audit = digits_audit(path, epochs)
            audit.train()
            times.append(_timed(run(n)))
    return times[1] - times[0]


def beside_bare(epochs: float) -> tuple[float, float]:
    """Return the mean seconds of a shadow model in the engine, and of bare training around it.

    The time is taken from when the engine's files were written, so it leaves out starting workers.
    """
    turns = [_through_and_bare(epochs) for _ in range(TURNS)]
    return tuple(np.mean(turns, axis=0).tolist())


def _through_and_bare(epochs: float) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as path:
        audit = digits_audit(path, epochs)
        audit.train()
        before = _bare_seconds(audit)
        audit.run_shadows(ONE_AFTER_ANOTHER, None, "final", processes=1)
        files = sorted(
            Path(path).glob("shadows/*.safetensors"), key=lambda f: f.stat().st_mtime
        )
        through = files[-1].stat().st_mtime - files[0].stat().st_mtime
        bare = (before + _bare_seconds(audit)) / 2
        return through / (ONE_AFTER_ANOTHER - 1), bare


def _bare_seconds(audit: mw.Audit) -> float:
    from memowidgets.training.design import ShadowDesign

    final = audit.evidence.names.record("final")
    job = audit.run.job({final.name: final.step}, ShadowDesign())
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _timed(lambda: train_shadow(job, 0, Progress()))
    finally:
        torch.set_num_threads(threads)


def _epochs_of(seconds: float) -> float:
    """Return the number of epochs for which a shadow model takes this long."""
    with tempfile.TemporaryDirectory() as path:
        audit = digits_audit(path, 20)
        audit.train()
        return float(np.ceil(20 * seconds / _bare_seconds(audit)))


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
