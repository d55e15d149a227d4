"""The notebooks run from top to bottom without a warning, and none is forgotten."""

import re

import pytest

from tests.notebooks.running import FEWER, MOST, NOTEBOOKS, check_notebook

# tests/browser/test_quickstart.py and tests/teaching/test_lesson.py run these.
ELSEWHERE = ("01_quickstart", "05_teaching")
HERE = (
    "02_llm_mcq",
    "03_cifar10",
    "04_find_and_fix",
    "06_choosing_tau",
    "07_text_and_tables",
    "08_which_score",
    "09_out_of_fold",
)


def test_every_notebook_is_run():
    assert sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb")) == sorted((*ELSEWHERE, *HERE))


def test_what_the_tests_shorten_is_there():
    text = "".join(file.read_text("utf-8") for file in NOTEBOOKS.glob("*.ipynb"))
    for call, most in MOST.items():
        assert max(map(int, re.findall(call, text))) > most
    assert all(many in text for many in FEWER)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", HERE)
def test_it_runs(name, tmp_path):
    check_notebook(name, tmp_path)
