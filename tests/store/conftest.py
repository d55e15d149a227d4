"""A run directory for the tests of this room."""

from __future__ import annotations

import pytest

from memowidgets.store import (
    RunDirectory,
)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir(mode=0o700)
    return RunDirectory(tmp_path / "run")
