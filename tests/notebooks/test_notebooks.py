"""The notebooks show what came out, run without a warning, and none is forgotten."""

import re

import nbformat
import pytest

from tests.notebooks.running import NOTEBOOKS, check_notebook

# tests/browser/test_quickstart.py and tests/teaching/test_lesson.py run these.
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
    check_notebook(name, tmp_path)
