"""What a worker does: its job in a file, its code, its errors, and its end."""

from __future__ import annotations

import errno
import multiprocessing
import os
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from memowidgets.files import digest_of_arrays
from memowidgets.models import ConvNet
from memowidgets.store import StoreError
from memowidgets.training import learner, worker
from memowidgets.training.design import ShadowDesign
from memowidgets.training.learner import Learner
from memowidgets.training.worker import JobFile, ShadowJob
from tests.training.small import Inline, tiny_audit, trained

pytestmark = pytest.mark.own_processes


def test_an_error_that_cannot_be_sent_arrives_as_its_text(audit, monkeypatch):
    """Dask lets all errors travel that are defined when it is imported: this one never is."""

    class UnsentError(Exception):
        """Cannot be read again, because its arguments are not its own."""

        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def fails(*_):
        raise UnsentError("this", "that")

    monkeypatch.setattr(worker, "train_shadow", fails)
    with pytest.raises(RuntimeError, match="UnsentError: this and that"):
        audit.run_shadows(2, Inline())


class Outdated(Inline):
    """A worker that has other code from its second order on."""

    def work(self, fn, index, *order):
        with pytest.MonkeyPatch.context() as patch:
            if index:
                patch.setattr(worker, "versions", lambda: "memowidgets 0.1")
            return fn(index, *order)


def test_a_worker_with_other_code_is_named_and_refused(audit):
    with pytest.raises(
        StoreError, match=rf"process {os.getpid()} has memowidgets 0\.1 instead of"
    ):
        audit.run_shadows(3, Outdated())
    assert audit.n_shadows == 1


def test_each_shadow_model_begins_with_weights_of_its_own(audit, monkeypatch):
    begun = []

    class Noting(Learner):
        def __init__(self, *given):
            super().__init__(*given)
            begun.append(digest_of_arrays(self.weights()))

    monkeypatch.setattr(learner, "Learner", Noting)
    audit.run_shadows(3, Inline())
    target = audit.run.run.read_tensors("checkpoints/epoch-0/weights")
    assert len({*begun, digest_of_arrays(target)}) == 4


def test_a_small_model_is_never_asked_before_its_first_step(audit):
    plan = ShadowDesign.of(audit.run.design, "halves", audit.data, None)
    job = audit.run.job({"epoch-0": 0, "early": 1, "epoch-1": 4}, plan)
    assert len(audit.members) > 3 * job.recipe.settings.batch_size
    steps = job.recipe.own_steps(job.checkpoints, 10, len(audit.members))
    assert steps == [("epoch-0", 0), ("early", 1), ("epoch-1", 1)]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a parent is joined")
def test_a_worker_whose_parent_is_gone_removes_the_samples_and_ends(
    tmp_path, monkeypatch
):
    (tmp_path / "samples").mkdir()
    ended = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: code == 1 and ended.set())
    gone = os.getppid() + 1
    worker.start_local(gone, str(tmp_path / "samples"), torch.get_num_threads(), None)
    assert ended.wait(60)
    assert not (tmp_path / "samples").exists()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


class Suspicious(ConvNet):
    """Trains in another process on mapped images only."""

    def build(self, data):
        owner = data.images
        while isinstance(owner, np.ndarray):
            owner = owner.base
        # no probe
        in_worker = multiprocessing.parent_process() is not None and len(data) > 8
        if in_worker and owner is None:
            raise TypeError("the images were copied")
        return super().build(data)


def test_workers_map_the_images_and_the_folder_goes(tmp_path, place):
    audit = trained(tmp_path / "mapped", model=Suspicious(4))
    audit.run_shadows(1, processes=1)
    assert len(audit.run.shadows) == 1
    assert list(place.iterdir()) == []


def test_the_job_is_in_a_private_file_and_what_is_written_to_it_stays_here(
    source, place
):
    run = tiny_audit(source).run
    job = ShadowJob(run.recipe(), run.design, 0, {"epoch-1": 4}, {"epoch-1": 4})
    job = replace(job, probe={"a": np.arange(5.0)})
    folder = tempfile.mkdtemp()
    file = JobFile.write(job, folder)
    assert Path(folder).stat().st_mode & 0o077 == 0
    one, other = file.read(), file.read()
    assert one.probe["a"].ctypes.data % 64 == 0
    one.probe["a"][:] = 7
    np.testing.assert_array_equal(other.probe["a"], np.arange(5.0))
    np.testing.assert_array_equal(
        file.read().recipe.data.images, job.recipe.data.images
    )


def test_a_disk_without_room_for_the_samples_is_named(audit, place, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(worker.Path, "open", full)
    with pytest.raises(StoreError, match=r"temporary.*No space left.*TMPDIR"):
        audit.run_shadows(2, processes=1)
    monkeypatch.undo()
    assert list(place.iterdir()) == []
