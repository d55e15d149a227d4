"""The τ explorer in Chromium, in JupyterLab: frames of a drag, change of score, bytes sent."""

from __future__ import annotations

import statistics
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Namespace, Row
from tests.browser.harness import open_notebook, running_chromium, running_lab

if TYPE_CHECKING:
    from tests.browser.harness import NotebookPage

MILLION = 1_000_000
PICKED = 100_000
STEPS = 300  # steps of a drag, about as many as a mouse makes in three seconds
TURNS = 9

_SCORES = """
import altair as alt, numpy as np, time
from memowidgets.evaluation import roc
from memowidgets.widgets import ThresholdExplorer
def made(n, seed):
    rng = np.random.default_rng(seed)
    log_lira = rng.gumbel(-2, 1.5, n)
    scores = np.where(log_lira >= 4, rng.normal(-.2, .25, n), rng.normal(.4, .25, n))
    return scores, log_lira, rng.gamma(2, .005, n)
"""
_LARGE = f"""
scores, log_lira, errors = made({MILLION}, 0)
explorer = ThresholdExplorer(
    scores, log_lira=log_lira, errors=errors, title="PSMI", more=True  # η is among these
)
explorer
"""
_PICKED = f"""
picks = [made({PICKED}, seed) for seed in range(2)]
explorer = ThresholdExplorer(picks[0][0], log_lira=picks[0][1], errors=picks[0][2], title="0")
def pick(turn):
    scores, log_lira, errors = picks[turn % 2]
    explorer.update(scores, log_lira=log_lira, errors=errors, title=f"turn {{turn}}")
explorer
"""
# The same ROC with the 2000 rows that such a chart may have, and its τ as a parameter.
_ALTAIR = """
alt.JupyterChart.enable_offline()
curves = [roc(scores, log_lira >= 4).roc.iloc[1:] for scores, log_lira, _ in picks]
def drawn(turn):
    curve = curves[turn % 2]
    curve = curve.iloc[:: max(1, len(curve) // 2000)]
    tau = alt.param(name="tau", value=0.0)
    line = alt.Chart(curve, title=f"turn {turn}").mark_line().encode(x="fpr", y="tpr")
    text = alt.Chart(curve.iloc[:1]).mark_text().encode(text=alt.value(alt.expr("'τ ' + tau")))
    return (line + text).add_params(tau)
altair_chart = alt.JupyterChart(drawn(0), embed_options={"renderer": "svg"})
def swap(turn):
    altair_chart.chart = drawn(turn)
def step(turn):
    altair_chart.params.tau = float(turn)
altair_chart
"""

# Runs code in the kernel, and waits until the page has painted a text that depends on it.
_UNTIL_PAINTED = """async ([code, where, text]) => {
    const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
    const isThere = () =>
        [...document.querySelectorAll(where)].some((e) => e.textContent.includes(text));
    const start = performance.now();
    kernel.requestExecute({code, silent: true, store_history: false});
    await new Promise((done, fail) => {
        const late = setTimeout(() => fail(new Error(`${text} never showed`)), 20000);
        const look = () => {
            if (!isThere()) return;
            observer.disconnect();
            clearTimeout(late);
            done();
        };
        const observer = new MutationObserver(look);
        observer.observe(document.body, {childList: true, subtree: true, characterData: true});
        look();
    });
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - start;
}"""

# The limit of a drag: a canvas that draws one line at the mouse, once a frame.
BARE = """
import anywidget
class Bare(anywidget.AnyWidget):
    _esm = '''
    export default { render({ el }) {
      const canvas = document.createElement('canvas');
      Object.assign(canvas, { className: 'bare', width: 600, height: 240 });
      el.append(canvas);
      const context = canvas.getContext('2d');
      let x = 0, frame = 0;
      const draw = () => {
        frame = 0;
        canvas.dataset.tau = x;
        context.clearRect(0, 0, 600, 240);
        context.fillRect(x, 0, 2, 240);
      };
      canvas.onpointermove = (event) => {
        x = event.offsetX;
        frame ||= requestAnimationFrame(draw);
      };
    } };
    '''
bare = Bare()
bare
"""
_WATCH_FRAMES = """(where) => {
    const root = document.querySelector(where);
    const frames = (window.mwFrames = []);
    let last = performance.now();
    const tick = (now) => {
        frames.push([now - last, root.dataset.tau]);
        last = now;
        window.mwTick = requestAnimationFrame(tick);
    };
    window.mwTick = requestAnimationFrame(tick);
}"""


def rows(_: Namespace) -> list[Row]:
    with running_lab() as lab, running_chromium() as chromium:
        large = open_notebook(lab, chromium, [_SCORES, BARE, _LARGE], name="large")
        found = [*_bytes_on_the_wire(large), *_drag(large)]
        large.page.context.close()
        picked = open_notebook(
            lab, chromium, [_SCORES, _PICKED, _ALTAIR], name="picked"
        )
        picked.run_all(timeout=300)
        found += _picks(picked)
        picked.page.context.close()
    return found


def _bytes_on_the_wire(notebook: NotebookPage) -> list[Row]:
    """Count bytes of all messages to the page while the cell runs, and while η first moves."""
    received: list[int] = []
    page = notebook.page
    page.on(
        "websocket",
        lambda socket: socket.on("framereceived", lambda f: received.append(_size(f))),
    )
    notebook.open()  # again, to observe the new socket from its start
    received.clear()
    notebook.run_all(timeout=300)
    page.wait_for_selector(".mw-tau-knob")
    page.wait_for_function(
        "() => document.querySelector('.mw-curve').getAttribute('d')"
    )
    megabytes = sum(received) / 1e6
    received.clear()
    page.get_by_label("memorised from log-LiRA η").press("ArrowRight")
    page.wait_for_selector('.mw-explorer:not(.mw-pending)[data-eta="4.1"]')
    later = sum(received) / 1e6
    work = "1 M scores with errors and truth, bytes sent to the page"
    return [
        Row(
            work,
            f"{megabytes:.1f} MB",
            "10 MB",
            f"{megabytes / 10:.2f}×",
            "≤ 10 MB, once",
        ),
        Row("log-LiRA of 1 M samples, sent when η first moves", f"{later:.1f} MB"),
    ]


def _size(frame: Any) -> int:
    return len(frame.encode() if isinstance(frame, str) else frame)


def _drag(notebook: NotebookPage) -> list[Row]:
    """Measure times between frames while the mouse drags τ, and η, next to a bare canvas."""
    bare, _ = frames(notebook, ".bare", ".bare")
    plain, most = statistics.median(bare), late(bare)
    limit = f"{plain:.1f} ms, {most:.1f} ms on a bare canvas"
    found = []
    eta = '[aria-label="memorised from log-LiRA η"]'
    for name, dragged in (("τ", ".mw-histogram"), ("η", eta)):
        times, moved = frames(notebook, dragged, ".mw-explorer")
        what = (
            f"{moved} of {len(times)} frames moved it"
            if name == "τ"
            else f"{len(times)} frames"
        )
        work = f"drag of {name} over 1 M scores, median and 95 % of the times between frames"
        ours = f"{statistics.median(times):.1f} ms, {late(times):.1f} ms"
        ratio = f"{statistics.median(times) / plain:.2f}×, {late(times) / most:.2f}×"
        goal = "95 %: ≤ 1.2×" if name == "τ" else ""
        found.append(Row(f"{work} ({what})", ours, limit, ratio, goal))
    return found


def frames(
    notebook: NotebookPage, dragged: str, watched: str, steps: int = STEPS
) -> tuple[list[float], int]:
    """Milliseconds between the frames of a drag, ascending, and how many of them moved it."""
    page = notebook.page
    page.locator(dragged).scroll_into_view_if_needed()
    box: Any = page.locator(dragged).bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.15 * box["width"], middle)
    page.mouse.down()
    page.evaluate(_WATCH_FRAMES, watched)
    for end in (0.6, 0.2):
        page.mouse.move(box["x"] + end * box["width"], middle, steps=steps // 2)
    found = page.evaluate(
        "() => { cancelAnimationFrame(window.mwTick); return mwFrames; }"
    )
    page.mouse.up()
    return sorted(time for time, _ in found[2:]), sum(
        a[1] != b[1] for a, b in pairwise(found)
    )


def late(times: list[float]) -> float:
    """The time that 95 % of the frames keep."""
    return times[int(0.95 * len(times))]


def _picks(notebook: NotebookPage) -> list[Row]:
    """Measure a change of score and a step of τ, from code to paint, next to Altair's."""
    page = notebook.page
    page.wait_for_selector(".mw-tau-knob")
    page.locator(".mw-explorer").scroll_into_view_if_needed()
    title, chart = ".mw-histogram .mw-axis-title", ".vega-embed svg"
    page.wait_for_selector(chart, timeout=60_000)
    ours = [
        _painted(notebook, f"pick({i})", title, f"turn {i} ") for i in range(1, TURNS)
    ]
    kernel = _seconds_in_kernel(notebook)
    work = f"another score at {PICKED // 1000} 000 samples, from the kernel's code to paint"
    swapped = _or_error(lambda: _painted(notebook, "swap(1)", chart, "turn 1"))
    picked = statistics.median(ours)
    moved = [
        _painted(notebook, f"explorer.tau = {i}.0", ".mw-tau-text", f"τ = {i}")
        for i in range(1, TURNS)
    ]
    theirs = _or_error(
        lambda: statistics.median(
            _painted(notebook, f"step({i})", chart, f"τ {i}") for i in range(1, TURNS)
        )
    )
    step = statistics.median(moved)
    return [
        Row(
            work,
            f"{picked:.0f} ms",
            f"{_text(swapped)} `JupyterChart`",
            _ratio(picked, swapped),
            "≤ 0.7×",
        ),
        Row("of which in the kernel", f"{kernel:.0f} ms"),
        Row(
            "a step of τ set in Python, to paint",
            f"{step:.0f} ms",
            f"{_text(theirs)} `JupyterChart`",
            _ratio(step, theirs),
        ),
    ]


def _painted(notebook: NotebookPage, code: str, where: str, text: str) -> float:
    """Return milliseconds from sending code to the kernel until its result is painted."""
    time: float = notebook.page.evaluate(_UNTIL_PAINTED, [code, where, text])
    return time


def _seconds_in_kernel(notebook: NotebookPage) -> float:
    """Return the milliseconds of an update in Python."""
    timed = "(lambda t: (pick(1), time.perf_counter() - t)[1])(time.perf_counter())"
    return 1000 * statistics.median(notebook.python(timed) for _ in range(5))


def _or_error(measure: Any) -> float | str:
    """Return milliseconds, or the first line of an error in the page."""
    try:
        time: float = measure()
    except Exception as error:  # noqa: BLE001 - the peer may throw
        return str(error).splitlines()[0]
    return time


def _text(measured: float | str) -> str:
    return measured if isinstance(measured, str) else f"{measured:.0f} ms"


def _ratio(ours: float, theirs: float | str) -> str:
    return "" if isinstance(theirs, str) else f"{ours / theirs:.2f}×"
