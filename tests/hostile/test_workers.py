"""Workers that die while they start, and a user who interrupts: nothing hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time

import psutil
import pytest

from memowidgets.models import ConvNet
from tests.audit.test_run_killed import forked, wait_for
from tests.training.small import trained

pytestmark = pytest.mark.slow
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
        # build itself travels by name, not with its class
        return ConvNet.build(self, data)


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

    def __init__(self, folder):
        self.folder = folder
        self.process = forked(fill, folder, 600)
        wait_for((folder / "begin").exists, self.process)

    def workers(self):
        """Worker processes that are there now."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
            return [
                process
                for process in family
                if "popen_loky_posix" in command_of(process)
            ]
        return []

    def worker(self, *, busy=True):
        """The first worker, once it builds its model, or as soon as it is there."""
        wait_for(self.workers, self.process)
        found = self.workers()[0]
        if busy:
            wait_for((self.folder / "busy").exists, self.process)
        return found

    def ended(self):
        """What it said; nothing of it is left."""
        self.process.join(PATIENCE)
        assert self.process.exitcode is not None, "it hangs"
        assert list(self.folder.glob("memowidgets-samples-*")) == []
        return (self.folder / "said").read_text("utf-8")

    def kill(self):
        for process in (*self.workers(), self.process):
            process.kill()
        self.process.join()


def command_of(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path)
    yield run
    run.kill()


def test_a_worker_that_is_killed_as_it_starts_is_a_sentence(run):
    run.worker(busy=False).kill()
    said = run.ended()
    assert "said: the workers ended while training shadow models" in said
    assert "call run_shadows again" in said


def test_ctrl_c_ends_a_worker_that_is_busy(run):
    worker = run.worker()
    os.kill(run.process.pid, signal.SIGINT)
    assert "interrupted" in run.ended()
    assert not psutil.pid_exists(worker.pid)


def test_a_parent_that_is_killed_leaves_no_worker_and_no_samples(run):
    worker = run.worker()
    run.process.kill()
    run.process.join()
    assert not psutil.wait_procs([worker], timeout=PATIENCE)[1], (
        "a worker outlives its parent"
    )
    run.ended()
