"""The pretend device, in this process and in the worker processes that it starts."""

from __future__ import annotations

import pytest
import torch  # before the entry point exists, so that only worker processes follow it

from tests.accelerator import pretend


@pytest.fixture(scope="package", autouse=True)
def device(tmp_path_factory):
    """Name of the device. torch finds it in a new process as it finds any accelerator's package."""
    folder = tmp_path_factory.mktemp("plugin")
    about = folder / "pretend-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pretend\nVersion: 0\n"
    )
    entry = "[torch.backends]\npretend = tests.accelerator.pretend:start\n"
    (about / "entry_points.txt").write_text(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))  # loky passes it on to its processes
        pretend.start()
        yield torch.device(pretend.NAME).type
        pretend.stop()


@pytest.fixture
def hardware():
    """State of the device, as it was before afterwards."""
    before = vars(pretend.DEVICE).copy()
    yield pretend.DEVICE
    vars(pretend.DEVICE).update(before)
