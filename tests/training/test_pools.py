"""Local processes hold the samples once, and leave nothing of them behind."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from memowidgets.models import ConvNet
from memowidgets.training import pools
from memowidgets.training.pools import SharedSamples
from tests.training.small import Inline, assert_same, trained

pytestmark = pytest.mark.worker_processes


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


class Suspicious(ConvNet):
    """Trains in another process on mapped images only."""

    def build(self, data):
        import multiprocessing

        is_probe = len(data) <= 8
        in_worker = multiprocessing.parent_process() is not None and not is_probe
        if in_worker and not isinstance(data.images, np.memmap):
            raise TypeError("the images were copied")
        return super().build(data)


def test_workers_map_the_images_and_the_folder_goes(tmp_path, place):
    audit = trained(tmp_path / "mapped", model=Suspicious(4))
    audit.run_shadows(2, checkpoints="final", processes=2)
    assert len(audit.run.shadows) == 2
    assert list(place.glob("memowidgets*")) == []


def test_without_room_the_samples_are_sent(tmp_path, place, monkeypatch):
    here, sent = trained(tmp_path / "here"), trained(tmp_path / "sent")
    here.run_shadows(2, Inline(), checkpoints="final")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(sent.data), "shared", full)
    sent.run_shadows(2, checkpoints="final", processes=1)
    assert_same(here, sent)


def test_what_dead_processes_left_is_removed_and_what_lives_stays(place):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = place / f"{pools._PREFIX}{dead.pid}-abc"
    left.mkdir()
    (left / "images.uint8").write_bytes(b"1")
    others = place / "memowidgets-samples-of-mine"
    others.mkdir()
    first, second = SharedSamples(), SharedSamples()
    assert not left.exists()
    assert others.exists()
    for shared in (first, second):
        assert Path(shared.folder).stat().st_mode & 0o077 == 0
        shared.close()
    assert [path.name for path in place.iterdir()] == [others.name]
