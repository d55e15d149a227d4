"""The τ explorer in a real browser: drag τ and η, compare, and count as Python does."""

from __future__ import annotations

import json

SCORES = """
import numpy as np
from memowidgets.widgets import ThresholdExplorer
from tests.widgets.fake_source import scores_like_psmi
scores, errors, log_lira = scores_like_psmi(2000)
log_lira[:7] = np.nan
"""
JUDGED = (
    SCORES
    + """
explorer = ThresholdExplorer(
    scores, log_lira=log_lira, errors=errors, title="PSMI, layer 30",
    more=True)
explorer
"""
)


def root(page):
    return page.locator(".mw-explorer").first


def settled(notebook):
    """The page's counts, once the kernel stands at the same τ and η; both agree."""
    page = notebook.page
    page.wait_for_selector(".mw-explorer:not(.mw-pending)")
    shown = json.loads(root(page).get_attribute("data-counts"))
    notebook.eventually("explorer.tau_committed", float(root(page).get_attribute("data-tau")))
    if eta := root(page).get_attribute("data-eta"):
        notebook.eventually("explorer.eta_committed", float(eta))
    counts = notebook.python("explorer.counts")
    assert shown == {
        {"flagged_only": "flaggedOnly", "left_alone": "leftAlone"}.get(name, name): counts[name]
        for name in counts
        if name != "n"
    }
    point = "explorer.evaluation.at(explorer.tau)"
    assert notebook.python(f"[{point}.found, {point}.missed]") == [shown["found"], shown["missed"]]
    return shown


def test_eta_moves(widget_page):
    notebook = widget_page([JUDGED])
    page = notebook.page
    page.locator(".mw-auc").get_by_text("AUC 0").wait_for()
    before = settled(notebook)
    page.get_by_text("7 samples without log-LiRA are left out.").wait_for()

    slider = page.get_by_label("memorised from log-LiRA η")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] / 2, steps=10)
    page.mouse.up()
    dragged = settled(notebook)
    assert dragged["found"] + dragged["missed"] < before["found"] + before["missed"]
    eta = notebook.python("explorer.eta")
    page.keyboard.press("ArrowRight")
    notebook.eventually("round(explorer.eta_committed, 1)", round(eta + 0.1, 1))
    finer = settled(notebook)
    slider.focus()  # from where a drag in the histogram takes the keyboard away
    plot = page.locator(".mw-histogram").bounding_box()
    page.mouse.move(plot["x"] + plot["width"] * 0.3, plot["y"] + plot["height"] / 2)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.5, plot["y"] + plot["height"] / 2, steps=5)
    page.mouse.up()
    assert settled(notebook)["flagged"] > finer["flagged"]
    auc = notebook.python("explorer.evaluation.auc")
    assert root(page).locator(".mw-auc").text_content() == f"AUC {auc:.2f}"

    notebook.python("setattr(explorer, 'eta', 6.0)")
    page.wait_for_selector('.mw-explorer[data-eta="6"]')
    settled(notebook)


def test_all_by_keyboard(widget_page):
    notebook = widget_page([JUDGED])
    page = notebook.page
    page.locator(".mw-auc").get_by_text("AUC 0").wait_for()
    page.locator(".mw-tau-text").click()
    page.locator(".mw-toggle").focus()
    page.keyboard.press("Shift+Tab")  # and back, by key so that it shows
    page.keyboard.press("Tab")
    reached = []
    for _ in range(40):
        name = page.evaluate(
            "() => { const e = document.activeElement; return e.closest('.mw-explorer') ?"
            " e.getAttribute('aria-label') || e.textContent || e.parentElement.textContent : null }"
        )
        if name is None:
            break
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", f"no focus to be seen on {name}"
        reached.append(name)
        page.keyboard.press("Tab")
    for name in ("τ", "memorised from log-LiRA η", "share to flag, per cent"):
        assert name in reached
    assert any(name.startswith("threshold τ on PSMI") for name in reached)
    assert {"finds 75 %", "linear"} <= set(reached)
