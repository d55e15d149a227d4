"""The τ explorer in a real browser: drag τ and η, and count as Python does."""

from __future__ import annotations

from tests.browser.harness import drag
from tests.browser.test_everywhere import counts, tau

JUDGED = """
import numpy as np
from memowidgets.widgets import ThresholdExplorer
from tests.widgets.fake_source import scores_like_psmi
scores, errors, log_lira = scores_like_psmi(2000)
log_lira[:7] = np.nan
explorer = ThresholdExplorer(
    scores, log_lira=log_lira, errors=errors, title="PSMI, layer 30",
    more=True)
explorer
"""


def settled(notebook):
    """The page's counts, once the kernel stands at the same τ and η; both agree."""
    page = notebook.page
    page.wait_for_selector(".mw-explorer:not(.mw-pending)")
    shown = counts(page)
    notebook.eventually("explorer.tau_committed", tau(page))
    eta = float(page.locator(".mw-explorer").get_attribute("data-eta"))
    notebook.eventually("explorer.eta_committed", eta)
    of = notebook.python("explorer.counts")
    assert {name: of[name] for name in shown} == shown
    point = "explorer.evaluation.at(explorer.tau)"
    assert notebook.python(f"[{point}.found, {point}.missed]") == [shown["found"], shown["missed"]]
    return shown


def test_eta_moves_and_both_sides_count_the_same(widget_page):
    notebook = widget_page([JUDGED])
    page = notebook.page
    page.locator(".mw-auc").get_by_text("AUC 0").wait_for()
    before = settled(notebook)
    page.get_by_text("7 samples without log-LiRA are left out.").wait_for()
    drag(page.get_by_label("memorised from log-LiRA η"), (0.25, 0.5), (0.5, 0.5))
    dragged = settled(notebook)
    assert dragged["found"] + dragged["missed"] < before["found"] + before["missed"]
    eta = notebook.python("explorer.eta")
    page.keyboard.press("ArrowRight")
    notebook.eventually("round(explorer.eta_committed, 1)", round(eta + 0.1, 1))
    finer = settled(notebook)
    drag(page.locator(".mw-histogram"), (0.3, 0.5), (0.5, 0.5))  # takes the keyboard away
    assert settled(notebook)["flagged"] > finer["flagged"]
    auc = notebook.python("explorer.evaluation.auc")
    assert page.locator(".mw-auc").text_content() == f"AUC {auc:.2f}"
    notebook.python("setattr(explorer, 'eta', 6.0)")
    page.wait_for_selector('.mw-explorer[data-eta="6"]')
    settled(notebook)
