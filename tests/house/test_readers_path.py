"""A newcomer's way: a fresh clone, the README's lines, the first notebook; timed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.house.test_readme import blocks
from tests.test_notebooks import check_quiet, execute

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 300  # on a busy machine; docs/performance.md has the notebook's own time


@pytest.fixture
def clone(tmp_path):
    """What a clone holds, and nothing that only lies here; the packages are those of the tests."""
    place = tmp_path / "clone"
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place)]
        subprocess.run(command, check=True, capture_output=True)
    else:  # an unpacked archive
        left_out = shutil.ignore_patterns(".*", "node_modules", "build", "runs", "__pycache__")
        shutil.copytree(ROOT, place, ignore=left_out)
    return place


@pytest.mark.timeout(900)
def test_the_readmes_lines_and_the_first_notebook_in_a_fresh_clone(clone, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(clone))
    started = time.monotonic()
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("run_shadows(64)", "run_shadows(12)")  # the notebook trains them all
    assert "run_shadows(12)" in code
    said = "\nimport memowidgets; print(memowidgets.__file__)"
    command = [sys.executable, "-W", "error", "-c", code + said]
    lines = subprocess.run(
        command, cwd=clone, env=os.environ, capture_output=True, text=True, check=False
    )
    assert lines.returncode == 0, lines.stderr[-4000:]
    assert lines.stdout.splitlines()[-1] == str(clone / "memowidgets" / "__init__.py")
    executed = execute(clone / "notebooks" / "01_quickstart.ipynb")
    seconds = time.monotonic() - started
    print(f"the README's lines and the first notebook: {seconds:.0f} s")
    check_quiet(executed)
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    assert seconds < MOST_SECONDS
