"""The widgets in a real browser: drag, type, choose, compute, cancel, and look."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from tests.browser.harness import drag, go_to_checkpoint
from tests.browser.test_everywhere import LINE_HEIGHTS, agree, counts, recorded, tau

DASHBOARD = """
from memowidgets.widgets import Dashboard, Missing
from tests.widgets.fake_source import FakeSource
source = FakeSource(
    seconds=20, missing_of={"logit_gap": Missing(why_not="nothing can be trained here")})
dashboard = Dashboard(source)
dashboard.page_size = 12
dashboard
"""


@pytest.fixture
def dashboard(widget_page):
    shown = widget_page([DASHBOARD])
    shown.page.wait_for_selector(".mw-card")
    return shown


def test_two_scores_are_compared_in_one_click_and_a_part_of_them_is_listed(dashboard):
    page = dashboard.page
    compare = page.get_by_role("button", name="Compare", exact=True)
    panel = page.get_by_role("region", name="Compare scores")
    compare.click()
    panel.locator(".mw-parts tr").nth(5).wait_for()
    dashboard.eventually("[one['metric'] for one in dashboard.comparing]", ["loss"])
    assert page.locator(".mw-card").first.is_hidden()
    assert panel.locator(".mw-curve-name").all_text_contents() == ["PSMI", "Loss"]
    slider = panel.get_by_role("slider", name="how many samples to look at")
    budget = dashboard.python("dashboard.counts['flagged']")
    assert slider.get_attribute("aria-valuetext") == f"{budget} of 600"
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    dashboard.eventually("dashboard.counts['flagged']", budget + 2)
    assert slider.get_attribute("aria-valuetext") == f"{budget + 2} of 600"
    dashboard.screenshots("widgets-compare", of=".mw-dashboard", widths=[960, 765, 390])

    dashboard.python("source.done.add(('psmi', 'last', 'epoch-1'))")
    panel.get_by_label("second score").select_option("epoch 1")
    panel.locator(".mw-curve-name", has_text="epoch 1").wait_for()
    only = panel.get_by_role("button", name="epoch 2 only")
    n = int(only.get_attribute("aria-label").split()[-2])
    assert 0 < n < budget
    only.press("Enter")
    page.locator(".mw-range").get_by_text(f"{n} of 600 match", exact=False).wait_for()
    chip = page.locator(".mw-part-chip")
    assert chip.inner_text().startswith(f"epoch 2 only, at {budget + 2}")
    assert panel.is_hidden()
    compare.click()  # where it was left
    panel.locator(".mw-curve-name", has_text="epoch 1").wait_for()
    panel.get_by_label("third score").select_option("Loss")
    panel.locator(".mw-curve-name").nth(2).wait_for()
    slider.press("Escape")
    page.locator(".mw-card").first.wait_for()
    dashboard.eventually("dashboard.comparing", [])
    assert compare.evaluate("one => one === document.activeElement")
    chip.click()
    page.locator(".mw-part-chip").wait_for(state="hidden")

    dashboard.python("setattr(source, 'truth', False) or dashboard.refresh()")
    page.locator(".mw-roc").wait_for(state="hidden")
    compare.click()
    page.locator(
        ".mw-compare:not(.mw-unanswered)"
    ).wait_for()  # not what it showed before
    page.locator(".mw-parts tr").nth(5).wait_for()
    page.locator(".mw-parts th").nth(2).wait_for(state="detached")
    assert page.locator(".mw-parts th").all_inner_texts() == ["flagged by", "samples"]
    assert page.locator(".mw-rocs").is_hidden()
    dashboard.screenshots("widgets-compare-unchecked", of=".mw-dashboard", widths=[960])


def test_the_share_menu_gives_python_that_restores_the_view_and_the_report(
    dashboard, tmp_path
):
    page = dashboard.page
    page.locator(".mw-histogram").press("ArrowRight")
    page.locator('.mw-chip[data-filter="missed"]').click()
    dashboard.eventually("dashboard.filter", "missed")
    menu = page.locator(".mw-sharing")
    menu.locator("summary").click()
    assert menu.get_by_role(
        "button", name="Copy a link"
    ).is_hidden()  # no address of its own
    menu.get_by_role("button", name="Copy as Python").click()
    text = menu.get_by_label("to copy")
    text.wait_for()
    imported, opened, state, shown = text.input_value().splitlines()
    assert imported == "import memowidgets as mw"
    assert opened == "dashboard = mw.Audit.open('/runs/a').dashboard()"
    assert shown == "dashboard"
    kept = ast.literal_eval(state.removeprefix("dashboard.state = "))
    assert kept == dashboard.python("dashboard.state")
    assert kept["filter"] == "missed"
    dashboard.screenshots("widgets-share", of=".mw-dashboard", widths=[1440, 960, 600])
    with page.expect_download() as downloading:
        menu.get_by_role("button", name="Save the report").click()
    downloading.value.save_as(tmp_path / "got.html")
    named = downloading.value.suggested_filename
    assert kept["metric"] in named
    assert f"tau={kept['tau']:.3g}" in named
    assert (tmp_path / "got.html").read_text() == f"<!doctype html><p>{kept}</p>"
    menu.get_by_text("No sample is in it").wait_for()
    dashboard.python("setattr(source, 'fail', 'the disk is full')")
    menu.get_by_role("button", name="Save the report").click()
    menu.get_by_text("the disk is full.").wait_for()
    menu.get_by_role("button", name="Save the report").press("Escape")
    assert menu.get_by_role("button", name="Save the report").is_hidden()


def test_from_the_click_on_old_numbers_are_dimmed_and_the_page_says_why(dashboard):
    page = dashboard.page
    dashboard.python("source.done.add(('psmi', '1', 'epoch-2'))")
    asked = page.locator(".mw-dashboard.mw-asked")
    with dashboard.server.lock:  # another cell runs
        page.locator(".mw-card").first.focus()
        page.keyboard.press("k")
        page.get_by_label("layer", exact=True).select_option("1")
        asked.wait_for()
        for part in (".mw-message", ".mw-empty"):
            page.locator(part, has_text="another cell is running").wait_for()
        assert page.locator(".mw-compute").is_hidden()
        for part in (".mw-explorer .mw-plots", ".mw-inspector > *"):
            seen = page.locator(part).last.evaluate("e => getComputedStyle(e).opacity")
            assert float(seen) < 0.5
        dashboard.screenshots("widgets-waiting", of=".mw-dashboard", widths=[960])
    asked.wait_for(state="detached")
    dashboard.eventually("[dashboard.computed, len(dashboard.decisions)]", [True, 1])
    page.locator(".mw-empty").wait_for(state="hidden")
    assert page.get_by_text("another cell is running").count() == 0
    # which is not computed
    page.get_by_label("metric", exact=True).select_option("mahalanobis")
    page.get_by_text("Not scored yet").wait_for()
    asked.wait_for(state="detached")
    assert page.get_by_role("button", name="Compute", exact=True).is_enabled()


def test_tau_follows_mouse_keys_roc_and_field(dashboard):
    by_mouse_and_key(dashboard)
    by_roc_and_field(dashboard)


def by_mouse_and_key(dashboard):
    """What is drawn dark is what is counted."""
    page = dashboard.page
    slider = page.get_by_role("slider", name="threshold τ")
    drag(page.locator(".mw-histogram"), (0.4, 0.5), (0.55, 0.5))
    agree(dashboard)
    dragged = counts(page)["flagged"]
    assert dashboard.python("dashboard.tau_committed == dashboard.tau > 0")
    for key, more in (("Right", 1), ("Left", 0), ("Left", -1)):
        page.keyboard.press(f"Shift+Arrow{key}")
        assert counts(page)["flagged"] == dragged + more
    slider.press("End")
    assert "600 samples flagged" in slider.get_attribute("aria-valuetext")
    slider.press("Home")
    assert slider.get_attribute("aria-valuetext").endswith(", 0 samples flagged")
    for key in ("PageUp", "PageDown", "Shift+ArrowRight"):
        slider.press(key)
        drawn = page.evaluate(  # each dot is one move of its path
            """() => Object.fromEntries(["flagged", "left"].flatMap((part) => ["memorized", "other"]
                .map((side) => [part + " " + side,
                    document.querySelector(`.mw-as-dots.mw-side-${side} .mw-${part}`)
                        .getAttribute("d").split("M").length - 1])))"""
        )
        told = counts(page)
        assert drawn == {
            "flagged memorized": told["found"],
            "flagged other": told["flagged_only"],
            "left memorized": told["missed"],
            "left other": told["left_alone"],
        }


def by_roc_and_field(dashboard):
    page = dashboard.page
    page.locator(".mw-toggle").click()
    drag(page.locator(".mw-roc"), (0.3, 0.3), (0.6, 0.15))
    agree(dashboard)
    field = page.get_by_label("τ", exact=True)
    field.fill("-0,125")
    field.press("Enter")
    dashboard.eventually("dashboard.tau_committed", -0.125)
    field.fill("nonsense")
    field.press("Enter")
    assert field.input_value() == "−0.125"
    agree(dashboard)
    page.get_by_role("radio", name="log-log").click()
    dashboard.screenshots("widgets-log", of=".mw-explorer")


def test_a_budget_is_typed_or_chosen_and_stays_with_another_score(dashboard):
    page = dashboard.page
    dashboard.python("source.done.add(('psmi', 'last', 'epoch-1'))")
    look = page.get_by_label("look at", exact=True)
    chosen = page.get_by_role("radiogroup", name="what stays fixed")
    told = page.locator(".mw-fixed")
    for typed, asked, many in (
        ("20", {"count": 20}, 20),
        ("5 %", {"share": 0.05}, 30),
        ("9999", {"count": 9999}, 600),
    ):
        look.fill(typed)
        look.press("Enter")
        dashboard.eventually("dashboard.asked", asked)
        agree(dashboard)
        assert counts(page)["flagged"] == many
        assert look.input_value() == str(many)
    assert "600" in told.inner_text()
    look.fill("many")
    look.press("Enter")
    assert look.input_value() == "600"
    for name, asked, many in (
        ("20", {"count": 20}, 20),
        ("a tenth", {"share": 0.1}, 60),
    ):
        chip = chosen.get_by_role("radio", name=name, exact=True)
        chip.click()
        dashboard.eventually("dashboard.asked", asked)
        assert chip.get_attribute("aria-checked") == "true"
        for value in ("epoch-1", "epoch-2"):
            before = tau(page)
            go_to_checkpoint(page, value)
            dashboard.eventually("dashboard.computed and dashboard.checkpoint", value)
            page.wait_for_function(
                "(tau) => document.querySelector('.mw-explorer').dataset.tau !== tau",
                arg=str(before),
            )
            assert counts(page)["flagged"] == many
        assert name in told.inner_text()
    dashboard.screenshots("widgets-budget", of=".mw-dashboard", widths=[960, 390])
    drag(page.locator(".mw-histogram"), (0.4, 0.5), (0.5, 0.5))
    dashboard.eventually("dashboard.asked", {})
    assert chosen.locator('[aria-checked="true"]').count() == 0
    dashboard.python("setattr(dashboard, 'asked', {'count': 20})")
    page.locator('.mw-ways [aria-checked="true"]', has_text="20").wait_for()
    agree(dashboard)


TIED = """
import numpy as np
from memowidgets.widgets import ThresholdExplorer
explorer = ThresholdExplorer(np.repeat([0.5, -1.0, 2.0], [15, 12, 13]), title="ties")
explorer
"""


def test_a_budget_on_bare_arrays_says_what_ties(widget_page):
    shown = widget_page([TIED])
    page = shown.page
    page.locator(".mw-explorer").get_by_role("radio", name="20", exact=True).click()
    shown.eventually("explorer.counts['flagged']", 27)  # all that tie
    assert shown.python("explorer.asked") == {"count": 20}
    assert "7 more tie" in page.locator(".mw-fixed").inner_text()
    shown.python("explorer.update(np.arange(40.0))")
    shown.eventually("[explorer.counts['flagged'], explorer.tau]", [20, 19.0])
    page.locator('.mw-explorer[data-tau="19"]').wait_for()
    assert page.get_by_label("look at", exact=True).input_value() == "20"


def test_escape_closes_one_layer_after_the_other_and_menus_never_overlap(dashboard):
    page = dashboard.page
    find = page.get_by_role("button", name="search, order, select")
    about = page.get_by_role("button", name="about these numbers")
    share = page.locator(".mw-sharing > summary")
    saving = page.get_by_role("button", name="Save the report")
    others = page.get_by_role("group", name="new class")
    find.click()
    about.click()
    page.locator(".mw-more").wait_for()
    share.click()
    saving.wait_for()
    page.locator(".mw-more").wait_for(state="hidden")  # a menu closes the other
    about.click()
    saving.wait_for(state="hidden")
    page.keyboard.press("Escape")
    page.locator(".mw-more").wait_for(state="hidden")
    assert about.evaluate("one => one === document.activeElement")
    assert page.get_by_label("search", exact=True).is_visible()
    page.locator(".mw-other").click()
    others.wait_for()
    page.keyboard.press("Escape")
    others.wait_for(state="hidden")
    page.keyboard.press("Escape")
    page.get_by_label("search", exact=True).wait_for(state="hidden")
    assert find.evaluate("one => one === document.activeElement")
    dashboard.eventually("dashboard.more", False)


def test_the_axis_turns_to_the_score_against_its_class_and_back(dashboard):
    page = dashboard.page
    on_line = dashboard.python("dashboard.undecided")
    close = page.locator('.mw-chip[data-filter="on the line"]')
    assert close.is_hidden()
    find = page.get_by_role("button", name="search, order, select")
    find.click()
    close.click()
    find.click()
    assert close.is_visible()
    page.locator(".mw-range").get_by_text(f"of {on_line}").wait_for()
    page.locator('.mw-chip[data-filter="flagged"]').click()
    at_tau = counts(page)
    page.get_by_role("radio", name="by class").click()
    dashboard.eventually("dashboard.axis", "class")
    page.locator(".mw-axis-title").get_by_text("against its class").wait_for()
    page.locator('.mw-explorer[data-tau="-1"]').wait_for()
    agree(dashboard)
    found = counts(page)
    assert found != at_tau
    page.locator(".mw-range").get_by_text(f"of {found['flagged']}").wait_for()
    page.locator('.mw-chip[data-filter="found"]').get_by_text(
        str(found["found"])
    ).wait_for()
    dashboard.screenshots(
        "widgets-by-class", of=".mw-dashboard", widths=[1440, 960, 600]
    )
    page.locator(".mw-histogram").press("ArrowRight")
    agree(dashboard)
    assert counts(page)["flagged"] >= found["flagged"]
    page.get_by_role("radio", name="τ = 0", exact=True).click()
    dashboard.eventually("dashboard.axis", "score")
    page.locator('.mw-explorer[data-tau="0"]').wait_for()
    assert counts(page) == at_tau


def test_what_is_not_computed_waits_for_compute_which_may_be_cancelled_or_fail(
    dashboard,
):
    page = dashboard.page
    before = page.locator(".mw-answers").inner_text()
    page.get_by_label("layer", exact=True).select_option("1")
    page.get_by_text("Not scored yet").wait_for()
    page.locator(".mw-explorer.mw-dimmed").wait_for()
    assert page.locator(".mw-answers").inner_text() == before
    dashboard.screenshots("widgets-stale", of=".mw-dashboard", widths=[1400])
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("progressbar", name="progress").wait_for()
    page.get_by_text("left", exact=False).first.wait_for()
    dashboard.screenshots("widgets-busy", of=".mw-bar")
    dashboard.python("setattr(source, 'seconds', 0)")  # it has been seen
    page.wait_for_selector(".mw-explorer:not(.mw-dimmed)")
    agree(dashboard)
    page.get_by_label("metric", exact=True).select_option("logit_gap")
    page.get_by_text("Cannot be scored: nothing can be trained here.").wait_for()
    page.locator(".mw-compute").wait_for(state="hidden")
    page.get_by_label("metric", exact=True).select_option("psmi")
    page.wait_for_selector(".mw-explorer:not(.mw-dimmed)")
    page.locator(".mw-message").wait_for(state="hidden")

    dashboard.python("setattr(source, 'seconds', 60)")  # it ends by being cancelled
    go_to_checkpoint(page, "epoch-1")
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled; what was finished is kept.").wait_for()
    dashboard.python(
        "setattr(source, 'fail', 'the disk is full: 12 MB are missing <b>')"
    )
    page.get_by_role("button", name="Compute", exact=True).click()
    failed = page.get_by_text(
        "Scoring stopped: the disk is full: 12 MB are missing <b>"
    )
    failed.wait_for()
    assert "Compute tries again" in failed.inner_text()
    dashboard.screenshots("widgets-error", of=".mw-bar", widths=[1400])


def test_too_early_leads_to_the_checkpoint_where_the_model_knows_something(dashboard):
    page = dashboard.page
    dashboard.python("source.done.add(('psmi', 'last', 'epoch-1'))")
    dashboard.python("setattr(source, 'early', {'epoch-1'})")
    go_to_checkpoint(page, "epoch-1")
    page.locator(".mw-early").get_by_text("no better than guessing").wait_for()
    page.get_by_role("button", name="Go to epoch 2").click()
    dashboard.eventually("dashboard.checkpoint", "epoch-2")
    page.locator(".mw-early").wait_for(state="hidden")


def test_another_score_begins_the_list_unless_it_has_the_open_sample(dashboard):
    page = dashboard.page
    dashboard.python(
        "source.done.update({('psmi', 'last', 'epoch-1'), ('psmi', '2', 'epoch-1')})"
    )
    rows = page.locator(".mw-card")
    opened = page.locator(".mw-opened .mw-whole-id")
    for place in ("epoch-1", "epoch-2"):  # to where another sample is flagged, and back
        rows.nth(8).click()
        name = rows.nth(8).get_attribute("title").removeprefix("id ")
        opened.get_by_text(name, exact=True).wait_for()
        page.locator(
            ".mw-models"
        ).wait_for()  # nothing is on its way that the next list would hear
        position = int(rows.nth(8).get_attribute("data-position"))
        go_to_checkpoint(page, place)
        page.locator(".mw-axis-title").get_by_text(place).wait_for()
        dashboard.wait_until_idle()
        flagged = dashboard.python(
            "dashboard._rows.mask('flagged', dashboard.tau).tolist()"
        )
        page.locator(".mw-where").get_by_text(re.compile(r"^\d+ of \d+$")).wait_for()
        first = int(
            np.argmin(dashboard.python("dashboard._rows.scored.scores.tolist()"))
        )
        wanted = position if flagged[position] else first
        chosen = page.locator(
            f'.mw-card[data-position="{wanted}"][aria-selected="true"]'
        )
        chosen.wait_for()
        view, row = (
            page.locator(".mw-list-scroll").bounding_box(),
            chosen.bounding_box(),
        )
        assert view["y"] - 1 <= row["y"]
        assert row["y"] + row["height"] <= view["y"] + view["height"] + 1


FIRST_VIEW = """() => {
    const seen = (parts) => [...document.querySelectorAll(parts)].filter((part) => {
        const {x, y, width, height} = part.getBoundingClientRect();
        return part.contains(document.elementFromPoint(x + width / 2, y + height / 2));
    });
    const beside = ".mw-answers > p, .mw-look :is(input, button, p)";
    const plotted = [...document.querySelectorAll(".mw-tau-text, .mw-auc")];
    const texts = [...seen(`.mw-bar :is(select, button, summary, p), ${beside}`), ...plotted]
        .map((part) => part.selectedOptions?.[0].text ?? (part.value || part.textContent));
    const fields = "button:not([role=radio]), summary, select, input, textarea";
    const one = "[role=slider], :is([role=option], [role=radio])[tabindex='0']"; // of a group
    const controls = seen(`${fields}, ${one}`);
    return [texts.join("\\n"), controls.map((part) => part.outerHTML.slice(0, 90))];
}"""


@pytest.mark.parametrize(
    "name", ["", "banking77-smollm2", "cifar10-wrn", "digits", "patients-smollm2"]
)
def test_one_screen_shows_all_of_it(widget_page, name):
    shown = widget_page([recorded(name) if name else DASHBOARD])
    page = shown.page
    page.locator(".mw-models").wait_for()  # all of the open sample is there
    for width, height, most in ((960, 780, 26), (1440, 900, 27)):
        shown.resize(width, height)
        for part in (".mw-dashboard", ".mw-histogram", ".mw-roc", ".mw-answers"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] < height
        said, controls = page.evaluate(FIRST_VIEW)
        numbers = set(
            re.findall(r"\d[\d.\u202f]*", said)
        )  # one that is there twice is one
        assert 8 <= len(numbers) <= 12, said
        assert 15 <= len(controls) <= most, controls
    eta = page.get_by_label("memorised from log-LiRA η")
    assert not eta.is_visible()
    page.get_by_role("button", name="about these numbers").click()
    shown.eventually("dashboard.state['more']")
    assert eta.is_visible()
    assert page.locator(".mw-rates td").first.inner_text() != ""


OWN = """
import numpy as np
import memowidgets as mw
rng = np.random.default_rng(0)
labels = np.arange(120) % 3
said = "which was found at the first visit, and of which the laboratory sent word "
texts = [f"Case {{i}}: {{said * 3}}" for i in range(120)]
{data}
states = rng.normal(size=(120, 8))
states[:, :3] += 2 * np.eye(3)[labels]
audit = mw.Audit.from_arrays(labels=data.labels, representations=states, samples=data,
    probabilities=rng.dirichlet(np.ones(3), 120))
dashboard = audit.dashboard()
dashboard
"""
QUESTIONS = """data = mw.data.MCQDataset.from_records([
    {"question": text, "answer": "ABC"[i % 3],
     "choices": [f"{said * 2} in case {i}, {j}" for j in range(3)]}
    for i, text in enumerate(texts)])"""
SENTENCES = """names = [f"{said * 2} of {what}" for what in ("a lamp", "a chair", "a cup")]
data = mw.data.TextDataset.from_texts(texts, [names[i] for i in labels])"""
ABOVE_THE_BUTTONS = """() => {
    const body = document.querySelector(".mw-opened-body").getBoundingClientRect();
    const parts = ".mw-facts-of dt:not([hidden]), .mw-answer-list li, .mw-before";
    return [...document.querySelectorAll(parts)].filter((part) =>
        part.getBoundingClientRect().bottom > body.bottom).map((part) => part.innerText);
}"""


@pytest.mark.parametrize(
    ("data", "lines"),
    [(QUESTIONS, 3), (SENTENCES, 0)],
    ids=["questions", "a class is a sentence"],
)
def test_all_that_is_said_of_a_sample_stands_above_the_buttons(
    widget_page, data, lines
):
    page = widget_page([OWN.format(data=data)], width=960, height=780).page
    page.locator(".mw-facts-of dt", has_text="near").wait_for()
    assert page.evaluate(ABOVE_THE_BUTTONS) == []
    assert page.locator(".mw-answer-list li").count() == lines
    named = page.locator(".mw-named")
    assert set(named.evaluate_all(LINE_HEIGHTS)) == {20}
    for shown in named.locator("bdi").all():
        assert shown.text_content() == shown.get_attribute("title")


TARGETS = """() => [...document.querySelectorAll(
        ".mw-dashboard :is(button, summary, select, input, textarea, .mw-mark)")]
    .map((target) => target.matches("[type=checkbox]") ? target.closest("label") : target)
    .filter((target) => target.checkVisibility({visibilityProperty: true}))
    .map((target) => [target, target.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1 && Math.min(box.width, box.height) < 23.5)
    .map(([target, box]) => `${target.className} ${box.width} x ${box.height}`)
"""


BEYOND = """() => [...document.querySelectorAll(".mw-dashboard, .mw-dashboard *")]
    .filter((part) => part.checkVisibility({visibilityProperty: true})
        && !part.closest(".mw-scroll, .mw-prose, .mw-spoken"))
    .filter((part) => part.getBoundingClientRect().right > innerWidth + 1)
    .map((part) => part.className?.baseVal ?? part.className)
    .concat(document.documentElement.scrollWidth > innerWidth ? ["the page"] : [])
"""


# half is a zoom of 200 %
@pytest.mark.parametrize("size", [(1440, 900), (720, 450), (390, 900)])
def test_whatever_is_touched_is_24_pixels_or_more_and_nothing_is_cut_off(
    dashboard, size
):
    page = dashboard.page
    dashboard.resize(*size)

    def assert_all_is_well():
        assert page.evaluate(TARGETS) == page.evaluate(BEYOND) == []

    assert_all_is_well()
    page.locator(".mw-sharing summary").click()
    page.get_by_role("button", name="search, order, select").click()
    assert_all_is_well()
    for menu in page.locator(".mw-menu").all():
        box = menu.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= size[0]
    page.locator(".mw-sharing summary").click()
    page.locator(".mw-fold > summary").click()
    page.locator(".mw-lira").wait_for()
    page.locator(".mw-other").click()
    assert_all_is_well()
    page.add_style_tag(
        content=".mw .mw-step { height: 12px !important; min-height: 0 !important; }"
    )
    assert page.evaluate(TARGETS)  # it would have been found


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


def at_rest(notebook):
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
    assert notebook.python(f"[{point}.found, {point}.missed]") == [
        shown["found"],
        shown["missed"],
    ]
    return shown


def test_eta_moves_and_both_sides_count_the_same(widget_page):
    notebook = widget_page([JUDGED])
    page = notebook.page
    page.locator(".mw-auc").get_by_text("AUC 0").wait_for()
    before = at_rest(notebook)
    page.get_by_text("7 samples without log-LiRA are left out.").wait_for()
    drag(page.get_by_label("memorised from log-LiRA η"), (0.25, 0.5), (0.5, 0.5))
    dragged = at_rest(notebook)
    assert dragged["found"] + dragged["missed"] < before["found"] + before["missed"]
    eta = notebook.python("explorer.eta")
    page.keyboard.press("ArrowRight")
    notebook.eventually("round(explorer.eta_committed, 1)", round(eta + 0.1, 1))
    finer = at_rest(notebook)
    # takes the keyboard away
    drag(page.locator(".mw-histogram"), (0.3, 0.5), (0.5, 0.5))
    assert at_rest(notebook)["flagged"] > finer["flagged"]
    auc = notebook.python("explorer.evaluation.auc")
    assert page.locator(".mw-auc").text_content() == f"AUC {auc:.2f}"
    notebook.python("setattr(explorer, 'eta', 6.0)")
    page.wait_for_selector('.mw-explorer[data-eta="6"]')
    at_rest(notebook)
