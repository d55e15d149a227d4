"""Create the README's pictures and the stills of the site in a real browser.

The recording of digits in JupyterLab gives ``docs/dashboard.png``, and ``docs/dashboard.gif``, in
which τ is dragged. Each playground gives a still in ``docs/_static/stills``, which stands in for it
on the site without JavaScript. Recorded patients give ``docs/compare.png`` and ``docs/report.png``.
The quickstart is run, and its numbers are printed. ``python -m scripts.screenshot --pictures``
makes the first two alone, ``--stills`` the others.
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

    from playwright.sync_api import Browser, FloatRect, Locator, Page

    from tests.browser.harness import NotebookPage

ROOT = Path(__file__).parents[1]
RECORDED_PATIENTS = "patients-smollm2"
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
PICTURE = ROOT / "docs" / "dashboard.png"
ANIMATION = PICTURE.with_suffix(".gif")
STILLS = ROOT / "docs" / "_static" / "stills"
STEPS = 10  # of τ, there and back
FARTHEST = -0.16  # share of the plot's width that τ moves left of where it stands
WIDTH = 900  # pixels of the animation
COLOURS = 128
COMMON = 32  # colours that are kept as they are, such as white
MOVING, RESTING = 90, 1400  # milliseconds of a frame
PAGE = "<!doctype html><html lang='en'><meta charset='utf-8'><title>Still</title><body>{}</body>"


RECORDED = """\
import memowidgets as mw
dashboard = mw.open_recorded("digits").dashboard()
dashboard"""


def main() -> int:
    """Make what is asked for."""
    asked = sys.argv[1:]
    with running_chromium() as chromium:
        if "--pictures" not in asked:
            for name in PLAYGROUNDS:
                still(chromium, name)
            compare(chromium)
            report(chromium)
        if "--stills" in asked:
            return 0
        with running_lab() as lab:
            pictures(open_notebook(lab, chromium, [RECORDED], scale=1.5))
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
def _page(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page(viewport={"width": 960, "height": 900})
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


def pictures(notebook: NotebookPage) -> None:
    """Take both pictures, once the open sample is painted with what is known of it."""
    notebook.run_all(timeout=600)
    dashboard = notebook.page.locator(".mw-dashboard")
    dashboard.locator(".mw-models").wait_for()
    notebook.screenshot(PICTURE, of=dashboard)
    print(f"{ANIMATION.name}: {animate(notebook, dashboard) / 1e6:.2f} MB")


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


def animate(notebook: NotebookPage, dashboard: Locator) -> int:
    """Drag τ left and back, and return the size of the animation in bytes.

    The samples next to τ come first, so that others are shown as it moves.
    """
    notebook.python("setattr(dashboard, 'sort', 'safe')")
    page, mouse = notebook.page, notebook.page.mouse
    plot, knob = dashboard.locator(".mw-histogram"), dashboard.locator(".mw-tau-knob")
    page.evaluate("() => document.fonts.ready")
    dashboard.screenshot()  # it scrolls the page to where all frames are taken
    box, at = at_rest(page, plot), at_rest(page, knob)
    page.evaluate("() => getSelection().removeAllRanges()")
    before = dashboard.locator(".mw-explorer").get_attribute("data-tau")
    x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
    mouse.move(x, y)
    mouse.down()
    frames = []
    for step in range(2 * STEPS + 1):
        share = (1 - math.cos(math.pi * step / STEPS)) / 2  # slow at both ends
        mouse.move(x + FARTHEST * box["width"] * share, y)
        page.wait_for_timeout(250)  # the kernel sends the samples
        frames.append(_frame(dashboard.screenshot()))
        if (
            step == STEPS
            and dashboard.locator(".mw-explorer").get_attribute("data-tau") == before
        ):
            raise RuntimeError("τ does not follow the drag: it began beside τ's knob")
    mouse.up()
    if page.evaluate("() => getSelection().toString()"):
        raise RuntimeError("the drag selected text: it began beside the dots")
    return _saved(frames)


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
    common = sorted(picture.getcolors(picture.width * picture.height), reverse=True)[
        :COMMON
    ]
    rare = Image.Quantize.MAXCOVERAGE  # a colour counts however little of it there is
    others = picture.quantize(COLOURS - COMMON, method=rare, dither=Image.Dither.NONE)
    found = Image.new("P", (1, 1))
    found.putpalette(
        [*(c for _, colour in common for c in colour), *others.getpalette()]
    )
    return found


def _frame(taken: bytes) -> Image.Image:
    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    height = round(picture.height * WIDTH / picture.width)
    return picture.resize((WIDTH, height), Image.Resampling.LANCZOS)


def _saved(frames: list[Image.Image]) -> int:
    """Write the frames with one palette, so that what stands still stays as it is."""
    tall = min(frame.height for frame in frames)
    same = [frame.crop((0, 0, WIDTH, tall)) for frame in frames]
    few = palette(same[STEPS])
    found = [frame.quantize(palette=few, dither=Image.Dither.NONE) for frame in same]
    times = [RESTING if i in (0, STEPS) else MOVING for i in range(len(found))]
    found[0].save(
        ANIMATION,
        save_all=True,
        append_images=found[1:],
        duration=times,
        loop=0,
        optimize=True,
    )
    return ANIMATION.stat().st_size


if __name__ == "__main__":
    sys.exit(main())
