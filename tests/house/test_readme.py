"""What the README names is there, and its lines run in a fresh clone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from tests.house.test_docs import ROOT, blocks
from tests.programs import printed


def test_what_it_links_to_and_shows_is_there():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / "README.md").read_text("utf-8")):
        assert (ROOT / target).exists(), target


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
    """The first notebook, which goes on from them, is run by tests/notebooks/test_notebooks.py."""
    assert (clone / "notebooks" / "01_quickstart.ipynb").exists()
    monkeypatch.setenv("PYTHONPATH", str(clone))
    (code,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    code = code.replace("run_shadows(32)", "run_shadows(4, processes=1)")  # not 32
    assert "run_shadows(4" in code
    said = "\nimport memowidgets; print(memowidgets.__file__)"
    lines = printed(code + said, options=("-W", "error"), cwd=clone).splitlines()
    assert lines[-1] == str(clone / "memowidgets" / "__init__.py")
