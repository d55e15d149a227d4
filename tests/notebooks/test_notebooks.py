"""The notebooks show what came out, run without a warning, and none is forgotten.

The quickstart is run as its reader sees it: run all cells, drag τ, look.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from scripts.notebooks import STRICT
from tests.browser.test_everywhere import agree, counts, drag_tau

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
# Every cell runs, and none of them needs more shadow models or samples.
FEWER = {
    r"run_shadows\(\d+\)": "run_shadows(4)",
    r"run_shadows\(\d+, ": "run_shadows(18, ",
    r"make_mcqs\(n=\d+, atypical=0\.05": "make_mcqs(n=180, atypical=0.05",
    r"load_digits\(canaries=0\.05": "load_digits().take(range(250)).with_canaries(12",
}
FEW_OF_A_CLASS = "samples, so their scores are inaccurate"
# A worker process imports torch and the model again; the quickstart's test has such processes.
IN_A_THREAD = (
    r"\g<0>, executor=__import__('concurrent.futures').futures.ThreadPoolExecutor(1)"
)


def fewer(text: str) -> str:
    """Return a notebook's source with as many shadow models and samples as its cells need."""
    for many, few in FEWER.items():
        text = re.sub(many, few, text)
    return text


def check_quiet(executed: nbformat.NotebookNode) -> None:
    """Something came out, and no warning but that classes are small or that τ = 0 flags few."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert outputs
    assert all(
        cell.execution_count for cell in executed.cells if cell.cell_type == "code"
    )
    warned = [
        o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"
    ]
    unexpected = [
        text
        for text in warned
        if "Warning" in text and FEW_OF_A_CLASS not in text and STRICT not in text
    ]
    assert not unexpected, unexpected


def execute(notebook: Path) -> nbformat.NotebookNode:
    """Run a notebook where it lies, in a process of its own, and read what came out."""
    own = {
        "JUPYTER_PREFER_ENV_PATH": "1",
        "IPYTHONDIR": str(notebook.parent / ".ipython"),
        "LOKY_MAX_CPU_COUNT": "1",  # to start a second process takes longer than it saves
    }
    command = [
        sys.executable,
        "-m",
        "nbconvert",
        "--execute",
        "--to=notebook",
        "--inplace",
    ]
    result = subprocess.run(
        [*command, str(notebook)],
        cwd=notebook.parent, env=os.environ | own, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if result.returncode:
        pytest.fail(result.stderr[-6000:])
    return nbformat.read(notebook, as_version=4)


# The quickstart is run in JupyterLab, and the lesson by tests/teaching/test_lesson.py.
ELSEWHERE = {"01_quickstart", "05_teaching"}
ALL = sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb"))
LARGEST = 400_000  # bytes
STATIC = {"text/plain", "text/html", "image/svg+xml", "image/png"}
PRIVATE = re.compile(r"/(home|root|tmp|Users|work)/|[A-Z]:\\\\Users|localhost")


@pytest.mark.parametrize("name", ALL)
def test_it_shows_what_came_out_and_a_picture_first(name):
    """Without a kernel, as a reader on a web page of the repository sees it."""
    text = (NOTEBOOKS / f"{name}.ipynb").read_text("utf-8")
    assert len(text.encode()) < LARGEST
    cells = [cell for cell in nbformat.reads(text, 4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    shown = [output.data for output in outputs if output.output_type != "stream"]
    assert all(output.output_type != "error" for output in outputs)
    assert all(set(data) <= STATIC for data in shown)
    assert "image/" in str(cells[0].outputs[-1].data)
    assert not PRIVATE.search("".join(map(str, outputs)))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted({*ALL} - ELSEWHERE))
def test_it_runs(name, tmp_path):
    """From top to bottom in an empty folder, with few shadow models and samples."""
    copy = tmp_path / f"{name}.ipynb"
    text = fewer((NOTEBOOKS / copy.name).read_text("utf-8"))
    copy.write_text(re.sub(r"run_shadows\(\d+", IN_A_THREAD, text), "utf-8")
    check_quiet(execute(copy))


QUICKSTART = NOTEBOOKS / "01_quickstart.ipynb"


@pytest.fixture
def quickstart(tmp_path):
    """The notebook with its own dashboard alone, and fewer shadow models and samples.

    `make screenshot` takes all of them.
    """
    recorded = r"mw.open_recorded(\"digits\").dashboard()"
    text = QUICKSTART.read_text("utf-8")
    assert recorded in text
    copy = tmp_path / QUICKSTART.name
    copy.write_text(fewer(text.replace(recorded, "1")), "utf-8")
    return copy


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quickstart_in_a_real_jupyterlab(notebook_page, quickstart):
    notebook = notebook_page(quickstart, run=False)
    page = notebook.page
    notebook.run_all(timeout=700)
    page.locator(".mw-dashboard .mw-card").first.wait_for()
    cut = "ids => ids.filter((id) => id.scrollWidth > id.clientWidth).map((id) => id.textContent)"
    assert page.locator(".mw-dashboard .mw-id").evaluate_all(cut) == []
    check_quiet(notebook.save())
    notebook.screenshots("quickstart-lab")

    agree(notebook)
    at_zero = counts(page)
    judged = "int(audit.log_lira().index.isin(audit.flagged(tau=0.0).index).sum())"
    # so few models do not judge all
    assert at_zero["flagged"] == notebook.python(judged)
    drag_tau(page, 0.05)
    assert counts(page)["flagged"] > at_zero["flagged"]
    agree(notebook)
