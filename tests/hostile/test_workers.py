"""Workers that die while they start, and a user who interrupts: nothing hangs."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import cloudpickle
import psutil
import pytest

from memowidgets.models import ConvNet
from memowidgets.training.pools import SharedSamples
from memowidgets.training.shadow import ShadowJob
from memowidgets.training.worker import Order, fulfil
from tests.audit.test_run_killed import forked, wait_for
from tests.training.small import trained

PATIENCE = 120  # seconds after which a process hangs; none of these takes a fifth of it


class Large(ConvNet):
    """A model that is more than a pipe holds, and that a worker builds slowly."""

    __module__ = "__main__"  # as in a script: it travels by value
    version = "1"
    ballast = bytes(range(256)) * 800

    def build(self, data):
        if os.getpid() != self.main:
            (self.folder / "busy").touch()
            time.sleep(self.seconds)
        return ConvNet.build(self, data)  # build itself travels by name, not with its class


def fill(folder, seconds):
    """What a user's script does: train shadow models, with all files in one folder."""
    sys.stderr = (folder / "said").open("w")  # the end of the process closes it
    os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
    # A shell that runs the tests in the background has what it starts ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model = Large(4)
    model.seconds, model.main, model.folder = seconds, os.getpid(), folder
    audit = trained(folder / "run", model=model)
    (folder / "begin").touch()
    try:
        audit.run_shadows(2, checkpoints="final", processes=1)
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except RuntimeError as error:
        sys.exit(f"said: {error}")


class Run:
    """A process that trains shadow models, and its workers."""

    def __init__(self, folder, seconds=0):
        self.said = folder / "said"
        self.process = forked(fill, folder, seconds)
        wait_for((folder / "begin").exists, self.process)

    def workers(self):
        """Worker processes that are there now."""
        try:
            family = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [p for p in family if "popen_loky_posix" in command_of(p)]

    def first_worker(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for found in self.workers():
                return found
            time.sleep(0.001)
        raise AssertionError("no worker was started")

    def ended(self):
        """What it said; nothing of it is left."""
        self.process.join(PATIENCE)
        ended = self.process.exitcode is not None
        self.kill()
        assert ended, "it hangs"
        return self.said.read_text("utf-8")

    def kill(self):
        for process in (*self.workers(), self.process):
            process.kill()
        self.process.join()


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def leftovers(folder):
    return list(folder.glob("memowidgets-samples-*"))


@pytest.fixture
def started(tmp_path):
    runs = []

    def start(**how):
        runs.append(Run(tmp_path, **how))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


@pytest.mark.slow
def test_after_a_worker_was_killed_another_goes_on(started, tmp_path):
    run = started()
    run.first_worker().kill()
    assert "said:" not in run.ended()
    assert run.process.exitcode == 0
    assert len(list((tmp_path / "run/shadows").glob("*.safetensors"))) == 2
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_workers_that_are_all_killed_are_a_sentence(started, tmp_path):
    run = started(seconds=600)
    for _ in range(3):
        run.first_worker().kill()
        wait_for(lambda: not run.workers() or not run.process.is_alive(), run.process)
    said = run.ended()
    assert "said: a worker process was killed" in said
    assert "call run_shadows again" in said
    assert leftovers(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_ends_a_worker_that_is_busy(started, tmp_path):
    run = started(seconds=600)
    worker = run.first_worker()
    wait_for((tmp_path / "busy").exists, run.process)
    os.kill(run.process.pid, signal.SIGINT)
    assert "interrupted" in run.ended()
    assert not psutil.pid_exists(worker.pid)
    assert leftovers(tmp_path) == []


@pytest.fixture
def job(tmp_path):
    audit = trained(tmp_path / "run")
    source = audit.run
    return ShadowJob(source.recipe(), source.design, 0, {"epoch-1": 4}, {"epoch-1": 4})


def test_the_job_is_in_a_private_file_and_goes_with_the_samples(job):
    shared = SharedSamples()
    payload, place = shared.keep(job)
    file = Path(place)
    assert file.stat().st_mode & 0o077 == 0
    assert file.read_bytes() == payload
    shared.close()
    assert not file.exists()


def test_without_room_for_the_file_the_job_is_sent(job, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("memowidgets.training.pools.write_whole", full)
    shared = SharedSamples()
    payload, source = shared.keep(job)
    assert source == payload
    shared.close()


def test_a_file_in_the_place_of_the_job_is_not_loaded(tmp_path):
    (tmp_path / "job").write_bytes(b"another job")
    found = fulfil(Order("0" * 64, 0, {}), str(tmp_path / "job"))
    assert "is not the job" in str(cloudpickle.loads(found.error))
