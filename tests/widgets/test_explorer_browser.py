"""The τ explorer in a real browser: drag τ and η, by keyboard too, and count as Python does."""

from __future__ import annotations

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
FOCUSED = """() => {
    const one = document.activeElement;
    if (!one.closest('.mw-explorer')) return null;
    const name = one.getAttribute('aria-label') || one.textContent || one.parentElement.textContent;
    return [name, getComputedStyle(one).outlineStyle];
}"""


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


def slide(page, of, start, end):
    """Drag with the mouse along an element, between two shares of its width."""
    box = page.locator(of).bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + box["height"] / 2, steps=10)
    page.mouse.up()


def test_eta_moves_and_all_is_reached_by_keyboard(widget_page):
    notebook = widget_page([JUDGED])
    page = notebook.page
    page.locator(".mw-auc").get_by_text("AUC 0").wait_for()
    before = settled(notebook)
    page.get_by_text("7 samples without log-LiRA are left out.").wait_for()
    slide(page, "[aria-label='memorised from log-LiRA η']", 0.25, 0.5)
    dragged = settled(notebook)
    assert dragged["found"] + dragged["missed"] < before["found"] + before["missed"]
    eta = notebook.python("explorer.eta")
    page.keyboard.press("ArrowRight")
    notebook.eventually("round(explorer.eta_committed, 1)", round(eta + 0.1, 1))
    finer = settled(notebook)
    slide(page, ".mw-histogram", 0.3, 0.5)  # takes the keyboard away
    assert settled(notebook)["flagged"] > finer["flagged"]
    auc = notebook.python("explorer.evaluation.auc")
    assert page.locator(".mw-auc").text_content() == f"AUC {auc:.2f}"
    notebook.python("setattr(explorer, 'eta', 6.0)")
    page.wait_for_selector('.mw-explorer[data-eta="6"]')
    settled(notebook)

    page.locator(".mw-tau-text").click()
    page.locator(".mw-toggle").focus()
    page.keyboard.press("Shift+Tab")  # and back, by key so that it shows
    page.keyboard.press("Tab")
    reached = {}
    while (found := page.evaluate(FOCUSED)) and found[0] not in reached:
        reached[found[0]] = found[1]
        page.keyboard.press("Tab")
    assert "none" not in reached.values()
    wanted = {"τ", "memorised from log-LiRA η", "share to flag, per cent", "finds 75 %", "linear"}
    assert wanted <= set(reached)
    assert any(name.startswith("threshold τ on PSMI") for name in reached)
