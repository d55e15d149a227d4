"""A saved notebook, its widget state and nbconvert's page hold no text, image or id of a sample."""

from __future__ import annotations

import json

import pytest

from tests.widgets.private import names, spellings

CELL = """
import numpy as np
from memowidgets.widgets import Dashboard, SampleInspector
from tests.widgets.fake_source import FakeSource
from tests.widgets.private import images, names, questions
source = FakeSource(n=60)
source.data = questions(60)
dashboard = Dashboard(source)
dashboard.filter = "all"
dashboard
"""
PICTURES = """
pictures = SampleInspector(images(20), np.arange(20.0), ids=names(20), tau=9.0)
pictures
"""
NOTE = "her sister told me"


def look_filter_and_decide(page):
    """Use everything that shows a sample or says something of one."""
    inspector = page.locator(".mw-dashboard .mw-inspector")
    inspector.get_by_text("wobbling").first.wait_for()
    inspector.get_by_role("button", name="search, order, select").click()
    inspector.get_by_label("search", exact=True).fill("bed 7")
    inspector.locator(".mw-range").get_by_text("1 of 60 match").wait_for()
    inspector.get_by_label("search", exact=True).fill("")
    inspector.locator(".mw-card").nth(1).wait_for()
    inspector.locator(".mw-card").first.click()
    page.keyboard.press("r")
    inspector.get_by_text("is to be removed").wait_for()
    inspector.locator(".mw-card").first.click()  # the decision went on to the next one
    inspector.locator(".mw-models").wait_for()
    inspector.locator(".mw-fold > summary").click()
    inspector.locator(".mw-near").first.wait_for()
    inspector.get_by_label("note").fill(NOTE)
    inspector.get_by_label("note").press("Tab")
    inspector.get_by_text("Note saved.").wait_for()


@pytest.mark.timeout(600)
def test_what_is_saved_gives_nobody_away(notebook_page):
    from nbconvert import HTMLExporter

    page = (notebook := notebook_page([CELL, PICTURES])).page
    look_filter_and_decide(page)
    fourth = page.locator(".mw-inspector:not(.mw-dashboard *) .mw-card").nth(3)
    fourth.click()  # JupyterLab makes what is off the screen when it has time
    page.locator(".mw-card[aria-selected=true]:focus").and_(fourth).wait_for()
    page.keyboard.press("k")
    notebook.eventually("len(pictures.decisions)", 1)
    notebook.eventually("dashboard.decisions.note.tolist()", [NOTE])
    shown = page.content()
    assert all(word in shown for word in ("wobbling", names(1)[0]))

    saved = notebook.save()
    models = saved.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    fronts = ["_esm" in model["state"] for model in models.values()]
    assert sum(fronts) == 2  # the dashboard, and the inspector of pictures
    html, _ = HTMLExporter().from_notebook_node(saved)
    assert "widget-view+json" in html
    everything = {
        "the notebook": notebook.path.read_text("utf-8"),
        "nbconvert's page": html,
        "the kernel's widget state": json.dumps(
            notebook.python("__import__('ipywidgets').Widget.get_manager_state()")
        ),
    }
    found = {
        where: [word for word in [*spellings(60), NOTE] if word in text]
        for where, text in everything.items()
    }
    assert found == {where: [] for where in everything}
