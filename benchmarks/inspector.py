"""The inspector in Chromium, in JupyterLab: from a click to 48 painted samples."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.measure import Namespace, Row
from tests.browser.harness import open_notebook, running_chromium, running_lab

if TYPE_CHECKING:
    from tests.browser.harness import NotebookPage

MANY = 100_000
ON_A_PAGE = 48
TURNS = 15
GOAL = "≤ 100 ms"

_MADE = f"""
import numpy as np
from memowidgets.data import ImageDataset, MCQDataset
from memowidgets.widgets import SampleInspector
n = {MANY}
rng = np.random.default_rng(0)
log_lira = rng.gumbel(-2, 1.5, n)
scores = np.where(log_lira >= 4, rng.normal(-.2, .25, n), rng.normal(.4, .25, n))
probabilities = rng.dirichlet([1] * 4, n)
known = dict(log_lira=log_lira, errors=rng.gamma(2, .005, n), probabilities=probabilities)
view = dict(page_size={ON_A_PAGE}, filter="all")
"""
_QUESTIONS = """
text = "ward patient note week hand step door year " * 5
rows = [{"question": f"{text}{i}?", "choices": list("wxyz"), "answer": i % 4} for i in range(n)]
data = MCQDataset.from_records(rows)
inspector = SampleInspector(data, scores, log_lira >= 4, **view, **known)
inspector
"""
_IMAGES = """
images = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
data = ImageDataset.from_arrays(images, np.arange(n) % 4)
inspector = SampleInspector(data, scores, log_lira >= 4, **view, **known)
inspector
"""

SECONDS_OF_LOOKING = 0.5

# Clicks each button in turn, with pauses like a user's, and measures until the frame after the
# samples have changed. Playwright is not called in between, because that takes time too.
_CLICKS_TO_PAINT = """async ([buttons, wait]) => {
  const times = [];
  for (const button of buttons) {
    await new Promise((done) => setTimeout(done, wait));
    const list = document.querySelector('.mw-cards');
    const changed = new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); done(); });
      observer.observe(list, {childList: true});
    });
    const start = performance.now();
    document.querySelector(button).click();
    await changed;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    times.push(performance.now() - start);
  }
  return times;
}"""


def rows(_arguments: Namespace) -> list[Row]:
    """Measure a page of questions, a page of images, and a change of filter."""
    with running_lab() as lab, running_chromium() as chromium:
        found = []
        for kind, cell in (("questions", _QUESTIONS), ("32×32 images", _IMAGES)):
            name = kind.split()[-1]
            notebook = open_notebook(lab, chromium, [_MADE, cell], name=name, watched=False)
            notebook.run_all(timeout=600)
            notebook.page.wait_for_selector(".mw-card")
            found += _pages(notebook, kind)
            notebook.page.context.close()
        return found


def _pages(notebook: NotebookPage, kind: str) -> list[Row]:
    next_page = _times(notebook, ['[aria-label="next page"]'] * TURNS)
    others = ['[data-filter="missed"]', '[data-filter="clear"]']  # no sample is in both
    filters = _times(notebook, others * (TURNS // 2))
    what = f"{ON_A_PAGE} of {MANY:,} {kind}"
    return [
        Row(f"inspector: the next page, {what}, click to paint", *_summary(next_page)),
        Row(f"inspector: another filter, {what}, click to paint", *_summary(filters)),
    ]


def _times(notebook: NotebookPage, buttons: list[str]) -> list[float]:
    """Return the milliseconds of each click, without the first one."""
    wait = SECONDS_OF_LOOKING * 1000
    times: list[float] = notebook.page.evaluate(_CLICKS_TO_PAINT, [buttons, wait])
    return sorted(times[1:])


def _summary(times: list[float]) -> tuple[str, str, str, str]:
    return f"{statistics.median(times):.0f} ms, at most {times[-1]:.0f} ms", "", "", GOAL
