"""The dashboard as axe-core judges it, and as a keyboard reaches it, in both themes."""

from __future__ import annotations

import pytest

from tests.browser.harness import settled
from tests.browser.test_everywhere import DASHBOARD
from tests.front_end.tools import serious

pytestmark = pytest.mark.slow

COLOURS = "() => [...document.querySelectorAll('.mw *')].map((e) => getComputedStyle(e).color)"


def judged(notebook):
    """What is serious or critical, in both themes."""
    found = []
    for theme in ("light", "dark"):
        notebook.theme(theme)
        notebook.page.mouse.move(0, 0)
        settled(notebook.page, COLOURS)  # they fade from one to the other
        found += [f"{theme}: {problem}" for problem in serious(notebook.page, ".mw-dashboard")]
    return found


@pytest.mark.timeout(600)
def test_axe_finds_nothing_serious(notebook_page):
    notebook = notebook_page([DASHBOARD])
    page = notebook.page
    page.locator(".mw-card").first.wait_for()
    problems = judged(notebook)
    page.locator(".mw-tau-text").click()
    page.get_by_role("button", name="about these numbers").click()
    problems += [f"menus: {problem}" for problem in judged(notebook)]
    page.get_by_role("button", name="about these numbers").click()
    page.locator(".mw-tau-text").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.locator(".mw-parts td").first.wait_for()
    problems += [f"compare: {problem}" for problem in judged(notebook)]
    page.get_by_role("button", name="close").click()
    page.locator(".mw-card").first.click()
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    page.locator(".mw-models").wait_for()
    problems += [f"open: {problem}" for problem in judged(notebook)]
    page.keyboard.press("Escape")
    page.get_by_label("layer", exact=True).select_option("1")
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("progressbar", name="progress").wait_for()
    problems += [f"busy: {problem}" for problem in judged(notebook)]
    assert not problems, "\n".join(problems)
    page.evaluate(
        "() => document.querySelector('[aria-label=layer]').removeAttribute('aria-label')"
    )
    assert any("select-name" in problem for problem in judged(notebook))  # it would have been found
