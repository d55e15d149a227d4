"""The inspector in a real browser: open, decide, undo, with hostile texts; and look."""

from __future__ import annotations

import json

import pytest

from tests.browser.harness import pixels_of

IMAGES = """
import tempfile
from pathlib import Path
from memowidgets.data import ImageDataset
from memowidgets.decisions import DecisionLog
from memowidgets.store import RunDirectory
from memowidgets.widgets import Extra, SampleInspector
from tests.widgets.fake_source import detail_of
from tests.widgets.fake_source import digit_like, hostile_questions, scores_like_psmi
run = RunDirectory(Path(tempfile.mkdtemp()) / "run")
n = 300
images, labels = digit_like(n)
scores, errors, log_lira = scores_like_psmi(n)
data = ImageDataset.from_arrays(images, labels).with_canaries(20)
computed, log = [], DecisionLog(run)
inspector = SampleInspector(
    data, scores, log_lira >= 4, errors=errors, log_lira=log_lira, title="PSMI, last",
    decisions=log, page_size=12,
    detail=lambda position: detail_of(position, n),
    compute=lambda layer, checkpoint: computed.append((layer, checkpoint)),
    extras={"loss": Extra("Loss", lambda: (np.arange(n), -scores))},
)
inspector
"""
IMAGES = "import numpy as np\n" + IMAGES

QUESTIONS = """
import tempfile
import numpy as np
from pathlib import Path
from memowidgets.decisions import DecisionLog
from memowidgets.widgets import SampleInspector
from tests.widgets.fake_source import detail_of
from tests.widgets.fake_source import hostile_questions, scores_like_psmi
folder = Path(tempfile.mkdtemp())
records, names = hostile_questions()
names[1] = "\\u202egpj.evil\\nid"
n = len(records)
scores, errors, log_lira = scores_like_psmi(n)
p, log = np.random.default_rng(0).dirichlet([1, 1, 1, 1], n), DecisionLog()
inspector = SampleInspector(
    records, scores, log_lira >= 4, tau=0.4, log_lira=log_lira, errors=errors, probabilities=p,
    ids=names, filter="all", sort="order", title="PSMI, layer 30", decisions=log,
    class_names=["A", "<img src=x onerror=alert(1)>", "C", "D"],
    detail=lambda position: detail_of(position, n, layers=30, checkpoints=6),
)
inspector
"""


def decided(notebook):
    """What Python holds, by id."""
    return notebook.python("{k: v.decision for k, v in log.table().items()}")


def cards(page):
    return page.locator(".mw-card")


@pytest.fixture
def images(widget_page):
    notebook = widget_page([IMAGES])
    notebook.page.wait_for_selector(".mw-card")
    return notebook


@pytest.fixture
def questions(widget_page):
    notebook = widget_page([QUESTIONS])
    notebook.page.wait_for_selector(".mw-card")
    return notebook


def said(page, text):
    page.locator(".mw-said").get_by_text(text).wait_for()


def focused(page):
    """The position of the card that has the focus."""
    return page.evaluate("() => document.activeElement.dataset.position")


def test_a_sample_opens_by_keyboard_and_the_focus_comes_back(images):
    page = images.page
    images.screenshots("inspector-images", of=".mw-inspector")
    cards(page).first.focus()
    page.keyboard.press("ArrowRight")
    second = cards(page).nth(1).get_attribute("data-position")
    page.keyboard.press("Enter")
    page.locator(".mw-where").get_by_text("2 of 22").wait_for()
    page.locator(".mw-lira").wait_for()
    assert page.evaluate("() => document.activeElement.closest('.mw-opened') !== null")
    assert page.locator(".mw-near").count() == 6
    assert "log-LiRA" in page.locator(".mw-lira-legend").inner_text()
    images.screenshots("inspector-open-image", of=".mw-inspector")
    page.locator(".mw-opened").focus()  # where it was before Lab changed its theme for pictures
    page.keyboard.press("Escape")
    assert focused(page) == second
    assert page.locator(".mw-opened").is_hidden()
    page.keyboard.press("Enter")
    page.locator(".mw-lira").wait_for()
    page.keyboard.press("ArrowRight")
    page.locator(".mw-where").get_by_text("3 of 22").wait_for()
    page.get_by_label("next sample").click()
    page.locator(".mw-where").get_by_text("4 of 22").wait_for()
    fourth = int(page.locator(".mw-card").nth(3).get_attribute("data-position"))
    images.eventually("inspector.selected", fourth)
    page.locator(".mw-near").nth(1).click()
    page.locator(".mw-where").get_by_text("not in this filter").wait_for()
    page.get_by_label("previous sample").click()
    page.locator(".mw-where").get_by_text("3 of 22").wait_for()
    for number in range(4, 14):  # on to the next page
        page.keyboard.press("ArrowRight")
        page.locator(".mw-where").get_by_text(f"{number} of 22").wait_for()
    page.locator(".mw-range").get_by_text("13–22 of 22").wait_for()
    page.keyboard.press("Escape")
    assert focused(page) == cards(page).first.get_attribute("data-position")
    images.eventually("inspector.page", 1)


def test_decisions_by_key_and_button_are_saved_and_undone(images):
    page = images.page
    first = cards(page).first
    first.focus()
    name = first.locator(".mw-id").inner_text()
    page.keyboard.press("r")
    said(page, f"{name} is to be removed.")
    first.locator(".mw-made-remove").wait_for()
    assert focused(page) == cards(page).nth(1).get_attribute("data-position")  # it goes on
    assert images.python("(run.path / 'decisions.csv').read_text()") == (
        f'"id","decision","note"\n"{name}","remove",""\n'
    )
    page.get_by_text("1 of 22 decided").wait_for()
    page.get_by_role("button", name="Keep").first.click()
    cards(page).nth(1).locator(".mw-made-keep").wait_for()
    page.get_by_label("filter by decision").select_option("keep")
    page.locator(".mw-range").get_by_text("1–1 of 1").wait_for()
    page.get_by_label("filter by decision").select_option("any")
    page.get_by_role("button", name="Undo (2)").click()
    said(page, "Undone: 1 sample.")
    cards(page).first.focus()
    page.keyboard.press("Control+z")
    page.locator(".mw-made").first.wait_for(state="detached")
    assert decided(images) == {}
    assert page.get_by_role("button", name="Anonymise").is_disabled()  # these are images


def test_a_note_is_kept_beside_the_decision(images):
    page = images.page
    cards(page).first.focus()
    page.keyboard.press("Enter")
    page.locator(".mw-lira").wait_for()
    note = page.get_by_role("textbox", name="note (kept in decisions.csv)")
    note.fill("=HYPERLINK(1) <b>ward 7</b>")
    note.press("Tab")
    said(page, "Note saved.")
    page.locator(".mw-opened .mw-choice[data-decision=keep]").click()
    page.locator(".mw-where").get_by_text("2 of 22").wait_for()  # it goes on
    page.get_by_label("previous sample").click()
    page.locator(".mw-opened .mw-choice[data-decision=keep][aria-pressed=true]").wait_for()
    assert note.input_value() == "=HYPERLINK(1) <b>ward 7</b>"
    assert "\"'=HYPERLINK" in images.python("(run.path / 'decisions.csv').read_text()")
    assert images.python("inspector.decisions.iloc[0].tolist()[1:]") == [
        "keep", "=HYPERLINK(1) <b>ward 7</b>",
    ]  # fmt: skip
    saved = json.dumps(images.python("inspector.get_state()"))
    assert "ward 7" not in saved
    assert "HYPERLINK" not in saved


def test_several_are_selected_and_decided_on_at_once(images):
    """The five most at risk are removed by three actions: two clicks and a key."""
    page = images.page
    cards(page).first.locator(".mw-mark").click()
    cards(page).nth(4).click(modifiers=["Shift"])
    assert page.locator(".mw-card[aria-checked=true]").count() == 5
    images.screenshots("inspector-selected", of=".mw-inspector", widths=[960])
    page.get_by_label("decide on").get_by_text("5 selected").wait_for(state="attached")
    page.get_by_role("button", name="Remove").first.click()
    said(page, "5 of 5 samples changed")
    worst = images.python("[data.ids[i] for i in np.argsort(scores, kind='stable')[:5].tolist()]")
    assert set(decided(images)) == set(map(str, worst))
    assert page.locator(".mw-card[aria-checked]").count() == 0
    page.get_by_text("5 of 22 decided").wait_for()
    cards(page).nth(1).focus()
    page.keyboard.press("x")
    assert page.locator(".mw-card[aria-checked=true]").count() == 1
    page.keyboard.press("x")
    assert page.locator(".mw-card[aria-checked]").count() == 0


def test_a_bulk_decision_names_the_count_and_asks_first(images):
    page = images.page
    page.get_by_label("decide on").select_option("all")
    page.get_by_role("button", name="Remove").first.click()
    dialog = page.get_by_role("alertdialog")
    dialog.get_by_text("all 22 samples").wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Cancel"
    images.screenshots("inspector-bulk", of=".mw-inspector", widths=[600])
    page.keyboard.press("Escape")
    assert dialog.is_hidden()
    assert decided(images) == {}
    page.get_by_role("button", name="Remove").first.click()
    images.python("setattr(inspector, 'tau', -0.2)")  # meanwhile there are fewer
    said(page, "The filter shows other samples now. Nothing was changed.")
    assert dialog.is_hidden()
    assert decided(images) == {}
    fewer = images.python("int((scores <= -0.2).sum())")
    page.get_by_role("button", name="Remove").first.click()
    page.get_by_role("button", name=f"Remove {fewer} samples").click()
    said(page, f"{fewer} of {fewer} samples changed")
    assert set(decided(images).values()) == {"remove"}
    page.get_by_role("button", name="Undo (1)").click()
    said(page, f"Undone: {fewer} samples.")


COLOURS = """
import numpy as np
from memowidgets.widgets import SampleInspector
shapes = [(32, 32, 3), (8, 8, 1), (8, 8, 4), (100, 60, 3)]
inspectors = {}
def image(shape, corner):
    made = np.full(shape, 10 * corner, dtype=np.uint8)
    made[0, 0] = 250 - corner
    made[..., 3:] = 255
    return made
"""
SHOWN = "inspectors[{i}] = SampleInspector(np.stack([image(shapes[{i}], k) for k in range(6)]))"


def test_every_image_shows_its_own_pixels(widget_page):
    cells = [f"{SHOWN.format(i=i)}\ninspectors[{i}]" for i in range(4)]
    notebook = widget_page([COLOURS, *cells], height=2600)
    notebook.page.wait_for_function("() => document.querySelectorAll('.mw-card').length === 24")
    shown = notebook.page.locator(".mw-cards .mw-image")
    assert shown.count() == 24
    for i in range(24):
        kind, corner = divmod(i, 6)
        pixels = pixels_of(shown.nth(i))
        middle = pixels.shape[0] // 2, pixels.shape[1] // 2
        assert (pixels[middle] == 10 * corner).all(), (kind, corner)
        assert (pixels[-2, -2] == 10 * corner).all(), (kind, corner)
        if kind < 3:  # the largest are made smaller, which mixes neighbours
            assert (pixels[1, 1] == 250 - corner).all(), (kind, corner)
    notebook.page.locator(".mw-card").nth(13).dblclick()
    opened = notebook.page.locator(".mw-sample .mw-image")
    assert (pixels_of(opened)[-2, -2] == 10).all()


def test_a_read_only_run_says_so_and_exports(images, tmp_path):
    page = images.page
    images.python("setattr(run, 'read_only', True)")
    cards(page).first.focus()
    page.keyboard.press("r")
    page.locator(".mw-banner").get_by_text("kept in memory only").wait_for()
    cards(page).first.locator(".mw-made-remove").wait_for()
    images.screenshots("inspector-read-only", of=".mw-inspector", widths=[1400])
    with page.expect_download() as downloading:
        page.locator(".mw-export summary").click()
        page.locator(".mw-export").get_by_text("Export them before the kernel ends").wait_for()
        page.get_by_role("button", name="CSV", exact=True).click()
    downloading.value.save_as(tmp_path / "got.csv")
    assert downloading.value.suggested_filename == "decisions.csv"
    assert "remove" in (tmp_path / "got.csv").read_text()
    assert not images.python("(run.path / 'decisions.csv').exists()")


def test_a_text_is_decided_to_be_anonymised(questions):
    page = questions.page
    cards(page).first.focus()
    page.keyboard.press("a")
    said(page, "is to be anonymised.")
    cards(page).first.locator(".mw-made-anonymise").wait_for()
    page.get_by_role("button", name="Undo (1)").click()
    cards(page).locator(".mw-made-anonymise").wait_for(state="detached")


def test_a_sample_is_relabelled_by_keyboard_and_several_by_a_list(questions):
    page = questions.page
    cards(page).first.focus()
    page.keyboard.press("l")
    classes = page.locator(".mw-opened .mw-relabel")
    classes.locator(".mw-suggested").first.wait_for()
    page.locator(".mw-lira").wait_for()
    questions.screenshots("inspector-relabel", of=".mw-inspector")
    names = ["A", "<img src=x onerror=alert(1)>", "C", "D"]
    new = classes.locator(".mw-suggested .mw-strong").first.inner_text()
    classes.locator(".mw-suggested").first.focus()
    page.keyboard.press("Enter")
    said(page, f"is to be relabelled as {new}")
    made = "{k: v.to for k, v in log.table().items()}"
    assert list(questions.python(made).values()) == [new]
    page.locator(".mw-where").get_by_text("2 of 9").wait_for()
    page.keyboard.press("l")
    classes.locator("select").select_option(label=names[1])
    classes.locator("select").press("r")  # a letter chooses in the list, and decides nothing
    classes.locator("select").select_option(label=names[1])
    classes.get_by_role("button", name="Relabel").click()
    said(page, "is to be relabelled as <img")
    page.keyboard.press("Escape")
    cards(page).nth(0).locator(".mw-made-relabel").get_by_text(f"relabel as {new}").wait_for()
    for i in (3, 4):
        cards(page).nth(i).locator(".mw-mark").click()
    bar = page.locator(".mw-decide")
    bar.locator('.mw-choice[data-decision="relabel"]').click()
    bar.locator(".mw-relabel select").select_option(label="D")
    bar.locator(".mw-relabel .mw-apply").click()
    said(page, "2 of 2 samples changed: now to be relabelled as D.")
    assert list(questions.python(made).values())[2:] == ["D", "D"]
    page.get_by_text("6 of 9 decided").wait_for()  # three samples share the id of the fourth
    page.get_by_role("button", name="Undo (3)").click()
    said(page, "Undone: 2 samples.")


def test_hostile_texts_ids_and_class_names_stay_text(questions):
    page = questions.page
    questions.screenshots("inspector-questions", of=".mw-inspector")
    page.locator(".mw-id").get_by_text("⟨U+202E⟩gpj.evil⟨U+000A⟩id").wait_for()
    for position in range(9):
        page.locator(f'.mw-card[data-position="{position}"] .mw-open').click()
        page.locator(".mw-lira").wait_for()
        page.locator(".mw-where").get_by_text(f"{position + 1} of 9").wait_for()
        assert page.locator(".mw-inspector script, .mw-inspector img, .mw-inspector b").count() == 0
        box = page.locator(".mw-inspector").bounding_box()
        for part in page.locator(".mw-opened-left, .mw-opened-right").all():
            inside = part.bounding_box()
            assert inside["x"] + inside["width"] <= box["x"] + box["width"] + 1
        if position == 4:
            assert "⟨U+202E⟩right to left override" in page.locator(".mw-sample").inner_text()
            questions.screenshots("inspector-open-question", of=".mw-inspector")
        page.keyboard.press("Escape")
    cards(page).nth(1).focus()
    page.keyboard.press("r")
    cards(page).nth(1).locator(".mw-made-remove").wait_for()
    notes = "['<img src=x onerror=alert(1)>\\u202e\\u200b<script>alert(2)</script>', 'x' * 4000]"
    questions.python(f"[log.decide([names[i]], None, n) for i, n in enumerate({notes})]")
    tag = cards(page).nth(0).locator(".mw-tag[title]")
    tag.wait_for()
    assert tag.get_attribute("title").startswith("<img src=x onerror=alert(1)>⟨U+202E⟩⟨U+200B⟩<scr")
    box = page.locator(".mw-inspector").bounding_box()
    assert cards(page).nth(1).bounding_box()["width"] < box["width"]
    assert page.locator(".mw-inspector script, .mw-inspector img").count() == 0
    saved = json.dumps(questions.python("inspector.get_state()"))
    for private in ("wobbling", "gpj.evil", "patient-007"):
        assert private not in saved
    assert decided(questions)["\u202egpj.evil\nid"] == "remove"
