"""The timeline in a real browser: a slider, what plays, and what follows when it stands still."""

from __future__ import annotations

import pytest

from tests.browser.harness import go_to_checkpoint
from tests.browser.test_everywhere import counts

DASHBOARD = """
import numpy as np
from memowidgets.widgets import Dashboard
from tests.widgets.fake_source import FakeSource
source = FakeSource(seconds=0.05)
source.done |= {("psmi", "last", f"epoch-{i}") for i in (1, 4)}
source.done |= {("loss", "last", f"epoch-{i}") for i in (1, 4)}
dashboard = Dashboard(source)
dashboard
"""
PLAY = ".mw-plays"


@pytest.fixture
def shown(widget_page):
    shown = widget_page([DASHBOARD])
    shown.page.wait_for_selector(".mw-card")
    return shown


def stands_at(shown, name):
    shown.eventually("dashboard.computed and dashboard.checkpoint", name)
    shown.page.locator(".mw-dashboard:not(.mw-moving)").wait_for()
    shown.page.locator(".mw-axis-title").get_by_text(name).wait_for()


def test_it_is_a_slider_by_key_pointer_and_typed_epoch(shown):
    page = shown.page
    assert page.locator("select[aria-label=checkpoint]").count() == 0
    slider = page.get_by_role("slider", name="checkpoint")
    said = slider.get_attribute("aria-valuetext")
    assert said.startswith("epoch 2 of 4, best time to predict")
    limits = [slider.get_attribute(f"aria-value{end}") for end in ("min", "max", "now")]
    assert limits == ["1", "4", "2"]
    ticks = page.locator(".mw-tick")
    hollow = [
        i for i in range(4) if "mw-hollow-tick" in ticks.nth(i).get_attribute("class")
    ]
    assert hollow == [2]
    slider.press("End")
    stands_at(shown, "epoch-4")
    slider.press("ArrowLeft")
    slider.press("ArrowLeft")  # what is passed over is not scored
    stands_at(shown, "epoch-2")
    assert not shown.python("('psmi', 'last', 'epoch-3') in source.done")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 4, box["y"] + 40, steps=4)
    page.mouse.up()
    stands_at(shown, "epoch-1")
    go_to_checkpoint(page, "epoch-3.9")
    stands_at(shown, "epoch-4")
    page.keyboard.type("1")
    page.locator(".mw-epoch").get_by_text("epoch 1").wait_for()
    page.keyboard.press("Escape")
    page.locator(".mw-epoch").get_by_text("epoch 4").wait_for()
    shown.python("setattr(dashboard, 'checkpoint', 'epoch-2')")
    slider.and_(page.locator("[aria-valuenow='2']")).wait_for()


def test_a_hollow_tick_is_computed_when_it_is_chosen(shown):
    go_to_checkpoint(shown.page, "epoch-3")
    shown.page.get_by_text("Not scored yet").wait_for()
    shown.page.get_by_role("button", name="Compute", exact=True).click()
    stands_at(shown, "epoch-3")
    shown.page.locator(".mw-hollow-tick").wait_for(state="detached")


def test_playing_skips_what_is_not_scored_and_what_was_asked_for_stays(shown):
    page = shown.page
    page.get_by_role("radio", name="20", exact=True).click()
    shown.eventually("dashboard.asked", {"count": 20})
    sent = shown.python("source.scores_asked")
    assert sent == []
    slider = page.get_by_role("slider", name="checkpoint")
    slider.press("Home")
    stands_at(shown, "epoch-1")
    dot = page.locator(".mw-opened .mw-line-dot")
    before = dot.get_attribute("style")
    slider.press(" ")
    page.locator(".mw-moving .mw-film:not([hidden])").wait_for()
    page.wait_for_function(
        "was => document.querySelector('.mw-line-dot').getAttribute('style') !== was",
        arg=before,
    )
    seen = page.locator(".mw-inspector > *").first
    assert float(seen.evaluate("one => getComputedStyle(one).opacity")) < 0.5
    page.locator(f".mw-timeline:not(.mw-playing) {PLAY}").wait_for()
    stands_at(shown, "epoch-2")  # the star
    assert counts(page)["flagged"] == 20
    low = float(page.locator(".mw-histogram").get_attribute("aria-valuemin"))
    page.locator(PLAY).click()
    stands_at(shown, "epoch-4")
    assert counts(page)["flagged"] == 20
    now = float(page.locator(".mw-histogram").get_attribute("aria-valuemin"))
    assert now == pytest.approx(low, rel=1e-6)
    assert page.locator(".mw-film").is_hidden()
    asked = shown.python("source.scores_asked")
    assert sorted(asked) == ["epoch-1", "epoch-2", "epoch-4"]  # once each

    shown.python("globals().update(heard=[])")
    shown.python("setattr(dashboard, '_hear_moments', heard.append)")
    shown.python("setattr(dashboard, 'eta', 5.0)")  # others are memorised now
    shown.eventually("[one['checkpoints'] for one in heard][:1]", [[]])
    shown.python("delattr(dashboard, '_hear_moments')")

    page.get_by_role("button", name="Compare", exact=True).click()
    ranks = page.locator(".mw-compare:not(.mw-unanswered) canvas")
    still = ranks.evaluate("one => one.toDataURL()")
    page.locator(PLAY).click()  # both scores play at one budget
    page.locator(".mw-moving.mw-comparing").wait_for()
    page.wait_for_function(
        "was => document.querySelector('.mw-compare canvas').toDataURL() !== was",
        arg=still,
    )
    budget = page.get_by_role("slider", name="how many samples to look at")
    assert budget.get_attribute("aria-valuetext").startswith("20 of")
    shown.eventually("dashboard.checkpoint", "epoch-2")
    page.locator(
        ".mw-dashboard:not(.mw-moving) .mw-compare:not(.mw-unanswered)"
    ).wait_for()
    shown.eventually(
        "[(one['metric'], one['checkpoint']) for one in dashboard.comparing]",
        [["loss", "epoch-2"]],
    )


def test_under_reduced_motion_it_jumps_and_compute_fills_what_it_skipped(shown):
    page = shown.page
    page.emulate_media(reduced_motion="reduce")
    go_to_checkpoint(page, "epoch-1")
    stands_at(shown, "epoch-1")
    page.locator(PLAY).click()
    stands_at(shown, "epoch-2")
    page.locator(PLAY).click()
    stands_at(shown, "epoch-4")
    page.get_by_text("Playing skips 1 checkpoint").wait_for()
    page.get_by_role("button", name="Compute", exact=True).click()
    page.locator(".mw-hollow-tick").wait_for(state="detached")
    shown.eventually("dashboard.checkpoint", "epoch-4")  # where the reader is


def test_an_overwritten_run_is_forgotten_while_it_plays(shown):
    page = shown.page
    go_to_checkpoint(page, "epoch-1")
    stands_at(shown, "epoch-1")
    page.locator(PLAY).click()
    page.locator(".mw-film:not([hidden])").wait_for()
    shown.python("setattr(source, 'weights', 'others')")
    shown.python("dashboard._look()")
    shown.eventually("dashboard.outdated", True)
    page.locator(".mw-dashboard:not(.mw-moving)").wait_for()
    asked = len(shown.python("source.scores_asked"))
    page.locator(PLAY).click()
    shown.eventually(f"len(source.scores_asked) > {asked}", True)


ODD = """
from memowidgets.widgets import Choice, Dashboard
from memowidgets.widgets.messages import Moment
from tests.widgets.fake_source import FakeSource

class Odd(FakeSource):
    epochs, lacking, broken, losses = [1, 2], (), (), (float("nan"), None)

    def checkpoint_choices(self):
        steps = range(1, len(self.epochs) + 1)
        return [Choice(f"epoch-{i}", f"step {i}", marked=i == len(steps)) for i in steps]

    def moments(self):
        return [Moment(f"epoch-{i}", f"step {i}", epoch, "", *self.losses, "", star=False)
                for i, epoch in enumerate(self.epochs, 1)]

    def is_computed(self, score, layer, checkpoint):
        return int(checkpoint.removeprefix("epoch-")) not in self.lacking

    def scores_at(self, score, layer, checkpoint, progress=None):
        if int(checkpoint.removeprefix("epoch-")) in self.broken:
            raise ValueError("600 of 600 scores are not numbers")
        return super().scores_at(score, layer, checkpoint, progress)

source = Odd()
dashboard = Dashboard(source)
dashboard
"""
COURSES = {
    "four hundred": {"epochs": [i / 40 for i in range(1, 401)]},
    "two, out of order": {"epochs": [2, 1]},
    "two losses that stay high": {"epochs": [1, 2], "losses": (0.99, 1.0)},
    "a pass is missing": {"epochs": [1, 2, 3], "lacking": (2,)},
    "not a number at first": {"epochs": [0, 1, 2, 3, 4], "broken": (1, 2, 3)},
}


def test_a_course_of_any_kind_plays_to_its_end(widget_page):
    shown = widget_page([ODD])
    page = shown.page
    slider = page.get_by_role("slider", name="checkpoint")
    for name, course in COURSES.items():
        n = len(course["epochs"])
        now = {"epochs": [], "lacking": (), "broken": ()} | course
        shown.python("source.__dict__.pop('losses', None)")
        shown.python(f"source.__dict__.update({now!r})")
        shown.python("dashboard.refresh()")
        shown.python(f"setattr(dashboard, 'checkpoint', 'epoch-{n}')")
        page.locator(f"[aria-label=checkpoint][aria-valuenow='{n}']").wait_for()
        assert page.locator(".mw-hollow-tick").count() == len(now["lacking"]), name
        if "losses" in course:
            held_out = page.locator(".mw-times text", has_text="held-out loss")
            training = page.locator(".mw-times text", has_text="median training loss")
            tops = [one.bounding_box()["y"] for one in (held_out, training)]
            assert abs(tops[0] - tops[1]) >= 12
        slider.press("Home" if n < 400 else "PageDown")  # from the end
        first = 1 if n < 400 else 360
        shown.eventually("dashboard.checkpoint", f"epoch-{first}")
        slider.press(" ")
        shown.eventually("dashboard.checkpoint", f"epoch-{n}")
        page.locator(".mw-dashboard:not(.mw-moving)").wait_for()
        spoken = slider.get_attribute("aria-valuetext")
        assert spoken.startswith(f"epoch {now['epochs'][-1]:g} of"), name
