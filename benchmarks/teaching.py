"""Times between frames while a hand drags or a network trains, in Chromium without a kernel."""

from __future__ import annotations

import base64
import json
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Namespace, Row, left_out
from memowidgets.teaching import (
    LiRAPlayground,
    MemorizationPlayground,
    PSMIPlayground,
    TheoremPlayground,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

POINTS = 2000
TRAIN = ".mw-watch-next"
STEPS = 180  # steps of a drag, about as many as a mouse makes in three seconds
FRAME = 1000 / 60  # ms
TIMES = "median and 95 % of the times between frames"
FLAGS = [
    "--no-sandbox",
    "--allow-file-access-from-files",
    "--disable-background-networking",
]
# A model that only stores values. Each frame stores the time until the next one, and how much of
# it was spent in scripts that draw.
PAGE = """<!doctype html><meta charset="utf-8"><style>%(css)s</style>
<body data-jp-theme-light="true"><div id="place"></div><script type="module">
const unpack = (value) => {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(unpack);
  if ("$bytes" in value) {
    return new DataView(Uint8Array.from(atob(value.$bytes), (c) => c.charCodeAt(0)).buffer);
  }
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, unpack(part)]));
};
const state = unpack(%(state)s);
const model = {
  get: (name) => state[name], set: (name, value) => { state[name] = value; },
  save_changes() {}, send() {}, on() {}, off() {},
};
window.frames_seen = [];
let last = performance.now();
let script = 0;
const schedule = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (action) => schedule((time) => {
  const start = performance.now();
  action(time);
  script += performance.now() - start;
});
const tick = (time) => {
  window.frames_seen.push([time - last, script]);
  [last, script] = [time, 0];
  schedule(tick);
};
schedule(tick);
const module = await import(URL.createObjectURL(new Blob([%(esm)s], { type: "text/javascript" })));
module.default.render({ model, el: document.getElementById("place") });
window.ready = true;
</script>"""


def rows(_: Namespace) -> list[Row]:
    work = f"playgrounds while a hand drags, {POINTS} points"
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        return [left_out(work, "no Chromium")]
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, playground, canvas in _playgrounds():
            page = browser.new_page(viewport={"width": 1280, "height": 1400})
            file = Path(folder) / f"{name}.html"
            file.write_text(_page(playground), encoding="utf-8")
            page.goto(file.as_uri())
            page.wait_for_function("window.ready")
            frames = _trained(page) if canvas == TRAIN else _dragged(page, canvas)
            found.append(_row(name, frames))
            page.close()
            playground.close()
        browser.close()
    return found


def _playgrounds() -> list[tuple[str, Any, str]]:
    psmi = PSMIPlayground(n=POINTS)
    theorem = TheoremPlayground(n=POINTS, dimension=8)
    lira = LiRAPlayground(n_shadows=256)
    watch = MemorizationPlayground()
    return [
        (f"`PSMIPlayground`, dragging one of {POINTS} points", psmi, ".mw-plot-cloud"),
        (
            "`LiRAPlayground`, dragging the target, 256 shadow models",
            lira,
            ".mw-plot-gaps",
        ),
        (
            f"`TheoremPlayground`, separation of {POINTS} samples in 8 dimensions",
            theorem,
            "slider",
        ),
        ("`MemorizationPlayground`, 150 epochs of training", watch, TRAIN),
    ]


def _page(playground: Any) -> str:
    state = {
        k: v
        for k, v in playground.get_state().items()
        if k not in {"layout", "_esm", "_css"}
    }
    texts = {"css": playground._css, "esm": json.dumps(playground._esm)}  # noqa: SLF001
    return PAGE % {**texts, "state": json.dumps(_packed(state))}


def _packed(value: Any) -> Any:
    if isinstance(value, bytes | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, dict):
        return {name: _packed(part) for name, part in value.items()}
    return [_packed(part) for part in value] if isinstance(value, list) else value


def _dragged(page: Page, canvas: str) -> list[tuple[float, float]]:
    """Return, for each drawn picture, the ms until the next frame and the ms of scripts."""
    if canvas == ".mw-plot-gaps":
        page.get_by_role("button", name="Yes").click()  # the plots follow the answer
    if canvas == "slider":
        box = page.get_by_label("distance of the classes’ means").bounding_box()
    else:
        box = page.locator(canvas).bounding_box()
    assert box is not None
    x, y = box["x"] + 0.62 * box["width"], box["y"] + box["height"] / 2
    if canvas == ".mw-plot-cloud":
        x, y = _place_of_a_point(page, box)
    # a slider has few positions
    reach = 0.5 * box["width"] if canvas == "slider" else 60.0
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate("() => { window.frames_seen.length = 0; }")
    for step in range(STEPS):
        page.mouse.move(x + reach * (abs((step % 60) / 30 - 1) - 1), y)
    frames = page.evaluate("() => window.frames_seen")
    page.mouse.up()
    return [(apart, script) for apart, script in frames[1:] if script > 0]


def _trained(page: Page) -> list[tuple[float, float]]:
    """Return the same while the network trains until ρ and then to the end."""
    page.evaluate("() => { window.frames_seen.length = 0; }")
    for _ in range(5):
        page.locator(".mw-plot-cloud").press("PageDown")
        page.locator(".mw-plot-cloud").press("Enter")
    for label in ("Train to the end", "Ask 32 other networks"):
        page.locator(TRAIN).click()
        page.get_by_role("button", name=label, disabled=False).wait_for(timeout=120_000)
    frames = page.evaluate("() => window.frames_seen")
    return [(apart, script) for apart, script in frames[1:] if script > 0]


def _place_of_a_point(page: Page, box: dict[str, float]) -> tuple[float, float]:
    """Return the position of the ringed point: the canvas's centre plus its coordinates."""
    x, y = page.evaluate(
        "() => { const of = document.querySelector('.mw-play-psmi').dataset; "
        "return [Number(of.x), Number(of.y)]; }"
    )
    return box["x"] + x, box["y"] + y


def _row(name: str, pictures: list[tuple[float, float]]) -> Row:
    times = sorted(apart for apart, _ in pictures)
    median, late = statistics.median(times), times[int(0.95 * len(times))]
    script = statistics.median(script for _, script in pictures)
    ours = f"{median:.1f} ms, {late:.1f} ms ({script:.1f} ms of script, {len(times)} pictures)"
    return Row(
        f"{name}: {TIMES}", ours, f"{FRAME:.1f} ms", f"{median / FRAME:.2f}×", "≤ 1×"
    )
