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
def process(tmp_path, request):
    """A training that says which epoch is over, and goes on for each line that it gets."""
    environment = {"PYTHONPATH": str(LOOP.parents[2]), "OMP_NUM_THREADS": "1"}
    started = subprocess.Popen(
        [sys.executable, "-W", "ignore", LOOP, request.param, tmp_path / "run"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip
    yield started
    started.kill()
    started.communicate()


def trained(process):
    """Wait for the next epoch; whether the place to look is reached by then, as it says."""
    for line in process.stdout:  # some are what the watch says
        if line.startswith("epoch"):
            return line.split()[-1]
    raise AssertionError("the training has ended")


BY_OTHERS = [
    pytest.param(kind, marks=pytest.mark.matrix) for kind in ("lightning", "trainer")
]


@pytest.mark.parametrize("process", ["loop", *BY_OTHERS], indirect=True)
def test_the_timeline_grows_while_another_process_trains(
    process, tmp_path, monkeypatch, request
):
    kind = request.node.callspec.params["process"]
    if kind == "lightning":
        pytest.importorskip("lightning.pytorch", reason="no Lightning")
    assert trained(process) != "True"
    given = {} if kind == "trainer" else {"data": samples()}
    dashboard = mw.Audit.open(tmp_path / "run", **given).dashboard()
    assert dashboard.get_state()["_timeline"]["moments"] == []
    assert dashboard.wait(60)
    dashboard.tau = 0.25
    told = []
    stars = [[]]
    while not stars[-1]:
        process.stdin.write("on\n")
        process.stdin.flush()
        said = trained(process)
        dashboard._look()
        told.append(dashboard.get_state()["_timeline"]["moments"])
        stars.append([one["label"] for one in told[-1] if one["star"]])
        assert said in (str(bool(stars[-1])), "unknown")
    assert [len(moments) for moments in told] == list(range(2, len(told) + 2))
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
