"""Texts of many classes and rows of a table in the inspector in a real browser; and look."""

from __future__ import annotations

import re

import pytest

from tests.browser.harness import in_view
from tests.browser.test_everywhere import decide_on_ten, decided, recorded

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
    texts, rows = (
        page.locator(".mw-inspector").nth(0),
        page.locator(".mw-inspector").nth(1),
    )
    texts.locator(".mw-card").first.wait_for()
    rows.locator(".mw-card").first.wait_for()

    texts.get_by_role("button", name="search, order, select").click()
    texts.locator(".mw-fold summary").click()
    likeliest = texts.locator(".mw-likeliest .mw-option")
    likeliest.nth(5).wait_for()  # the label is not among the first five
    of_label = likeliest.filter(has=page.locator(".mw-letter-label"))
    assert of_label.locator(".mw-option-text").all_inner_texts() == ["intent a0"]
    texts.get_by_label("search", exact=True).fill("<IMG src=x")  # the name of a class
    texts.locator(".mw-range").get_by_text(re.compile("^1 of .* match$")).wait_for()
    row = texts.locator(".mw-card").first
    assert row.locator(".mw-prose").inner_text() == "<script>alert(1)</script>"
    assert row.locator(".mw-strong").inner_text() == "<img src=x onerror=alert(1)>"
    notebook.screenshots("inspector-texts", of=".mw-inspector")

    rows.scroll_into_view_if_needed()
    first, second = rows.locator(".mw-card").nth(0), rows.locator(".mw-card").nth(1)
    assert second.locator(".mw-prose").text_content().startswith("column 7 50, ")
    assert (
        first.locator(".mw-prose")
        .text_content()
        .startswith("<b>ward</b> <img src=x onerror=alert")
    )
    notebook.screenshots("inspector-rows", of=rows)
    second.click()
    opened = rows.locator(".mw-opened")
    opened.locator(".mw-where").get_by_text("2 of 40").wait_for()
    values = opened.locator(".mw-values li")
    values.nth(9).wait_for()  # a card has eight of the ten
    assert (
        values.locator("> :last-child").first.text_content().startswith("50 (usually")
    )
    assert page.locator(".mw-inspector img, .mw-inspector script").count() == 0


SIZES = {
    "patients-smollm2": [(960, 780), (1440, 900), (390, 800)],
    "digits": [(960, 780), (390, 800)],
}
PLACES = """() => [...document.querySelectorAll(
    ".mw-decide .mw-choice, .mw-other, .mw-next, .mw-find, .mw-card:first-child")]
    .map((part) => part.getBoundingClientRect())
    .filter(({ width }) => width > 0)
    .map(({ x, y }) => [Math.round(x), Math.round(y + scrollY)])
"""


@pytest.mark.parametrize("name", SIZES)
def test_no_decision_is_made_on_what_is_not_seen(widget_page, name):
    """After each decision the open sample is seen whole, and no button has moved."""
    shown = widget_page([recorded(name)])
    page = shown.page
    seen = [page.locator(part) for part in (".mw-sample", ".mw-facts-of", ".mw-decide")]
    sizes = SIZES[name]
    for width, height in sizes:
        shown.resize(width, height)
        page.locator(".mw-card").first.click()
        assert in_view(*seen)
        decide_on_ten(page, PLACES)
        if width == sizes[0][0]:
            all_of_the_first_is_seen(page)
            marks_keep_their_meaning(page)
        if width == sizes[-1][0]:
            buttons = page.locator(".mw-choice, .mw-tab, .mw-find").all()
            seen_ones = [one.bounding_box() for one in buttons if one.is_visible()]
            assert min(box["height"] for box in seen_ones) >= 40
        page.locator(".mw-card").first.focus()
        page.keyboard.press("Home")
        for _ in range(6):
            page.keyboard.press("ArrowRight")
        if width > 390:
            assert page.evaluate(AHEAD) >= (1 if name == "digits" else 2)
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        for done in range(3):
            page.locator(".mw-where").get_by_text(f"{done + 1} of").wait_for()
            assert in_view(*seen), done
            page.keyboard.press("r")
        for _ in range(13):
            page.keyboard.press("z")
        decided(page, 0)


def all_of_the_first_is_seen(page):
    """Of the first samples, all but what is folded stands above the buttons."""
    for number in range(24):
        page.locator(".mw-card").nth(number).click()
        page.locator(".mw-where").get_by_text(f"{number + 1} of").wait_for()
        page.locator(".mw-models").wait_for()
        below = page.evaluate(LAST_PART)
        assert below["last"] <= below["buttons"], number


# rows in view below the chosen one
AHEAD = """() => {
    const list = document.querySelector(".mw-list-scroll").getBoundingClientRect();
    const chosen = document.querySelector(".mw-card[aria-selected=true]");
    const below = [...document.querySelectorAll(".mw-card")]
        .map((card) => card.getBoundingClientRect())
        .filter(({ top, bottom }) =>
            top > chosen.getBoundingClientRect().top + 1 && bottom <= list.bottom + 1)
        .map(({ top }) => Math.round(top));
    return new Set(below).size;
}"""

FORCED = """() => {
    const of = (part) => getComputedStyle(document.querySelector(part));
    const [full, hollow] = [".mw-dot-full", ".mw-dot-hollow"].map((part) => of(part));
    return {
        dots: full.backgroundColor !== hollow.backgroundColor,
        chosen: of(".mw-card[aria-selected=true]").outlineStyle,
        sides: of(".mw-side-memorized .mw-flagged").stroke
            !== of(".mw-side-other .mw-flagged").stroke,
        sign: of(".mw-score-now").direction,
    };
}"""


def marks_keep_their_meaning(page):
    """With forced colours, and in a host that is written from right to left."""
    page.evaluate("document.documentElement.dir = 'rtl'")
    page.emulate_media(forced_colors="active")
    found = page.evaluate(FORCED)
    page.emulate_media(forced_colors="none")
    page.evaluate("document.documentElement.dir = 'ltr'")
    assert found == {"dots": True, "chosen": "solid", "sides": True, "sign": "ltr"}


LAST_PART = """() => ({
    last: document.querySelector(".mw-after").getBoundingClientRect().bottom,
    buttons: document.querySelector(".mw-decide").getBoundingClientRect().top,
})"""

BAD = """
import numpy as np
from memowidgets.data import ImageDataset, TextDataset
from memowidgets.widgets import SampleInspector
from tests.widgets.fake_source import detail_of
word = "an-endless-name-without-a-break-" * 5
names = [f"{word}{i}" for i in range(10_000)]
wide = np.arange(4, dtype=np.uint8).repeat(1000).reshape(4, 1, 1000)
wide[:, :, ::2] = 200
p = np.random.default_rng(0).dirichlet(np.full(40, 0.1), 40)
sentences = [f"A label that is a whole sentence, number {i}, and goes on." for i in range(40)]
hebrew = "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd " * 30
letters, two = list("abcdef"), dict(probabilities=[[0.1, 0.9]] * 4)
def texts(each, labels, names):
    return TextDataset.from_texts(each, labels, names)
made = {
    "one class": lambda: SampleInspector(letters, np.arange(-3, 3), labels=[0] * 6,
        class_names=["only"], probabilities=np.ones((6, 1))),
    "10,000 classes": lambda: SampleInspector(
        texts([f"text {i}" for i in range(10_000)], np.arange(10_000), names),
        np.linspace(-1, 1, 10_000)),
    "sentences": lambda: SampleInspector(
        texts([f"{word * 40}{i}" for i in range(40)], np.arange(40), sentences),
        np.linspace(-1, 1, 40), probabilities=p, ids=[f"{word}{i}" for i in range(40)],
        detail=lambda position: detail_of(position, 40)),
    "right to left": lambda: SampleInspector(
        texts([f"{hebrew}{i}" for i in range(4)], [0, 1, 0, 1], ["\u05d0" * 40, "\u05d1"]),
        [-1, -0.5, 0, 1], **two),
    "1 by 1000": lambda: SampleInspector(
        ImageDataset.from_arrays(wide, [0, 1, 0, 1]), [-1, -0.5, 0, 1], **two),
}
"""
SPILT = """() => {
  const root = document.querySelector(".mw-inspector").getBoundingClientRect();
  const found = [...document.querySelectorAll(".mw-inspector *")]
    .filter((part) => part.checkVisibility({ visibilityProperty: true })
        && !part.closest(".mw-spoken, svg, .mw-list-scroll *, .mw-opened-body *, option, select *"))
    .filter((part) => {
      const box = part.getBoundingClientRect();
      const beside = box.left < root.left - 1 || box.right > root.right + 1;
      return box.width > 1 && (beside || box.bottom > root.bottom + 1);
    })
    .map((part) => part.className);
  for (const name of [".mw-list-scroll", ".mw-opened-body", ".mw-sample"]) {
    const part = document.querySelector(name);
    if (part.checkVisibility() && part.scrollWidth > part.clientWidth + 1) found.push(name);
  }
  const boxes = [...document.querySelectorAll(".mw-choice, .mw-next")]
    .filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect());
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  const over = boxes.some((a, i) => boxes.some((b, j) => i < j && !apart(a, b)));
  return over ? [...found, "buttons over each other"] : found;
}"""


def test_the_layout_holds_whatever_the_samples_are(widget_page):
    shown = widget_page([BAD], width=960, height=780)
    page = shown.page
    for kind in shown.names["made"]:
        shown.run(f"inspector = made[{kind!r}]()\ninspector")
        page.locator(".mw-card").first.wait_for()
        for width in (960, 765, 390):
            page.set_viewport_size({"width": width, "height": 780})
            shown.wait_until_idle()
            assert page.evaluate(SPILT) == [], (kind, width)
            assert (
                page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            )
            name = f"bad-{kind.replace(' ', '-')}"
            shown.screenshots(name, of=".mw-inspector", widths=[width])
        if kind == "sentences":
            page.locator(
                ".mw-other"
            ).click()  # every class is offered, whatever its name
            assert page.evaluate(SPILT) == []
        if kind == "1 by 1000":
            page.add_style_tag(content=".mw-choices { width: 3000px; }")
            assert page.evaluate(SPILT)  # it would have been found
        shown.names["inspector"].close()
        page.locator(".mw-inspector").wait_for(state="detached")
