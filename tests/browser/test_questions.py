"""Questions in a real browser: options with probabilities, label, log-LiRA; ids where withheld."""

from __future__ import annotations

import re

import pytest

SMALL = """
import memowidgets as mw
from tests.training.small import Inline
data = mw.data.make_mcqs(80, seed=4)
model = mw.models.CausalLM.from_scratch(data, layers=1, width=16)
audit = mw.Audit(model, data, path="run", training=mw.TrainingConfig(epochs=4))
audit.train()
audit.run_shadows(4, Inline())
audit.score("psmi")
first = audit.dashboard()
first
"""
RECORDED = """
import memowidgets as mw
recorded = mw.open_recorded("mmlu-field-smollm2")
second = recorded.dashboard()
second
"""


@pytest.mark.filterwarnings("ignore::UserWarning")  # a model this small learns nothing: it is told
def test_a_question_shows_its_options_with_probabilities_label_and_log_lira(
    widget_page, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    notebook = widget_page([SMALL])
    text = first_card(notebook)
    assert "Ward" in text or "ward" in text
    assert len(re.findall(r"^0\.\d\d$", text, re.MULTILINE)) == 6  # a probability for each ward
    assert re.search(r"memorised \(−?\d+\.\d+\s[<≥]\s4\)", text)
    assert "has not learned its task" in notebook.page.locator(".mw-warnings").inner_text()
    notebook.screenshots("questions", of=".mw-dashboard")


def test_a_recorded_question_says_how_to_get_it(widget_page):
    notebook = widget_page([RECORDED])
    text = first_card(notebook)
    assert re.search(r"memorised \(−?\d+\.\d+\s[<≥]\s4\)", text)
    assert "not at hand" not in text  # it is said once, above all cards
    notice = notebook.page.locator(".mw-notice").inner_text()
    assert "not at hand" in notice
    assert 'fetch_mcq("mmlu-field"' in notice
    notebook.screenshots("recorded", of=".mw-dashboard")


def first_card(notebook) -> str:
    card = notebook.page.locator(".mw-card").first
    card.wait_for()
    return card.inner_text()
