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
GOAL = "≤ 1.5×"

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

# The limit: a page that does nothing but ask for as many samples and paint what one message holds.
_BARE = f"""
import anywidget
class Bare(anywidget.AnyWidget):
    _esm = '''
    export default {{ render({{ model, el }}) {{
      const button = document.createElement('button');
      button.className = 'bare-next';
      const list = document.createElement('div');
      list.className = 'bare-list';
      list.style = 'display: grid; grid-template-columns: repeat(8, 1fr); gap: 8px';
      el.append(button, list);
      let page = 0;
      button.onclick = () => model.send({{ page: ++page }});
      const cards = ({{ items }}, [pixels]) => list.replaceChildren(...items.map((item, i) => {{
        const card = document.createElement('div');
        if (pixels === undefined) {{
          card.textContent = item;
          return card;
        }}
        const canvas = document.createElement('canvas');
        canvas.width = canvas.height = 32;
        const image = new ImageData(32, 32);
        for (let k = 0; k < 1024; k++) {{
          for (let c = 0; c < 3; c++) image.data[4 * k + c] = pixels.getUint8(3072 * i + 3 * k + c);
          image.data[4 * k + 3] = 255;
        }}
        canvas.getContext('2d').putImageData(image, 0, 0);
        canvas.style = 'width: 96px; image-rendering: pixelated';
        card.append(canvas, item);
        return card;
      }}));
      model.on('msg:custom', cards);
    }} }};
    '''
    def __init__(self, texts, images=None):
        super().__init__()
        self.on_msg(lambda _, content, __: self.answer(content["page"]))
        self.texts, self.images = texts, images
    def answer(self, page):
        chosen = slice(page * {ON_A_PAGE}, (page + 1) * {ON_A_PAGE})
        buffers = [] if self.images is None else [self.images[chosen].tobytes()]
        self.send({{"items": self.texts[chosen]}}, buffers)
"""
_BARE_QUESTIONS = """
bare = Bare([f"{row['question']} w x y z" for row in rows])
bare
"""
_BARE_IMAGES = """
bare = Bare([f"label {i % 4}" for i in range(n)], images)
bare
"""

_BARE_CLICK = (".bare-list", ".bare-next")
SECONDS_OF_LOOKING = 0.5

# Clicks the buttons in turn, with pauses like a user's, and measures until the frame after the list
# next to it has changed. Playwright is not called in between, because that takes time too.
_CLICKS_TO_PAINT = """async ([clicks, wait]) => {
  const times = [];
  for (const [where, button] of clicks) {
    document.querySelector(where).scrollIntoView();
    await new Promise((done) => setTimeout(done, wait));
    const list = document.querySelector(where);
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
    """Measure a page of questions, one of images, and a filter, each next to a bare page."""
    cells = {
        "questions": (_QUESTIONS, _BARE_QUESTIONS),
        "32×32 images": (_IMAGES, _BARE_IMAGES),
    }
    with running_lab() as lab, running_chromium() as chromium:
        found = []
        for kind, (ours, bare) in cells.items():
            name = kind.split()[-1]
            notebook = open_notebook(
                lab, chromium, [_MADE + _BARE, ours, bare], name=name, watched=False
            )
            notebook.run_all(timeout=600)
            notebook.page.wait_for_selector(".mw-card")
            notebook.page.wait_for_selector(".bare-next")
            found += _pages(notebook, kind)
            notebook.page.context.close()
        return found


def _pages(notebook: NotebookPage, kind: str) -> list[Row]:
    nexts = ['[aria-label="next page"]'] * TURNS
    others = ['[data-filter="missed"]', '[data-filter="clear"]']  # no sample is in both
    what = f"{ON_A_PAGE} of {MANY:,} {kind}, click to paint"
    return [
        Row(f"inspector: the next page, {what}", *_beside(*_times(notebook, nexts))),
        Row(
            f"inspector: another filter, {what}", *_beside(*_times(notebook, others * (TURNS // 2)))
        ),
    ]


def _times(notebook: NotebookPage, buttons: list[str]) -> tuple[list[float], list[float]]:
    """Return the milliseconds of our clicks and of bare ones, without the first of each."""
    clicks = [click for button in buttons for click in ((".mw-cards", button), _BARE_CLICK)]
    wait = SECONDS_OF_LOOKING * 1000
    times: list[float] = notebook.page.evaluate(_CLICKS_TO_PAINT, [clicks, wait])
    return sorted(times[2::2]), sorted(times[3::2])


def _beside(times: list[float], bare: list[float]) -> tuple[str, str, str, str]:
    """Medians of ours and of the bare page."""
    ours, limit = statistics.median(times), statistics.median(bare)
    shown = f"{ours:.0f} ms, at most {times[-1]:.0f} ms"
    return shown, f"{limit:.0f} ms on a bare page", f"{ours / limit:.2f}×", GOAL
