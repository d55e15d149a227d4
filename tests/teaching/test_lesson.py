"""The lesson: its notebook runs, and the worksheet's answers are those that a command prints."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from benchmarks import lesson
from memowidgets.teaching.playgrounds import Playground, front_end

ROOT = Path(__file__).parents[2]
WORKSHEET = (ROOT / "docs" / "worksheet.md").read_text("utf-8")
WATCH = (ROOT / "docs" / "live" / "watch.md").read_text("utf-8")
ANSWERS = re.findall(r"<details>(.*?)</details>", WORKSHEET, re.DOTALL)
# Of how many networks answers speak, of which question, and of which border.
GIVEN = {"32", "4", "0"}
NUMBER = re.compile(r"(?<![\d.])−?\d+(?:\.\d+)?(?: %)?")


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


@pytest.mark.slow  # a round of the watched network is 33 trainings
@pytest.mark.usefixtures("node")
def test_the_answers_of_the_worksheet_have_each_printed_sentence_and_no_other_number():
    printed = lesson.answers()
    for question, answer in enumerate(ANSWERS, 1):
        said = printed.get(question, [])
        assert [sentence for sentence in said if sentence not in answer] == []
        told = {*NUMBER.findall(" ".join(said)), *GIVEN}
        assert {*NUMBER.findall(answer)} <= told, question


def test_the_page_and_its_playground_say_what_the_study_found():
    of_psmi, of_loss = re.findall(r"0\.\d+", lesson.on_audits())
    for text in (WATCH, front_end("watch"), ANSWERS[2]):
        assert text.index(of_psmi) < text.index(of_loss)


def test_nine_questions_in_their_order():
    asked = re.findall(r"^\*\*(\d+)\. ", WORKSHEET, re.MULTILINE)
    assert (len(ANSWERS), asked) == (9, list("123456789"))
