"""Processes killed with SIGKILL: what was finished is kept, and the end is the same."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import memowidgets as mw
from memowidgets.files import digest_of_arrays
from memowidgets.progress import Cancelled, Progress
from memowidgets.store import StoreError
from tests.audit.conftest import small_audit
from tests.programs import FORKS
from tests.training.small import Inline

pytestmark = pytest.mark.own_processes


def forked(target, *arguments) -> BaseProcess:
    """A process that runs a function of a test module, to be killed."""
    process = FORKS.Process(target=target, args=arguments)
    process.start()
    return process


def train(path: Path, epochs: int) -> None:
    audit_of(path, epochs).train()


def audit_of(path: Path, epochs: int):
    return small_audit(path, training=mw.TrainingConfig(epochs=epochs, batch_size=8))


def wait_for(condition, process, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.exitcode is None, (
            "it ended before it was killed; stderr says why"
        )
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def same_files(a: Path, b: Path, pattern: str) -> None:
    names = sorted(p.relative_to(a) for p in a.glob(pattern))
    assert names
    for name in names:
        one, other = (digest_of_arrays(load_file(run / name)) for run in (a, b))
        assert one == other, name


def test_a_training_killed_at_any_moment_ends_like_an_undisturbed_one(tmp_path):
    undisturbed = audit_of(tmp_path / "straight", 8)
    undisturbed.train()
    killed = tmp_path / "killed"
    rng = np.random.default_rng(0)
    for epoch in (1, 3, 5):
        process = forked(train, killed, 8)
        wait_for((killed / f"checkpoints/epoch-{epoch}/record.json").exists, process)
        time.sleep(rng.uniform(0, 0.03))
        process.kill()
        process.join()
    resumed = audit_of(killed, 8)
    assert len(resumed.checkpoints) >= 6  # nothing that was finished is lost
    resumed.train()
    same_files(Path(undisturbed.path), killed, "checkpoints/*/weights.safetensors")
    assert resumed.checkpoints.equals(undisturbed.checkpoints)
    assert len(list(killed.glob("checkpoints/*/resume.safetensors"))) == 1


def train_references(path: Path, n: int) -> None:
    audit_of(path, 4).run_references(n, Inline())


def test_killed_reference_models_are_trained_again_to_the_same_gaps(tmp_path):
    audit = audit_of(tmp_path / "killed", 4)
    audit.train()
    shutil.copytree(audit.path, tmp_path / "straight")
    files = tmp_path / "killed/references/others"
    process = forked(train_references, Path(audit.path), 40)
    wait_for((files / "0001.safetensors").exists, process)
    process.kill()
    process.join()
    finished = len(audit.evidence.references.indices)
    assert 2 <= finished < 40, "it ended before it was killed"
    undisturbed = audit_of(tmp_path / "straight", 4)
    for each in (audit, undisturbed):
        each.run_references(finished + 1, Inline())
    scores = audit.score("reference")
    assert scores.equals(undisturbed.score("reference"))
    assert len(undisturbed.evidence.references.indices) == finished + 1


def score_again(path: Path) -> None:
    audit = audit_of(path, 4)
    while True:
        audit.run.run.forget("forward/epoch-2", "scores/epoch-2")
        with suppress(StoreError):  # it was computed by the reader, and forgotten again
            audit.score("psmi", checkpoint=2)


def train_shadows(path: Path, n: int) -> None:
    audit_of(path, 4).run_shadows(n, Inline())


def test_a_reader_of_a_run_that_two_killed_processes_write_never_mixes_or_misses(
    tmp_path,
):
    run = tmp_path / "run"
    audit_of(run, 4).train()
    reader = audit_of(run, 4)
    losses = reader.score("loss", checkpoint=1)
    writers = [forked(score_again, run), forked(train_shadows, run, 200)]
    before, answers = 0, 0
    try:
        wait_for((run / "shadows/0000.safetensors").exists, writers[1])
        while before < 2 or answers == 0:
            found = reader.n_shadows
            assert before <= found
            before = found
            assert reader.score("loss", checkpoint=1).equals(losses)
            with suppress(StoreError):  # a pass was deleted before it was read
                scores = reader.score("psmi", checkpoint=2)
                assert np.isfinite(scores).all()
                answers += 1
        ended = [writer.exitcode for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.join()
    assert ended == [None, None], "one ended before it was killed"
    there = audit_of(run, 4)
    assert there.n_shadows >= before
    there.run_shadows(max(there.n_shadows + 1, 6), Inline())
    assert reader.n_shadows == there.n_shadows
    assert reader.log_lira().equals(audit_of(run, 4).log_lira())
    assert not list(there.evidence.general_notes)


def test_cancel_keeps_what_is_finished(tmp_path):
    audit = audit_of(tmp_path / "a", 6)
    progress = Progress(lambda step: progress.cancel() if step.done > 30 else None)
    with pytest.raises(Cancelled, match="training the target"):
        audit.train(progress=progress)
    assert 1 < len(audit.checkpoints) < 7
    audit.train()
    progress = Progress(lambda step: progress.cancel() if step.done >= 1 else None)
    with pytest.raises(Cancelled, match="shadow models"):
        audit.run_shadows(50, processes=1, progress=progress)
    n = audit.n_shadows
    assert 1 <= n < 50
    first = (tmp_path / "a/shadows/0000.safetensors").read_bytes()
    for more in (n + 1, n):  # more can be added later
        audit.run_shadows(more, Inline())
        assert audit.n_shadows == n + 1
    assert (tmp_path / "a/shadows/0000.safetensors").read_bytes() == first


def test_two_processes_cannot_train_one_target(tmp_path):
    said = pytest.raises(
        StoreError, match="another process is working on the checkpoints"
    )
    with audit_of(tmp_path, 4).run.run.lock("checkpoints"), said:
        audit_of(tmp_path, 4).train()
