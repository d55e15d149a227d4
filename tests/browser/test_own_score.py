"""A score that a user defines in a cell: in pickers, live ROC, Compare and report."""

from __future__ import annotations

import re

from tests.browser.harness import save, window
from tests.browser.test_everywhere import agree, recorded

# a text, never a part of the page, and longer than a plot is wide
SPOKEN = (
    "Margin <img src=x onerror=alert(1)> of a sample, less all that the others have"
)
# what a plot writes beyond its edges, where nobody sees it
CUT = """() => [...document.querySelectorAll(".mw-compare svg text")].filter((one) => {
    const [text, plot] = [one, one.ownerSVGElement].map((each) => each.getBoundingClientRect());
    return text.left < plot.left - 1 || text.right > plot.right + 1;
}).map((one) => one.textContent)"""
OWN = f"""
import numpy as np
import memowidgets as mw

@mw.score("margin", spoken={SPOKEN!r})
def margin(logits, labels):
    "The margin is the <b>logit</b> of the label less the mean of the others."
    of_label = logits[np.arange(len(labels)), labels]
    return of_label - logits.mean(axis=1)
"""
CHANGED = OWN.replace("return ", "return -1000 + ").strip()


def test_ten_lines_in_a_cell_are_a_score_everywhere(notebook_page, chromium, tmp_path):
    notebook = notebook_page([OWN, recorded("digits")])
    page = notebook.page
    options = page.get_by_label("metric", exact=True).locator("option")
    assert SPOKEN in options.all_inner_texts()
    page.get_by_label("metric", exact=True).select_option("margin")
    # how long its function takes is not known yet
    page.get_by_role("button", name="Compute").click()
    page.locator(".mw-explorer:not(.mw-dimmed)").wait_for()
    notebook.eventually("dashboard.computed and dashboard.metric", "margin")
    agree(notebook)
    found = notebook.python("audit.evaluate('margin').auc")
    assert 0.9 < found < 1
    page.locator(".mw-roc").wait_for()
    save(page, "own-score-roc")
    page.get_by_role("button", name="Compare").click()
    page.locator(".mw-areas").get_by_text("Margin").first.wait_for()
    assert page.evaluate(CUT) == []
    save(page, "own-score-compare")
    page.get_by_role("button", name="Compare").click()
    assert not page.locator("img[src=x]").count()

    # its cell runs again, with another function
    low = notebook.python("dashboard.evaluation.scores.min()")
    notebook.python(f"exec({CHANGED!r}, globals())")
    refresh = page.get_by_role("button", name=re.compile("Show new results"))
    refresh.click(timeout=30_000)
    notebook.eventually("bool(dashboard.evaluation.scores.min() < -900)")
    assert low > -900
    agree(notebook)

    file = tmp_path / "own.html"
    notebook.python(f"str(audit.report({str(file)!r}, metric='margin', figures=False))")
    report = window(chromium, 1100, 900)
    try:
        report.goto(file.as_uri())
        report.get_by_text("The margin is the <b>logit</b> of the label").wait_for()
        report.get_by_text(f"{SPOKEN} made the prediction").wait_for()
        assert not report.locator("img[src=x]").count()
        save(report, "own-score-report")
    finally:
        report.close()
