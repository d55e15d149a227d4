"""How a notebook is run in a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
_SHADOWS = re.compile(r"run_shadows\((\d+)\)")
FEWER = 4  # shadow models at most: every cell runs, none of them needs more


def check_notebook(name: str, folder: Path) -> None:
    """Run a notebook from top to bottom in an empty folder, with few shadow models."""
    text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
    copy = folder / f"{name}.ipynb"
    copy.write_text(_SHADOWS.sub(_fewer, text), "utf-8")
    check_quiet(execute(copy))


def _fewer(call: re.Match[str]) -> str:
    return f"run_shadows({min(int(call[1]), FEWER)})"


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
