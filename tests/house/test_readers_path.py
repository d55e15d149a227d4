"""A newcomer's way: a fresh clone, the README's lines, the first notebook."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.house.test_readme import blocks
from tests.programs import printed

ROOT = Path(__file__).parents[2]


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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_readmes_lines_run_in_a_fresh_clone(clone, monkeypatch):
    """The first notebook, which goes on from them, is run by tests/browser/test_quickstart.py."""
    assert (clone / "notebooks" / "01_quickstart.ipynb").exists()
    monkeypatch.setenv("PYTHONPATH", str(clone))
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("run_shadows(64)", "run_shadows(4, processes=1)")  # not 64
    assert "run_shadows(4" in code
    said = "\nimport memowidgets; print(memowidgets.__file__)"
    lines = printed(code + said, options=("-W", "error"), cwd=clone).splitlines()
    assert lines[-1] == str(clone / "memowidgets" / "__init__.py")
