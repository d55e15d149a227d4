"""The playgrounds on pages of their own: a hand, a finger, less motion, and what goes wrong."""

from __future__ import annotations

import re

import pytest

from scripts import live
from scripts.docs import guarded
from tests.browser.harness import opened, settled
from tests.house.test_live_pages import WHOLE

# Which plots move with a slider, whose label begins so.
BESIDE = {
    "watch": {},
    "psmi": {"direction": "shadow", "dimensions d": "shadow"},
    "lira": {
        "target’s gap": "gaps", "shadow models": "gaps", "effect": "gaps", "sample": "gaps",
        "η": "ratio",
    },
    "theorem": {"outliers ε": "histogram", "separation": "histogram", "threshold τ": "histogram"},
}  # fmt: skip
PHONE = {"width": 390, "height": 844}
SMALL = """() => [...document.querySelectorAll('.mw-play :is(button, input, summary, a, canvas)')]
    .filter((one) => one.checkVisibility())
    .map((one) => [one.textContent || one.ariaLabel, one.getBoundingClientRect()])
    .filter(([, { width, height }]) => width < 24 || height < 24)"""
WATCH_CELLS = [
    f"from memowidgets.teaching import MemorizationPlayground\n{name} = "
    f"MemorizationPlayground(n=60, width=8, seed={seed})\n{name}"
    for seed, name in enumerate(("first", "second"))
]


@pytest.fixture(scope="module")
def playground(chromium, tmp_path_factory):
    """One window with a touch screen that shows a playground without the site around it."""
    folder = tmp_path_factory.mktemp("playgrounds")
    (folder / "index.html").write_text(
        "<!doctype html><body data-ready='true'>Ready</body>"
    )
    with opened(
        chromium, (folder / "index.html").as_uri(), offline=True, has_touch=True
    ) as page:

        def go(name, width=1440, height=900, motion="no-preference"):
            file = folder / f"{name}.html"
            if not file.exists():
                body = live.part("playground", name).markup()
                file.write_text(guarded(WHOLE.format(body)), "utf-8")
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(reduced_motion=motion)
            page.goto(file.as_uri())
            page.wait_for_selector("body[data-ready]")
            return page

        yield go


def psmi_shown(page):
    """PSMI of the ringed point, once all numbers are there."""
    page.wait_for_function(
        "() => !document.querySelector('.mw-play-body').innerText.includes('…')"
        " && [...document.querySelectorAll('.mw-fact-value')].every((value) => value.innerText)"
    )
    fact = page.locator(
        ".mw-fact", has=page.get_by_text("PSMI of the ringed point", exact=True)
    )
    return float(fact.locator(".mw-fact-value").inner_text().replace("−", "-"))


@pytest.mark.parametrize("name", live.PLAYGROUNDS)
def test_on_a_phone_controls_are_large_and_beside_what_they_move(playground, name):
    page = playground(name, **PHONE)
    if name == "lira":
        page.get_by_role("button", name="No").tap()  # the answer brings the sliders
    page.locator("details").evaluate_all(
        "(all) => all.forEach((one) => (one.open = true))"
    )
    for slider in page.locator(".mw-slide").all():
        assert slider.bounding_box()["width"] >= 200
    assert page.evaluate(SMALL) == []
    if name == "psmi":
        part = page.locator(".mw-play").bounding_box()
        assert part["height"] < 3 * PHONE["height"]
    for label, plot in BESIDE[name].items():
        slider = page.locator(f".mw-slide[aria-label^='{label}']").bounding_box()
        chart = page.locator(f".mw-plot-{plot}").bounding_box()
        ends = [
            edge
            for box in (slider, chart)
            for edge in (box["y"], box["y"] + box["height"])
        ]
        assert max(ends) - min(ends) < PHONE["height"]


def finger(page, *path):
    """Press, move and lift one finger, in pixels of the window."""
    session = page.context.new_cdp_session(page)

    def touch(kind, *points):
        places = [{"x": x, "y": y} for x, y in points]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

    touch("touchStart", path[0])
    for place in path[1:]:
        touch("touchMove", place)
    touch("touchEnd")
    session.detach()


def free_place(page, cloud):
    """A corner of the cloud where no point is, in pixels of the window."""
    box = cloud.bounding_box()
    return box["x"] + 25, box["y"] + box["height"] - 25


def chosen(page, number, of):
    """Wait until a point is the chosen one, as a screen reader hears it."""
    page.locator(f".mw-plot-cloud[aria-label*='Point {number} of {of}']").wait_for()


@pytest.mark.parametrize("name", ["watch", "psmi"])
def test_a_finger_adds_a_point_drags_it_and_scrolls_beside_it(playground, name):
    page = playground(name, **PHONE)
    cloud = page.locator(".mw-plot-cloud")
    cloud.scroll_into_view_if_needed()
    count = int(re.search(r"of (\d+)", cloud.get_attribute("aria-label"))[1])
    x, y = free_place(page, cloud)
    for _ in range(2):
        page.touchscreen.tap(x, y)
    chosen(page, count + 1, count + 1)
    page.get_by_role("button", name="Add", exact=True).tap()
    chosen(page, count + 2, count + 2)
    cloud.scroll_into_view_if_needed()
    x, y = free_place(page, cloud)
    drawn = "document.querySelector('.mw-plot-cloud').toDataURL()"
    before, scrolled = settled(page, drawn), page.evaluate("scrollY")
    finger(page, (x, y), *((x + 8 * i, y - 4 * i) for i in range(1, 9)))
    chosen(page, count + 1, count + 2)
    assert page.evaluate("scrollY") == scrolled
    page.wait_for_function(f"(before) => {drawn} !== before", arg=before)
    # no point is there any more
    finger(page, (x, y), *((x, y - 20 * i) for i in range(1, 9)))
    page.wait_for_function("(before) => scrollY > before", arg=scrolled)


# Counts the pictures of the cloud.
COUNT = """() => {
    window.mwPictures = 0;
    const { prototype } = CanvasRenderingContext2D, clear = prototype.clearRect;
    prototype.clearRect = function (...sizes) {
        if (this.canvas.className.includes('mw-plot-cloud')) window.mwPictures += 1;
        clear.apply(this, sizes);
    };
}"""


def guessed(view):
    """Ring five points, without which nothing is trained, and no label is shown."""
    assert view.locator(".mw-watch-next").inner_text() == "Ring 5 points"
    view.locator(".mw-watch-next").press("Enter")  # which does nothing yet
    for _ in range(5):
        view.locator(".mw-plot-cloud").press("PageDown")
        view.locator(".mw-plot-cloud").press("Enter")
    assert view.locator(".mw-watch-next").inner_text() == "Train until ρ"
    return labels_shown(view)


def labels_shown(view):
    """Where the page says a point's label: to a screen reader, in the legend, as a control."""
    spoken = view.locator(".mw-plot-cloud").get_attribute("aria-label")
    legend = view.locator(".mw-play-key").first.inner_text()
    return [
        bool(re.search("label [A-C]", spoken)),
        "label A" in legend,
        view.get_by_role("radio", name="A", exact=False).first.is_visible(),
    ]


def trained(page, name):
    """Press the large button, and wait until it says something else."""
    page.locator(".mw-watch-next").click()
    page.get_by_role("button", name=name, disabled=False).wait_for(timeout=120_000)
    return page.evaluate("window.mwPictures")


def test_with_less_motion_a_training_is_shown_in_few_pictures(playground):
    page = playground("watch", motion="reduce")
    view = page.locator(".mw-play")
    assert guessed(view) == [False] * 3, "whoever sees wrong labels need not guess"
    page.evaluate(COUNT)
    assert trained(page, "Train to the end") <= 8
    assert labels_shown(view) == [True] * 3
    rings = view.get_attribute("data-rings")
    view.locator(".mw-plot-cloud").press("Enter")  # a guess that sees labels is none
    assert view.get_attribute("data-rings") == rings == "5"
    assert "ρ at epoch 13:" in page.locator(".mw-watch-phase").inner_text()
    page.emulate_media(reduced_motion="no-preference")
    page.locator(".mw-watch-next").click()
    page.wait_for_function(
        "() => window.mwPictures > 20"
    )  # one at least for each epoch
    view.get_by_role("button", name="Start again").click()
    assert labels_shown(view) == [False] * 3


def test_with_less_motion_a_point_does_not_glide(playground):
    page = playground("psmi", motion="reduce")
    before = psmi_shown(page)
    page.evaluate(COUNT)
    page.get_by_role("button", name="Make it atypical").click()
    page.get_by_role("button", name="Make it typical").wait_for()
    assert page.evaluate("window.mwPictures") <= 3
    assert psmi_shown(page) < 0 < before


def test_without_canvas_a_playground_says_so(widget_page):
    opened = widget_page([])
    opened.page.evaluate(
        "() => { HTMLCanvasElement.prototype.getContext = () => null; }"
    )
    opened.run(WATCH_CELLS[0])
    opened.page.get_by_role("alert").filter(has_text="canvas").wait_for()


@pytest.mark.slow
def test_what_disturbs_a_training_ends_it_and_its_workers(widget_page):
    """Two playgrounds on one page: a drag, a reset, and a playground that is closed."""
    opened = widget_page(WATCH_CELLS)
    page = opened.page
    views = page.locator(".mw-play").all()
    each = len(page.workers) // 2
    assert each >= 1

    def go_on(view, *labels):
        for label in labels:
            view.locator(".mw-watch-next").click()
            view.get_by_role("button", name=label, disabled=False).wait_for(
                timeout=60_000
            )

    for view in views:
        guessed(view)
        go_on(view, "Train to the end")
    views[0].locator(".mw-watch-next").click()  # it trains on
    views[0].locator(".mw-plot-cloud").press("ArrowRight")
    assert views[0].get_attribute("data-epoch") == "0"
    assert int(views[1].get_attribute("data-epoch")) > 0
    page.emulate_media(reduced_motion="reduce")  # no epoch waits for its picture
    go_on(views[0], "Train to the end", "Ask 32 other networks")
    views[0].locator(".mw-watch-next").click()
    page.wait_for_function(
        "(v) => Number(v.dataset.models) > 0", arg=views[0].element_handle()
    )
    views[0].get_by_role("button", name="Start again").click()
    assert views[0].get_attribute("data-models") == "0"
    guessed(views[0])
    views[0].locator(".mw-watch-next").click()
    with opened.server.lock:
        opened.names["first"].close()
    page.wait_for_function("() => document.querySelectorAll('.mw-play').length === 1")
    while len(page.workers) != each:
        page.wait_for_timeout(20)
    go_on(page, "Ask 32 other networks")
