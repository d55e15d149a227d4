"""The page in Chromium, from disk, with the network off: it moves, and counts as Python does."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from memowidgets.data import ImageDataset
from memowidgets.report import Figure, write
from tests.browser.harness import pixels_of
from tests.browser.test_accessible import AUDIT
from tests.browser.test_everywhere import counts, drag_tau, tau
from tests.front_end.tools import node_modules
from tests.report.content import (
    ALL,
    EVIL,
    by_class,
    hostile,
    partly_judged,
    plain,
    untrained,
    without_truth,
)

AUDIT_ALL = AUDIT.replace("'.mw-dashboard'", "document")


@contextmanager
def shown(chromium, page_file, width=1400, scheme="light"):
    """The page, opened offline; fails on any error, any refusal by its policy, any request."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True,
        accept_downloads=False,
    )  # fmt: skip
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
    page.on("console", lambda said: problems.append(f"console: {said.text}"))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    context.on("request", lambda request: problems.append(f"request: {request.url[:200]}"))
    page.goto(page_file.as_uri())
    assert problems.pop(0) == f"request: {page_file.as_uri()}"
    page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    inside = tuple(f"request: data:image/{kind}" for kind in ("svg+xml", "bmp;base64,"))
    assert [p for p in problems if not p.startswith(inside)] == []


def expected(evaluation, at):
    """What Python counts, as the page names it."""
    point = evaluation.at(at)
    names = ("flagged", "found", "flagged_only", "missed", "left_alone")
    return {name: getattr(point, name) for name in names}


@contextmanager
def behind(page, opener):
    """What stands behind a button is open for as long as this."""
    page.locator(opener).click()
    yield
    page.locator(opener).click()


def type_in(page, label, text):
    with behind(page, {"τ": ".mw-tau-text", "η": ".mw-toggle"}[label]):
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")


def preset(page, name):
    with behind(page, ".mw-tau-text"):
        page.get_by_role("button", name=name, exact=True).click()


@pytest.mark.parametrize("make", [plain, partly_judged], ids=["plain", "partly judged"])
def test_the_counts_are_pythons_wherever_tau_is(chromium, tmp_path, make):
    content = make()
    evaluation = content.evaluation
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        assert counts(page) == expected(evaluation, 0.0)
        for share in (0.13, -0.3, 0.021):
            before = tau(page)
            drag_tau(page, share)
            assert tau(page) != before
            assert counts(page) == expected(evaluation, tau(page))
        scores = np.sort(evaluation.scores)
        for score in scores[[0, 17, 200, -1]]:
            for near in (np.nextafter(score, -np.inf), score, np.nextafter(score, np.inf)):
                type_in(page, "τ", repr(float(near)))
                assert counts(page) == expected(evaluation, float(near))
        for rule, name in (("youden", "Youden"), ("tpr>=0.75", "finds 75 %")):
            preset(page, name)
            chosen = evaluation.at(evaluation.threshold(rule))
            assert counts(page)["found"] == chosen.found
        assert page.locator(".mw-auc").text_content() == f"AUC {evaluation.auc:.2f}"


def test_scores_against_the_class_are_those_of_plots_and_samples(chromium, tmp_path):
    content = by_class()
    scored = content.scored
    below = scored.flagged("class")
    known = below & scored.judged
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        assert counts(page)["flagged"] == known.sum()
        for eta in (4.0, 5.5):  # no kernel counts: the page does
            type_in(page, "η", str(eta))
            assert counts(page)["found"] == (known & (scored.log_lira >= eta)).sum()
        chip = page.locator('.mw-chip[data-filter="flagged"] .mw-count')
        chip.get_by_text(str(int(below.sum())), exact=True).wait_for()
        preset(page, "lowest 5 %")
        assert counts(page)["flagged"] != known.sum()
        preset(page, "τ = −1")
        assert counts(page)["flagged"] == known.sum()
        assert page.get_by_role("radio", name="against its class").count() == 0


def test_eta_moves_and_the_samples_follow(chromium, tmp_path):
    content = plain()
    judged = content.scored.judged
    scores, log_lira = content.scored.scores[judged], content.scored.log_lira[judged]
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        for eta, at in ((3.0, 0.0), (7.25, 0.1), (4.0, -0.1)):
            type_in(page, "η", str(eta))
            type_in(page, "τ", str(at))
            memorized, flagged = log_lira >= eta, scores <= at
            wanted = {
                "found": memorized & flagged, "flagged only": flagged & ~memorized,
                "missed": memorized & ~flagged, "left alone": ~memorized & ~flagged,
            }  # fmt: skip
            for name, mask in wanted.items():
                chip = page.locator(f'[data-filter="{name}"]')
                chip.get_by_text(str(mask.sum()), exact=True).wait_for(state="attached")
                assert counts(page)[name.replace(" ", "_")] == int(mask.sum())
        page.locator('[data-filter="found"]').click()
        first = page.locator(".mw-card").first
        most = int(np.argmin(np.where((log_lira >= 4) & (scores <= -0.1), scores, np.inf)))
        first.get_by_text(f"member {most}", exact=True).wait_for()
        first.press("Enter")
        page.locator(".mw-opened").get_by_text(f"member {most}", exact=True).wait_for()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        page.keyboard.press("k")  # a report can't be changed
        page.get_by_role("button", name="search, order, select").click()
        page.get_by_label("filter by decision").select_option("remove")
        page.locator('[data-filter="all"]').click()
        page.locator(".mw-range").get_by_text("1 of 600 match").wait_for()
        page.get_by_label("filter by decision").select_option("any")
        page.get_by_label("sort").select_option("log-lira")
        page.locator(".mw-card").first.get_by_text(f"member {int(log_lira.argmax())}").wait_for()


def test_hostile_samples_are_shown_as_written(chromium, tmp_path):
    page_file = write(hostile(), tmp_path / "a.html")
    with shown(chromium, page_file) as page:
        page.locator('[data-filter="all"]').click()
        page.locator(".mw-card").nth(8).wait_for()
        page.get_by_text("<script>document.body.remove()</script> is shown as written").wait_for()
        assert page.locator("h1").inner_text().startswith("Memorisation audit of </script>")
        assert page.locator("main script, main iframe, main a, main object").count() == 0
        assert page.locator("main img").count() == 1  # the figure
        page.locator(".mw-card").first.click()
        page.locator(".mw-opened .mw-whole-id").get_by_text("<img src=x onerror").wait_for()
        assert EVIL.split("|")[0].strip() in page.title()
        save(page, "report-hostile-1400-light")


def test_images_show_their_pixels(chromium, tmp_path):
    n = 24
    images = np.full((n, 32, 32, 3), 10 * np.arange(n)[:, None, None, None], dtype=np.uint8)
    content = plain(n, samples=ImageDataset.from_arrays(images, np.arange(n) % 10))
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        page.locator('[data-filter="all"]').click()
        page.get_by_role("button", name="search, order, select").click()
        page.get_by_label("sort").select_option("order")
        page.locator(f'.mw-card:nth-child({n})[data-position="{n - 1}"]').wait_for()
        for i in (0, 7, n - 1):
            tile = page.locator(f'.mw-card[data-position="{i}"] .mw-image')
            assert (pixels_of(tile)[2:-2, 2:-2] == 10 * i).all()
        page.locator(".mw-card").nth(7).click()
        assert (pixels_of(page.locator(".mw-sample .mw-image"))[2:-2, 2:-2] == 70).all()


@pytest.mark.parametrize("make", [untrained, without_truth, ALL["one kind"]])
def test_what_is_not_there_is_not_shown(chromium, tmp_path, make):
    content = make()
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        text = page.locator("main").inner_text()
        if content.scored is None:
            assert page.locator(".mw").count() == 0
            assert "the target is not trained yet" in text
        else:
            assert page.locator(".mw-roc").is_hidden()
            assert set(counts(page)) >= {"flagged"}
            assert "AUC" not in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_use_it(chromium, tmp_path, scheme):
    axe = (node_modules() / "axe-core" / "axe.min.js").read_text("utf-8")
    page_file = write(plain(warnings=("Something to know.",)), tmp_path / "a.html")
    found = []
    for width in (1400, 600):
        with shown(chromium, page_file, width, scheme) as page:
            page.locator(".mw-card").first.wait_for()
            page.evaluate(axe)
            found += page.evaluate(AUDIT_ALL)
            page.locator(".mw-card").first.press("Enter")
            found += page.evaluate(AUDIT_ALL)
            page.keyboard.press("Escape")
            wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{wide} pixels too wide"
            save(page, f"report-{width}-{scheme}")
    assert not found, "\n".join(found)


def figure(name: str, width: int, height: int) -> Figure:
    """A figure with a legend at its lower right corner, and a caption of several lines."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><rect width="{width}" height="{height}" fill="#eee"/>'
        f'<text x="{width - 90}" y="{height - 9}">a legend</text></svg>'
    )
    return Figure(name, f"What {name} shows. " * 12, svg)


MARKED = """() => {
    const links = [];
    const mark = (element, id) => {
        element.id ||= id;
        const link = document.createElement('a');
        link.href = `#${element.id}`;
        link.textContent = '.';
        links.push(link);
        return element.id;
    };
    const pairs = [];  // what has to be on the same page
    for (const [i, figure] of [...document.querySelectorAll('figure')].entries()) {
        const end = document.createElement('span');
        figure.lastElementChild.append(end);
        pairs.push([mark(figure, `figure-${i}`), mark(end, `end-${i}`)]);
    }
    for (const [i, caption] of [...document.querySelectorAll('caption')].entries()) {
        const row = caption.parentElement.querySelector('tbody tr');
        pairs.push([mark(caption, `caption-${i}`), mark(row, `row-${i}`)]);
    }
    for (const [i, head] of [...document.querySelectorAll('h2')].entries()) {
        if (head.getClientRects().length === 0) continue;
        const next = head.nextElementSibling;
        const first = next.querySelector('tr, p, img') ?? next;
        pairs.push([mark(head, `head-${i}`), mark(first, `under-${i}`)]);
    }
    document.body.append(...links);
    return pairs;
}"""


def pages_of(pdf: bytes) -> dict[str, int]:
    """The page of each element that a link leads to, from the PDF's named destinations."""
    kids = [re.findall(rb"(\d+) 0 R", found) for found in re.findall(rb"/Kids \[([^]]*)\]", pdf)]
    is_page = set(re.findall(rb"\n(\d+) 0 obj\s*<</Type /Page\b", pdf))
    order = [one for found in kids for one in found if one in is_page]
    there = re.findall(rb"/([\w-]+) \[(\d+) 0 R /XYZ", pdf)
    return {name.decode(): order.index(number) for name, number in there if number in is_page}


def test_on_paper_nothing_is_torn(chromium, tmp_path):
    sizes = [(600, 300), (500, 420), (900, 1300), (1400, 200), (300, 500), (620, 380), (500, 900)]
    checkpoints = [
        {"name": f"epoch-{i}", "epoch": float(i), "step": i, "median_loss": 2 / i, "drop": 0.1,
         "prediction": i == 2}
        for i in range(1, 30)
    ]  # fmt: skip
    content = plain(
        checkpoints=checkpoints,
        training={f"setting_{i}": i for i in range(40)},
        figures=tuple(figure(f"figure{i}", *size) for i, size in enumerate(sizes)),
        warnings=("Something to know.",),
    )
    with shown(chromium, write(content, tmp_path / "a.html"), scheme="dark") as page:
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 673, "height": 900})  # A4 between the margins
        assert page.locator("button:visible, input:visible, select:visible").count() == 0
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
        for image in page.locator("figure img").all():
            assert image.evaluate("async (image) => { await image.decode(); }") is None
            box = image.bounding_box()
            natural = image.evaluate("(image) => image.naturalWidth / image.naturalHeight")
            assert box["width"] / box["height"] == pytest.approx(natural, rel=0.01)
            assert box["x"] + box["width"] <= 673
        assert page.evaluate("() => getComputedStyle(document.body).color") == "rgb(31, 35, 40)"
        together = page.evaluate(MARKED)
        pdf = page.pdf(format="A4")
        save(page, "report-print")
    found = pages_of(pdf)
    assert found["short"] == 0
    assert found["figures"] == found["figure-0"] > max(found["made"], found["limits"])
    for one, other in together:
        assert found[one] == found[other], f"{one} and {other} are on different pages"


def test_without_scripts_the_words_and_numbers_stand(chromium, tmp_path):
    page_file = write(plain(), tmp_path / "a.html")
    context = chromium.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(page_file.as_uri())
    text = page.locator("main").inner_text()
    context.close()
    assert "The threshold moves where scripts may run." in text
    assert json.loads(page_file.with_suffix(".json").read_text("utf-8"))["words"][1][:12] in text


def test_a_browser_that_cannot_unpack_says_so(chromium, tmp_path):
    page_file = write(plain(), tmp_path / "a.html")
    context = chromium.new_context(offline=True)
    page = context.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(page_file.as_uri())
    page.get_by_text("The threshold can't be moved in this browser").wait_for()
    context.close()


def save(page, name):
    """A picture to look at, if one was asked for."""
    if folder := os.environ.get("MEMOWIDGETS_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
