"""Questions in a real browser: options with probabilities, label, log-LiRA; ids where withheld."""

from __future__ import annotations

import re

SMALL = """
import numpy as np
import memowidgets as mw
data = mw.data.make_mcqs(80, seed=4)
rng = np.random.default_rng(0)
audit = mw.Audit.from_arrays(
    labels=data.labels, representations=rng.normal(size=(80, 8)),
    logits=rng.normal(size=(80, len(data.class_names))), log_lira=rng.normal(3, 2, 80),
    samples=data,
)
first = audit.dashboard()
first
"""
RECORDED = """
import memowidgets as mw
recorded = mw.open_recorded("mmlu-field-smollm2")
second = recorded.dashboard()
second
"""


def test_a_question_shows_its_options_with_probabilities_label_and_log_lira(widget_page):
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
