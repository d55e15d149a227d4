"""Shadow models on machines that share no disk: a Dask cluster whose workers come and go."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memowidgets.progress import Progress
from tests.training.small import assert_same, tiny_audit, trained

distributed = pytest.importorskip("distributed", reason="no distributed: pip install distributed")
pytestmark = [pytest.mark.worker_processes, pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
N = 7
PATIENCE = 300  # a process takes more than a minute to start on a machine that others load

# What each machine does before its first order. It sees nothing of the run directory.
MACHINE = """
import os, pathlib, signal, time

away, here = os.environ["AWAY"], pathlib.Path.cwd()
os.seen = getattr(os, "seen", (os.stat, os.lstat))

def unseen(real):
    def look(path, *args, **how):
        if not isinstance(path, int) and os.fsdecode(path).startswith(away):
            raise FileNotFoundError(2, "on another machine", os.fsdecode(path))
        return real(path, *args, **how)
    return look

os.stat, os.lstat = map(unseen, os.seen)

def refuse(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].startswith(away):
        raise FileNotFoundError(2, "on another machine", args[0])

import sys
sys.addaudithook(refuse)

from memowidgets.training import worker

train = worker.really = getattr(worker, "really", worker.train_shadow)  # loaded twice
most, pause, done = int(os.environ["MOST"]), float(os.environ["PAUSE"]), []

def kept():
    there = here / "kept"
    return set(map(int, there.read_text().split())) if there.exists() else set()

def noted(job, index, progress):
    if len(done) == most:
        while not kept().issuperset(done):  # else their results would die with it
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(pause)
    found = train(job, index, progress)
    done.append(index)
    with open(here / "done", "a") as log:
        print(index, file=log)
    return found

worker.train_shadow = noted
wait = os.environ.get("WAIT")
while wait and not pathlib.Path(wait).exists():
    time.sleep(0.05)
"""


class Machine:
    """A worker process with folders of its own."""

    def __init__(self, scheduler, folder, away, most=99, pause=0.0, wait=""):
        folder.mkdir()
        self.folder = folder
        (folder / "machine.py").write_text(MACHINE)
        own = {name: str(folder) for name in ("HOME", "TMPDIR", "MEMOWIDGETS_CACHE")}
        environment = (
            os.environ
            | own
            | {
                "AWAY": str(away),
                "MOST": str(most),
                "PAUSE": str(pause),
                "WAIT": str(wait),
                "OMP_NUM_THREADS": "1",
                "PYTHONPATH": str(ROOT),
            }
        )
        options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--preload", "machine.py"]
        with (folder / "said").open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, *options],
                cwd=folder,
                env=environment,
                stdout=said,
                stderr=said,
            )

    def done(self):
        log = self.folder / "done"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def stop(self):
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def scheduler():
    with (
        distributed.LocalCluster(
            n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", protocol="tcp://"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield cluster.scheduler_address, client


def test_nothing_is_lost_and_nothing_is_trained_twice(scheduler, tmp_path):
    """The fast machine dies at its third model, the slow one at its second; a new one comes late.

    When both are gone, so is every copy of the job, which the new one must be sent again.
    """
    address, client = scheduler
    audit = trained(tmp_path / "away" / "run")
    shutil.copytree(tmp_path / "away/run", tmp_path / "same")
    gate = tmp_path / "gate"
    fast = Machine(address, tmp_path / "fast", tmp_path / "away", most=2)
    slow = Machine(address, tmp_path / "slow", tmp_path / "away", most=1, pause=1.0)
    late = Machine(address, tmp_path / "late", tmp_path / "away", wait=gate)
    machines = (fast, slow, late)
    try:
        client.wait_for_workers(2, timeout=PATIENCE)
        with ThreadPoolExecutor(1) as thread:
            work = thread.submit(audit.run_shadows, N, client.get_executor())
            while any(m.process.poll() is None for m in (fast, slow)) and not work.done():
                kept = list((tmp_path / "away/run/shadows").glob("[0-9]*.safetensors"))
                for machine in (fast, slow):
                    (machine.folder / "kept").write_text(" ".join(file.stem for file in kept))
                time.sleep(0.05)
            gate.touch()
            work.result(timeout=PATIENCE)
    finally:
        for machine in machines:
            machine.stop()
    there = [machine.done() for machine in machines]
    assert [len(models) for models in there] == [2, 1, N - 3], "they did not die as planned"
    trained_ones = sorted(index for models in there for index in models)
    assert trained_ones == list(range(N)), "a model was trained twice, or not at all"
    same = tiny_audit(tmp_path / "same")
    with ThreadPoolExecutor(1) as thread:
        same.run_shadows(N, thread)
    assert_same(audit, same, atol=1e-4)
    for machine in machines:
        left = {f.name for f in machine.folder.rglob("*.safetensors")}
        assert not left, "a machine keeps something of the run"


def test_a_cluster_that_adapts_to_its_work_grows(tmp_path):
    audit, most = trained(tmp_path / "run"), []
    with (
        distributed.LocalCluster(
            n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        cluster.adapt(minimum=0, maximum=2, interval="100 ms", target_duration="10 ms")
        note = Progress(lambda _: most.append(len(cluster.scheduler.workers)))
        audit.run_shadows(30, client.get_executor(), progress=note)
    assert max(most) == 2
    assert audit.n_shadows == 30
