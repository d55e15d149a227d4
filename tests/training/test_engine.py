"""Shadow models by threads, local processes, Dask, and in the face of accidents."""

from __future__ import annotations

import contextlib
import errno
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
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
from tests.training.small import Dying, Inline, assert_same, tiny_audit, trained

pytestmark = pytest.mark.own_processes


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


# Any executor


def test_any_executor_gives_the_same_shadow_models(audit, straight):
    with ThreadPoolExecutor(2) as threads:
        audit.run_shadows(4, threads)
    assert_same(audit, straight, 1e-4, 4)
    assert worker._Kept.job is None  # the samples are free again


def test_an_executor_that_dies_is_named_and_what_was_computed_stays(audit, straight):
    with pytest.raises(
        StoreError, match=r"workers ended .*the queue was closed.*2 finished"
    ):
        audit.run_shadows(5, Dying(2))
    assert audit.n_shadows == 2
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        audit.run_shadows(5, closed)
    audit.run_shadows(5, Inline())
    assert_same(audit, straight, 1e-4, 5)


class Uncancelled(Inline):
    """Futures that can't be cancelled, as Parsl's, of which some are never done."""

    class Future(Future):
        def cancel(self):
            raise NotImplementedError("Cancel not implemented")

    def submit(self, fn, /, *order):
        future = self.Future()
        if order[0] < 2:
            future.set_result(fn(*order))
        return future


def test_futures_that_cannot_be_cancelled_are_not_waited_for(audit):
    progress = Progress(lambda step: progress.cancel() if step.done >= 2 else None)
    with pytest.raises(Cancelled):
        audit.run_shadows(9, Uncancelled(), progress=progress)
    assert audit.n_shadows == 2


@pytest.mark.parametrize(
    ("how", "error", "fact"),
    [
        (
            {"executor": SimpleNamespace(submit=None)},
            TypeError,
            "Executor.*SimpleNamespace",
        ),
        (
            {
                "executor": ProcessPoolExecutor(
                    1, mp_context=multiprocessing.get_context("fork")
                )
            },
            ValueError,
            "fork.*spawn",
        ),
        ({"executor": Inline(), "processes": 2}, ValueError, "processes.*executor"),
    ],
)
def test_what_cannot_train_is_refused(audit, how, error, fact):
    with pytest.raises(error, match=fact):
        audit.run_shadows(2, **how)
    assert audit.n_shadows == 0


class Elsewhere(Inline):
    """An executor by name only: its jobs are not futures, as submitit's."""

    def submit(self, fn, /, *args, **kwargs):
        return SimpleNamespace(result=lambda: fn(*args, **kwargs))


def on_the_page(beginning):
    """The Python of docs/cluster.md that begins so."""
    page = (ROOT / "docs/cluster.md").read_text("utf-8")
    (code,) = [c for c in page.split("```python\n")[1:] if c.startswith(beginning)]
    return code.split("```")[0]


def test_the_adapter_on_the_page_trains(audit, straight):
    names = {}
    exec(on_the_page("from concurrent.futures import"), names)
    audit.run_shadows(4, names["Submitted"](Elsewhere(), jobs=2))
    assert_same(audit, straight, 1e-4, 4)


def test_the_array_job_on_the_page_trains_each_part_once(tmp_path, monkeypatch):
    """A job that trains, and one for each part, as Slurm starts them."""
    monkeypatch.chdir(tmp_path)
    script = on_the_page("import os").replace("N, PARTS = 128, 16", "N, PARTS = 5, 2")
    for there, here in (
        ("mw.data.load_digits()", "mw.data.load_digits().take(range(120))"),
        ("processes=1", "executor=here"),  # a worker process takes seconds to start
    ):
        assert there in script
        script = script.replace(there, here)
    trained_by_now = []
    for part in (None, "0", "1"):
        if part is not None:
            monkeypatch.setenv("SLURM_ARRAY_TASK_ID", part)
        found = {"here": Inline()}
        exec(script, found)
        trained_by_now.append(found["audit"].run.shadows.indices())
    assert trained_by_now == [[], [0, 2, 4], [0, 1, 2, 3, 4]]


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
        audit = mw.Audit(
            model, data, tmp_path / name, training, device="cpu", held_out=None
        )
        audit.train()
        with ThreadPoolExecutor(n) as threads:
            audit.run_shadows(6, threads, keep_forward="all")
        made.append([audit.as_target(i).score("psmi", layer=1) for i in range(6)])
    for one, other in zip(*made, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_what_others_have_begun_is_kept_where_one_fails(audit, straight, monkeypatch):
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
    assert_same(audit, straight, 1e-4, 2)


# Disks, and other processes


def after(n, action):
    """A progress that does something once n shadow models are there."""
    done = []

    def listen(step):
        if step.what == "training shadow models" and step.done >= n and not done:
            done.append(True)
            action()

    return Progress(listen)


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "disk is full"), (errno.EROFS, "system is read-only")],
)
def test_a_disk_that_fails_half_way_keeps_what_was_finished(
    audit, straight, monkeypatch, number, said
):
    """The writes fail with the error that a disk gives."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    def write(self, index, *content, real=ShadowSet.write):
        if index == 3:
            monkeypatch.setattr(Path, "replace", refuse)
        real(self, index, *content)

    monkeypatch.setattr(ShadowSet, "write", write)
    with ThreadPoolExecutor(1) as thread, pytest.raises(StoreError, match=said):
        audit.run_shadows(12, thread)
    monkeypatch.undo()
    assert audit.n_shadows == 3
    audit.run_shadows(12, Inline())
    assert_same(audit, straight, 1e-4, 12)


def train_part(path, indices):
    """What one process of an array does."""
    tiny_audit(path).run_shadows(12, Inline(), progress=Progress(), indices=indices)


def test_two_processes_with_parts_of_their_own_fill_one_directory(
    source, straight, tmp_path
):
    shutil.copytree(source, tmp_path / "both")
    both = [
        forked(train_part, tmp_path / "both", range(part, 12, 2)) for part in range(2)
    ]
    for process in both:
        process.join(300)
        assert process.exitcode == 0
    assert_same(tiny_audit(tmp_path / "both"), straight, 1e-4, 12)


def test_a_second_process_without_a_part_is_refused_and_the_first_goes_on(
    audit, straight
):
    said = []

    def call_again():
        for how in ({}, {"indices": [5]}):
            try:
                tiny_audit(audit.path).run_shadows(
                    6, Inline(), progress=Progress(), **how
                )
            except StoreError as error:
                said.append(str(error))

    with ThreadPoolExecutor(1) as thread:
        audit.run_shadows(6, thread, progress=after(1, call_again))
    assert len(said) == 1
    assert "another process is working on the shadow-models-halves" in said[0]
    assert_same(audit, straight, 1e-4, 6)


# Dask


@contextlib.contextmanager
def client_of(n_workers):
    """Client of a cluster on this machine, whose workers are forked in seconds.

    They are forked from a process that has loaded all they need, and what
    `tests.audit.test_run_killed` needs too: a process has one such server.
    """
    distributed = pytest.importorskip("distributed")
    import dask

    place = {
        "host": "127.0.0.1",
        "dashboard_address": "127.0.0.1:0",
        "memory_limit": None,
    }
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        forks = distributed.utils.get_mp_context()
        forks.set_forkserver_preload(["distributed", "tests.audit.warm"])
        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, **place
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def cluster():
    """Client of a cluster of two workers; who is killed there is started again."""
    with client_of(2) as client:
        yield client


@pytest.fixture
def client(cluster):
    """The same, whose two workers are as they were when they were started."""
    end = time.monotonic() + 300
    while len(cluster.run(as_it_was, on_error="ignore")) < 2:
        assert time.monotonic() < end, "a worker was not started again"
        time.sleep(0.05)
    return cluster


def as_it_was():
    """Undo in a worker what a test has changed, and say that it is there."""
    from memowidgets.training import worker as there

    there.real = getattr(there, "real", (there.train_shadow, there.versions))
    there.train_shadow, there.versions = there.real
    return True


def train_instead(make, *given):
    """Let a worker call what `make` returns of `given` and of its own function for training."""
    from memowidgets.training import worker as there

    there.train_shadow = make(there.real[0], *given)


def refuse_to_open(folder):
    """Let a worker open nothing in a folder, as if it were on another machine."""

    def refuse(event, args):
        if event == "open" and isinstance(args[0], str) and args[0].startswith(folder):
            raise FileNotFoundError(2, "on another machine", args[0])

    sys.addaudithook(refuse)


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


def test_a_notebooks_model_is_packed_once_and_unpacked_once_by_each_dask_worker(
    client, tmp_path
):
    audit = trained(tmp_path / "run", model=cell_model(tmp_path / "log"))
    here = trained(tmp_path / "here", model=cell_model(tmp_path / "other"))
    (tmp_path / "log").unlink(missing_ok=True)
    client.run(refuse_to_open, str(tmp_path / "run"))
    audit.run_shadows(6, client.get_executor(), keep_forward=True)
    assert sorted((tmp_path / "log").read_text().split()) == [
        "packed",
        "unpacked",
        "unpacked",
    ]
    here.run_shadows(6, Inline())
    assert_same(audit, here, atol=1e-3)
    assert len(audit.as_target(3).score("psmi")) > 0


def test_a_script_trains_its_models_on_dask_workers(client, tmp_path):
    from tests.training.test_script import Softmax, begun

    audit = begun(tmp_path / "dask", Softmax())
    audit.train()
    client.run(refuse_to_open, str(tmp_path / "dask"))
    audit.run_shadows(4, client.get_executor(), design="balanced")
    here = begun(tmp_path / "here", Softmax())
    here.train()
    here.run_shadows(4, Inline(), design="balanced")
    last = audit.checkpoints.index[-1]
    found = [one.evidence.shadows.read(last) for one in (audit, here)]
    np.testing.assert_array_equal(found[0].members, found[1].members)
    np.testing.assert_allclose(found[0].gaps, found[1].gaps, rtol=1e-4, atol=1e-5)


def test_a_dask_worker_that_is_killed_loses_nothing(client, audit, straight):
    def kill_one():
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)

    audit.run_shadows(12, client.get_executor(), progress=after(2, kill_one))
    assert_same(audit, straight, 1e-3, 12)


def killed_at(real, index):
    def train(job, i, progress):
        if i == index:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(job, i, progress)

    return train


def test_a_model_that_kills_its_dask_workers_is_a_sentence_and_calling_again_goes_on(
    client, audit, straight, monkeypatch
):
    monkeypatch.setattr(client.cluster.scheduler, "allowed_failures", 0)
    client.run(train_instead, killed_at, 3)
    with pytest.raises(
        StoreError, match=r"workers died.*finished shadow models are kept; call"
    ):
        audit.run_shadows(6, client.get_executor())
    finished = audit.n_shadows
    while len(client.run(as_it_was, on_error="ignore")) < 2:
        time.sleep(0.05)
    seen = []
    note = Progress(lambda step: seen.append(step.done))
    audit.run_shadows(6, client.get_executor(), progress=note)
    assert seen[0] == finished
    assert_same(audit, straight, 1e-3, 6)


def test_cancel_ends_the_waiting_for_dask_workers(client, audit):
    client.run(train_instead, waits_for, str(Path(audit.path) / "never"))
    reports = itertools.count()
    progress = Progress(lambda _: progress.cancel() if next(reports) else None)
    with pytest.raises(Cancelled):
        audit.run_shadows(6, client.get_executor(), progress=progress)
    (Path(audit.path) / "never").touch()
    assert audit.n_shadows == 0


def waits_for(real, flag):
    def train(job, index, progress):
        while not Path(flag).exists():
            time.sleep(0.01)
        return real(job, index, progress)

    return train


@pytest.mark.parametrize("closed_at", [0, 2])
def test_a_dask_client_that_is_closed_is_named(client, audit, closed_at):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        executor = other.get_executor()
        if not closed_at:
            other.close()
        with pytest.raises(
            StoreError, match=r"workers ended .* finished .* call run_shadows"
        ):
            audit.run_shadows(
                40, executor, progress=after(closed_at or 99, other.close)
            )
    assert closed_at <= audit.n_shadows < 40


def test_a_cluster_that_adapts_to_its_work_grows_from_nothing(audit, straight):
    most = []
    with client_of(0) as client:
        client.cluster.adapt(
            minimum=0, maximum=2, interval="100 ms", target_duration="10 ms"
        )
        note = Progress(lambda _: most.append(len(client.cluster.scheduler.workers)))
        audit.run_shadows(20, client.get_executor(), progress=note)
    assert most[0] == 0
    assert max(most) == 2
    assert_same(audit, straight, 1e-3, 20)
