"""Pages that move without a kernel: Python's numbers, no request, for everyone."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.__main__ import main
from memowidgets.audit.views.answers import AuditView
from memowidgets.audit.views.recorded import upward
from memowidgets.commands.demo import guess_of
from memowidgets.registry import spoken
from memowidgets.widgets.inspected import Listed
from scripts import live
from scripts.docs import guarded
from tests.browser.harness import (
    free_port,
    go_to_checkpoint,
    opened,
    save,
    serving,
    settled,
)
from tests.browser.test_everywhere import counts, tau
from tests.front_end.tools import serious
from tests.report.test_page import expected, move_eta, type_tau

pytestmark = pytest.mark.slow  # they need the site

AUDITS = {
    "mmlu": "mmlu-field-smollm2",
    "banking77": "banking77-smollm2",
    "cifar10": "cifar10-wrn",
}
FIRST = "patients-smollm2"  # on the first page
PAGES = [
    "index",
    "live/digits",
    "live/hands",
    *(f"live/{name}" for name in (*AUDITS, *live.PLAYGROUNDS)),
]
# The three audits in numbers have pages of the same parts.
EACH_KIND = [name for name in PAGES if not name.endswith(("banking77", "cifar10"))]
MOST_BYTES = 1_500_000
WHOLE = "<!doctype html><html lang='en'><head></head><body>{}</body></html>"
EVIL = "<img src=x onerror=document.body.remove()>"


@pytest.fixture(scope="module")
def visit(chromium, site):
    """One window for all tests that only look: another page is opened in it."""
    with opened(chromium, (site / "index.html").as_uri(), offline=True) as page:

        def go(name, width=1440, scheme="light"):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            page.goto((site / f"{name}.html").as_uri())
            page.wait_for_selector("body[data-ready]")
            return page

        yield go


def picked(page, metric, checkpoint=None, layer=None):
    if checkpoint is not None:
        go_to_checkpoint(page, checkpoint)
        page.locator(f'.mw-times[aria-valuetext^="epoch {checkpoint[6:]} "]').wait_for()
    if layer is not None:
        page.get_by_label("layer", exact=True).select_option(layer)
    page.locator(".mw-bar").get_by_label("metric", exact=True).select_option(metric)
    label = spoken(metric)
    page.locator(".mw-axis-title").filter(has_text=f"{label}, ").first.wait_for()


@pytest.mark.parametrize(
    ("name", "picks"),
    [
        ("mmlu", [("mahalanobis", "epoch-3.5", "27"), ("csl", "epoch-6", None)]),
        ("cifar10", [("psmi", "epoch-15", "group2.block2"), ("loss", "epoch-3", None)]),
    ],
)
def test_an_audits_numbers_are_pythons(visit, name, picks):
    page, audit = visit(f"live/{name}"), mw.open_recorded(AUDITS[name])
    evaluation = audit.evaluate("psmi")
    assert counts(page) == expected(evaluation, tau(page))
    if name == "cifar10":  # it opens with a tenth
        assert counts(page)["flagged"] == round(0.1 * evaluation.n)
    else:
        assert tau(page) == 0
    shown = page.locator(".mw-auc").text_content().removeprefix("AUC ")
    assert float(shown) == pytest.approx(evaluation.auc, abs=0.005)
    for metric, checkpoint, layer in picks:
        picked(page, metric, checkpoint, layer)
        where = {"layer": layer or "last", "checkpoint": checkpoint}
        assert counts(page) == expected(audit.evaluate(metric, **where), tau(page))
        for eta in (1.5, 4.0):
            move_eta(page, eta)
            evaluation = audit.evaluate(metric, **where, eta=eta)
            assert counts(page) == expected(evaluation, tau(page))
            type_tau(page, "-0.37")
            assert counts(page) == expected(evaluation, -0.37)
            said = [
                page.locator(f".mw-auc{part}").text_content()
                for part in ("", "-interval")
            ]
            area = [evaluation.auc, *evaluation.auc_interval]
            shown = re.findall(r"\d\.\d+", " ".join(said))
            assert [*map(float, shown)] == pytest.approx(area, abs=0.005)


def test_the_guess_is_played_to_its_end_by_key(visit):
    page, audit = visit("index"), mw.open_recorded(FIRST)
    truth, psmi = audit.log_lira().dropna(), audit.score("psmi")
    data = audit.evidence.member_data
    texts = dict(zip(data.ids.tolist(), data.questions, strict=True))
    assert page.locator(".mw-dashboard").count() == 0, "the truth waits for the guess"
    for six in guess_of(audit)["sixes"][:2]:
        names = truth.index[six]
        is_true = (truth[names] >= 4).tolist()
        cards, go = page.locator(".mw-guess-note"), page.locator(".mw-guess-go")
        shown = cards.locator("> em + span").all_inner_texts()
        assert shown == [texts[name] for name in names]
        assert page.locator(".mw-guess-truth:not(:empty)").count() == 0
        hidden = page.locator(".mw-guess-field").get_attribute("aria-label")
        assert re.findall(r"\d+", hidden) == ["356"]  # and no place
        cards.first.focus()
        for _ in range(4):  # a fourth is not taken
            page.keyboard.press("Enter")
            page.keyboard.press("Tab")
        pressed = [card.get_attribute("aria-pressed") for card in cards.all()]
        assert pressed == ["true"] * 3 + ["false"] * 3
        go.press("Enter")
        said = page.locator(".mw-guess-result > div b").all_inner_texts()
        lowest = np.argsort(psmi[names].to_numpy())[:3]
        assert said == [
            f"{sum(is_true[:3])} of 3",
            f"{sum(is_true[i] for i in lowest)} of 3",
        ]
        assert page.locator(".mw-guess-memorised").count() == 3
        time = page.locator(".mw-guess .mw-times")
        for key, epoch in (("End", "10"), ("Home", "0.25")):
            time.press(key)
            assert time.get_attribute("aria-valuetext").startswith(f"epoch {epoch} of")
        go.press("Enter")
    assert go.is_disabled()  # nothing is picked yet
    assert page.locator(".mw-guess-result > div").count() == 0


# The time of the page's film is what the test says.
CLOCK = """const real = performance.now.bind(performance);
performance.now = () => window.mwNow ?? real();"""


def test_the_demo_runs_the_training_stops_at_the_star_and_leads_to_the_dashboard(
    chromium, tmp_path
):
    assert main(["demo", "--no-browser", "--out", str(tmp_path)]) == 0
    address = (tmp_path / "index.html").as_uri()
    evaluation = mw.open_recorded(FIRST).evaluate("psmi")
    point = evaluation.at(0.0)
    with opened(chromium, address, before=CLOCK, offline=True) as page:
        page.set_viewport_size({"width": 1280, "height": 720})
        page.wait_for_selector("body[data-ready]")
        page.evaluate("() => { window.mwNow = 0; }")
        for card in page.locator(".mw-guess-note").all()[3:]:
            card.click()
        page.locator(".mw-guess-go").click()
        page.evaluate("() => { window.mwNow = 2600; }")
        time = page.locator(".mw-guess .mw-times")
        page.locator('.mw-guess .mw-times[aria-valuetext^="epoch 4 of"]').wait_for()
        stands = page.locator(".mw-guess-field")
        said = stands.get_attribute("aria-label")
        assert re.findall(r"\d+", said) == ["356", str(point.flagged)]  # no truth yet
        page.evaluate("() => { window.mwNow = 4900; }")
        page.locator('.mw-guess .mw-times[aria-valuetext^="epoch 10 of"]').wait_for()
        page.evaluate("() => { window.mwNow = 9000; }")
        page.locator(".mw-guess-onward").wait_for()
        assert time.get_attribute("aria-valuetext").startswith("epoch 4 of")
        memorized = point.found + point.missed
        said = stands.get_attribute("aria-label")
        assert re.findall(r"\d+", said) == ["356", str(point.flagged), str(memorized)]
        result = page.locator(".mw-guess-result")
        box = result.bounding_box()
        assert box["y"] + box["height"] <= 720, "the result is below the fold"
        assert page.evaluate("scrollY") == 0
        assert f"{point.found} of the {memorized} memorised" in result.inner_text()
        save(page, "demo-result-1280")
        page.locator(".mw-guess-onward").click()
        page.locator(".mw-opened .mw-facts-of dd").first.wait_for()
        assert counts(page) == expected(evaluation, 0.0)


def test_a_class_guesses_by_a_show_of_hands(visit):
    page, audit = visit("live/hands"), mw.open_recorded(FIRST)
    truth = audit.log_lira().dropna()
    six = truth.iloc[guess_of(audit)["sixes"][0]] >= 4
    go = page.locator(".mw-guess-go")
    fields = page.get_by_label("hands for: ")
    assert go.is_disabled()
    for field, hands in zip(
        fields.all(), ("3", "9", "-5", "", "30", "12"), strict=True
    ):
        field.fill(hands)
    go.click()
    mine = six.iloc[[1, 4, 5]].sum()
    assert page.locator(".mw-guess-result > div b").first.inner_text() == f"{mine} of 3"


def all_notes(page):
    """The dashboard of the first page, which opens after a guess."""
    for card in page.locator(".mw-guess-note").all()[:3]:
        card.click()
    page.locator(".mw-guess-go").click()
    page.locator(".mw-guess-onward").click()
    page.locator(".mw-opened .mw-facts-of dd").first.wait_for()
    return page


def test_the_first_page_counts_as_python_does_and_its_samples_follow(visit):
    page, audit = all_notes(visit("index")), mw.open_recorded(FIRST)
    evaluation, truth = audit.evaluate("psmi"), audit.log_lira().dropna()
    scores = audit.score("psmi")[truth.index]
    assert counts(page) == expected(evaluation, 0.0)
    worst = scores.idxmin()
    page.locator(".mw-opened .mw-whole-id").get_by_text(worst).wait_for()
    page.locator(".mw-fold > summary").click()
    shown = (
        page.locator(".mw-lira-legend .mw-ratio strong").inner_text().replace("−", "-")
    )
    assert float(shown) == pytest.approx(truth[worst], abs=0.01)
    assert page.get_by_role("button", name="compute").count() == 0
    data = audit.evidence.member_data
    texts = dict(zip(data.ids.tolist(), data.questions, strict=True))
    assert texts[worst] in page.locator(".mw-opened .mw-prose").first.inner_text()
    cards = page.locator(".mw-card")
    shown = cards.locator(".mw-prose").all_inner_texts()
    ids = cards.evaluate_all("(all) => all.map((one) => one.title.slice('id '.length))")
    assert shown == [texts[name] for name in ids] != []
    page.locator(".mw-histogram").press("PageDown")
    assert 0 < counts(page)["flagged"] < evaluation.at(0.0).flagged
    below = (scores <= tau(page)).sum()
    page.locator(".mw-range").filter(has_text=re.compile(rf"of {below}$")).wait_for()
    assert page.locator(".mw-opened").is_visible()


def opened_there(page):
    """What the opened sample says of itself, and the places of its neighbours."""
    page.locator(".mw-near").first.wait_for(state="attached")
    return [
        page.locator(".mw-opened .mw-facts-of dd").all_inner_texts(),
        page.locator(".mw-near .mw-distance").all_text_contents(),
        page.locator('[data-filter="label looks wrong"] .mw-count').inner_text(),
    ]


@pytest.mark.parametrize(
    ("page_name", "name"), [("index", FIRST), ("live/digits", "digits")]
)
def test_a_page_without_a_kernel_says_of_a_sample_what_jupyter_says(
    visit, page_name, name
):
    page, audit = visit(page_name), mw.open_recorded(name)
    if page_name == "index":
        all_notes(page)
    page.locator(".mw-fold > summary").click()
    (facts, distances, wrong) = opened_there(page)
    view = AuditView(audit)
    layer = audit.layers[-1]
    found = view.view("psmi", layer, audit.prediction.record.name)
    row = int(np.argmin(found.scores))
    detail = view.detail(int(found.positions[row]), "psmi", layer, found.checkpoint)
    shown = [f"distance {away:.3g}" for _, away in detail.neighbours]
    assert [text.rstrip("0") for text in distances] == [t.rstrip("0") for t in shown]
    listed = Listed(found, 4.0)
    assert int(wrong) == listed.looks_wrong.sum()
    share = re.search(r"([\d.]+)\s%", facts[1])[1]
    assert float(share) == pytest.approx(100 * found.probabilities[row].max(), abs=1)
    near = [found.labels[found.positions == place][0] for place, _ in detail.neighbours]
    assert f"{np.bincount(near).max()} of {len(near)}" in facts[2]


def test_decisions_on_a_page_are_taken_back_and_written_down(visit):
    page = all_notes(visit("index"))
    first = page.locator(".mw-opened .mw-whole-id").inner_text()
    page.locator(".mw-card").first.press("K")
    page.locator(".mw-said").get_by_text(first).wait_for()
    page.locator(".mw-progress").get_by_text("1 of 61 decided").wait_for()
    assert "until this page is closed" in page.locator(".mw-banner").inner_text()
    with page.expect_download() as saved:
        page.locator(".mw-bar").get_by_role("button", name="Export").click()
    table = pd.read_csv(saved.value.path())
    assert len(table) == 61
    assert table.set_index("id").decision[first] == "keep"
    assert set(table.decision) == {"keep", "undecided"}
    page.get_by_role("button", name="Undo").click()
    page.locator(".mw-progress").get_by_text("0 of 61 decided").wait_for()


def test_a_link_to_the_first_page_opens_its_view_and_names_what_is_gone(chromium, site):
    state = link_to(tau=0.05, selected=99999)
    address = f"{(site / 'index.html').as_uri()}#{state}"
    with opened(chromium, address, offline=True) as page:
        page.locator(".mw-card").first.wait_for()
        assert tau(page) == 0.05
        assert "99999" in page.locator(".mw-bar .mw-message").inner_text()


# Numbers that reach beyond their place.
CUT = """() => [...document.querySelectorAll('.live :is(.mw-fact-value, .mw-sentence)')]
    .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"""


@pytest.mark.parametrize("name", EACH_KIND)
def test_a_page_is_light_fits_a_phone_and_everyone_can_use_it(visit, site, name):
    page = visit(name, 390, "dark")
    loads = page.evaluate(
        "() => performance.getEntriesByType('resource').map((one) => one.name)"
    )
    names = {
        site / f"{name}.html",
        *(Path(unquote(urlsplit(url).path)) for url in loads),
    }
    assert sum(file.stat().st_size for file in names if file.is_file()) < MOST_BYTES
    if name == "index":
        all_notes(page)
    found = []
    for width, scheme in ((390, "dark"), (960, "dark"), (1440, "light")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels too wide at {width}"
        assert page.evaluate(CUT) == []
        save(page, f"{name.replace('/', '-')}-{width}-{scheme}")
        if width != 960:
            settled(page, STYLES)
            found += serious(page, also=("moderate", "minor"))
    assert not found, "\n".join(found)


# What a change of the theme changes, for those who wait until it is done.
STYLES = "() => [...document.querySelectorAll('article *')].map((e) => getComputedStyle(e).color)"


def test_a_page_moves_over_http_too(chromium, site, tmp_path):
    port = free_port()
    home = f"http://127.0.0.1:{port}/"
    command = [
        sys.executable,
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        "-d",
        site,
        str(port),
    ]
    allowed = (home, "data:", "blob:")
    with (
        serving(command, home, tmp_path / "log"),
        opened(chromium, f"{home}index.html", allowed=allowed) as page,
    ):
        all_notes(page)


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
    return all.length;
}"""


@pytest.mark.parametrize("name", EACH_KIND)
def test_every_control_is_reached_by_key_and_shows_it(visit, name):
    page = visit(name)
    controls = page.evaluate(CONTROLS)
    assert controls >= 3
    page.evaluate("() => window.mwBegin()")
    for _ in range(controls + 1):
        page.keyboard.press("Tab")
    assert page.evaluate("() => window.mwReached") == [
        [i, True] for i in range(controls)
    ]


@pytest.mark.parametrize("name", EACH_KIND)
def test_without_scripts_a_still_and_a_table_stand_in(chromium, site, name):
    address = (site / f"{name}.html").as_uri()
    with opened(chromium, address, scripts=False) as page:
        image = page.locator(".live-still img")
        assert image.is_visible()
        assert image.evaluate("(image) => image.naturalWidth") > 300
        rows = page.locator(".live-still tr").all_inner_texts()
    assert len(rows) >= 5
    if name in ("index", "live/mmlu"):
        of = FIRST if name == "index" else AUDITS["mmlu"]
        point = mw.open_recorded(of).evaluate("psmi").at(0.0)
        assert any(
            re.search(rf"flagged at τ = 0\s+{point.flagged}\b", row) for row in rows
        )


# Something happens to the page's data before its script runs.
LOST = """new MutationObserver((_, observer) => {
    const data = document.getElementById('live-data');
    if (data === null || document.querySelector('#live-data ~ *') === null) return;
    observer.disconnect();
    data.%s;
}).observe(document, { childList: true, subtree: true });"""


@pytest.mark.parametrize(
    ("before", "what"),
    [
        ("HTMLCanvasElement.prototype.getContext = () => null;", "has no canvas"),
        ("delete window.DecompressionStream;", "has no DecompressionStream"),
        (LOST % "remove()", "data are missing"),
        (LOST % "append('x')", "data are missing or damaged"),
    ],
)
def test_where_nothing_can_move_the_page_says_so_and_shows_its_still(
    chromium, site, before, what
):
    address = (site / "live" / "watch.html").as_uri()
    with opened(chromium, address, before=before, offline=True) as page:
        page.get_by_role("alert").filter(has_text=what).wait_for()
        assert page.locator(".live-still table").is_visible()
        image = page.locator(".live-still img")
        page.wait_for_function(
            "(image) => image.naturalWidth > 300", arg=image.element_handle()
        )


def test_the_policy_lets_nothing_else_run(chromium, site):
    page = chromium.new_page()
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
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute(
        "content"
    )
    page.close()
    assert refused == "object-src"
    assert policy.startswith("default-src 'none'; script-src 'self' 'sha256-")
    assert "unsafe-inline" not in policy


def test_rounding_up_keeps_what_every_short_threshold_flags():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=2000) * 10.0 ** rng.integers(-6, 6, 2000)
    short, wide = upward(scores)
    assert not wide
    for at in (*short[:300], *np.float32([0, 0.5, -3, 1e-3])):
        assert ((scores <= at) == (short <= at)).all()
    same, wide = upward(np.array([1.0 + 1e-12, 1.0 + 2e-12]))
    assert wide
    assert same[0] != same[1]


@pytest.fixture(scope="module")
def linked(chromium, tmp_path_factory):
    """Open a recorded audit without the site around it, by what its address says after #."""
    file = tmp_path_factory.mktemp("linked") / "audit.html"
    body = live.part("audit", FIRST).markup()
    file.write_text(guarded(WHOLE.format(body)), "utf-8")
    with opened(chromium, file.as_uri(), offline=True) as page:

        def go(address):
            page.goto("about:blank")  # another fragment alone would not load it anew
            page.goto(address if "://" in address else f"{file.as_uri()}#{address}")
            page.wait_for_selector("body[data-ready]")
            # hidden while comparing
            page.locator(".mw-card").first.wait_for(state="attached")
            return page

        yield go


def link_to(**state):
    return "memowidgets=" + quote(json.dumps(state))


def shown_there(page):
    """All that a link must bring along, as the page shows it."""
    names = ("layer", "metric", "memorised from log-LiRA η", "sort")
    picked = [page.get_by_label(name, exact=True).input_value() for name in names]
    picked.append(page.locator(".mw-times").get_attribute("aria-valuenow"))
    picked.append(page.get_by_label("filter by decision").input_value())
    picked.append(page.locator(".mw-segment[aria-checked=true]").all_text_contents())
    return [
        tau(page), counts(page), picked,
        page.locator(".mw-chip[aria-pressed=true]").inner_text(),
        page.locator(".mw-range").inner_text(),
        page.locator(".mw-opened .mw-whole-id").inner_text(),
    ]  # fmt: skip


def link_from(page):
    """What Copy a link gives."""
    page.locator(".mw-sharing summary").click()
    page.get_by_role("button", name="Copy a link").click()
    return page.get_by_label("to copy").input_value()


def test_two_scores_at_two_layers_are_compared_and_the_view_is_sent_as_a_link(linked):
    page = linked("chapter")
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_label("second score", exact=True).select_option("layer 27")
    compared = []
    for _ in range(2):
        page.locator(".mw-curve-name", has_text="layer 27").wait_for()
        parts = (".mw-parts td", ".mw-areas td")
        compared.append([page.locator(part).all_text_contents() for part in parts])
        page = linked(link_from(page))
    assert compared[0] == compared[1]
    page.get_by_role("button", name="close").click()
    page.locator('[data-filter="flagged only"]').click()
    page.locator(".mw-models i").first.wait_for()  # a square for each model
    move_eta(page, 3)
    type_tau(page, "0.05")
    page.get_by_role("button", name="search, order, select").click()
    page.get_by_label("sort").select_option("log-lira")
    page.get_by_label("next page").click()
    page.locator(".mw-range").get_by_text(re.compile(r"^25–\d+ of")).wait_for()
    page.locator(".mw-card").nth(1).click()
    page.locator(".mw-opened .mw-line").wait_for()
    before, address = shown_there(page), link_from(page)
    fragment = address.partition("#")[2]
    assert fragment.startswith("chapter&memowidgets=")
    assert before[-1] not in unquote(fragment)  # the id of the opened sample
    assert shown_there(linked(address)) == before
    page.locator(".mw-opened .mw-line").wait_for()


def test_what_a_link_gets_wrong_is_one_sentence_and_the_rest_is_followed(linked):
    page = linked(link_to(tau=0.1, eta=5, filter="found"))
    wrong = {
        "layer": "99",
        "selected": 99999,
        "comparing": ["psmi", None],
        "tau": -1000,
    }
    wrong |= {"sort": "x" * 999, "page": 0.5, EVIL: 1, "constructor": 1}
    page.evaluate("(to) => { location.hash = to; }", link_to(**wrong, filter="missed"))
    page.locator('[data-filter="missed"][aria-pressed=true]').wait_for()
    said = page.locator(".mw-bar .mw-message").inner_text()
    for fact in (
        "99",
        "99999",
        "compared",
        "-1000",
        "xxx",
        "0.5",
        EVIL[:30],
        "constructor",
    ):
        assert fact in said
    page.evaluate("() => { location.hash = 'memowidgets=%E0%A4%A'; }")
    page.locator(".mw-message").get_by_text("no state of a dashboard").wait_for()
    # the address is written a moment later, at most every 400 ms
    page.wait_for_function("() => location.hash.includes('%22tau%22')")
    kept = json.loads(
        unquote(page.evaluate("() => location.hash").partition("memowidgets=")[2])
    )
    assert (kept["tau"], kept["eta"]) == (tau(page), 5) == (0.1, 5)
