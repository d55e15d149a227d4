"""The lesson: its notebook runs, and the worksheet's answers are what its lines print."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from memowidgets.teaching.playgrounds import Playground, make_cloud

ROOT = Path(__file__).parents[2]
WORKSHEET = (ROOT / "docs" / "worksheet.md").read_text("utf-8")
ANSWERS = re.findall(r"<details>(.*?)</details>", WORKSHEET, re.DOTALL)
CODE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)
ON_PSMI = 5  # the question about the playground of PSMI


def test_the_notebook_has_four_playgrounds_in_four_cells():
    names = {}
    book = nbformat.read(ROOT / "notebooks" / "05_teaching.ipynb", as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    made = [found for found in names.values() if isinstance(found, Playground)]
    assert len({type(playground) for playground in made}) == 4
    for playground in made:
        playground.close()


@pytest.fixture(scope="module")
def psmi_shown(ask):
    """PSMI of the ringed point as the playground opens, and in the middle of another class."""
    points, labels = make_cloud()
    moved = points.copy()
    moved[0] = points[labels == 1].mean(axis=0)
    asked = {"labels": labels.tolist(), "count": 24}
    return [
        f"{ask('psmi', points=where.tolist(), **asked)[0]:.2f}"
        for where in (points, moved)
    ]


@pytest.mark.parametrize("question", range(1, len(ANSWERS) + 1))
def test_the_numbers_of_an_answer_are_those_that_its_lines_print_or_the_playground_shows(
    question, psmi_shown
):
    """tests/house/test_docs.py runs the lines and compares what they print."""
    answer = ANSWERS[question - 1]
    printed = "\n".join(CODE.findall(answer) + psmi_shown * (question == ON_PSMI))
    for number in re.findall(r"−?\d+\.\d+(?: %)?|\d+ %", CODE.sub("", answer)):
        wanted = number.replace("−", "-")
        assert re.search(rf"(?<![\d.-]){wanted.replace(' %', ' ?%')}", printed), (
            number,
            printed,
        )


def test_nine_questions_in_their_order():
    asked = re.findall(r"^\*\*(\d+)\. ", WORKSHEET, re.MULTILINE)
    assert (len(ANSWERS), asked) == (9, list("123456789"))
