"""A saved notebook, its widget state and nbconvert's page hold no text, image or id of a sample."""

from __future__ import annotations

import json

from tests.widgets.private import names, spellings

N = 600
DASHBOARD = f"""
from memowidgets.widgets import Dashboard
from tests.widgets.fake_source import FakeSource
from tests.widgets.private import questions
source = FakeSource({N}, seconds=60)  # a computation ends by being cancelled
source.data = questions({N})
dashboard = Dashboard(source)
dashboard.page_size = 12
dashboard
"""
NOTE = "her sister told me"


def look_search_and_note(notebook):
    """Use everything that shows a sample or says something of one."""
    inspector = notebook.page.locator(".mw-inspector")
    inspector.locator('[data-filter="all"]').click()
    inspector.get_by_text("wobbling").first.wait_for()
    inspector.get_by_role("button", name="search, order, select").click()
    inspector.get_by_label("search", exact=True).fill("bed 77 ")
    inspector.locator(".mw-range").get_by_text(f"1 of {N} match").wait_for()
    inspector.get_by_label("search", exact=True).fill("")
    inspector.locator(".mw-card").nth(1).wait_for()
    inspector.locator(".mw-card").first.click()
    inspector.locator(".mw-models").wait_for()
    inspector.locator(".mw-fold > summary").click()
    inspector.locator(".mw-near").first.wait_for()
    notebook.page.keyboard.press("k")
    inspector.locator(".mw-made-keep").wait_for()
    inspector.locator(".mw-card:nth-child(2)[aria-selected=true]").wait_for()  # the next one
    inspector.locator(".mw-card").first.click()
    inspector.get_by_label("note").fill(NOTE)
    inspector.get_by_label("note").press("Tab")
    inspector.get_by_text("Note saved.").wait_for()
    notebook.eventually("dashboard.decisions.note.tolist()", [NOTE])
    shown = notebook.page.content()
    assert "wobbling" in shown
    assert any(name in shown for name in names(N))


def assert_nobody_is_given_away(notebook):
    """What is saved has the front end, and no sample."""
    from nbconvert import HTMLExporter

    saved = notebook.save()
    models = saved.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert sum("_esm" in model["state"] for model in models.values()) == 1
    html, _ = HTMLExporter().from_notebook_node(saved)
    assert "widget-view+json" in html
    state = notebook.python("__import__('ipywidgets').Widget.get_manager_state()")
    for text in (notebook.path.read_text("utf-8"), html, json.dumps(state)):
        assert [word for word in [*spellings(N), NOTE] if word in text] == []
