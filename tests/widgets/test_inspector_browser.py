"""The inspector in a real browser: open, decide, undo, with hostile texts; and look."""

from __future__ import annotations

from memowidgets.decisions import Decision, from_csv
from tests.browser.harness import pixels_of
from tests.browser.test_everywhere import decided

IMAGES = """
import tempfile
import numpy as np
from pathlib import Path
from memowidgets.data import ImageDataset
from memowidgets.decisions import DecisionLog
from memowidgets.store import RunDirectory
from memowidgets.widgets import SampleInspector
from tests.widgets.fake_source import detail_of, digit_like, scores_like_psmi
run = RunDirectory(Path(tempfile.mkdtemp()) / "run")
n = 300
images, labels = digit_like(n)
scores, errors, log_lira = scores_like_psmi(n)
data = ImageDataset.from_arrays(images, labels).with_canaries(20)
log = DecisionLog(run)
inspector = SampleInspector(
    data, scores, log_lira >= 4, errors=errors, log_lira=log_lira, title="PSMI, last",
    decisions=log, page_size=12,
    detail=lambda position: detail_of(position, n),
)
inspector
"""
QUESTIONS = """
import numpy as np
from memowidgets.decisions import DecisionLog
from memowidgets.widgets import SampleInspector
from tests.widgets.fake_source import detail_of, hostile_questions, scores_like_psmi
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


def kept(notebook):
    """What Python holds, by id."""
    return notebook.python("{k: v.decision for k, v in log.table().items()}")


def cards(page):
    return page.locator(".mw-card")


def stands(page, where):
    """Wait until the open sample is at a place of the list."""
    page.locator(".mw-where").get_by_text(where, exact=True).wait_for()


def said(page, text):
    page.locator(".mw-said").get_by_text(text).wait_for()


def focused(page):
    """The position of the card that has the focus."""
    return page.evaluate("() => document.activeElement.dataset.position")


def tools(page):
    """Show what is folded: search, order, selection, export."""
    page.get_by_role("button", name="search, order, select").click()


def test_the_open_sample_follows_the_keyboard_from_page_to_page(widget_page):
    images = widget_page([IMAGES])
    page = images.page
    page.wait_for_selector(".mw-card")
    images.screenshots("inspector-images", of=".mw-inspector")
    stands(page, "1 of 22")  # the first is open at once
    a_key_held_down_asks_for_few_samples_and_ends_on_the_last(images)
    cards(page).first.click()
    stands(page, "1 of 22")
    page.keyboard.press("ArrowRight")
    stands(page, "2 of 22")
    second = cards(page).nth(1).get_attribute("data-position")
    assert focused(page) == second
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.closest('.mw-opened') !== null")
    page.locator(".mw-fold summary").click()
    page.locator(".mw-near").nth(5).wait_for()
    assert "log-LiRA" in page.locator(".mw-lira-legend").inner_text()
    images.screenshots("inspector-open-image", of=".mw-inspector")
    page.locator(
        ".mw-opened"
    ).focus()  # where it was before Lab changed its theme for pictures
    page.keyboard.press("Escape")
    assert focused(page) == second
    page.keyboard.press("j")
    stands(page, "3 of 22")
    assert page.locator(".mw-next").is_hidden()  # before the first decision
    page.keyboard.press("j")
    stands(page, "4 of 22")
    fourth = int(cards(page).nth(3).get_attribute("data-position"))
    images.eventually("inspector.selected", fourth)
    page.locator(".mw-near").nth(1).click()
    stands(page, "not in this filter")
    page.keyboard.press("j")
    stands(page, "4 of 22")
    for number in range(5, 14):  # on to the next page
        page.keyboard.press("j")
        stands(page, f"{number} of 22")
    page.locator(".mw-range").get_by_text("13–22 of 22").wait_for()
    images.eventually("inspector.page", 1)
    page.keyboard.press("ArrowLeft")
    stands(page, "12 of 22")
    images.eventually("inspector.page", 0)


def a_key_held_down_asks_for_few_samples_and_ends_on_the_last(images):
    page = images.page
    asked = []
    images.names["inspector"].on_msg(
        lambda _, content, __: asked.append(content["type"])
    )
    page.locator(".mw-models").wait_for()
    cards(page).first.focus()
    for _ in range(11):
        page.keyboard.down("j")
    page.keyboard.up("j")
    stands(page, "12 of 22")
    last = int(cards(page).nth(11).get_attribute("data-position"))
    page.locator(f'.mw-card[data-position="{last}"][aria-selected=true]').wait_for()
    page.locator(".mw-models").wait_for()
    images.eventually("inspector.selected", last)
    assert 0 < asked.count("detail") <= 12


def test_decisions_on_images(widget_page, tmp_path):
    images = widget_page([IMAGES])
    images.page.wait_for_selector(".mw-card")
    decisions_by_key_and_button_are_saved_and_undone(images)
    a_note_is_kept_beside_the_decision(images)
    several_are_selected_and_decided_on_at_once(images)
    a_recording_says_how_long_decisions_last_and_exports(images, tmp_path)


def decisions_by_key_and_button_are_saved_and_undone(images):
    page = images.page
    first = cards(page).first
    first.focus()
    name = page.locator(".mw-whole-id").inner_text()
    page.keyboard.press("r")
    said(page, f"{name} is to be removed.")
    first.locator(".mw-made-remove").wait_for()
    # it goes on
    assert focused(page) == cards(page).nth(1).get_attribute("data-position")
    saved = images.python("(run.path / 'decisions.csv').read_text()")
    assert from_csv(saved) == {name: Decision("remove")}
    page.get_by_text("1 of 22 decided").wait_for()
    page.get_by_role("button", name="Keep").click()
    cards(page).nth(1).locator(".mw-made-keep").wait_for()
    tools(page)
    page.get_by_label("filter by decision").select_option("keep")
    page.locator(".mw-range").get_by_text("1 of 22 match").wait_for()
    page.locator(".mw-choice[data-decision=keep][aria-pressed=true]").wait_for()
    page.get_by_label("filter by decision").select_option("any")
    page.get_by_role("button", name="Undo").click()
    said(page, "Undone: 1 sample.")
    cards(page).first.focus()
    page.keyboard.press("Control+z")
    page.locator("[class*=mw-made-]").first.wait_for(state="detached")
    assert kept(images) == {}
    assert not page.get_by_role(
        "button", name="Anonymise"
    ).is_visible()  # these are images
    page.keyboard.press("a")
    said(page, "Only texts can be anonymised")


def a_note_is_kept_beside_the_decision(images):
    page = images.page
    page.locator(".mw-models").wait_for()
    page.locator(".mw-fold summary").click()
    note = page.get_by_role("textbox", name="note")
    note.fill("=HYPERLINK(1) <b>ward 7</b>")
    note.press("Tab")
    said(page, "Note saved.")
    page.locator(".mw-choice[data-decision=keep]").click()
    stands(page, "2 of 22")  # it goes on
    cards(page).first.click()
    page.locator(".mw-choice[data-decision=keep][aria-pressed=true]").wait_for()
    assert note.input_value() == "=HYPERLINK(1) <b>ward 7</b>"
    assert "\"'=HYPERLINK" in images.python("(run.path / 'decisions.csv').read_text()")
    made = "inspector.decisions.loc[0, ['decision', 'note']].tolist()"
    assert images.python(made) == [
        "keep", "=HYPERLINK(1) <b>ward 7</b>",
    ]  # fmt: skip


def several_are_selected_and_decided_on_at_once(images):
    page = images.page
    cards(page).first.locator(".mw-mark").click()
    cards(page).nth(4).click(modifiers=["Shift"])
    assert page.locator(".mw-card[aria-checked=true]").count() == 5
    images.screenshots("inspector-selected", of=".mw-inspector", widths=[960])
    page.locator(".mw-decide").get_by_text("for the 5 selected").wait_for()
    page.get_by_role("button", name="Remove").click()
    said(page, "5 of 5 samples changed")
    worst = images.python(
        "[data.ids[i] for i in np.argsort(scores, kind='stable')[:5].tolist()]"
    )
    assert set(kept(images)) == set(map(str, worst))
    assert page.locator(".mw-card[aria-checked]").count() == 0
    page.get_by_text("5 of 22 decided").wait_for()
    cards(page).nth(1).click()
    page.keyboard.press("x")
    assert page.locator(".mw-card[aria-checked=true]").count() == 1
    page.keyboard.press("x")
    assert page.locator(".mw-card[aria-checked]").count() == 0


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
    notebook.page.wait_for_function(
        "() => document.querySelectorAll('.mw-card').length === 24"
    )
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
    notebook.page.locator(".mw-card").nth(13).click()
    opened = (
        notebook.page.locator(".mw-inspector").nth(2).locator(".mw-sample .mw-image")
    )
    assert (pixels_of(opened)[-2, -2] == 10).all()


def a_recording_says_how_long_decisions_last_and_exports(images, tmp_path):
    page = images.page
    before = images.python("(run.path / 'decisions.csv').read_text()")
    images.python("setattr(run, 'read_only', True)")
    cards(page).first.click()
    page.keyboard.press("k")
    banner = page.locator(".mw-banner")
    banner.get_by_text("Your decisions last until the kernel stops").wait_for()
    cards(page).first.locator(".mw-made-keep").wait_for()
    images.screenshots("inspector-read-only", of=".mw-inspector", widths=[1400])
    with page.expect_download() as downloading:
        banner.get_by_role("button", name="Export").click()
    downloading.value.save_as(tmp_path / "got.csv")
    assert downloading.value.suggested_filename == "decisions.csv"
    assert '"keep"' in (tmp_path / "got.csv").read_text()
    assert images.python("(run.path / 'decisions.csv').read_text()") == before


def test_decisions_on_hostile_questions(widget_page):
    questions = widget_page([QUESTIONS])
    questions.page.wait_for_selector(".mw-card")
    a_text_is_decided_to_be_anonymised(questions)
    a_sample_is_relabelled_by_keyboard_and_several_by_a_list(questions)
    hostile_texts_ids_and_class_names_stay_text(questions)


def test_a_late_answer_takes_nothing_from_what_was_marked_and_opened_since(widget_page):
    images = widget_page([IMAGES])
    page, inspector, held = images.page, images.names["inspector"], []
    page.wait_for_selector(".mw-card")
    inspector._reply, answer = (
        lambda *asked, **more: held.append((asked, more)),
        inspector._reply,
    )
    cards(page).first.click()
    page.keyboard.press("k")
    images.eventually("len(log.table())", 1)
    cards(page).nth(4).click()
    tools(page)
    for i in (2, 3):
        cards(page).nth(i).locator(".mw-mark").click()
    for asked, more in held:
        answer(*asked, **more)
    said(page, "kept")
    stands(page, "5 of 22")
    page.locator(".mw-scope-text").get_by_text("for the 2 selected").wait_for()


def a_text_is_decided_to_be_anonymised(questions):
    page = questions.page
    cards(page).first.focus()
    page.keyboard.press("a")
    said(page, "is to be anonymised.")
    cards(page).first.locator(".mw-made-anonymise").wait_for()
    page.get_by_role("button", name="Undo").click()
    cards(page).locator(".mw-made-anonymise").wait_for(state="detached")


def a_sample_is_relabelled_by_keyboard_and_several_by_a_list(questions):
    page = questions.page
    page.locator(".mw-models").wait_for()
    wrong = questions.python(
        "[i for i in range(n) if p[i].argmax() != records[i]['answer']"
        " and p[i].argmax() < len(records[i]['choices'])]"
    )
    one = page.locator(f'.mw-card[data-position="{wrong[0]}"]')
    one.click()
    relabel = page.locator('.mw-choice[data-decision="relabel"]')
    relabel.get_by_text("Relabel: ").wait_for()
    questions.screenshots("inspector-relabel", of=".mw-inspector")
    page.keyboard.press("l")  # the class that the button names
    said(page, " → ")
    made = "{k: v.to for k, v in log.table().items()}"
    letters = ["A", "<img src=x onerror=alert(1)>", "C", "D"]
    guess = questions.python(f"int(p[{wrong[0]}].argmax())")
    assert list(questions.python(made).values()) == [letters[guess]]
    one.locator(".mw-made-relabel").wait_for()
    one.click()
    page.get_by_label("relabel as another class").click()
    other = page.get_by_label("any class")
    other.select_option(value="0")
    other.press("r")  # a letter chooses in the list, and decides nothing
    other.select_option(value="0")
    page.locator(".mw-apply").click()
    questions.eventually(f"list({made}.values())", ["A"])
    # where the answer leads: it would close the next list
    stands(page, f"{wrong[0] + 2} of 9")
    for i in (3, 4):
        cards(page).nth(i).locator(".mw-mark").click()
    relabel.click()
    page.get_by_label("any class").select_option(label="D")
    page.locator(".mw-relabel .mw-apply").click()
    said(page, "2 of 2 samples changed: now to be relabelled as D.")
    assert list(questions.python(made).values())[-2:] == ["D", "D"]
    page.get_by_role("button", name="Undo").click()
    said(page, "Undone: 2 samples.")
    for left in (1, 0):
        page.get_by_role("button", name="Undo").click()
        decided(page, left)


def hostile_texts_ids_and_class_names_stay_text(questions):
    page = questions.page
    questions.screenshots("inspector-questions", of=".mw-inspector")
    page.locator(".mw-fold summary").click()
    for position in range(9):
        page.locator(f'.mw-card[data-position="{position}"]').click()
        stands(page, f"{position + 1} of 9")
        page.locator(".mw-lira").wait_for()
        assert page.locator(".mw-inspector script, .mw-inspector img").count() == 0
        assert (
            page.locator(".mw-opened-body b, .mw-card b")
            .filter(has_text="ward")
            .count()
            == 0
        )
        box = page.locator(".mw-inspector").bounding_box()
        for part in page.locator(".mw-opened-body, .mw-decide, .mw-list-box").all():
            inside = part.bounding_box()
            assert inside["x"] + inside["width"] <= box["x"] + box["width"] + 1
        if position == 1:
            page.locator(".mw-whole-id").get_by_text(
                "⟨U+202E⟩gpj.evil⟨U+000A⟩id"
            ).wait_for()
        if position == 4:
            assert (
                "⟨U+202E⟩right to left override"
                in page.locator(".mw-sample").inner_text()
            )
            questions.screenshots("inspector-open-question", of=".mw-inspector")
    cards(page).nth(1).click()
    page.keyboard.press("r")
    cards(page).nth(1).locator(".mw-made-remove").wait_for()
    notes = "['<img src=x onerror=alert(1)>\\u202e\\u200b<script>alert(2)</script>', 'x' * 4000]"
    questions.python(
        f"[log.decide([names[i]], None, n) for i, n in enumerate({notes})]"
    )
    tag = cards(page).nth(0).locator(".mw-made[title]")
    tag.wait_for()
    assert tag.get_attribute("title").startswith(
        "<img src=x onerror=alert(1)>⟨U+202E⟩⟨U+200B⟩<scr"
    )
    box = page.locator(".mw-inspector").bounding_box()
    assert cards(page).nth(1).bounding_box()["width"] < box["width"]
    assert page.locator(".mw-inspector script, .mw-inspector img").count() == 0
    assert kept(questions)["\u202egpj.evil\nid"] == "remove"
