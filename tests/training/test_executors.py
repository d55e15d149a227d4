"""Shadow models on other people's executors, a real Dask cluster, and in the face of accidents."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

import memowidgets as mw
from memowidgets.models import ConvNet
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training import cost, pools, worker
from memowidgets.training.shadows import ShadowSet
from tests.accelerator import recipes
from tests.training.small import Inline, assert_same, tiny_audit, trained

pytestmark = pytest.mark.worker_processes

ROOT = Path(__file__).parents[2]
KILLED = ("worker", "main", "all", "worker")


def undisturbed(source, path, n):
    shutil.copytree(source, path)
    audit = tiny_audit(path)
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(n, executor)
    return audit


# Executors of other people


class Forgetful(Inline):
    """A worker that is restarted before every order that does not carry the job."""

    sent = 0

    def work(self, fn, order, payload):
        if payload is None:
            worker._Kept.jobs.clear()
        self.sent += payload is not None
        return fn(order, payload)


class Counting(Inline):
    """Counts the orders that carry the job."""

    sent = 0

    def work(self, fn, order, payload):
        self.sent += payload is not None
        return fn(order, payload)


class Dying(Inline):
    """Breaks after some orders."""

    def __init__(self, after):
        self.left = after

    def work(self, fn, order, payload):
        self.left -= payload is None
        if self.left < 0:
            raise BrokenExecutor("the queue was closed")
        return fn(order, payload)


def test_any_executor_gives_the_same_shadow_models(audit, source, tmp_path):
    audit.run_shadows(4, Inline())
    assert_same(audit, undisturbed(source, tmp_path / "b", 4), atol=1e-4)


def test_a_worker_is_sent_the_job_when_it_lacks_it(audit):
    worker._Kept.jobs.clear()
    for executor, sent in ((Counting(), 1), (Forgetful(), 4)):
        audit.run_shadows(audit.n_shadows + 4, executor)
        assert executor.sent == sent


def test_an_executor_that_dies_is_named_and_what_was_computed_stays(audit):
    with pytest.raises(
        StoreError,
        match=r"executor died .*the queue was closed.*2 finished shadow models",
    ):
        audit.run_shadows(5, Dying(2))
    assert audit.n_shadows == 2
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(StoreError, match="cannot schedule new futures after shutdown"):
        audit.run_shadows(5, closed)
    audit.run_shadows(5, Inline())
    assert audit.n_shadows == 5


class Uncancelled(Inline):
    """Futures that can't be cancelled, as Parsl's."""

    class Future(Future):
        def cancel(self):
            raise NotImplementedError("Cancel not implemented")

    def submit(self, fn, /, *args, **kwargs):
        future = self.Future()
        future.set_result(fn(*args, **kwargs))
        return future


def test_futures_that_cannot_be_cancelled_are_waited_for(audit):
    progress = Progress(lambda step: progress.cancel() if step.done >= 2 else None)
    with pytest.raises(Cancelled):
        audit.run_shadows(9, Uncancelled(), progress=progress)
    assert 2 <= audit.n_shadows < 9


class Elsewhere(Inline):
    """An executor by name only: its jobs are not futures, as submitit's."""

    def submit(self, fn, /, *args, **kwargs):
        return SimpleNamespace(result=lambda: fn(*args, **kwargs))


@pytest.mark.parametrize(
    ("executor", "error", "fact"),
    [
        (SimpleNamespace(submit=None), TypeError, "concurrent.futures.Executor.*SimpleNamespace"),
        (Elsewhere(), TypeError, "must return a concurrent.futures.Future.*cluster"),
        (
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")),
            ValueError,
            "fork.*spawn",
        ),
    ],
)
def test_executors_that_cannot_train_are_refused(audit, executor, error, fact):
    with pytest.raises(error, match=fact):
        audit.run_shadows(2, executor)
    assert audit.n_shadows == 0


def on_the_page(beginning):
    """The Python of docs/cluster.md that begins so."""
    page = (ROOT / "docs/cluster.md").read_text("utf-8")
    (code,) = [c for c in page.split("```python\n")[1:] if c.startswith(beginning)]
    return code.split("```")[0]


def test_the_adapter_on_the_page_trains(audit, source, tmp_path):
    names = {}
    exec(on_the_page("from concurrent.futures import"), names)
    audit.run_shadows(4, names["Submitted"](Elsewhere(), jobs=2))
    assert_same(audit, undisturbed(source, tmp_path / "b", 4), atol=1e-4)


def test_the_array_job_on_the_page_trains_each_part_once(tmp_path, monkeypatch):
    """A job that trains, and one for each part, as Slurm starts them."""
    monkeypatch.chdir(tmp_path)
    script = on_the_page("import os").replace("N, PARTS = 128, 16", "N, PARTS = 5, 2")
    whole, small = "mw.data.load_digits()", "mw.data.load_digits().take(range(120))"
    assert whole in script
    there = []
    for part in (None, "0", "1"):
        if part is not None:
            monkeypatch.setenv("SLURM_ARRAY_TASK_ID", part)
        found = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ShadowSet, "fill", in_a_thread(ShadowSet.fill))
            exec(script.replace(whole, small), found)
        there.append(found["audit"].run.shadows.indices())
    assert there == [[], [0, 2, 4], [0, 1, 2, 3, 4]]


def in_a_thread(fill):
    """Fill in a thread, because a worker process takes seconds to start."""

    def filled(self, n, job, processes, progress, executor=None, indices=None):
        assert (processes, executor) == (1, None)
        with ThreadPoolExecutor(1) as thread:
            fill(self, n, job, None, progress, thread, indices)

    return filled


class Growing(ConvNet):
    """A model of which each training after its process's first takes more memory, and a second."""

    kept = ()

    def build(self, data):
        if multiprocessing.parent_process() is not None and len(data) > 8:  # it trains
            with Path(self.log).open("a") as file:
                print(os.getpid(), file=file)
            if Growing.kept:
                time.sleep(1.1)
            Growing.kept = (*Growing.kept, np.ones((len(Growing.kept) and 40) * 2**20))
        return super().build(data)


@pytest.mark.slow
def test_a_local_process_that_needs_more_memory_than_at_first_stays(tmp_path):
    """loky would start it again, and it would load its frozen weights again."""
    model = Growing(4)
    model.log = str(tmp_path / "log")
    audit = trained(tmp_path / "run", model=model)
    audit.run_shadows(3, processes=1)  # loky measures from the first to the second
    assert len(set((tmp_path / "log").read_text().split())) == 1


@pytest.mark.slow
def test_the_standard_process_pool_trains(audit, source, tmp_path):
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        audit.run_shadows(4, executor)
    assert_same(audit, undisturbed(source, tmp_path / "b", 4), atol=1e-4)


def test_threads_that_keep_forward_passes_of_a_language_model_do_not_meet(tmp_path):
    """Each thread has a model of its own to capture hidden states in."""
    data = recipes.questions()
    model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
    training = mw.TrainingConfig(epochs=1, batch_size=8, precision="float32")
    made = []
    for name, n in (("one", 1), ("four", 4)):
        audit = mw.Audit(model, data, tmp_path / name, training, device="cpu", held_out=None)
        audit.train()
        with ThreadPoolExecutor(n) as threads:
            audit.run_shadows(6, threads, keep_forward="all")
        made.append([audit.as_target(i).score("psmi", layer=1) for i in range(6)])
    for one, other in zip(*made, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


class Diverging(ConvNet):
    """A model whose training fails."""

    def outputs(self, module, inputs, labels):
        logits, losses = super().outputs(module, inputs, labels)
        fails = Diverging.fails and len(labels) > 8  # not yet where it is compared
        return (logits, losses * np.nan) if fails else (logits, losses)


def test_what_goes_wrong_in_training_is_raised_as_it_is(tmp_path):
    Diverging.fails = False
    audit = trained(tmp_path / "run", model=Diverging(4))
    Diverging.fails = True
    with pytest.raises(FloatingPointError, match="the training has diverged"):
        audit.run_shadows(2, Inline())


def test_a_worker_with_too_little_memory_is_named_and_the_others_finish(
    audit, source, tmp_path, monkeypatch
):
    """A cluster's machines differ, and what a larger one has begun may have taken it hours."""
    real, other_trains = worker.train_shadow, threading.Event()

    def small(job, index, progress):
        if index == 0:
            assert other_trains.wait(60)
            raise MemoryError("the GPU's memory cannot hold this model")
        other_trains.set()
        return real(job, index, progress)

    monkeypatch.setattr(worker, "train_shadow", small)
    with (
        ThreadPoolExecutor(2) as two,
        pytest.raises(MemoryError, match="cannot hold this model") as raised,
    ):
        audit.run_shadows(2, two)
    (note,) = raised.value.__notes__
    assert f"process {os.getpid()}" in note
    assert audit.run.shadows.indices() == [1]
    monkeypatch.undo()
    audit.run_shadows(2, Inline())
    assert_same(audit, undisturbed(source, tmp_path / "b", 2), atol=1e-4)


@pytest.mark.parametrize("library", ["torch", "memowidgets", "Python"])
def test_a_worker_with_another_version_is_named_and_refused(audit, monkeypatch, library):
    here = worker.library_versions()
    audit.run_shadows(1, Inline())
    monkeypatch.setattr(worker, "library_versions", lambda: here | {library: "0.1"})
    with pytest.raises(
        StoreError, match=rf"process {os.getpid()} has {library} 0\.1 instead of .*1 finished"
    ):
        audit.run_shadows(3, Inline())
    assert audit.n_shadows == 1


def test_a_worker_with_another_numpy_is_warned_of_once(audit, monkeypatch):
    here = worker.library_versions()
    monkeypatch.setattr(worker, "library_versions", lambda: here | {"numpy": "9.9"})
    with pytest.warns(UserWarning, match=r"has numpy 9\.9 instead of") as seen:
        audit.run_shadows(3, Inline())
    assert len(seen) == 1
    assert audit.n_shadows == 3


def test_a_worker_with_another_transformers_is_warned_of(audit, monkeypatch):
    pytest.importorskip("transformers", reason="no transformers: pip install 'memowidgets[llm]'")
    here = worker.library_versions()
    assert {"transformers", "peft", "tokenizers"} <= here.keys()
    monkeypatch.setattr(worker, "library_versions", lambda: here | {"transformers": "4.0"})
    with pytest.warns(UserWarning, match=r"has transformers 4\.0 instead of"):
        audit.run_shadows(2, Inline())
    without = {name: version for name, version in here.items() if name != "peft"}
    monkeypatch.setattr(worker, "library_versions", lambda: without)
    audit.run_shadows(3, Inline())  # what this model has no use for may be missing


# Clocks and disks


def test_a_clock_that_goes_backwards_changes_nothing(audit, source, tmp_path, monkeypatch):
    now = [2e9]

    def backwards():
        now[0] -= 100
        return now[0]

    monkeypatch.setattr(time, "time", backwards)
    audit.run_shadows(4, Inline())
    monkeypatch.undo()
    assert_same(audit, undisturbed(source, tmp_path / "b", 4), atol=1e-4)


class SmallDisk:
    """A tmpfs of a few hundred kilobytes where one may be mounted, else a stand-in for it.

    The stand-in makes the writes fail with the error that a real disk would give: it tests what
    we make of the error, not that the system gives it.
    """

    def __init__(self, path, monkeypatch):
        self.path, self._patch = path, monkeypatch
        path.mkdir()
        self.is_real = self._mount("size=600k")

    def _mount(self, options):
        if os.name != "posix" or os.geteuid() != 0:
            return False
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self, leave=60_000):
        if not self.is_real:
            self._fail(errno.ENOSPC)
            return
        free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
        (self.path / "filler").write_bytes(bytes(max(0, free - leave)))

    def empty(self):
        (self.path / "filler").unlink(missing_ok=True)
        self._patch.undo()

    def make_read_only(self):
        if not self.is_real:
            self._fail(errno.EROFS)
            return
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True)

    def make_writable(self):
        if self.is_real:
            subprocess.run(["mount", "-o", "remount,rw", str(self.path)], check=True)
        self._patch.undo()

    def close(self):
        if self.is_real:
            subprocess.run(["umount", "-l", str(self.path)], check=True)

    def _fail(self, number):
        def refuse(*_):
            raise OSError(number, os.strerror(number))

        self._patch.setattr(os, "fsync", refuse)


@pytest.fixture
def disk(tmp_path, monkeypatch):
    disk = SmallDisk(tmp_path / "disk", monkeypatch)
    yield disk
    disk.close()


def after(n, action):
    """A progress that does something once n shadow models are there."""
    done = []

    def listen(step):
        if step.what == "training shadow models" and step.done >= n and not done:
            done.append(True)
            action()

    return Progress(listen)


def on_disk(source, disk):
    shutil.copytree(source, disk.path / "run")
    return tiny_audit(disk.path / "run")


def test_a_full_disk_keeps_what_was_finished(source, disk, tmp_path):
    audit = on_disk(source, disk)
    with pytest.raises(StoreError, match="the disk is full"):
        audit.run_shadows(60, Inline(), progress=after(2, lambda: disk.fill(20_000)))
    kept = audit.n_shadows
    assert 2 <= kept < 60
    disk.empty()
    audit.run_shadows(kept + 2, Inline())
    assert_same(audit, undisturbed(source, tmp_path / "b", kept + 2), atol=1e-4)


def test_a_directory_made_read_only_half_way_keeps_what_was_finished(source, disk, tmp_path):
    audit = on_disk(source, disk)
    with pytest.raises(StoreError, match="the file system is read-only"):
        audit.run_shadows(8, Inline(), progress=after(3, disk.make_read_only))
    disk.make_writable()
    assert audit.n_shadows == 3
    audit.run_shadows(5, Inline())
    assert_same(audit, undisturbed(source, tmp_path / "b", 5), atol=1e-4)


# Kills


class KillServer:
    """Starts runs in a moment, to be killed."""

    def __init__(self):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.kill_server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def start(self, path, n):
        return self._ask(f"{n} {path}")

    def wait(self, leader):
        return self._ask(f"wait {leader}")

    def _ask(self, line):
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, self._process.stderr.read()
        return int(said)

    def stop(self):
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


@pytest.fixture(scope="module")
def server():
    server = KillServer()
    yield server
    server.stop()


def group(leader):
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(leader).children(recursive=True)
    return []


def let_train(rng, path):
    """Wait while up to three shadow models are finished, and a random moment after the last."""
    wanted = len(finished(path)) + rng.randrange(4)
    end = time.monotonic() + 120
    while len(finished(path)) < wanted:
        assert time.monotonic() < end, "no shadow model is finished"
        time.sleep(0.005)
    time.sleep(rng.uniform(0, 0.2))


def finished(path):
    return list((path / "shadows").glob("[0-9]*.safetensors"))


def strike(rng, leader, victim):
    """SIGKILL to the main process, a worker, or all of them; whether the main process goes on."""
    workers = group(leader)
    if victim == "worker" and workers:
        workers[rng.randrange(len(workers))].kill()
        return True
    with contextlib.suppress(ProcessLookupError):
        os.kill(leader, signal.SIGKILL)
    if victim == "all":
        for process in workers:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    return False


def end(leader):
    """SIGKILL to what a killed main process has left, also to what it had just started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_at_random_moments_cost_at_most_the_shadow_models_in_hand(source, server, tmp_path):
    rng = random.Random(0)
    shutil.copytree(source, tmp_path / "killed")
    shutil.copytree(source, tmp_path / "straight")
    there = set()
    for victim in KILLED:
        leader = server.start(tmp_path / "killed", 1000)
        let_train(rng, tmp_path / "killed")
        if strike(rng, leader, victim):  # with another worker
            let_train(rng, tmp_path / "killed")
        end(leader)
        server.wait(leader)
        whole = set(tiny_audit(tmp_path / "killed").run.shadows.indices())
        assert there <= whole, "a finished shadow model was lost"
        there = whole
    n = max(there, default=1) + 3
    for name in ("killed", "straight"):
        assert server.wait(server.start(tmp_path / name, n)) == 0
    assert there
    assert_same(tiny_audit(tmp_path / "killed"), tiny_audit(tmp_path / "straight"))
    left = [file for file in (tmp_path / "killed").rglob(".*/*") if file.is_file()]
    assert not left, "a killed process left a file"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_processes_fill_one_directory(source, server, tmp_path):
    shutil.copytree(source, tmp_path / "both")
    leaders = [server.start(tmp_path / "both", 20) for _ in range(2)]
    assert [server.wait(leader) for leader in leaders] == [0, 0]
    both = tiny_audit(tmp_path / "both")
    assert both.n_shadows == 20
    assert_same(both, undisturbed(source, tmp_path / "b", 20), atol=1e-4)
    assert not list((tmp_path / "both/.claims").rglob("*.lock"))


# Dask


@contextlib.contextmanager
def forking(distributed):
    """Let Dask fork its workers from a process that has loaded all they need, in seconds.

    It has loaded what `tests.audit.test_run_killed` needs too: a process has one such server.
    """
    import dask

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        forks = distributed.utils.get_mp_context()
        forks.set_forkserver_preload(["distributed", "tests.audit.warm"])
        yield


@pytest.fixture
def client():
    """Client of a cluster of two workers, which this test alone may kill."""
    distributed = pytest.importorskip("distributed")
    with (
        forking(distributed),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=None,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


class Cell:
    """Makes a model as a notebook cell does: nobody can import it."""

    @staticmethod
    def model():
        namespace = {"__name__": "__main__", "ConvNet": ConvNet}
        exec("class Mine(ConvNet):\n    version = 'mine'\n", namespace)
        return namespace["Mine"](4)


def jobs_kept():
    from memowidgets.training import worker as there

    return len(there._Kept.jobs)


@pytest.mark.slow
def test_dask_trains_a_notebooks_model_and_is_sent_the_data_once(client, tmp_path):
    audit = trained(tmp_path / "dask", model=Cell.model())
    here = trained(tmp_path / "here", model=Cell.model())
    audit.run_shadows(6, client.get_executor(), keep_forward=True)
    here.run_shadows(6, Inline())
    assert_same(audit, here, atol=1e-3)
    assert len(audit.as_target(3).score("psmi")) > 0
    assert set(client.run(jobs_kept).values()) == {1}


def given_weights(log):
    """A model with weights of its own, which notes in a file when these are packed and unpacked."""
    namespace = {"__name__": "__main__", "ConvNet": ConvNet}
    exec(
        """class Given(ConvNet):
    version = "given"

    def noted(self, what):
        with open(self.log, "a") as file:
            print(what, file=file)

    def __getstate__(self):
        self.noted("packed")
        return dict(vars(self))

    def __setstate__(self, state):
        vars(self).update(state)
        self.noted("unpacked")
""",
        namespace,
    )
    model = namespace["Given"](4)
    model.log = str(log)
    return model


def test_weights_are_packed_once_and_unpacked_once_by_each_dask_worker(client, tmp_path):
    audit = trained(tmp_path / "run", model=given_weights(tmp_path / "log"))
    (tmp_path / "log").unlink(missing_ok=True)
    audit.run_shadows(6, client.get_executor())
    assert sorted((tmp_path / "log").read_text().split()) == ["packed", "unpacked", "unpacked"]


def test_half_a_dask_cluster_dies_and_the_run_goes_on(client, audit, source, tmp_path):
    def kill_one():
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)

    audit.run_shadows(12, client.get_executor(), progress=after(2, kill_one))
    assert_same(audit, undisturbed(source, tmp_path / "b", 12), atol=1e-3)


def train_instead(make, *given):
    """Let a worker call what `make` returns of `given` and of its own function for training."""
    from memowidgets.training import worker as there

    there.train_shadow = make(there.train_shadow, *given)


def too_small(_really, flag):
    def train(job, index, progress):
        Path(flag).touch()
        raise MemoryError("the GPU's memory cannot hold this model")

    return train


def killed(_really):
    return lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def killed_at_its_second(really, flag):
    orders = []

    def train(job, index, progress):
        while not Path(flag).exists():
            time.sleep(0.01)
        orders.append(index)
        if len(orders) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return really(job, index, progress)

    return train


@pytest.fixture
def two_workers(client):
    """Client, and the addresses of two workers whose training can be changed."""
    return client, list(client.nthreads())


def left_out(told):
    return [str(one.message) for one in told if "trains no more" in str(one.message)]


def test_a_dask_worker_with_too_little_memory_is_left_out_and_the_call_ends_well(
    two_workers, audit, source, tmp_path
):
    client, (small, _) = two_workers
    pid = client.run(os.getpid, workers=[small])[small]
    client.run(train_instead, too_small, str(tmp_path / "flag"), workers=[small])
    with pytest.warns(UserWarning, match="cannot hold this model") as told:
        audit.run_shadows(6, client.get_executor())
    (said,) = left_out(told)
    assert f"process {pid} " in said
    assert_same(audit, undisturbed(source, tmp_path / "b", 6), atol=1e-3)


def test_a_model_for_which_every_dask_worker_is_too_small_is_an_error(two_workers, audit, tmp_path):
    client, _ = two_workers
    client.run(train_instead, too_small, str(tmp_path / "flag"))
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(MemoryError, match="cannot hold this model"),
    ):
        audit.run_shadows(6, client.get_executor())
    assert audit.n_shadows == 0


def test_orders_cancelled_while_their_results_are_fetched_are_not_waited_for(
    two_workers, audit, tmp_path, monkeypatch
):
    """Dask's own future of such an order is never done: what fetches its result has failed."""
    client, _ = two_workers
    client.run(train_instead, too_small, str(tmp_path / "flag"))
    fetch, fetching = client._gather, set()

    async def slowly(futures, **how):
        (order,) = futures
        index = int(order.key.split("-")[1])
        fetching.add(index)
        for _ in range(1000):
            if order.cancelled() or (index < 2 and len(fetching) == 4):
                break
            await asyncio.sleep(0.01)
        return await fetch(futures, **how)

    monkeypatch.setattr(client, "_gather", slowly)
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(MemoryError, match="cannot hold this model"),
    ):
        audit.run_shadows(4, client.get_executor())
    assert fetching == {0, 1, 2, 3}  # so the last two were cancelled in the middle of it


def test_an_order_that_the_dask_scheduler_forgot_is_given_again(two_workers, audit, monkeypatch):
    """Its client hears nothing of it, as when a connection was lost while it was on its way."""
    client, _ = two_workers
    give, given = client.submit, []

    def submit(*args, key, **how):
        if not key.startswith("train_shadow-1-"):
            return give(*args, key=key, **how)
        given.append(key)
        with monkeypatch.context() as patch:
            if len(given) == 1:
                patch.setattr(client, "_send_to_scheduler", lambda message: None)
            return give(*args, key=key, **how)

    monkeypatch.setattr(pools, "_PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr(client, "submit", submit)
    audit.run_shadows(3, client.get_executor())
    assert audit.n_shadows == 3
    assert len(given) == 2


def test_a_model_that_killed_a_dask_worker_too_often_is_trained_by_another(
    two_workers, audit, source, tmp_path, monkeypatch
):
    client, (weak, _) = two_workers
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    client.run(train_instead, killed, workers=[weak])
    with pytest.warns(UserWarning, match="trains no more") as told:
        audit.run_shadows(6, client.get_executor())
    assert [weak in said for said in left_out(told)] == [True]
    assert_same(audit, undisturbed(source, tmp_path / "b", 6), atol=1e-3)


def test_a_model_that_kills_two_dask_workers_is_not_sent_to_a_third(
    two_workers, audit, monkeypatch
):
    client, _ = two_workers
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    client.run(train_instead, killed)
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(StoreError, match=r"killed .*0 finished shadow models are kept"),
    ):
        audit.run_shadows(1, client.get_executor())


def test_orders_for_a_dask_worker_that_starts_again_elsewhere_are_given_again(
    two_workers, audit, source, tmp_path
):
    """Its nanny gives it another address, which the orders do not name."""
    client, (small, other) = two_workers
    flag = str(tmp_path / "flag")
    client.run(train_instead, too_small, flag, workers=[small])
    client.run(train_instead, killed_at_its_second, flag, workers=[other])
    with pytest.warns(UserWarning, match="trains no more"):
        audit.run_shadows(6, client.get_executor())
    assert_same(audit, undisturbed(source, tmp_path / "b", 6), atol=1e-3)
    assert other not in client.nthreads()


def pretend(library, version):
    from memowidgets.training import worker as there

    there.library_versions()[library] = version


@pytest.mark.parametrize("library", ["torch", "memowidgets' code"])
def test_a_dask_worker_with_other_code_is_left_out(two_workers, audit, source, tmp_path, library):
    client, (other, _) = two_workers
    client.run(pretend, library, "0.1", workers=[other])
    with pytest.warns(UserWarning, match=f"{library} 0.1 instead of") as told:
        audit.run_shadows(6, client.get_executor())
    assert len(left_out(told)) == 1
    assert_same(audit, undisturbed(source, tmp_path / "b", 6), atol=1e-3)
    client.run(pretend, library, "0.1")
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(StoreError, match=r"0\.1 instead of .*6 finished shadow models"),
    ):
        audit.run_shadows(8, client.get_executor())


def test_a_dask_client_that_is_closed_is_named(audit):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address="127.0.0.1:0"
    )
    other = distributed.Client(cluster)
    executor = other.get_executor()
    other.close()
    cluster.close()
    with pytest.raises(StoreError, match=r"client is closed.* 0 finished"):
        audit.run_shadows(3, executor)


def test_times_are_spoken():
    assert [cost.spoken(s) for s in (5.2, 300, 7300)] == ["5 s", "5 min", "2.0 h"]
