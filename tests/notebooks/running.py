"""How a notebook is run in a test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
# Every cell runs, and none of them needs more shadow models or samples.
MOST = {
    r"run_shadows\((\d+)\)": 4,
    r"run_shadows\((\d+), ": 18,
    r"make_mcqs\(n=(\d+), atypical=0\.05": 180,
}
FEWER = {
    "load_digits(canaries=0.05": "load_digits().take(range(250)).with_canaries(12",
}
FEW_OF_A_CLASS = "samples, so their scores are inaccurate"
# A worker process imports torch and the model again; the quickstart's test has such processes.
IN_A_THREAD = r"\g<0>, executor=__import__('concurrent.futures').futures.ThreadPoolExecutor(1)"


def check_notebook(name: str, folder: Path) -> None:
    """Run a notebook from top to bottom in an empty folder, with few shadow models and samples."""
    copy = folder / f"{name}.ipynb"
    text = fewer((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    copy.write_text(re.sub(r"run_shadows\(\d+", IN_A_THREAD, text), "utf-8")
    check_quiet(execute(copy))


def fewer(text: str) -> str:
    """Return a notebook's source with as many shadow models and samples as its cells need."""
    for call, most in MOST.items():
        text = re.sub(call, partial(_fewer, most), text)
    for many, few in FEWER.items():
        text = text.replace(many, few)
    return text


def _fewer(most: int, call: re.Match[str]) -> str:
    return call[0].replace(call[1], str(min(int(call[1]), most)), 1)


def check_quiet(executed: nbformat.NotebookNode) -> None:
    """Something came out, and no warning but that a shortened notebook's classes are small."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert outputs
    assert all(cell.execution_count for cell in executed.cells if cell.cell_type == "code")
    warned = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    unexpected = [text for text in warned if "Warning" in text and FEW_OF_A_CLASS not in text]
    assert not unexpected, unexpected


def execute(notebook: Path) -> nbformat.NotebookNode:
    """Run a notebook where it lies, in a process of its own, and read what came out."""
    own = {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(notebook.parent / ".ipython"),
        "LOKY_MAX_CPU_COUNT": "1",  # to start a second process takes longer than it saves
    }
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to=notebook", "--inplace"]
    result = subprocess.run(
        [*command, str(notebook)],
        cwd=notebook.parent, env=os.environ | own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        pytest.fail(result.stderr[-6000:])
    return nbformat.read(notebook, as_version=4)
