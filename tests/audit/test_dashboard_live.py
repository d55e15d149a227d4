"""A dashboard that is open while another process trains."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from tests.audit.test_watching import samples

LOOP = Path(__file__).with_name("training_process.py")
pytestmark = pytest.mark.slow  # another process imports torch


@pytest.fixture
def process(tmp_path):
    """A loop that says which epoch it has trained, and trains another one for each line it gets."""
    environment = {"PYTHONPATH": str(LOOP.parents[2]), "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", LOOP, tmp_path / "run"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    yield started
    started.kill()
    started.communicate()


def trained(process):
    """Wait for the next epoch; whether the place to look is reached by then."""
    for line in process.stdout:  # some are what the watch says
        if line.startswith("epoch"):
            return line.split()[-1] == "True"
    raise AssertionError("the loop has ended")


def test_the_timeline_grows_while_another_process_trains(
    process, tmp_path, monkeypatch
):
    assert not trained(process)
    dashboard = mw.Audit.open(tmp_path / "run", data=samples()).dashboard()
    assert dashboard.get_state()["_timeline"]["moments"] == []
    assert dashboard.wait(60)
    dashboard.tau = 0.25
    told = []
    reached = False
    while not reached:
        process.stdin.write("on\n")
        process.stdin.flush()
        reached = trained(process)
        dashboard._look()
        told.append(dashboard.get_state()["_timeline"]["moments"])
    assert [len(moments) for moments in told] == list(range(2, len(told) + 2))
    stars = [[one["label"] for one in moments if one["star"]] for moments in told]
    assert stars[0] == []
    assert len(stars[-1]) == 1
    assert stars[-1][0] in dashboard.get_state()["_message"]["text"]
    assert (dashboard.checkpoint, dashboard.tau) == ("epoch-1", 0.25)
    assert not dashboard.outdated

    moments = told[-1]
    assert all(moment["ready"] for moment in moments)
    assert not moments[-1]["computed"]
    heard = []
    monkeypatch.setattr(
        dashboard, "send", lambda content, buffers: heard.append((content, buffers))
    )
    dashboard._send_moments([moment["value"] for moment in moments])
    for content, buffers in heard[1:]:
        assert content["problem"] == ""
        assert np.isfinite(np.frombuffer(buffers[0], np.float32)).all()
    now = dashboard.get_state()["_timeline"]["moments"]
    assert all(moment["computed"] for moment in now)
    dashboard.close()
