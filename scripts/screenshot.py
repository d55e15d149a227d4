"""Create the README's pictures and the stills of the site in a real browser.

The recording of digits in JupyterLab gives ``docs/dashboard.png``, and its page without a kernel
``docs/dashboard.gif``: the training plays up to the star, τ is dragged, and a digit gets another
label. Each playground gives a still in ``docs/_static/stills``, which stands in for it
on the site without JavaScript. Recorded patients give ``docs/compare.png`` and ``docs/report.png``.
The quickstart is run, and its numbers are printed. ``python -m scripts.screenshot --pictures``
makes the first two alone, ``--film`` the second, ``--stills`` the others.
"""

from __future__ import annotations

import io
import math
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from scripts.live import PLAYGROUNDS, part
from tests.browser.harness import open_notebook, running_chromium, running_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, FloatRect, Locator, Page, ViewportSize

    from tests.browser.harness import NotebookPage

ROOT = Path(__file__).parents[1]
RECORDED_PATIENTS = "patients-smollm2"
RECORDED_DIGITS = "digits"
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
PICTURE = ROOT / "docs" / "dashboard.png"
ANIMATION = PICTURE.with_suffix(".gif")
STILLS = ROOT / "docs" / "_static" / "stills"
STEPS = 8  # of τ, there and back
FARTHEST = -0.16  # share of the plot's width that τ moves left of where it stands
STEP = 25  # milliseconds of the page's time between two frames while it plays
MOST_FRAMES = 80  # while it plays
WIDTH = 900  # pixels of the animation
COLOURS = 128
COMMON = 32  # colours that are kept as they are, such as white
NEAR = 8  # levels between two colours that are taken for one
MOVING, LOOKING, RESTING = 70, 1000, 2200  # milliseconds of a frame
# The page's time goes on by steps, as fast as pictures of it are taken.
CLOCK = """window.film = { now: null, waiting: new Map(), count: 0 };
const { film } = window;
const now = performance.now.bind(performance);
const frame = requestAnimationFrame.bind(window);
performance.now = () => film.now ?? now();
window.requestAnimationFrame = (action) => {
    if (film.now === null) return frame(action);
    film.waiting.set((film.count -= 1), action);
    return film.count;
};
const cancel = cancelAnimationFrame.bind(window);
window.cancelAnimationFrame = (id) => film.waiting.delete(id) || cancel(id);
film.step = (passed) => {
    film.now += passed;
    const due = [...film.waiting.values()];
    film.waiting.clear();
    for (const action of due) action(film.now);
};"""
PAGE = "<!doctype html><html lang='en'><meta charset='utf-8'><title>Still</title><body>{}</body>"


RECORDED = """\
import memowidgets as mw
dashboard = mw.open_recorded("digits").dashboard()
dashboard"""


def main() -> int:
    """Make what is asked for."""
    asked = sys.argv[1:]
    with running_chromium() as chromium:
        if "--film" in asked:
            film(chromium)
            return 0
        if "--pictures" not in asked:
            for name in PLAYGROUNDS:
                still(chromium, name)
            compare(chromium)
            report(chromium)
        if "--stills" in asked:
            return 0
        film(chromium)
        with running_lab() as lab:
            picture(open_notebook(lab, chromium, [RECORDED], scale=1.5))
            return 0 if asked else quickstart(open_notebook(lab, chromium, NOTEBOOK))


def still(chromium: Browser, name: str) -> None:
    """Take a picture of a playground as it opens."""
    STILLS.mkdir(parents=True, exist_ok=True)
    with _page(chromium) as page:
        _show(page, PAGE.format(part("playground", name).markup()))
        _save(page.locator(".mw-play").screenshot(), STILLS / f"{name}.png")


def compare(chromium: Browser) -> None:
    """Take a picture of two scores that are compared."""
    with _page(chromium) as page:
        _show(page, PAGE.format(part("audit", RECORDED_PATIENTS).markup()))
        page.get_by_role("button", name="Compare", exact=True).click()
        page.wait_for_timeout(300)
        _save(
            page.locator(".mw-dashboard").screenshot(), PICTURE.with_name("compare.png")
        )


def report(chromium: Browser) -> None:
    """Take a picture of a report's beginning."""
    import memowidgets as mw

    with _page(chromium) as page, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        mw.open_recorded(RECORDED_PATIENTS).report(file)
        page.goto(file.as_uri())
        page.wait_for_load_state()
        page.wait_for_timeout(300)
        _save(page.screenshot(), PICTURE.with_name("report.png"))


@contextmanager
def _page(chromium: Browser, scale: float = 1.0) -> Iterator[Page]:
    size: ViewportSize = {"width": 960, "height": 900}
    page = chromium.new_page(viewport=size, device_scale_factor=scale)
    yield page
    page.close()


def _show(page: Page, markup: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(markup, "utf-8")
        page.goto(file.as_uri())
        page.wait_for_function("document.body.dataset.ready === 'true'")
        page.wait_for_timeout(300)  # it draws before the next frame


def _save(taken: bytes, file: Path) -> None:
    """Write a picture with few colours."""
    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    with_few = picture.quantize(palette=palette(picture), dither=Image.Dither.NONE)
    with_few.save(file, optimize=True)


def picture(notebook: NotebookPage) -> None:
    """Take a picture of the dashboard, once the open sample has what is known of it."""
    notebook.run_all(timeout=600)
    dashboard = notebook.page.locator(".mw-dashboard")
    dashboard.locator(".mw-models").wait_for()
    notebook.screenshot(PICTURE, of=dashboard)


def quickstart(notebook: NotebookPage) -> int:
    """Run all cells, and print the numbers that the README quotes."""
    started = time.monotonic()
    notebook.run_all(timeout=600)
    notebook.page.wait_for_selector(".mw-card")
    print(
        f"quickstart: {time.monotonic() - started:.0f} s from Run All to the dashboard"
    )
    for output in notebook.outputs():
        if output["output_type"] == "stream":
            print(output["text"], end="")
    for problem in notebook.unexpected():
        print(problem, file=sys.stderr)
    return int(bool(notebook.unexpected()))


def film(chromium: Browser) -> None:
    """Film the dashboard of digits, and print how large the animation is.

    It begins with digits that were memorised, goes back to the first checkpoint, and plays.
    """
    with _page(chromium, scale=1.5) as page:
        page.add_init_script(CLOCK)
        _show(page, PAGE.format(part("audit", RECORDED_DIGITS).markup()))
        dashboard = page.locator(".mw-dashboard")
        dashboard.locator('[data-filter="found"]').click()
        page.mouse.move(0, 0)
        at_rest(page, dashboard)
        frames = [(_frame(dashboard), RESTING)]
        frames += played(page, dashboard)
        frames += dragged(page, dashboard)
        frames += decided(page, dashboard)
    print(f"{ANIMATION.name}: {_saved(frames) / 1e6:.2f} MB")


Frames = list[tuple[Image.Image, int]]


def played(page: Page, dashboard: Locator) -> Frames:
    """Go to the first checkpoint, and play the training up to the star."""
    slider = dashboard.locator(".mw-times")
    star = slider.get_attribute("aria-valuetext")
    slider.press("Home")
    at_rest(page, dashboard)
    frames = [(_frame(dashboard), LOOKING)]
    page.evaluate("() => { film.now = performance.now(); }")
    slider.press("Space")
    for _ in range(MOST_FRAMES):
        page.evaluate("(passed) => film.step(passed)", STEP)
        if page.evaluate("() => film.waiting.size") == 0:
            break
        frames.append((_frame(dashboard), MOVING))
    page.evaluate("() => { film.now = null; }")
    if slider.get_attribute("aria-valuetext") != star:
        raise RuntimeError("the training did not play up to the star")
    at_rest(page, dashboard)
    return [*frames, (_frame(dashboard), LOOKING)]


def dragged(page: Page, dashboard: Locator) -> Frames:
    """Drag τ left and back."""
    plot, knob = dashboard.locator(".mw-histogram"), dashboard.locator(".mw-tau-knob")
    box, at = at_rest(page, plot), at_rest(page, knob)
    before = dashboard.locator(".mw-explorer").get_attribute("data-tau")
    x = at["x"] + at["width"] / 2
    y = at["y"] + at["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    frames = []
    for step in range(1, 2 * STEPS + 1):
        share = (1 - math.cos(math.pi * step / STEPS)) / 2  # slow at both ends
        page.mouse.move(x + FARTHEST * box["width"] * share, y)
        page.wait_for_timeout(250)  # the list follows
        frames.append((_frame(dashboard), LOOKING if step == STEPS else MOVING))
        now = dashboard.locator(".mw-explorer").get_attribute("data-tau")
        if step == STEPS and now == before:
            raise RuntimeError("τ does not follow the drag: it began beside τ's knob")
    page.mouse.up()
    page.mouse.move(0, 0)
    if page.evaluate("() => getSelection().toString()"):
        raise RuntimeError("the drag selected text: it began beside the dots")
    return frames


def decided(page: Page, dashboard: Locator) -> Frames:
    """Give the open digit the label that the model gives."""
    dashboard.locator(".mw-card").first.press("L")
    dashboard.locator(".mw-progress").get_by_text("1 of").wait_for()
    at_rest(page, dashboard)
    return [(_frame(dashboard), RESTING)]


def at_rest(page: Page, element: Locator) -> FloatRect:
    """Return where an element is once it has stayed there for half a second."""
    same, last = 0, element.bounding_box()
    for _ in range(100):
        page.wait_for_timeout(100)
        box = element.bounding_box()
        same, last = (same + 1 if box == last else 0), box
        if same == 5 and box is not None:
            return box
    raise RuntimeError("the page does not come to rest")


def palette(picture: Image.Image) -> Image.Image:
    """Return the colours to keep: the common ones as they are, and those farthest apart."""
    counted = picture.getcolors(picture.width * picture.height)
    common = [colour for _, colour in sorted(counted, reverse=True)[:COMMON]]
    rare = Image.Quantize.MAXCOVERAGE  # a colour counts however little of it there is
    others = picture.quantize(COLOURS - COMMON, method=rare, dither=Image.Dither.NONE)
    values = others.getpalette()
    triples = [tuple(values[i : i + 3]) for i in range(0, len(values), 3)]
    kept: list[tuple[int, ...]] = []
    for colour in (*common, *triples):
        # one beside a more common colour would be taken in its place
        if not _is_near(colour, kept):
            kept.append(colour)
    found = Image.new("P", (1, 1))
    found.putpalette([value for colour in kept for value in colour])
    return found


def _is_near(colour: tuple[int, ...], others: list[tuple[int, ...]]) -> bool:
    return any(
        max(abs(a - b) for a, b in zip(colour, other, strict=True)) < NEAR
        for other in others
    )


def _frame(dashboard: Locator) -> Image.Image:
    picture = Image.open(io.BytesIO(dashboard.screenshot())).convert("RGB")
    height = round(picture.height * WIDTH / picture.width)
    return picture.resize((WIDTH, height), Image.Resampling.LANCZOS)


def _saved(frames: Frames) -> int:
    """Write the frames with one palette, so that what stands still stays as it is."""
    pictures = [picture for picture, _ in frames]
    tall = min(picture.height for picture in pictures)
    same = [picture.crop((0, 0, WIDTH, tall)) for picture in pictures]
    few = palette(same[0])
    found = [
        picture.quantize(palette=few, dither=Image.Dither.NONE) for picture in same
    ]
    found[0].save(
        ANIMATION,
        save_all=True,
        append_images=found[1:],
        duration=[time for _, time in frames],
        loop=0,
        optimize=True,
    )
    return ANIMATION.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
