"""Shadow models on other people's executors, a real Dask cluster, and in the face of accidents."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import multiprocessing
import os
import shutil
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.models import ConvNet
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from memowidgets.training import worker
from memowidgets.training.shadows import ShadowSet
from tests.accelerator import recipes
from tests.audit.test_run_killed import forked
from tests.training.small import Inline, assert_same, contents, tiny_audit, trained

pytestmark = pytest.mark.worker_processes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def straight(source, tmp_path_factory):
    """The run with the shadow models that one thread trains one after the other."""
    path = tmp_path_factory.mktemp("straight") / "run"
    shutil.copytree(source, path)
    audit = tiny_audit(path)
    with ThreadPoolExecutor(1) as executor:
        audit.run_shadows(20, executor)
    return audit


def assert_first(audit, straight, n, atol=1e-4):
    """Compare all shadow models of an audit, which are n, with the first of the other's."""
    (members, gaps), (other_members, other_gaps) = contents(audit), contents(straight)
    assert len(members) == n
    np.testing.assert_array_equal(members, other_members[:n])
    np.testing.assert_allclose(gaps, other_gaps[:n], atol=atol, rtol=0)


# Executors of other people


class Counting(Inline):
    """Counts the orders that carry the job, before each of which it may be a new worker."""

    def __init__(self, *, forgets):
        self.sent, self.forgets = 0, forgets

    def work(self, fn, order, payload):
        if self.forgets and payload is None:
            worker._Kept.jobs.clear()
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


def test_any_executor_gives_the_same_shadow_models(audit, straight):
    audit.run_shadows(4, Inline())
    assert_first(audit, straight, 4)


def test_a_worker_is_sent_the_job_when_it_lacks_it(audit):
    worker._Kept.jobs.clear()
    for forgets, sent in ((False, 1), (True, 4)):
        executor = Counting(forgets=forgets)
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


class Slow(ThreadPoolExecutor):
    """Takes a second for a model, so that progress is reported meanwhile."""

    def submit(self, fn, /, *args, **kwargs):
        def slowly():
            time.sleep(1)
            return fn(*args, **kwargs)

        return super().submit(slowly)


def test_progress_says_the_time_left_after_the_first_model(audit):
    """It is that of the models trained so far, also of an earlier call."""
    said = {}

    def note(step):
        if "in hand" in step.detail:
            said.setdefault(step.done, step.detail)

    for n in (2, 3):
        with Slow(1) as executor:
            audit.run_shadows(n, executor, progress=Progress(note))
    assert said[0] == "1 in hand"
    assert all(said[done].endswith(" left") for done in (1, 2))


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


def test_the_adapter_on_the_page_trains(audit, straight):
    names = {}
    exec(on_the_page("from concurrent.futures import"), names)
    audit.run_shadows(4, names["Submitted"](Elsewhere(), jobs=2))
    assert_first(audit, straight, 4)


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
    audit, straight, monkeypatch
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
    assert_first(audit, straight, 2)


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


@pytest.mark.parametrize("library", ["numpy", "transformers"])
def test_a_worker_with_another_library_is_warned_of_once(audit, monkeypatch, library):
    here = worker.library_versions()
    if library == "transformers":
        pytest.importorskip(library, reason="no transformers: pip install 'memowidgets[llm]'")
        assert {"transformers", "peft", "tokenizers"} <= here.keys()
    monkeypatch.setattr(worker, "library_versions", lambda: here | {library: "0.9"})
    with pytest.warns(UserWarning, match=rf"has {library} 0\.9 instead of") as seen:
        audit.run_shadows(3, Inline())
    assert len(seen) == 1
    without = {name: version for name, version in here.items() if name != "peft"}
    monkeypatch.setattr(worker, "library_versions", lambda: without)
    audit.run_shadows(4, Inline())  # what this model has no use for may be missing
    assert audit.n_shadows == 4


# Clocks and disks


def after(n, action):
    """A progress that does something once n shadow models are there."""
    done = []

    def listen(step):
        if step.what == "training shadow models" and step.done >= n and not done:
            done.append(True)
            action()

    return Progress(listen)


@pytest.mark.parametrize(
    ("number", "said"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "system is read-only")]
)
def test_a_disk_that_fails_half_way_keeps_what_was_finished(
    audit, straight, monkeypatch, number, said
):
    """The writes fail with the error that a disk gives."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    fails = after(3, lambda: monkeypatch.setattr(os, "fsync", refuse))
    with pytest.raises(StoreError, match=said):
        audit.run_shadows(8, Inline(), progress=fails)
    monkeypatch.undo()
    assert audit.n_shadows == 3
    audit.run_shadows(5, Inline())
    assert_first(audit, straight, 5)


def fill(path, n):
    """What one of two processes does."""
    tiny_audit(path).run_shadows(n, processes=2, progress=Progress())


@pytest.mark.slow
def test_two_processes_fill_one_directory(source, straight, tmp_path):
    shutil.copytree(source, tmp_path / "both")
    for process in [forked(fill, tmp_path / "both", 20) for _ in range(2)]:
        process.join(300)
        assert process.exitcode == 0
    assert_first(tiny_audit(tmp_path / "both"), straight, 20)
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


@pytest.fixture(scope="module")
def cluster():
    """Client of a cluster of two workers; who is killed there is started again."""
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
        yield client


@pytest.fixture
def client(cluster):
    """The same, whose two workers are as they were when they were started."""
    end = time.monotonic() + 60
    while len(cluster.run(as_it_was, on_error="ignore")) < 2:
        assert time.monotonic() < end, "a worker was not started again"
        time.sleep(0.05)
    return cluster


@pytest.fixture
def two_workers(client):
    """Client, and the addresses of two workers whose training can be changed."""
    return client, list(client.nthreads())


def as_it_was():
    """Let a worker forget its jobs and what a test has changed, and say that it is there."""
    from memowidgets.training import worker as there

    there.train_shadow = there.really = getattr(there, "really", there.train_shadow)
    there.library_versions.cache_clear()
    there._Kept.jobs.clear()
    return True


def train_instead(make, *given):
    """Let a worker call what `make` returns of `given` and of its own function for training."""
    from memowidgets.training import worker as there

    there.train_shadow = make(there.really, *given)


def cell_model(log):
    """A model of a notebook cell, which nobody can import.

    It has weights of its own, and notes in a file when these are packed and unpacked.
    """
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


def test_a_notebooks_model_is_packed_once_and_unpacked_once_by_each_dask_worker(client, tmp_path):
    audit = trained(tmp_path / "run", model=cell_model(tmp_path / "log"))
    here = trained(tmp_path / "here", model=cell_model(tmp_path / "other"))
    (tmp_path / "log").unlink(missing_ok=True)
    audit.run_shadows(6, client.get_executor(), keep_forward=True)
    assert sorted((tmp_path / "log").read_text().split()) == ["packed", "unpacked", "unpacked"]
    here.run_shadows(6, Inline())
    assert_same(audit, here, atol=1e-3)
    assert len(audit.as_target(3).score("psmi")) > 0


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


def left_out(told):
    return [str(one.message) for one in told if "trains no more" in str(one.message)]


def test_a_dask_worker_with_too_little_memory_is_left_out_and_the_call_ends_well(
    two_workers, audit, straight, tmp_path
):
    client, (small, _) = two_workers
    pid = client.run(os.getpid, workers=[small])[small]
    client.run(train_instead, too_small, str(tmp_path / "flag"), workers=[small])
    with pytest.warns(UserWarning, match="cannot hold this model") as told:
        audit.run_shadows(6, client.get_executor())
    (said,) = left_out(told)
    assert f"process {pid} " in said
    assert_first(audit, straight, 6, atol=1e-3)


def test_where_every_dask_worker_is_too_small_orders_in_transit_are_not_waited_for(
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
    assert audit.n_shadows == 0
    assert fetching == {0, 1, 2, 3}  # so the last two were cancelled in the middle of it


def pretend(library, version):
    from memowidgets.training import worker as there

    there.library_versions()[library] = version


def test_a_dask_worker_with_other_code_is_left_out(two_workers, audit, straight):
    client, (other, _) = two_workers
    client.run(pretend, "memowidgets' code", "0.1", workers=[other])
    with pytest.warns(UserWarning, match="memowidgets' code 0.1 instead of") as told:
        audit.run_shadows(6, client.get_executor())
    assert len(left_out(told)) == 1
    assert_first(audit, straight, 6, atol=1e-3)
    client.run(pretend, "memowidgets' code", "0.1")
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(StoreError, match=r"0\.1 instead of .*6 finished shadow models"),
    ):
        audit.run_shadows(8, client.get_executor())


def test_half_a_dask_cluster_dies_and_the_run_goes_on(client, audit, straight):
    def kill_one():
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)

    audit.run_shadows(12, client.get_executor(), progress=after(2, kill_one))
    assert_first(audit, straight, 12, atol=1e-3)


def test_a_model_that_killed_a_dask_worker_is_trained_by_another_and_never_by_a_third(
    two_workers, audit, straight, monkeypatch
):
    client, (weak, _) = two_workers
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    client.run(train_instead, killed, workers=[weak])
    with pytest.warns(UserWarning, match="trains no more") as told:
        audit.run_shadows(6, client.get_executor())
    assert [weak in said for said in left_out(told)] == [True]
    assert_first(audit, straight, 6, atol=1e-3)
    while len(client.run(as_it_was, on_error="ignore")) < 2:
        time.sleep(0.05)
    client.run(train_instead, killed)
    with (
        pytest.warns(UserWarning, match="trains no more"),
        pytest.raises(StoreError, match=r"killed .*6 finished shadow models are kept"),
    ):
        audit.run_shadows(7, client.get_executor())


def test_orders_for_a_dask_worker_that_starts_again_elsewhere_are_given_again(
    two_workers, audit, straight, tmp_path
):
    """Its nanny gives it another address, which the orders do not name."""
    client, (small, other) = two_workers
    flag = str(tmp_path / "flag")
    client.run(train_instead, too_small, flag, workers=[small])
    client.run(train_instead, killed_at_its_second, flag, workers=[other])
    with pytest.warns(UserWarning, match="trains no more"):
        audit.run_shadows(6, client.get_executor())
    assert_first(audit, straight, 6, atol=1e-3)
    assert other not in client.nthreads()


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
