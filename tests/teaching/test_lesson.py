"""The lesson: its code leaves the playgrounds alone, and its worksheet's numbers are held."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from memowidgets.teaching import LiRAPlayground, PSMIPlayground
from memowidgets.teaching.playground import Playground
from scripts import lesson

WORKSHEET = lesson.WORKSHEET.read_text("utf-8")
# the innermost: two of them are folded once more
ANSWERS = re.findall(r"<details[^>]*>((?:(?!<details).)*?)</details>", WORKSHEET, re.DOTALL)
CODE = re.compile(r"```pycon\n(.*?)```", re.DOTALL)


def test_running_all_cells_leaves_the_playgrounds_as_they_were():
    """Without a warning; and point 0 is in its class still when the hint says to move it."""
    names, made = {}, set()
    for cell in nbformat.read(lesson.NOTEBOOK, as_version=4).cells:
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


def test_worksheet_and_notebook_are_as_written():
    """Otherwise run `python -m scripts.lesson`."""
    assert lesson.WORKSHEET.read_text("utf-8") == lesson.worksheet()
    assert lesson.NOTEBOOK.read_text("utf-8") == lesson.notebook()


def test_every_question_of_the_worksheet_is_in_the_notebook_in_its_order():
    cells = nbformat.read(lesson.NOTEBOOK, as_version=4).cells
    asked = re.findall(r"\*\*(\d+)\. ", "\n".join(cell.source for cell in cells))
    assert asked == [str(number) for number in range(1, len(ANSWERS) + 1)]
    assert asked == re.findall(r"^\*\*(\d+)\. ", WORKSHEET, re.MULTILINE)


@pytest.mark.parametrize("memorised", [3, 40])
def test_three_of_the_ten_notes_are_memorised(memorised):
    rng = np.random.default_rng(memorised)
    truth, kinds = rng.uniform(-3, 2, 200), rng.choice(["ordinary", "rare", "wrong"], 200)
    truth[:memorised] = rng.uniform(5, 30, memorised)
    truth[-1] = np.nan
    chosen = lesson.ten(truth, kinds)
    assert len({*chosen}) == 10
    assert sorted(truth[chosen])[-3:] == sorted(truth[:memorised])[-3:]
    assert sorted(truth[chosen])[6] < lesson.CLEAR
    assert {*kinds[[i for i in chosen if truth[i] < lesson.CLEAR]]} == {*kinds}
    assert chosen == lesson.ten(truth, kinds) != sorted(chosen)


def test_a_heading_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="Nothing"):
        lesson._around("## Else", "Nothing")
