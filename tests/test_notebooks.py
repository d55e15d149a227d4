"""Every notebook runs from top to bottom, in an empty folder, without a warning."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SLOW = ("02_llm_mcq", "03_cifar10", "04_find_and_fix")


def test_there_are_notebooks():
    assert NOTEBOOKS


def each(notebooks):
    """The notebooks, the slow ones marked so."""
    marks = {path: [pytest.mark.slow] if path.stem in SLOW else [] for path in notebooks}
    return [pytest.param(path, id=path.stem, marks=marks[path]) for path in notebooks]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", each(NOTEBOOKS[1:]))
def test_notebook_runs(notebook, tmp_path):  # tests/browser/test_quickstart.py runs the first
    shutil.copy(notebook, tmp_path)
    check_quiet(execute(tmp_path / notebook.name))


def check_quiet(executed: nbformat.NotebookNode) -> None:
    """Something came out, and no warning."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert outputs
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    warned = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert not [text for text in warned if "Warning" in text]


def execute(notebook: Path) -> nbformat.NotebookNode:
    """Run a notebook where it lies, in a process of its own, and read what came out."""
    own = {"JUPYTER_PREFER_ENV_PATH": "1", "IPYTHONDIR": str(notebook.parent / ".ipython")}
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to=notebook", "--inplace"]
    result = subprocess.run(
        [*command, str(notebook)],
        cwd=notebook.parent, env=os.environ | own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        pytest.fail(result.stderr[-6000:])
    return nbformat.read(notebook, as_version=4)
