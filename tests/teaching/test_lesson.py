"""The lesson: its code leaves the playgrounds alone, and its worksheet's numbers are held."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from memowidgets.teaching import LiRAPlayground, PSMIPlayground
from memowidgets.teaching.playground import Playground
from scripts import live

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "05_teaching.ipynb"
WORKSHEET = (ROOT / "docs/worksheet.md").read_text("utf-8")
# the innermost: two of them are folded once more
ANSWERS = re.findall(r"<details[^>]*>((?:(?!<details).)*?)</details>", WORKSHEET, re.DOTALL)
CODE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)


def test_running_all_cells_leaves_the_playgrounds_as_they_were():
    """Else point 0 is in another class already when the hint says to move it there."""
    names, made = {}, set()
    for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
            made |= {found for found in names.values() if isinstance(found, Playground)}
    fresh = PSMIPlayground()
    assert (names["psmi"].points == fresh.points).all()
    assert names["psmi"].psmi[0] > 0
    assert names["lira"].n_shadows == LiRAPlayground.n_shadows.default_value
    assert not any(
        getattr(names["theorem"], switch) for switch in ("imbalance", "overlap", "heavy_tails")
    )
    names["dashboard"].close()
    for playground in (*made, fresh):
        assert playground.wait(60)
        playground.close()


@pytest.mark.parametrize("answer", ANSWERS, ids=range(1, len(ANSWERS) + 1))
def test_the_numbers_of_an_answer_are_those_that_its_lines_print(answer):
    """tests/house/test_docs.py runs the lines and compares what they print."""
    printed = "\n".join(CODE.findall(answer))
    for number in re.findall(r"−?\d+\.\d+|\d+ %", CODE.sub("", answer)):
        assert re.search(rf"(?<![\d.-]){number.replace('−', '-').replace(' %', '%')}", printed)


def test_the_notebook_asks_what_the_worksheet_asks():
    """In the same order, with the same answers, which lack the lines that compute them.

    Pictures are links there: Voila fails on a picture of a notebook.
    """

    def asked(text):
        text = CODE.sub("", text).replace("../docs/", "").replace("![", "[")
        links = re.sub(r"\]\([\w/]+\.md\)", "]", text)
        return re.findall(r"\*\*\d+\. .*?</details>", re.sub(r"\n{3,}", "\n\n", links), re.DOTALL)

    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert len(asked(WORKSHEET)) == len(ANSWERS) > 15
    assert asked(text) == asked(WORKSHEET)


def test_the_ten_digits_are_those_of_the_data():
    assert live.PICTURE.read_text("utf-8") == live.ten_digits()
    answer = next(answer for answer in ANSWERS if "load_digits" in answer)
    assert f"in {live.TEN}]" in answer
