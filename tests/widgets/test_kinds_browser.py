"""Texts of many classes and rows of a table in the inspector in a real browser; and look."""

from __future__ import annotations

import pytest

from tests.browser.harness import in_view
from tests.browser.test_everywhere import decide_on_ten

TEXTS = """
import numpy as np
import pandas as pd
from memowidgets.data import TableDataset, TextDataset
from memowidgets.widgets import SampleInspector
n = 77
names = [f"intent {chr(97 + i % 26)}{i}" for i in range(n - 1)] + ["<img src=x onerror=alert(1)>"]
texts = [f"message {i} about my card" for i in range(n - 1)] + ["<script>alert(1)</script>"]
p = np.random.default_rng(0).dirichlet(np.full(n, 0.05), n)
inspector = SampleInspector(
    TextDataset.from_texts(texts, np.arange(n), names), np.linspace(-1, 1, n), probabilities=p,
    filter="all", sort="order", page_size=6,
)
inspector
"""

TABLE = """
rng = np.random.default_rng(0)
frame = pd.DataFrame({f"column {i}": rng.normal(size=40) for i in range(9)})
frame["<b>ward</b>"] = ["<img src=x onerror=alert(1)>"] + ["A"] * 39
frame.loc[1, "column 7"] = 50.0
frame["label"] = np.arange(40) % 2
rows = SampleInspector(
    TableDataset.from_frame(frame), np.linspace(-1, 1, 40), filter="all", sort="order",
    probabilities=np.tile([0.8, 0.2], (40, 1)), page_size=4,
)
rows
"""


def test_texts_and_rows_are_shown_as_text_with_label_and_likeliest_classes(widget_page):
    notebook = widget_page([TEXTS, TABLE])
    page = notebook.page
    texts, rows = page.locator(".mw-inspector").nth(0), page.locator(".mw-inspector").nth(1)
    texts.locator(".mw-card").first.wait_for()
    rows.locator(".mw-card").first.wait_for()

    card = texts.locator(".mw-card").first
    best = notebook.python("[names[i] for i in np.argsort(-p[0], kind='stable')[:5]]")
    shown = card.locator(".mw-option-text").all_inner_texts()
    assert [text.removeprefix("label ") for text in shown[:5]] == best
    assert [text for text in shown if text.startswith("label ")] == ["label intent a0"]
    picker = texts.get_by_label("class", exact=True)
    options = picker.locator("option").all_inner_texts()[1:]
    assert len(options) == 77
    assert options == sorted(options)
    picker.select_option(label="<img src=x onerror=alert(1)>")
    texts.locator(".mw-range").get_by_text("1–1 of 1").wait_for()
    assert card.locator(".mw-prose").inner_text() == "<script>alert(1)</script>"
    notebook.screenshots("inspector-texts", of=".mw-inspector")

    rows.scroll_into_view_if_needed()
    first, second = rows.locator(".mw-card").nth(0), rows.locator(".mw-card").nth(1)
    assert second.locator(".mw-value-name").first.text_content() == "column 7"
    assert (
        second.locator(".mw-values li > :last-child").first.text_content().startswith("50 (usually")
    )
    assert first.locator(".mw-value-name").first.text_content() == "<b>ward</b>"
    assert (
        first.locator(".mw-values li > :last-child")
        .first.text_content()
        .startswith("<img src=x onerror=alert(1)>")
    )
    assert second.locator(".mw-values li").last.text_content() == "… 2 more"
    notebook.screenshots("inspector-rows", of=rows)
    second.dblclick()
    opened = rows.locator(".mw-opened")
    opened.locator(".mw-values").wait_for()
    assert opened.locator(".mw-values li").count() == 10
    assert opened.locator("ul.mw-options li").first.text_content().startswith("0")
    notebook.screenshots("inspector-open-row", of=rows)
    assert page.locator(".mw-inspector img, .mw-inspector script, .mw-inspector b").count() == 0


RECORDED = """
import memowidgets as mw
dashboard = mw.open_recorded("{}").dashboard()
dashboard
"""
ROWS = """
import numpy as np
import pandas as pd
from memowidgets.data import TableDataset
from memowidgets.widgets import SampleInspector
""" + TABLE.replace("page_size=4", "page_size=24")
SIZES = [(960, 780), (1440, 900), (390, 800)]
PLACES = """() => [...document.querySelectorAll(
    ".mw-scope, .mw-decide .mw-choice, .mw-undo, .mw-export, .mw-card:first-child")]
    .map((part) => part.getBoundingClientRect())
    .map(({ x, y }) => [Math.round(x), Math.round(y + scrollY)])
"""


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("kind", ["patients-smollm2", "digits", "rows"])
def test_no_decision_is_made_on_what_is_not_seen(widget_page, kind, width, height):
    """After each decision the chosen sample is seen whole, and no button has moved."""
    cell = ROWS if kind == "rows" else RECORDED.format(kind)
    shown = widget_page([cell], width=width, height=height)
    page = shown.page
    page.locator(".mw-card").first.click()
    places = [page.evaluate(PLACES)]
    decide_on_ten(page, lambda: places.append(page.evaluate(PLACES)))
    assert places[0] == places[1]
    shown.screenshots(f"in-view-{kind}", widths=[width])
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    for done in range(3):
        page.locator(".mw-where").get_by_text(f"{done + 1} of").wait_for()
        assert in_view(page.locator(".mw-sample")), done
        page.keyboard.press("r")
