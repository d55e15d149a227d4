"""An audit so small that a shadow model takes a fraction of a second, and who trains it here."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path

import numpy as np

import memowidgets as mw
from memowidgets.models import ConvNet
from memowidgets.training.learner import Learner, Recipe

TRAINING = mw.TrainingConfig(epochs=1, batch_size=16)


class Inline(Executor):
    """Does the work at once, in this process: worker processes take seconds to start."""

    _max_workers = 1

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(self.work(fn, *args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future

    def work(self, fn, *args):
        return fn(*args)


class Dying(Inline):
    """Breaks after some orders."""

    def __init__(self, after):
        self.left = after

    def work(self, fn, *order):
        self.left -= 1
        if self.left < 0:
            raise BrokenExecutor("the queue was closed")
        return fn(*order)


def tiny_data() -> mw.data.ImageDataset:
    return mw.data.load_digits().take(range(120)).with_canaries(12, seed=0)


def tiny_audit(path, **changes) -> mw.Audit:
    settings = {"training": TRAINING, "device": "cpu", "held_out": None} | changes
    return mw.Audit(
        settings.pop("model", None) or ConvNet(4), tiny_data(), path=path, **settings
    )


def trained(path, **changes) -> mw.Audit:
    audit = tiny_audit(path, **changes)
    audit.train()
    return audit


def learner_of(model, data, rows=None, seed=0, bases=None, **settings) -> Learner:
    """A learner on the CPU in float32, of all samples if no rows are named."""
    training = mw.TrainingConfig(**{"precision": "float32"} | settings)
    recipe = Recipe(
        model, data, training.resolve(model.training_defaults), "cpu", bases=bases
    )
    return Learner(recipe, np.arange(len(data)) if rows is None else rows, seed)


def contents(audit) -> tuple[np.ndarray, np.ndarray]:
    shadows = audit.evidence.shadows.read("epoch-1")
    return np.array(shadows.members), np.array(shadows.gaps)


def assert_same(one, other, atol: float = 0.0, n: int | None = None) -> None:
    """Compare all shadow models, or the n that one has with the first of the other's."""
    (members, gaps), (other_members, other_gaps) = contents(one), contents(other)
    assert n in (None, len(members))
    np.testing.assert_array_equal(members, other_members[:n])
    np.testing.assert_allclose(gaps, other_gaps[:n], atol=atol, rtol=0)


def run_in_two_processes(script: str, folder: Path) -> None:
    """Run a script of this folder in two data-parallel processes, as torchrun starts it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    command += ["--master_port=0", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0"]
    here = Path(__file__)
    command += [str(here.with_name(script)), str(folder)]
    done = subprocess.run(
        command,
        cwd=here.parents[2],
        check=False,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
