"""`audit.estimate`: what it counts, what it reads, and that it changes nothing."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import memowidgets as mw
from memowidgets import store
from memowidgets.audit.runs import estimate
from memowidgets.files import UNFINISHED
from memowidgets.progress import Progress
from memowidgets.store import StoreError
from memowidgets.training import cost
from memowidgets.training.cost import Timing, slowest, take_times
from memowidgets.training.pools import Pool
from tests.training.small import Inline, tiny_audit

TRAINING = mw.TrainingConfig(epochs=2, batch_size=16, precision="float32")
BUILD, STEP, SAMPLE, START, SAVE, OPENING, CLOSING = 1.0, 0.5, 0.01, 20.0, 0.2, 25.0, 2.0
LOOK = 0.03
WITH_WORKERS = estimate._timed


@pytest.fixture(autouse=True)
def timed(monkeypatch):
    """Time in this process, because worker processes take seconds to start."""
    asked = []

    def here(work, run):
        found = take_times(work.job, Progress(), None if run is None else run.run)
        asked.append((work.processes, found.save))
        found = replace(
            found, build=BUILD, step=STEP, sample=SAMPLE, start=START, save=SAVE, look=LOOK
        )
        return estimate._Timings(found, found, OPENING, CLOSING)

    monkeypatch.setattr(estimate, "_timed", here)
    return asked


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A run with a trained target. Tests copy it."""
    path = tmp_path_factory.mktemp("estimate") / "run"
    audit_at(path).train()
    return path


@pytest.fixture
def audit(path, tmp_path):
    shutil.copytree(path, tmp_path / "run")
    return audit_at(tmp_path / "run")


def audit_at(path, **changes) -> mw.Audit:
    return tiny_audit(path, training=TRAINING, **changes)


def files(path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(path)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            file.stat().st_mtime_ns,
        )
        for file in Path(path).rglob("*")
        if file.is_file()
    }


def megabytes(path) -> float:
    return sum(Path(path, name).stat().st_size for name in files(path)) / 1e6


# What it counts


def test_seconds_scale_with_models_and_processes(audit):
    one, more = (audit.estimate(n, processes=1).loc["shadow models"] for n in (10, 40))
    two = audit.estimate(40, processes=2).loc["shadow models"]
    assert (one["models"], more["models"], two["processes"]) == (10, 40, 2)
    each = (more["seconds"] - one["seconds"]) / 30
    own = int(audit.run.design.shadow_members(0, 0).sum())
    checkpoints = len({audit.prediction.record.name, "epoch-2"})
    asked = len(audit.evidence.pool) * checkpoints
    assert each == pytest.approx(
        BUILD + 2 * -(-own // 16) * STEP + checkpoints * LOOK + asked * SAMPLE
    )
    assert two["seconds"] == pytest.approx(more["seconds"] - 20 * each)
    a_pass = BUILD + LOOK + len(audit.members) * SAMPLE
    passes = checkpoints * a_pass  # of the target, by log-LiRA
    assert one["seconds"] == pytest.approx(OPENING + 10 * each + CLOSING + passes)
    assert two["memory_mb"] == pytest.approx(2 * more["memory_mb"], rel=0.2)
    assert more["memory_mb"] > 0
    assert set(audit.estimate(10).drop(index="on disk")["basis"]) == {
        "nothing is left to train",
        "timed steps",
    }


@pytest.mark.parametrize("held_out", [None, 0.25])
def test_a_target_is_estimated_until_it_is_trained(tmp_path, audit, held_out):
    """A pass over held-out samples counts as one more."""
    new = audit_at(tmp_path / "new", held_out=held_out)
    members, aside = len(new.members), len(new.run.held_out)
    assert (aside > 0) == (held_out is not None)
    passes = (1 + (aside > 0)) * LOOK + (members + aside) * SAMPLE
    said = new.estimate(4).loc["target", "seconds"]
    assert said == pytest.approx(BUILD + 2 * -(-members // 16) * STEP + 3 * (passes + SAVE))
    assert audit.estimate(4).loc["target", ["models", "seconds", "disk_mb"]].tolist() == [0, 0, 0]


def test_models_of_an_untrained_target_are_an_upper_limit(tmp_path, audit):
    """Its prediction checkpoint may be its last, which takes one pass instead of two."""
    before, after = (one.estimate(4, 3) for one in (audit_at(tmp_path / "new"), audit))
    for work in ("shadow models", "reference models"):
        assert "at most" in before.loc[work, "basis"]
        assert after.loc[work, "basis"] == "timed steps"
    assert before.loc["reference models", "models"] == 3
    once = mw.TrainingConfig(epochs=1, batch_size=16, checkpoint_every=1, precision="float32")
    one = tiny_audit(tmp_path / "one", training=once).estimate(4)
    assert "at most" not in one.loc["shadow models", "basis"], "there is one checkpoint"


def test_a_target_on_the_whole_pool_says_why_it_has_no_shadow_models(tmp_path):
    said = audit_at(tmp_path / "all", members="all").estimate(4)
    assert said.loc["shadow models", ["models", "seconds"]].tolist() == [0, 0]
    assert 'members="half"' in said.loc["shadow models", "basis"]
    assert said.loc["reference models", "models"] == 2


def test_recorded_seconds_are_used(audit):
    audit.run_shadows(2, Inline())
    for index, seconds in enumerate((30.0, 50.0)):
        name = f"shadows/{index:04d}"
        kept = audit.run.run.read_tensors(name)
        arrays = {key: np.array(kept[key]) for key in kept}
        notes = {key: value for key, value in kept.metadata.items() if key != "memowidgets"}
        audit.run.run.write_tensors(name, arrays, {**notes, "seconds": str(seconds)})
    row = audit_at(audit.path).estimate(12, processes=2).loc["shadow models"]
    assert (row["models"], row["basis"]) == (10, "2 recorded")
    assert row["seconds"] == pytest.approx(START + 5 * 40 + CLOSING)


def test_nothing_is_timed_where_nothing_is_left(audit, timed):
    audit.run_shadows(4, Inline())
    audit.run_references(1, Inline())
    audit.score("psmi", checkpoint="final")
    assert audit.estimate(4)["seconds"].sum() == 0
    assert not timed


# Compared with what then happens


def test_disk_is_what_then_happens(tmp_path):
    audit = audit_at(tmp_path / "run")
    sizes = [megabytes(audit.path)]
    target = audit.estimate(6).loc["target", "disk_mb"]
    audit.train()
    sizes.append(megabytes(audit.path))
    rest = audit.estimate(6)["disk_mb"]
    audit.run_shadows(6, Inline())
    sizes.append(megabytes(audit.path))
    audit.run_references(1, Inline())
    sizes.append(megabytes(audit.path))
    said = [target, rest["shadow models"], rest["reference models"]]
    np.testing.assert_allclose(said, np.diff(sizes), rtol=0.25)


def test_the_disk_of_a_kept_forward_pass(audit):
    audit.run_shadows(2, Inline(), keep_forward=True)
    before = megabytes(audit.path)
    said = audit.estimate(4).loc["shadow models", "disk_mb"]  # as those that are there
    audit.run_shadows(4, Inline())
    assert said == pytest.approx(megabytes(audit.path) - before, rel=0.25)


# What it leaves as it was


@pytest.mark.parametrize("trained", [True, False])
def test_nothing_changes(audit, tmp_path, trained):
    chosen = audit if trained else audit_at(tmp_path / "new")
    before, threads = files(chosen.path), torch.get_num_threads()
    wanted = draws_after_seed(lambda: None)
    assert draws_after_seed(lambda: chosen.estimate(4)) == wanted
    assert files(chosen.path) == before
    assert torch.get_num_threads() == threads


def draws_after_seed(work) -> list[float]:
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)
    work()
    return [float(torch.rand(1)), float(np.random.rand()), random.random()]


def test_the_shadow_models_are_the_same_with_and_without(audit, tmp_path):
    shutil.copytree(audit.path, tmp_path / "copy")
    other = audit_at(tmp_path / "copy")
    audit.estimate(2)
    for one in (audit, other):
        one.run_shadows(2, Inline())
    gaps = [one.evidence.shadows.read("epoch-2").gaps for one in (audit, other)]
    np.testing.assert_array_equal(*gaps)


def test_the_target_is_timed_here_and_workers_from_their_opening_to_their_end(
    audit, tmp_path, monkeypatch
):
    """Or the first training in this process would take what it imports longer than was said."""
    now, built = [100.0], []
    learner = cost.Learner

    def noted(*args, **options):
        built.append(now[0])
        return learner(*args, **options)

    @contextmanager
    def opened(job, _executor, processes):
        yield Opened(job, processes)
        now[0] += 4.0

    class Opened:
        def __init__(self, job, processes):
            self.job, self.processes = job, processes

        def timed(self):
            now[0] += 30.0
            return [
                Inline().submit(take_times, self.job, Progress()) for _ in range(self.processes)
            ]

    monkeypatch.setattr(estimate, "opened", opened)
    monkeypatch.setattr(estimate, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(cost, "Learner", noted)
    work = estimate._shadows(audit.run, 4, 2)
    found = WITH_WORKERS(work, audit.run)
    assert (found.opening, found.closing) == (30.0, 4.0)
    assert built[:2] == [100.0, 100.0]
    assert found.target.save > found.shadow.save == 0


def test_where_nothing_can_be_written_the_rest_is_timed(audit, monkeypatch):
    job = estimate._shadows(audit.run, 4, 1).job
    before = files(audit.path)

    def full(_target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.directory, "replaced", full)
    found = take_times(job, Progress(), audit.run.run)
    assert found.save == 0 < found.step
    assert files(audit.path) == before


def test_only_a_part_of_a_large_checkpoint_is_written(audit, monkeypatch):
    job = estimate._shadows(audit.run, 4, 1).job
    written = []
    real = store.RunDirectory.write_tensors

    def noted(self, name, tensors, *args):
        written.append(sum(array.nbytes for array in tensors.values()))
        real(self, name, tensors, *args)

    monkeypatch.setattr(store.RunDirectory, "write_tensors", noted)
    take_times(job, Progress(), audit.run.run)
    whole = max(written)
    monkeypatch.setattr(cost, "_MOST_WRITTEN", 100)
    written.clear()
    assert take_times(job, Progress(), audit.run.run).save > 0
    assert 100 < max(written) < whole / 2


def test_a_checkpoint_is_timed_by_writing_all_that_a_training_writes(audit, monkeypatch):
    """A second file, or the deletion of an older state, is not left out of the estimate."""
    work = []

    def noted(name):
        real = getattr(store.RunDirectory, name)

        def called(self, *args):
            work.append((name, str(args[0]).rpartition("/")[2]))
            return real(self, *args)

        monkeypatch.setattr(store.RunDirectory, name, called)

    for name in ("write_tensors", "write_weights", "write_note", "forget"):
        noted(name)
    job = estimate._shadows(audit.run, 4, 1).job
    take_times(job, Progress(), audit.run.run)
    timed = {what for what in work if not what[1].startswith("epoch")}
    work.clear()
    audit_at(f"{audit.path}-new").train()
    trained = {what for what in work if what[1] in {"record.json", "outputs", "resume", "weights"}}
    assert trained
    assert timed == trained


def test_what_a_killed_estimate_left_is_removed(audit):
    folder = Path(audit.path) / f"{UNFINISHED}0"
    folder.mkdir()
    (folder / "weights.safetensors").touch()
    os.utime(folder, (0, 0))
    with audit.run.run.lock("checkpoints"):
        assert not folder.exists()


class Passing:
    """A learner whose passes take a known time on a clock of its own."""

    recipe = SimpleNamespace(model=SimpleNamespace(forward_batch=16))

    def __init__(self, seconds, disturbed=()):
        self.now, self.seconds, self.disturbed, self.calls = 0.0, seconds, disturbed, 0

    def look_at(self, positions, **_):
        self.calls += 1
        self.now += self.seconds(len(positions)) + 0.2 * (self.calls in self.disturbed)
        return SimpleNamespace(logits=np.zeros((1, 3)), layers={"1": np.zeros((1, 2, 4))})


@pytest.mark.parametrize(
    ("start", "each", "disturbed"),
    [(5.0, 0.25, ()), (0.005, 0.00025, (2,)), (0.005, 0.00025, (3, 4))],
)
def test_a_pass_has_a_part_for_each_sample_and_one_that_it_takes_anyway(
    monkeypatch, start, each, disturbed
):
    learner = Passing(lambda n: start + each * n, disturbed)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: learner.now)
    found = cost._look(learner, np.arange(300), Progress())
    assert found == (pytest.approx(start), pytest.approx(each), 3, {"1": 8})
    one = cost._look(learner, np.arange(1), Progress())[:2]
    assert one == (0.0, pytest.approx(start + each))


def test_a_sample_takes_time_where_a_pass_of_many_was_the_quicker_one(monkeypatch):
    learner = Passing(lambda n: 0.002 if n > 1 else 0.003)
    monkeypatch.setattr(cost.time, "perf_counter", lambda: learner.now)
    look, sample, _, _ = cost._look(learner, np.arange(10), Progress())
    assert look + 10 * sample == pytest.approx(0.003 - sample + 0.002)
    assert sample == pytest.approx(0.0002)


@pytest.mark.slow
def test_two_worker_processes_time_steps_and_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_timed", WITH_WORKERS)
    audit = audit_at(tmp_path / "run")
    before = files(audit.path)
    wanted = draws_after_seed(lambda: None)
    said = None

    def work():
        nonlocal said
        said = audit.estimate(4, processes=2)

    assert draws_after_seed(work) == wanted
    assert files(audit.path) == before
    assert said.loc["shadow models", ["models", "processes"]].tolist() == [4, 2]
    said = said.drop(index="on disk")
    assert (said["seconds"] > 0).all()
    assert (said["disk_mb"] > 0).all()
    assert (said["memory_mb"] > 0).all()


# Bad input


def test_an_audit_without_a_model_says_so(audit):
    arrays = mw.Audit.from_arrays(labels=[0, 1, 0, 1], representations=np.eye(4))
    with pytest.raises(StoreError, match="cannot estimate the cost of training, because it has no"):
        arrays.estimate()
    without = mw.Audit.open(audit.path)
    without.run.model = None
    with pytest.raises(StoreError, match="needs the model and the data"):
        without.estimate()
    audit.run.manifest["kind"] = "watch"
    with pytest.raises(StoreError, match="cannot estimate the cost of training"):
        audit.estimate()  # watched


# What run_shadows says


def said_by(audit, n) -> list[str]:
    said = []
    audit.run_shadows(n, Inline(), progress=Progress(lambda step: said.append(step.detail)))
    return said


def test_run_shadows_says_timed_seconds_disk_and_memory(audit, monkeypatch):
    found = Timing(BUILD, STEP, SAMPLE, 10**9, 10, {}, {}, {})

    def timed(_workers):
        future = Future()
        future.set_result(found)
        return [future, future]

    monkeypatch.setattr(Pool, "timed", timed)
    announced = [text for text in said_by(audit, 4) if "of disk" in text]
    seconds = audit_at(audit.path).estimate(4, processes=1)["seconds"]["shadow models"]
    assert seconds == 0  # they are there
    assert len(announced) == 1
    assert "about" in announced[0]
    assert "1.0 GB of memory" in announced[0]


def test_run_shadows_says_recorded_seconds(audit):
    first = [text for text in said_by(audit, 2) if "of disk" in text]
    then = [text for text in said_by(audit, 4) if "of disk" in text]
    assert len(first) == len(then) == 1
    assert "about" not in first[0]
    assert "from 2 recorded" in then[0]


def test_times_that_fail_do_not_stop_the_training(audit, monkeypatch):
    def timed(_workers):
        future = Future()
        future.set_exception(RuntimeError("no time"))
        return [future]

    monkeypatch.setattr(Pool, "timed", timed)
    assert "about" not in "".join(said_by(audit, 4))
    assert audit.n_shadows == 4


# The arithmetic


def test_the_last_models_take_a_whole_turn():
    assert cost.work_seconds(10, 7, 2, 5) == 45
    assert cost.work_seconds(10, 0, 2, 5) == 0


def test_processes_count_with_their_mean_time_and_longest_start():
    one = Timing(1, 2, 3, 100, 10, {}, {}, {}, 5)
    two = replace(one, step=4, memory=200, start=9)
    both = slowest([one, two])
    assert (both.step, both.memory, both.start) == (3, 200, 9)


class Uneven:
    """A learner whose steps take one second, and each fourth one nine, by a clock of its own."""

    total_steps = 1000

    def __init__(self):
        self.now = 0.0

    def advance(self, _until, progress, what):
        for step in range(self.total_steps):
            progress.report(step, self.total_steps, what)
            self.now += 9.0 if step % 4 == 3 else 1.0


def test_a_step_is_timed_as_what_a_sum_of_steps_takes(monkeypatch):
    """Texts of uneven length, and a busy machine, make some steps longer than most."""
    learner = Uneven()
    monkeypatch.setattr(cost.time, "perf_counter", lambda: learner.now)
    monkeypatch.setattr(cost, "_STEP_SECONDS", 60.0)
    found = cost._step_seconds(learner, torch.device("cpu"), Progress())
    assert found == pytest.approx(3.0, rel=0.1)
