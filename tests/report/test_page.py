"""The page in Chromium, from disk, with the network off: it moves, and counts as Python does."""

from __future__ import annotations

import re
from contextlib import contextmanager

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.data import ImageDataset
from memowidgets.decisions import Decision
from memowidgets.report import Figure, write
from memowidgets.report.words import headline
from memowidgets.vocabulary import Note
from memowidgets.widgets.standin import sentences
from tests.browser.harness import opened, pixels_of, save
from tests.browser.test_everywhere import counts, drag_tau, tau
from tests.front_end.tools import serious
from tests.report.content import EVIL, SVG, by_class, hostile, partly_judged, plain


def shown(chromium, page_file, width=1400, scheme="light"):
    """The page, opened offline, which asks for nothing but itself."""
    address = page_file.as_uri()
    allowed = (address, "data:image/svg+xml", "data:image/bmp;base64,")
    how = {
        "viewport": {"width": width, "height": 900},
        "color_scheme": scheme,
        "offline": True,
    }
    return opened(chromium, address, allowed=allowed, accept_downloads=False, **how)


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


def type_tau(page, text):
    field = page.get_by_label("τ", exact=True)
    field.fill(text)
    field.press("Enter")


def move_eta(page, eta):
    with behind(page, ".mw-toggle"):
        page.get_by_label("memorised from log-LiRA η").fill(f"{eta:g}")
        page.wait_for_selector(".mw-explorer:not(.mw-pending)")


def ask(page, name):
    page.get_by_role("radio", name=name, exact=True).click()


def test_the_counts_are_pythons_wherever_tau_is(chromium, tmp_path):
    content = partly_judged()
    evaluation = content.evaluation
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        assert counts(page) == expected(evaluation, 0.0)
        shows = [
            text for text in page.locator(".mw-sentence").all_inner_texts() if text
        ]
        flagged, *rest = sentences(content.scored, 0.0, 4.0)
        assert shows == rest
        many, n = (part.strip() for part in flagged.split("flagged of"))
        assert f"{many} of {n} flagged" in page.locator(".mw-tau-text").inner_text()
        drag_tau(page, 0.13)
        assert tau(page) > 0
        assert counts(page) == expected(evaluation, tau(page))
        score = np.sort(evaluation.scores)[17]
        for near in (np.nextafter(score, -np.inf), score, np.nextafter(score, np.inf)):
            type_tau(page, repr(float(near)))
            assert counts(page) == expected(evaluation, float(near))
        assert page.locator(".mw-auc").text_content() == f"AUC {evaluation.auc:.2f}"


def test_page_one_follows_the_threshold_and_paper_stays_as_written(chromium, tmp_path):
    content = plain()
    written = headline(content)
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        title = page.locator("h1")
        assert title.inner_text() == written
        widths = [
            page.locator(name).bounding_box()["width"]
            for name in (".mr-key", "#mr-explorer", "#mr-inspector")
        ]
        assert max(widths) - min(widths) <= 4, widths
        type_tau(page, "0.05")
        at = expected(content.evaluation, 0.05)
        memorized = at["found"] + at["missed"]
        facts = (at["flagged"], 600, at["found"], memorized)
        assert re.findall(r"\d+", title.inner_text()) == [str(n) for n in facts]
        shown_numbers = page.locator(".mr-key b").all_inner_texts()
        wanted = [str(at[name]) for name in ("flagged", "found", "missed")]
        assert shown_numbers == wanted
        # what is of another threshold is not beside it
        for of_written in (".mr-fact", ".mr-two", ".mr-sure", ".mr-assessment"):
            assert not page.locator(of_written).first.is_visible()
        page.emulate_media(media="print")
        assert title.inner_text() == written
        assert page.locator(".mr-dots svg").is_visible()
        assert page.locator(".mr-two").is_visible()
        page.emulate_media(media="screen")
        page.locator("#mr-back").click()
        page.locator(".mr-two").wait_for()
        assert title.inner_text() == written
        assert tau(page) == content.tau


def test_scores_against_the_class_are_those_of_plots_and_samples(chromium, tmp_path):
    content = by_class()
    scored = content.scored
    below = scored.flagged("class")
    n = below.sum()
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        assert counts(page)["flagged"] == n
        for eta in (4.0, 5.5):  # no kernel counts: the page does
            move_eta(page, eta)
            assert counts(page)["found"] == (below & (scored.log_lira >= eta)).sum()
        chip = page.locator('.mw-chip[data-filter="flagged"] .mw-count')
        chip.get_by_text(str(n), exact=True).wait_for()
        ask(page, "20")
        assert counts(page)["flagged"] == 20 != n
        ask(page, "by class")
        assert counts(page)["flagged"] == n
        assert page.get_by_role("radio", name="τ =").count() == 0


def test_eta_moves_and_the_samples_follow(chromium, tmp_path):
    scored = plain().scored
    models = scored.positions % 9 + 10
    content = plain(support=(np.minimum(models, 12.0), models))
    judged = scored.judged
    scores, log_lira = scored.scores[judged], scored.log_lira[judged]
    with shown(chromium, write(content, tmp_path / "a.html")) as page:
        for eta, at in ((3.0, 0.0), (7.2, 0.1), (4.0, -0.1)):
            move_eta(page, eta)
            type_tau(page, str(at))
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
        most = int(
            np.argmin(np.where((log_lira >= 4) & (scores <= -0.1), scores, np.inf))
        )
        first.get_by_text(f"member {most}", exact=True).wait_for()
        first.press("Enter")
        page.locator(".mw-opened").get_by_text(f"member {most}", exact=True).wait_for()
        squares = page.locator(".mw-models i")
        assert squares.count() == models[most]  # one for each model
        assert page.locator(".mw-models .mw-on").count() == min(12, models[most])
        move_eta(page, 7.2)
        squares.first.wait_for(state="detached")  # they were counted at another η
        move_eta(page, 4.0)
        squares.first.wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("k")  # a report can't be changed
        page.get_by_role("button", name="search, order, select").click()
        page.get_by_label("filter by decision").select_option("remove")
        page.locator('[data-filter="all"]').click()
        page.locator(".mw-range").get_by_text("1 of 600 match").wait_for()
        page.get_by_label("filter by decision").select_option("any")
        page.get_by_label("sort").select_option("log-lira")
        page.locator(".mw-card").first.get_by_text(
            f"member {int(log_lira.argmax())}"
        ).wait_for()


def test_hostile_samples_are_shown_as_written(chromium, tmp_path):
    page_file = write(hostile(), tmp_path / "a.html")
    with shown(chromium, page_file) as page:
        page.locator('[data-filter="all"]').click()
        page.locator(".mw-card").nth(8).wait_for()
        written = page.get_by_text(
            "<script>document.body.remove()</script> is shown as written"
        )
        written.first.wait_for()
        page.get_by_text("Memorisation audit of </script>").wait_for()
        assert (
            page.locator("main script, main iframe, main a, main object").count() == 0
        )
        assert page.locator("main img").count() == 1  # the figure
        assert page.locator("#mr-explorer .mw-explorer").is_visible()
        page.locator(".mw-card").first.click()
        page.locator(".mw-opened .mw-whole-id").get_by_text(
            "<img src=x onerror"
        ).wait_for()
        assert EVIL.split("|")[0].strip() in page.title()
        save(page, "report-hostile-1400-light")


def test_images_show_their_pixels(chromium, tmp_path):
    n = 24
    images = np.full(
        (n, 32, 32, 3), 10 * np.arange(n)[:, None, None, None], dtype=np.uint8
    )
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


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_everyone_can_use_it(chromium, tmp_path, width, scheme):
    page_file = write(
        plain(warnings=(Note("ridge", "Something to know."),)), tmp_path / "a.html"
    )
    with shown(chromium, page_file, width, scheme) as page:
        page.locator(".mw-card").first.wait_for()
        found = serious(page)
        page.locator(".mw-card").first.press("Enter")
        found += serious(page)
        page.keyboard.press("Escape")
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{wide} pixels too wide"
        save(page, f"report-{width}-{scheme}")
    assert not found, "\n".join(found)


def paper(page_file, chromium, *, appendix=False) -> tuple[int, list[str]]:
    """The number of A4 pages of a report, and the numbers on its first one but for the axis."""
    with shown(chromium, page_file, scheme="dark") as page:
        if appendix:
            page.locator("summary", has_text="Appendix").click()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 673, "height": 900})  # A4 between the margins
        assert (
            page.locator("button:visible, input:visible, select:visible").count() == 0
        )
        assert (
            page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
            <= 0
        )
        assert (
            page.evaluate("() => getComputedStyle(document.body).color")
            == "rgb(31, 35, 40)"
        )
        first = page.locator(".mr-first").bounding_box()
        assert first["height"] < 1000  # of 1001 between the margins
        dots = page.locator(".mr-dots svg").last.bounding_box()
        assert (
            first["y"]
            < dots["y"]
            < dots["y"] + dots["height"]
            < first["y"] + first["height"]
        )
        starred = page.get_by_role("img", name="★ best time to predict").count()
        assert starred == page.locator(".mw-timeline").count()
        texts = page.locator(".mr-first").evaluate(
            "(first) => { first.querySelectorAll('time, svg').forEach((one) => one.remove());"
            " return first.innerText; }"
        )
        pdf = page.pdf(prefer_css_page_size=True)
        save(page, "report-print")
    texts = re.sub(r"\d{4}-\d\d-\d\d", "", texts)  # a day is not weighed
    return len(re.findall(rb"/Type /Page\b", pdf)), re.findall(
        r"(?<![\w.−-])\d[\d\u202f.]*", texts
    )


@pytest.mark.parametrize("name", ["patients-smollm2", "banking77-smollm2"])
def test_on_paper_page_one_is_the_result_and_four_pages_are_all(
    chromium, tmp_path, name
):
    audit = mw.open_recorded(name)
    for member, decision in zip(audit.members, ("remove", "keep"), strict=False):
        audit.decision_log.decide([str(member)], decision)
    has_texts = name.startswith("patients")
    page_file = audit.report(
        tmp_path / "a.html", include_samples=has_texts, figures=False
    )
    pages, numbers = paper(page_file, chromium)
    assert 2 <= pages <= 4
    assert 8 <= len(numbers) <= 20, " ".join(numbers)


def test_six_people_with_long_names_leave_page_one_one_page(chromium, tmp_path):
    times = "2026-01-31T09:30:00Z"
    content = plain()
    ids = [content.ids[row] for row in content.by_risk[:6]]
    made = {
        name: Decision("keep", by=f"{i} {'Anne-Marie ' * 17}", at=times)
        for i, name in enumerate(ids)
    }
    pages, _ = paper(write(plain(decisions=made), tmp_path / "a.html"), chromium)
    assert pages <= 4


def test_the_appendix_is_printed_where_it_is_open(chromium, tmp_path):
    tall = Figure(
        "roc", "What it shows. " * 12, SVG.replace('height="20"', 'height="1300"')
    )
    page_file = write(plain(figures=(tall,)), tmp_path / "a.html")
    closed, _ = paper(page_file, chromium)
    assert paper(page_file, chromium, appendix=True)[0] >= closed + 2


def test_a_saved_view_opens_as_it_was_and_plays(chromium, tmp_path):
    dashboard = mw.open_recorded("digits").dashboard()
    dashboard.wait(60)
    dashboard.metric = "loss"
    dashboard.wait(60)
    dashboard.asked, dashboard.eta = {"share": 0.1}, 6.0
    dashboard.filter, dashboard.sort = "missed", "safe"
    said, wanted = dashboard.state, dashboard.counts
    page_file = tmp_path / "a.html"
    page_file.write_bytes(dashboard._source.report_page(said))
    dashboard.checkpoint = dashboard._timeline["moments"][0]["value"]
    dashboard.wait(60)
    earlier = dashboard.counts
    dashboard.close()
    with shown(chromium, page_file) as page:
        title = page.locator("h1")
        assert counts(page) == {name: n for name, n in wanted.items() if name != "n"}
        assert tau(page) == said["tau"]
        page.locator('.mw-chip[data-filter="missed"][aria-pressed="true"]').wait_for()
        assert page.get_by_text("Log-probability, epoch 3").count() > 0
        assert title.inner_text().startswith(f"{wanted['flagged']} images flagged")
        assert page.get_by_text("fixed: a tenth, any time").count() == 1
        slider = page.get_by_role("slider", name="checkpoint")
        slider.press("Home")
        page.locator("body[data-moved]:not(.mw-moving)").wait_for()
        assert counts(page) == {name: n for name, n in earlier.items() if name != "n"}
        memorized = earlier["found"] + earlier["missed"]
        numbers = (earlier["flagged"], earlier["n"], 1, earlier["found"], memorized)
        assert re.findall(r"\d+", title.inner_text()) == [str(n) for n in numbers]
        missed = page.locator('.mw-chip[data-filter="missed"] .mw-count')
        missed.get_by_text(str(earlier["missed"]), exact=True).wait_for()
        slider.press(" ")
        page.locator(".mw-playing").wait_for()
        page.locator("body:not([data-moved]):not(.mw-moving)").wait_for()
        assert tau(page) == said["tau"]
        assert slider.get_attribute("aria-valuetext").startswith("epoch 3 ")


def test_without_scripts_or_where_nothing_unpacks_the_words_and_numbers_stand(
    chromium, tmp_path
):
    content = plain()
    page_file = write(content, tmp_path / "a.html")
    for has_scripts in (False, True):
        context = chromium.new_context(java_script_enabled=has_scripts, offline=True)
        context.add_init_script("delete window.DecompressionStream")
        page = context.new_page()
        page.goto(page_file.as_uri())
        if has_scripts:
            page.get_by_text("The threshold can't be moved in this browser").wait_for()
        assert headline(content) in page.locator("main").inner_text()
        assert page.get_by_text("most at risk", exact=False).first.is_visible()
        context.close()
