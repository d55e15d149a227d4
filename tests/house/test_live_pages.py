"""Pages that move without a kernel: Python's numbers, no request, for everyone."""

from __future__ import annotations

import functools
import http.server
import itertools
import json
import os
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.audit.runs import opening
from scripts import lesson, live
from scripts.docs import guarded
from tests.browser.harness import settled
from tests.browser.test_everywhere import counts, drag_tau, tau
from tests.browser.test_tasks import Hand
from tests.front_end.tools import node_modules
from tests.report.test_page import AUDIT_ALL, expected, type_in

AUDITS = {"mmlu": "mmlu-field-smollm2", "banking77": "banking77-smollm2", "cifar10": "cifar10-wrn"}
FIRST = "patients-smollm2"  # on the first page
PAGES = ["index", *(f"live/{name}" for name in (*AUDITS, *live.PLAYGROUNDS))]
# The pages of the three audits have the same parts: two of them only with --slow.
EACH_KIND = [
    pytest.param(name, marks=pytest.mark.slow) if name.endswith(("banking77", "cifar10")) else name
    for name in PAGES
]
MOST_BYTES = 1_400_000
WHOLE = "<!doctype html><html lang='en'><head></head><body>{}</body></html>"
EVIL = "<img src=x onerror=document.body.remove()>"


@contextmanager
def opened(
    chromium, address, *, scripts=True, before="", allowed=("file:", "data:", "blob:"), **options
):
    """A page; fails on any error, any refusal by its policy, any request that is not allowed."""
    options = {"viewport": {"width": 1440, "height": 900}} | options
    context = chromium.new_context(java_script_enabled=scripts, **options)
    page, problems = context.new_page(), []
    page.add_init_script(before)
    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
    page.on("console", lambda said: problems.append(f"console: {said.text} {said.location}"))
    context.on(
        "request", lambda r: None if r.url.startswith(allowed) else problems.append(r.url[:200])
    )
    page.goto(address)
    if scripts and not before:
        page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    assert problems == []


@pytest.fixture(scope="module")
def visit(chromium, site):
    """One window for all tests that only look: another page is opened in it."""
    with opened(chromium, (site / "index.html").as_uri(), offline=True) as page:

        def go(name, width=1440, scheme="light", loads=()):
            """Open a page, with the addresses that it loads in a list."""
            note = lambda request: loads.append(request.url)  # noqa: E731
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            if loads == []:
                page.on("request", note)
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_selector("body[data-ready]")
            if loads:
                page.remove_listener("request", note)
            for button in page.get_by_role("button", name="More controls").all():
                button.click()
            return page

        yield go


def picked(page, metric, checkpoint=None, layer=None):
    for name, value in (("checkpoint", checkpoint), ("layer", layer)):
        if value is not None:
            page.get_by_label(name, exact=True).select_option(value)
    score = page.locator(".mw-bar").get_by_label("metric", exact=True)
    label = mw.audit.numbers.scores.SCORES[metric].title
    if score.count():
        score.select_option(metric)
    else:
        page.get_by_role("radio", name=label, exact=True).click()
    page.locator(".mw-axis-title").filter(has_text=f"{label}, ").first.wait_for()


@pytest.mark.parametrize(
    ("name", "picks"),
    [
        ("mmlu", [("mahalanobis", "epoch-3.5", "27"), ("csl", "epoch-6", None)]),
        ("banking77", [("psmi+csl", "epoch-2", None)]),
        ("cifar10", [("psmi", "epoch-15", "group2.block2"), ("loss", "epoch-3", None)]),
    ],
)
def test_an_audits_numbers_are_pythons(visit, name, picks):
    page, audit = visit(f"live/{name}"), mw.open_recorded(AUDITS[name])
    evaluation = audit.evaluate("psmi")
    assert counts(page) == expected(evaluation, tau(page))
    if name == "cifar10":  # it opens where three of four canaries are flagged
        assert 0.75 <= audit.evaluate("psmi", truth="canaries").at(tau(page)).tpr < 0.78
    else:
        assert tau(page) == 0
    assert float(page.locator(".mw-tile-auc .mw-tile-value").inner_text()) == pytest.approx(
        evaluation.auc, abs=0.005
    )
    for metric, checkpoint, layer in picks:
        picked(page, metric, checkpoint, layer)
        evaluation = audit.evaluate(metric, layer=layer or "last", checkpoint=checkpoint)
        assert counts(page) == expected(evaluation, tau(page))
        drag_tau(page, 0.05)
        assert counts(page) == expected(evaluation, tau(page))
        page.get_by_role("button", name="Youden").click()
        assert counts(page) == expected(evaluation, tau(page))
        for eta in (1.5, 4.0):
            type_in(page, "η", str(eta))
            evaluation = audit.evaluate(
                metric, layer=layer or "last", checkpoint=checkpoint, eta=eta
            )
            for at in (-0.37, 0.25):
                type_in(page, "τ", str(at))
                assert counts(page) == expected(evaluation, at)
            shown = page.locator(".mw-tile-auc").inner_text().split()
            area = [evaluation.auc, *evaluation.auc_interval]
            assert [float(shown[i]) for i in (1, 2, 4)] == pytest.approx(area, abs=0.005)
    page.get_by_label("compare metrics").check()
    page.locator(".mw-curve-auc").nth(1).wait_for()
    checkpoint = page.get_by_label("checkpoint", exact=True).input_value()
    loss = audit.evaluate("loss", checkpoint=checkpoint)
    for entry in page.locator(".mw-curve-entry").all():
        if entry.locator(".mw-curve-name").inner_text() == "Log-probability of the label":
            shown = entry.locator(".mw-curve-auc").inner_text().split()[0]
            assert float(shown) == pytest.approx(loss.auc, abs=0.005)
            break
    else:
        assert metric == "loss"


def test_the_first_page_counts_as_python_does_and_its_samples_follow(visit):
    page, audit = visit("index"), mw.open_recorded(FIRST)
    evaluation, truth = audit.evaluate("psmi"), audit.log_lira().dropna()
    scores = audit.score("psmi")[truth.index]
    assert counts(page) == expected(evaluation, 0.0)
    worst = scores[truth >= 4].idxmin()
    page.locator(".mw-opened .mw-whole-id").get_by_text(worst).wait_for()
    shown = page.locator(".mw-lira-legend .mw-ratio strong").inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(truth[worst], abs=0.01)
    here = page.locator(".mw-scores td.mw-here").inner_text().replace("−", "-")
    assert float(here) == pytest.approx(scores[worst], abs=0.001)
    assert page.get_by_role("button", name="compute").count() == 0
    data = audit.evidence.member_data
    texts = dict(zip(data.ids.tolist(), data.questions, strict=True))
    assert texts[worst] in page.locator(".mw-opened .mw-prose").first.inner_text()
    cards = page.locator(".mw-card")
    shown = cards.locator(".mw-prose").all_inner_texts()
    assert shown == [texts[name] for name in cards.locator(".mw-id").all_inner_texts()] != []
    page.locator(".mw-slider").first.press("PageDown")
    assert 0 < counts(page)["flagged"] < evaluation.at(0.0).flagged
    assert counts(page) == expected(evaluation, tau(page))
    below = (scores <= tau(page)).sum()
    page.locator(".mw-range").filter(has_text=re.compile(rf"of {below}$")).wait_for()
    assert page.locator(".mw-opened").is_visible()
    page.locator(".mw-slider").first.press("Home")
    page.locator(".mw-range").filter(has_text=re.compile(r"^none$|of 1$")).wait_for()
    assert cards.locator(".mw-prose").all_inner_texts() != shown


@pytest.mark.parametrize("width", [390, 1440])
def test_the_first_page_has_question_explanation_counts_slider_samples_in_this_order(visit, width):
    page = visit("index", width)
    assert "?" in page.locator("h1").inner_text()
    parts = ["h1", "h1 + p", ".mw-answers", ".mw-slider", ".mw-card", ".mw-opened .mw-lira"]
    tops = page.evaluate(
        "(all) => all.map((one) => document.querySelector(`article ${one}`)"
        ".getBoundingClientRect().toJSON())",
        parts,
    )
    assert tops[1]["bottom"] < tops[2]["top"] < tops[4]["top"] < tops[5]["top"] + 1
    assert tops[0]["top"] < tops[1]["top"] < tops[3]["top"] < tops[4]["top"]
    assert tops[4]["top"] < 800  # explanation, counts, slider and a first sample without scrolling
    links = page.locator("article :is(p, li) a").all_inner_texts()
    assert "Teach it" in links[:5]
    assert "Teach it" in page.locator(".sidebar-tree a").all_inner_texts()[:5]


def test_a_score_without_a_threshold_opens_with_the_lowest_five_per_cent(visit):
    page = visit("live/mmlu")
    for at, score in (("-100", "loss"), ("0", "csl")):
        type_in(page, "τ", at)
        picked(page, score)
        assert counts(page)["flagged"] == 50  # of 1000
        assert not page.get_by_role("button", name="τ = 0").is_visible()
        picked(page, "psmi")


def test_cards_say_verdict_and_answer(visit):
    page = visit("live/mmlu")
    first = page.locator(".mw-card").first
    assert re.fullmatch(
        r"(not )?memorised \(−?[\d.]+\s[<≥]\s4\)", first.locator(".mw-verdict").inner_text()
    )
    assert "· 35, about 15 truly" in page.locator(".mw-legend").first.inner_text()
    assert page.locator(".mw-warnings li").count() == 0
    page.locator('[data-filter="all"]').click()
    page.locator(".mw-search").fill("no such question")
    clear = page.get_by_role("button", name="Clear the search")
    clear.wait_for()
    assert page.locator('[data-filter="all"] .mw-count').inner_text() in ("1000", "1\u202f000")
    assert "no such question" in page.locator(".mw-list-box > .mw-empty").inner_text()
    clear.click()
    first.wait_for()
    answers = page.locator(".mw-answer").all_inner_texts()
    assert {text.split(": ")[1] for text in answers} <= {"right", "wrong"}
    assert len(answers) == page.locator(".mw-card").count()


def test_a_pick_that_is_not_on_the_page_is_said(visit):
    page = visit("live/mmlu")
    page.get_by_label("layer", exact=True).select_option("26")
    page.get_by_label("checkpoint", exact=True).select_option("epoch-1")
    said = page.locator(".mw-message").inner_text()
    assert "layer 26, epoch 1" in said
    assert "It shows PSMI, layer 30, epoch 1" in said
    assert page.get_by_label("layer", exact=True).input_value() == "30"
    evaluation = mw.open_recorded(AUDITS["mmlu"]).evaluate("psmi", checkpoint="epoch-1")
    assert counts(page) == expected(evaluation, tau(page))


def number(page, tile):
    """The first number of a playground's tile."""
    fact = page.locator(".mw-fact", has=page.get_by_text(tile, exact=True))
    return fact.locator(".mw-fact-value").inner_text().replace("−", "-")


@pytest.mark.slow
def test_a_round_of_guess_first_is_played_by_keyboard_to_its_end(visit):
    page = visit("live/watch")
    view, step = page.locator(".mw-play"), page.locator(".mw-watch-next")
    said = page.get_by_text(re.compile(r"Point \d+ of 150 at"))
    page.locator(".mw-plot-cloud").focus()
    places = []
    for _ in range(150):
        page.keyboard.press("PageDown")
        at = re.search(r"Point \d+ of 150 at (\S+), (\S+), label", said.inner_text())
        places.append([float(number.replace("−", "-")) for number in at.groups()])
    far = np.hypot(*np.transpose(places)).argsort()[-5:]
    for i in range(150):
        page.keyboard.press("PageDown")
        if i in far:
            page.keyboard.press("Enter")
    assert view.get_attribute("data-rings") == "5"
    seen = []
    for _ in range(3):
        seen.append(step.inner_text())
        step.focus()
        page.keyboard.press("Enter")
        page.wait_for_function(
            "(before) => { const next = document.querySelector('.mw-watch-next');"
            " return next.textContent !== before && next.ariaDisabled === 'false'; }",
            arg=seen[-1], timeout=120_000,
        )  # fmt: skip
    assert len(set(seen)) == 3
    assert view.get_attribute("data-epoch") == "150"
    assert view.get_attribute("data-models") == "32"
    assert number(page, "your five") == "0 of 5"  # the worksheet says so
    assert page.locator(".mw-watch-phase").inner_text().startswith("Right: you 0 of 5, PSMI ")
    for tile in ("PSMI’s five", "the loss’s five"):
        assert re.fullmatch(r"[1-5] of 5", number(page, tile))
    assert float(number(page, "log-LiRA of the chosen point"))


def test_each_question_of_the_lesson_stands_below_what_it_asks_about(site):
    parts = lesson.WORKSHEET.read_text("utf-8").split("\n## ")[1:]
    number = re.compile(r"^\*\*(\d+)\. ", re.MULTILINE)
    asked = {part.partition("\n")[0]: number.findall(part) for part in parts}
    pages = {"watch": "live/watch", "psmi": "live/psmi", "tau": "index", "lira": "live/lira"}
    for part, page in (pages | {"theorem": "live/theorem"}).items():
        found = re.findall(r"<strong>(\d+)\. ", (site / f"{page}.html").read_text("utf-8"))
        assert found == asked[lesson.PARTS[part]] != [], page


@pytest.mark.slow
def test_answers_of_an_abandoned_round_are_not_taken_for_new_ones(visit):
    page = visit("live/watch")
    view, step = page.locator(".mw-play"), page.locator(".mw-watch-next")
    for name in ("Train to the end", "Ask 32 other networks"):
        step.click()
        page.get_by_role("button", name=name, disabled=False).wait_for(timeout=60_000)
    step.click()
    page.wait_for_selector(".mw-play:not([data-models='0'])")
    page.get_by_role("button", name="Start again").click()
    step.click()
    page.get_by_role("button", name="Train to the end", disabled=False).wait_for(timeout=60_000)
    assert view.get_attribute("data-epoch") == "13"


def test_without_workers_the_network_trains_on_the_page(chromium, site):
    before = "window.Worker = function () { throw new Error('no workers here'); };"
    address = (site / "live" / "watch.html").as_uri()
    with opened(chromium, address, before=before, offline=True) as page:
        page.locator(".mw-watch-next").click()
        page.get_by_role("button", name="Train to the end").wait_for(timeout=60_000)


def test_the_axis_of_scores_has_numbers_on_a_phone_too(visit):
    page = visit("live/mmlu", 390, "light")
    page.wait_for_selector(".mw-histogram .mw-tau-knob")
    centred = page.locator(".mw-histogram text[text-anchor=middle]").all_text_contents()
    scores = [text for text in centred if text.replace("−", "").replace(".", "").isdecimal()]
    assert len(scores) >= 3


# Numbers that reach into the tile beside theirs.
CUT = """() => [...document.querySelectorAll('.live :is(.mw-fact-value, .mw-tile-value)')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_page_is_light_fits_a_phone_and_everyone_can_use_it(visit, site, name):
    axe = (node_modules() / "axe-core" / "axe.min.js").read_text("utf-8")
    audit = AUDIT_ALL.replace("{resultTypes", "{preload: false, resultTypes")
    loads = []
    page = visit(name, 390, "dark", loads)
    files = {Path(url.removeprefix("file://").partition("?")[0]) for url in loads if "file:" in url}
    assert 0 < sum(file.stat().st_size for file in files) < MOST_BYTES
    page.evaluate(axe)
    found = []
    for width, scheme in ((390, "dark"), (960, "dark"), (1440, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels too wide at {width}"
        assert page.evaluate(CUT) == []
        if folder := os.environ.get("MEMOWIDGETS_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"{name.replace('/', '-')}-{width}-{scheme}.png")
        if width != 960:
            settled(page, STYLES)
            found += page.evaluate(audit)
    assert not found, "\n".join(found)


# What a change of the theme changes, for those who wait until it is done.
STYLES = "() => [...document.querySelectorAll('article *')].map((e) => getComputedStyle(e).color)"
CANVASES = "() => [...document.querySelectorAll('canvas')].map((c) => c.toDataURL())"


@pytest.mark.parametrize("name", live.PLAYGROUNDS)
def test_canvases_are_painted_again_when_the_theme_changes(visit, name):
    page = visit(f"live/{name}")
    by_the_system = lambda theme: page.emulate_media(color_scheme=theme)  # noqa: E731
    by_the_site = lambda theme: page.evaluate(f"document.body.dataset.theme = '{theme}'")  # noqa: E731
    light = settled(page, CANVASES)
    assert light
    for change, back in ((by_the_system, "light"), (by_the_site, "auto")):
        change("dark")
        page.wait_for_function(
            f"(light) => ({CANVASES})().every((now) => !light.includes(now))",
            arg=light, polling=100,
        )  # fmt: skip
        change(back)
        page.wait_for_function(
            f"(light) => ({CANVASES})().every((now, i) => now === light[i])",
            arg=light, polling=100,
        )  # fmt: skip


# Notes where each text of a canvas is drawn: [canvas, text, left, right, baseline, width].
NOTE_TEXTS = """() => {
    window.drawn = [];
    const { prototype } = CanvasRenderingContext2D, draw = prototype.fillText;
    prototype.fillText = function (text, x, y) {
        const wide = this.measureText(text).width;
        const left = x - { left: 0, center: wide / 2, right: wide }[this.textAlign];
        const { className, clientWidth } = this.canvas;
        window.drawn.push([className, text, left, left + wide, y, clientWidth]);
        draw.call(this, text, x, y);
    };
}"""


@pytest.mark.parametrize("name", live.PLAYGROUNDS)
def test_a_narrow_playground_cuts_neither_values_nor_axes(visit, name):
    page = visit(f"live/{name}")
    page.set_viewport_size({"width": 320, "height": 900})
    page.evaluate(NOTE_TEXTS)
    before = settled(page, CANVASES)
    page.evaluate("window.drawn.length = 0")
    page.emulate_media(color_scheme="dark")  # it is drawn once more
    page.wait_for_function(
        f"(before) => ({CANVASES})().every((now, i) => now !== before[i])", arg=before, polling=100
    )
    settled(page, CANVASES)
    drawn = page.evaluate("window.drawn")
    assert [one for one in drawn if one[2] < -1 or one[3] > one[5] + 1] == []
    numbers = {tuple(one) for one in drawn if re.fullmatch(r"[−\d.°]+", one[1])}
    assert len(numbers) > 5
    for a, b in itertools.combinations(sorted(numbers), 2):
        beside = a[0] != b[0] or a[4] != b[4] or a[3] < b[2] or b[3] < a[2]
        assert beside, f"{a[1]} and {b[1]} overlap on {a[0]}"
    edge = "view => view.getBoundingClientRect().right"
    right = page.locator(".mw-play").evaluate(edge)
    values = page.locator(".mw-slide-value").all()
    assert values
    assert all(value.evaluate(edge) <= right for value in values)


def test_the_mark_of_a_title_takes_no_line_of_its_own(visit):
    page = visit("index", 390)
    height = "() => document.querySelector('article h1').getBoundingClientRect().height"
    whole = page.evaluate(height)
    page.evaluate("document.querySelector('article h1 .headerlink').style.display = 'none'")
    assert page.evaluate(height) == whole


@pytest.fixture(scope="module")
def served(chromium, site):
    """One window for pages over HTTP, which may ask that server alone."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    try:
        with opened(chromium, f"{home}index.html", allowed=(home, "data:", "blob:")) as page:

            def go(name):
                page.goto(f"{home}{name}.html")
                page.wait_for_selector("body[data-ready]")
                return page

            yield go
    finally:
        server.shutdown()
        server.server_close()


# Every control of the part that moves that can have the focus, in the order of the page. From
# then on, what gets the focus is noted, and whether it shows that.
CONTROLS = """() => {
    const live = document.querySelector('.live');
    const kinds = 'button, input, select, textarea, summary, a[href], [tabindex]';
    const all = [...live.querySelectorAll(kinds)].filter((one) => one.checkVisibility()
        && getComputedStyle(one).visibility === 'visible' && !one.disabled && one.tabIndex >= 0);
    const start = document.createElement('span');
    start.tabIndex = -1;
    live.before(start);
    window.mwBegin = () => start.focus();
    window.mwReached = [];
    live.addEventListener('focusin', ({ target }) => {
        const { outlineStyle, outlineWidth } = getComputedStyle(target);
        const seen = outlineStyle !== 'none' && parseFloat(outlineWidth) > 0;
        window.mwReached.push([all.indexOf(target), seen]);
    });
    live.addEventListener('click', (event) => { window.mwClicked = event.isTrusted; });
    const watch = new MutationObserver((changes) => { window.mwChanges += changes.length; });
    watch.observe(live, { subtree: true, childList: true, characterData: true, attributes: true });
    return all.length;
}"""

# What kind of control has the focus, and which key does something there.
BEFORE = """() => {
    const one = window.mwOne = document.activeElement;
    if (!one.closest('.live')) return [null, '', ''];
    const role = one.getAttribute('role');
    const kind = role ?? (one.localName === 'input' ? one.type : one.localName);
    const last = one.localName === 'select' && one.selectedIndex === one.options.length - 1;
    const full = one.type === 'range' && Number(one.value) >= Number(one.max);
    window.mwState = () => [one.value, one.checked, one.getAttribute('aria-checked'),
        one.closest('details')?.open, one.closest('.mw-explorer')?.dataset.tau].join();
    window.mwBefore = window.mwState();
    window.mwChanges = 0;
    window.mwClicked = undefined;
    const keys = { select: last ? 'ArrowUp' : 'ArrowDown', checkbox: 'Space', radio: 'ArrowRight',
        range: full ? 'ArrowLeft' : 'ArrowRight', number: 'ArrowUp', application: 'ArrowRight',
        text: '1', search: '1' };
    return [kind, keys[kind] ?? 'Enter', one.getAttribute('aria-label') ?? one.textContent];
}"""

AFTER = """() => new Promise((done) => {
    const tell = () => done({
        state: window.mwState() !== window.mwBefore,
        clicked: window.mwClicked === true,
        changed: window.mwChanges > 0 || window.mwOne.ariaPressed === 'true',
    });
    requestAnimationFrame(() => requestAnimationFrame(tell));
})"""


@pytest.mark.parametrize("name", EACH_KIND)
def test_over_http_and_by_keyboard_alone(served, name):
    page = served(name)
    controls = page.evaluate(CONTROLS)
    assert controls >= 8
    page.evaluate("() => window.mwBegin()")
    for _ in range(controls + 1):
        page.keyboard.press("Tab")
    assert page.evaluate("() => window.mwReached") == [[i, True] for i in range(controls)]
    page.evaluate("() => window.mwBegin()")
    acted = []
    while len(acted) < 3 * controls:  # a control may open or close others
        page.keyboard.press("Tab")
        kind, key, label = page.evaluate(BEFORE)
        if kind is None:
            break
        acted.append(kind)
        page.keyboard.press(key)
        if kind == "text":
            page.keyboard.press("Enter")
        done = page.evaluate(AFTER)
        if kind == "option":
            page.locator(".mw-opened").wait_for()
            page.keyboard.press("Escape")
            page.locator(".mw-opened").wait_for(state="hidden")
            assert page.evaluate("() => document.activeElement.role") == "option"
        elif kind in ("button", "application"):
            assert done["changed"], label
            assert done["clicked"] == (kind == "button"), label
        else:
            assert done["state"], f"{kind} {label}"
        if label == "threshold τ" and name == "index":
            before = counts(page)["flagged"]
            page.keyboard.press("PageUp")
            assert counts(page)["flagged"] > before
    assert controls - 3 < len(acted) < 3 * controls
    assert ("option" in acted) == (name == "index" or name.removeprefix("live/") in AUDITS)


@pytest.mark.parametrize("name", EACH_KIND)
def test_without_scripts_a_still_and_a_table_stand_in(chromium, site, name):
    address = (site / f"{name}.html").as_uri()
    with opened(chromium, address, scripts=False) as page:
        image = page.locator(".live-still img")
        assert image.evaluate("(image) => image.naturalWidth") > 300
        rows = page.locator(".live-still tr").all_inner_texts()
    assert len(rows) >= 5
    if name in ("index", "live/mmlu"):
        of = FIRST if name == "index" else AUDITS["mmlu"]
        point = mw.open_recorded(of).evaluate("psmi").at(0.0)
        assert any(re.search(rf"flagged at τ = 0\s+{point.flagged}\b", row) for row in rows)


@pytest.mark.parametrize("name", ["index", "live/watch"])
@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("HTMLCanvasElement.prototype.getContext = () => null;", "it has no canvas"),
        ("delete window.DecompressionStream;", "it has no DecompressionStream"),
    ],
)
def test_a_browser_that_cannot_show_it_says_so(chromium, site, before, what, name):
    address = (site / f"{name}.html").as_uri()
    with opened(chromium, address, before=before, offline=True) as page:
        page.get_by_role("alert").filter(has_text=what).wait_for()
        assert page.locator(".live-still table").is_visible()
        image = page.locator(".live-still img")
        page.wait_for_function("(image) => image.naturalWidth > 300", arg=image.element_handle())


def test_web_assembly_is_not_needed(chromium, site):
    address = (site / "live" / "psmi.html").as_uri()
    with opened(chromium, address, before="delete window.WebAssembly;", offline=True) as page:
        page.wait_for_selector("body[data-ready]")


def test_a_page_alone_as_out_of_a_zip_moves_and_says_what_to_do(chromium, site, tmp_path):
    shutil.copy(site / "index.html", tmp_path / "index.html")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "index.html").as_uri())
    page.get_by_role("alert").filter(has_text="Unpack the whole archive").wait_for()
    assert page.locator(".mw-explorer").is_visible()
    context.close()


def test_a_hostile_id_or_text_is_shown_as_written(chromium, tmp_path):
    read = live._Recorded(AUDITS["mmlu"])
    content = read.opening() | read.picks() | read.samples() | {"views": [read.wire(*read.first)]}
    ids = [f"{EVIL} {i}</script>" for i in range(len(content["ids"]))]
    content |= {"ids": ids, "texts": [f"A text of {one}" for one in ids]}
    changed = live.Moving("recorded", f"{EVIL} '", "", content)
    file = tmp_path / "page.html"
    file.write_text(guarded(WHOLE.format(changed.markup())), "utf-8")
    with opened(chromium, file.as_uri(), offline=True) as page:
        page.locator(".mw-id").first.get_by_text(EVIL).wait_for()
        page.locator(".mw-card .mw-prose").first.get_by_text(f"A text of {EVIL}").wait_for()
        page.locator(".mw-card").first.dblclick()
        page.locator(".mw-opened .mw-whole-id").get_by_text(EVIL).wait_for()
        assert page.locator(".mw img").count() == 0


def test_the_policy_lets_nothing_else_run(chromium, site):
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    refused = page.evaluate(
        """() => {
            const seen = new Promise((done) => document.addEventListener(
                'securitypolicyviolation', ({effectiveDirective}) => done(effectiveDirective)));
            const frame = document.createElement('object');
            frame.data = 'search.html';
            document.body.append(frame);
            return seen;
        }"""
    )
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    context.close()
    assert refused == "object-src"
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe-inline" not in policy


@pytest.mark.parametrize(
    ("kind", "name", "facts"),
    [
        ("audit", "nothing", ["nothing", "cifar10-wrn"]),
        ("playground", "nothing", ["nothing", "theorem"]),
        ("film", "psmi", ["film", "glance"]),
    ],
)
def test_an_unknown_part_is_named_with_what_is_valid(kind, name, facts):
    with pytest.raises(live.UnknownPartError) as refused:
        live.part(kind, name)
    assert all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize("state", ["missing", "newer"])
def test_a_recording_that_cannot_be_read_is_said(tmp_path, monkeypatch, state):
    name = AUDITS["mmlu"]
    if state == "newer":
        manifest = json.loads((opening.RECORDINGS / name / "manifest.json").read_text("utf-8"))
        (tmp_path / name).mkdir()
        newer = manifest | {"format": 99}
        (tmp_path / name / "manifest.json").write_text(json.dumps(newer))
    monkeypatch.setattr(opening, "RECORDINGS", tmp_path)
    live._opened.cache_clear()
    try:
        with pytest.raises(live.UnknownPartError, match=name) as refused:
            live.part("glance", name)
    finally:
        live._opened.cache_clear()
    said = {"newer": "was written in format 99", "missing": "unknown recorded audit"}
    assert said[state] in str(refused.value)


def test_rounding_up_keeps_what_every_short_threshold_flags():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2000) * 10.0 ** rng.integers(-6, 6, 2000)
    short, wide = live.upward(scores)
    assert not wide
    for at in (*short[:300], *np.float32([0, 0.5, -3, 1e-3])):
        assert ((scores <= at) == (short <= at)).all()
    same, wide = live.upward(np.array([1.0 + 1e-12, 1.0 + 2e-12]))
    assert wide
    assert same[0] != same[1]


@pytest.fixture(scope="module")
def linked(chromium, tmp_path_factory):
    """Open a recorded audit without the site around it, by what its address says after #."""
    file = tmp_path_factory.mktemp("linked") / "audit.html"
    body = live.part("audit", AUDITS["mmlu"]).markup()
    file.write_text(guarded(WHOLE.format(body)), "utf-8")
    with opened(chromium, file.as_uri(), offline=True) as page:

        def go(address):
            page.goto("about:blank")  # another fragment alone would not load it anew
            page.goto(address if "://" in address else f"{file.as_uri()}#{address}")
            page.wait_for_selector("body[data-ready]")
            page.locator(".mw-card").first.wait_for()
            return page

        yield go


def link_to(**state):
    return "memowidgets=" + quote(json.dumps(state))


def shown_there(page):
    """All that a link must bring along, as the page shows it."""
    picked = [
        page.get_by_label(name, exact=True).input_value()
        for name in ("checkpoint", "layer", "η", "sort", "filter by decision")
    ]
    picked.append(page.locator(".mw-segment[aria-checked=true], .mw-bar select").all_inner_texts())
    return [
        tau(page), counts(page), page.get_by_label("compare metrics").is_checked(), picked,
        page.locator(".mw-chip[aria-pressed=true]").inner_text(),
        page.locator(".mw-range").inner_text(),
        page.locator(".mw-opened .mw-whole-id").inner_text(),
        page.locator(".mw-curve-entry", has_text="(pinned)").all_inner_texts(),
    ]  # fmt: skip


def test_two_scores_at_two_layers_are_compared_and_the_view_is_sent_as_a_link(linked):
    page = linked("chapter")
    hand = Hand(page)
    hand.click(page.get_by_role("button", name="Pin curve"))
    hand.choose("layer", "27")
    page.locator(".mw-curve-name", has_text="(pinned)").wait_for()
    hand.click(page.get_by_role("button", name="More controls"))
    hand.click(page.get_by_label("compare metrics"))
    names = page.locator(".mw-curve-name")
    names.filter(has_text="Log-probability of the label").wait_for()
    assert names.first.inner_text().startswith("PSMI, layer 27")
    compared = hand.actions
    page.locator('[data-filter="false alarm"]').click()
    type_in(page, "η", "3")
    type_in(page, "τ", "0.05")
    page.get_by_label("sort").select_option("log-lira")
    page.get_by_label("next page").click()
    page.locator(".mw-range").get_by_text("13–24 of").wait_for()
    page.locator(".mw-card").nth(1).dblclick()
    page.locator(".mw-opened .mw-lira").wait_for()
    before = shown_there(page)
    assert "PSMI, last layer" in before[-1][0] or "PSMI, layer" in before[-1][0]
    hand.click(page.locator(".mw-sharing summary"))
    hand.click(page.get_by_role("button", name="Copy a link"))
    address = page.get_by_label("to copy").input_value()
    assert hand.actions - compared == 2
    assert hand.actions <= 8
    fragment = address.partition("#")[2]
    assert fragment.startswith("chapter&memowidgets=")
    assert page.locator(".mw-opened .mw-whole-id").inner_text() not in unquote(fragment)
    assert shown_there(linked(address)) == before
    page.locator(".mw-opened .mw-lira").wait_for()


@pytest.fixture
def followed(linked):
    """The page at a view of its own, from which it follows another address without a reload."""
    page = linked(link_to(tau=0.1, eta=5, filter="hit"))

    def go(fragment):
        page.evaluate("(to) => { location.hash = to; }", fragment)
        return page

    yield go
    # the address is written a moment later, at most every 400 ms
    page.wait_for_function("() => location.hash.includes('%22tau%22')")
    kept = json.loads(unquote(page.evaluate("() => location.hash").partition("memowidgets=")[2]))
    assert (kept["tau"], kept["eta"]) == (tau(page), 5)
    assert len(page.locator(".mw-bar .mw-message").inner_text()) < 300


WRONG = [
    ({"tau": -1000}, ["-1000"]),
    ({"opened": 99999}, ["99999"]),
    ({"layer": "99", "opened": -1}, ["99", "-1"]),
    ({"checkpoint": ["a"], "eta": "4", "comparing": 1}, ["checkpoint", "eta", "comparing"]),
    ({"pinned": {"metric": "psmi", "layer": "27", "checkpoint": "epoch-99"}}, ["pinned"]),
    ({"pinned": "psmi"}, ["pinned"]),
    ({"sort": "x" * 999, "decision": "burn", "page": 0.5}, ["xxx", "burn", "0.5"]),
    ({EVIL: 1, "constructor": 1, "__proto__": 2}, [EVIL[:30], "constructor"]),
]


def test_what_a_link_gets_wrong_is_one_sentence_and_nothing_is_lost(followed):
    for i, (said, facts) in enumerate(WRONG):
        name = ("missed", "clear")[i % 2]
        page = followed(link_to(**said, filter=name))
        page.locator(f'[data-filter="{name}"][aria-pressed=true]').wait_for()
        text = page.locator(".mw-bar .mw-message").inner_text()
        assert all(fact in text for fact in facts)
        assert tau(page) == 0.1
        assert not page.locator(".mw-opened").is_visible()
    for text in ("{", "[]", "1", "null", "[" * 5000, "9" * 3999, "NaN", "%E0%A4%A"):
        followed(link_to(filter="hit"))
        page.locator(".mw-bar .mw-message").wait_for(state="hidden")
        followed(f"memowidgets={text}")
        page.locator(".mw-message").get_by_text("no state of a dashboard").wait_for()
        assert tau(page) == 0.1


def test_a_view_that_the_page_does_not_hold_is_said_and_a_sample_is_opened(followed):
    page = followed(link_to(layer="26", checkpoint="epoch-1", tau=-0.1))
    page.locator(".mw-message").get_by_text("layer 26, epoch 1").wait_for()
    assert tau(page) == -0.1
    followed(link_to(opened=5, metric="loss"))
    name = mw.open_recorded(AUDITS["mmlu"]).score("psmi").index[5]
    page.locator(".mw-opened .mw-whole-id").get_by_text(name).wait_for()
    page.locator(".mw-axis-title", has_text="Log-probability of the label").first.wait_for()
    followed(link_to(opened=None))
    page.locator(".mw-opened").wait_for(state="hidden")
