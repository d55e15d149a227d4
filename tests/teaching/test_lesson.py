"""The lesson: its code leaves the playgrounds alone, and its worksheet's numbers are held."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest
from scipy.stats import norm

from memowidgets.teaching import LiRAPlayground, PSMIPlayground
from memowidgets.teaching.playground import Playground
from memowidgets.teaching.psmi_playground import make_cloud
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
    assert names["lira"].n_shadows == LiRAPlayground.n_shadows.default_value
    assert not any(
        getattr(names["theorem"], switch) for switch in ("imbalance", "overlap", "heavy_tails")
    )
    names["dashboard"].close()
    for playground in (*made, fresh):
        playground.close()


@pytest.fixture(scope="module")
def shown(ask):
    """What the playgrounds show where the worksheet asks for it, as text, by question."""
    points, labels = make_cloud()
    moved, other = points.copy(), labels.copy()
    moved[0], other[0] = points[labels == 1].mean(axis=0), 1

    def point(what, points, labels, **asked):
        return ask(what, points=points.tolist(), labels=labels.tolist(), **asked)

    def lira(models, gap=6.5):
        counts = (models // 2, models // 2)
        return ask("lira", seed=0, counts=counts, effect=4, spread=1.5, gap=gap)["found"]

    def says(name):
        return np.mean(np.array(lira(8)[name]["redraws"]) >= 4)

    def rates(**switched):
        usual = {"epsilon": 0.1, "separation": 4, "dimension": 2}
        return ask("theorem", n=2000, seed=0, tau=0, mixture=usual | switched)["rates"]

    def truth(gap):
        return norm.logpdf(gap, 6, 1.5) - norm.logpdf(gap, 2, 1.5)

    deep = [point("deep", moved, labels, selected=0, dimension=d) for d in (2, 256)]
    limit = ask("limit", gap=6.5, truth=[[6, 1.5], [2, 1.5]])
    medians = [np.median(lira(n)["global"]["redraws"]) for n in (4, 128)]
    broken = [rates(**{switch: True}) for switch in ("imbalance", "overlap", "heavy_tails")]
    found = {
        7: [f"{point('psmi', where, labels, count=24)[0]:.2f}" for where in (points, moved)],
        8: [f"{point('psmi', points, other, count=24)[0]:.2f}"],
        9: [f"{point('along', moved, labels, angle=90)[0]:.2f}"],
        10: [f"{x:.2f}" for one in deep for x in (one["psmi"], one["others"][1])],
        18: [f"{lira(16, gap)['per-sample']['ratio']:.1f}" for gap in (8, 10)]
        + [f"{truth(10):.1f}"],
        20: [f"{says(name):.0%}" for name in ("per-sample", "shrunk")] + [f"{truth(6.5):.2f}"],
        21: [f"{x:.2f}" for x in (*medians, limit, truth(6.5))],
        24: [f"{rates()['tprWrong']:.0%}", f"{rates()['fpr']:.1%}"],
        25: [f"{rates()[f'mean{group}']:.1f}" for group in ("Outliers", "Right", "Wrong")],
        26: [f"{one[name]:.0%}" for one in broken for name in ("fpr", "tprWrong")],
    }
    return {
        question: [x.replace("-", "−").replace("%", " %") for x in one]
        for question, one in found.items()
    }


@pytest.mark.parametrize("question", range(1, len(ANSWERS) + 1))
def test_the_numbers_of_an_answer_are_those_that_its_lines_print_or_a_playground_shows(
    question, shown
):
    """tests/house/test_docs.py runs the lines and compares what they print."""
    answer = ANSWERS[question - 1]
    printed = "\n".join([*CODE.findall(answer), *shown.get(question, [])]).replace("−", "-")
    for number in re.findall(r"−?\d+\.\d+(?: %)?|\d+ %", CODE.sub("", answer)):
        wanted = number.replace("−", "-")
        assert re.search(rf"(?<![\d.-]){wanted.replace(' %', ' ?%')}", printed), (number, printed)


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
