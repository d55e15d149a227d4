"""The timeline in Chromium: frames while a training plays, beside a canvas with as many dots."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.explorer import late
from benchmarks.measure import Namespace, Row
from memowidgets.evaluation.scored import Scored
from memowidgets.widgets import Choice
from memowidgets.widgets.messages import Moment
from tests.browser.harness import open_notebook, running_chromium, running_lab
from tests.widgets.fake_source import FakeSource

if TYPE_CHECKING:
    from memowidgets.progress import Progress
    from tests.browser.harness import NotebookPage

SAMPLES = (10_000, 100_000)
CHECKPOINTS = 40
_GOAL = "at 10 000 samples: \u2264 1.2×"

_SHOWN = """
from benchmarks.timeline import Training
from memowidgets.widgets import Dashboard
dashboard = Dashboard(Training({n}))
dashboard
"""
# The limit: a canvas that moves as many dots as there are samples, two colours, once a frame.
_BARE = """
import anywidget
class Dots(anywidget.AnyWidget):
    _esm = '''
    export default {{ render({{ el }}) {{
      const canvas = document.createElement('canvas');
      Object.assign(canvas, {{ className: 'dots', width: 480, height: 160 }});
      el.append(canvas);
      const context = canvas.getContext('2d');
      const n = {n};
      const at = Float32Array.from({{ length: n }}, () => 480 * Math.random());
      const up = Float32Array.from({{ length: n }}, () => 160 * Math.random());
      let step = 0;
      const draw = () => {{
        step += 1;
        context.clearRect(0, 0, 480, 160);
        for (const half of [0, 1]) {{
          context.fillStyle = half ? '#c2334b' : '#7d95aa';
          for (let i = half; i < n; i += 2) {{
            context.fillRect((at[i] + step) % 480, up[i], 2, 2);
          }}
        }}
        requestAnimationFrame(draw);
      }};
      canvas.onclick = draw;
    }} }};
    '''
dots = Dots()
dots
"""
_WATCH = """(milliseconds) => new Promise((done) => {
    const times = [];
    const started = performance.now();
    let last = started;
    const tick = (now) => {
        times.push(now - last);
        last = now;
        if (now - started < milliseconds) requestAnimationFrame(tick);
        else done(times.slice(2));
    };
    requestAnimationFrame(tick);
})"""
_WATCHED = 3000  # milliseconds


class Training(FakeSource):
    """A run of many samples with all of its scores."""

    def __init__(self, n: int) -> None:
        super().__init__(n, seconds=0)
        rng = np.random.default_rng(0)
        self._noise = rng.normal(0, 0.15, n)
        self._log_lira = rng.gumbel(-2, 1.5, n)

    def checkpoint_choices(self) -> list[Choice]:
        """Each of the checkpoints."""
        every = range(1, CHECKPOINTS + 1)
        return [
            Choice(f"epoch-{i}", f"epoch {i}", marked=i == CHECKPOINTS) for i in every
        ]

    def moments(self) -> list[Moment]:
        """The same on the timeline."""
        every = range(1, CHECKPOINTS + 1)
        return [
            Moment(f"epoch-{i}", f"epoch {i}", i, "", 2 / i, 1.0, "", star=False)
            for i in every
        ]

    def is_computed(self, *_: str) -> bool:
        """Yes."""
        return True

    def view(
        self, score: str, layer: str, checkpoint: str, _progress: Progress | None = None
    ) -> Scored:
        """The scores of the memorised fall with time."""
        share = int(checkpoint.removeprefix("epoch-")) / CHECKPOINTS
        end = np.where(self._log_lira >= 4, -0.3, 0.3)
        return Scored(
            np.arange(len(end)),
            share * end + self._noise,
            log_lira=self._log_lira,
            natural=0.0,
            title=f"{score}, layer {layer}, {checkpoint}",
        )


def rows(_: Namespace) -> list[Row]:
    """Return the times between frames while a training plays."""
    found = []
    with running_lab() as lab, running_chromium() as chromium:
        for n in SAMPLES:
            cells = [_BARE.format(n=n), _SHOWN.format(n=n)]
            notebook = open_notebook(lab, chromium, cells, name=f"played-{n}")
            notebook.run_all(timeout=300)
            found.append(_played(notebook, n))
            notebook.page.context.close()
    return found


def _played(notebook: NotebookPage, n: int) -> Row:
    page = notebook.page
    page.wait_for_selector(".mw-card")
    slider = page.get_by_role("slider", name="checkpoint")
    slider.press("Home")
    page.locator(".mw-dashboard:not(.mw-moving)").wait_for()
    slider.press(" ")
    page.locator(".mw-film:not([hidden])").wait_for()
    ours: list[Any] = sorted(page.evaluate(_WATCH, _WATCHED))
    if page.locator(".mw-playing").count():
        slider.press(" ")
    page.locator(".dots").click()
    theirs: list[Any] = sorted(page.evaluate(_WATCH, _WATCHED))
    middle = [statistics.median(times) for times in (ours, theirs)]
    ends = [late(times) for times in (ours, theirs)]
    return Row(
        f"{n} samples played over {CHECKPOINTS} checkpoints, times between frames, median and 95 %",
        f"{middle[0]:.1f} ms, {ends[0]:.1f} ms",
        f"{middle[1]:.1f} ms, {ends[1]:.1f} ms on a bare canvas",
        f"{middle[0] / middle[1]:.2f}×, {ends[0] / ends[1]:.2f}×",
        _GOAL,
    )
