"""The inspector in Chromium, in JupyterLab: from a click to 48 painted samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.measure import Namespace, Row, trees
from tests.browser.harness import open_notebook, running_chromium, running_lab

if TYPE_CHECKING:
    from tests.browser.harness import NotebookPage

MANY = 100_000
ON_A_PAGE = 48
TURNS = 15
GOAL = "≤ 1.3×"

_MADE = f"""
import numpy as np
from memowidgets.data import ImageDataset, MCQDataset
from memowidgets.widgets import SampleInspector
n = {MANY}
rng = np.random.default_rng(0)
log_lira = rng.gumbel(-2, 1.5, n)
scores = np.where(log_lira >= 4, rng.normal(-.2, .25, n), rng.normal(.4, .25, n))
probabilities = rng.dirichlet([1] * 4, n)
errors = rng.gamma(2, .005, n)
known = dict(log_lira=log_lira, errors=errors, probabilities=probabilities)
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

# The limit: a page that only asks for as many samples, and writes what one message holds. Its cards
# show the same words and images as ours in a grid as wide, each in the plainest element, made
# anew for every page, and beside them the first one open, with its options, as ours does. It has no
# states, no keyboard, and nothing that keeps texts from growing.
_BARE = f"""
import anywidget
class Bare(anywidget.AnyWidget):
    _esm = '''
    const made = (tag, text = '') => {{
      const element = document.createElement(tag);
      element.textContent = text;
      return element;
    }};
    const picture = (pixels) => {{
      const canvas = made('canvas');
      canvas.width = canvas.height = 32;
      const image = new ImageData(32, 32);
      for (let k = 0; k < 1024; k++) {{
        for (let c = 0; c < 3; c++) image.data[4 * k + c] = pixels[3 * k + c];
        image.data[4 * k + 3] = 255;
      }}
      canvas.getContext('2d').putImageData(image, 0, 0);
      canvas.style = 'display: block; width: 64px; image-rendering: pixelated';
      return canvas;
    }};
    export default {{ render({{ model, el }}) {{
      const button = made('button', 'next');
      button.className = 'bare-next';
      const list = made('div');
      list.className = 'bare-list';
      const opened = made('div');
      const beside = made('div');
      beside.style = 'display: grid; grid-template-columns: 5fr 3fr';
      beside.append(list, opened);
      el.append(button, beside);
      let page = 0;
      button.onclick = () => model.send({{ page: ++page }});
      model.on('msg:custom', ({{ items, open, width }}, [pixels]) => {{
        opened.replaceChildren(...open.map((line) => made('p', line)));
        if (pixels) opened.prepend(picture(new Uint8Array(pixels.buffer, pixels.byteOffset, 3072)));
        const columns = `repeat(auto-fill, minmax(${{width}}px, 1fr))`;
        list.style = `display: grid; gap: 8px; grid-template-columns: ${{columns}}`;
        list.replaceChildren(...items.map(({{ lines }}, i) => {{
          const card = made('div');
          const start = pixels ? pixels.byteOffset + 3072 * i : 0;
          if (pixels) card.append(picture(new Uint8Array(pixels.buffer, start, 3072)));
          card.append(...lines.map((line) => made('div', line)));
          return card;
        }}));
      }});
    }} }};
    '''
    def __init__(self, data, images=None):
        super().__init__()
        self.on_msg(lambda _, content, __: self.answer(content["page"]))
        self.data, self.images = data, images
    def answer(self, page):
        first, end = page * {ON_A_PAGE}, (page + 1) * {ON_A_PAGE}
        buffers = [] if self.images is None else [self.images[first:end].tobytes()]
        width = 400 if self.images is None else 70
        items = [self.item(i) for i in range(first, end)]
        self.send({{"items": items, "open": self.opened(first), "width": width}}, buffers)
    def opened(self, i):
        options = [f"{{letter}} {{p:.0%}}" for letter, p in zip("wxyz", probabilities[i])]
        given = ["label", f"{{i % 4}}", "model", f"{{probabilities[i].argmax()}}"]
        text = [] if self.images is not None else [self.data[i]["question"], *options]
        came = "Memorised by this model." if log_lira[i] >= 4 else ""
        return [f"{{i + 1}} of {{n}}", *text, *given, came]
    def item(self, i):
        guess = f"{{i % 4}} ≠ model: {{probabilities[i].argmax()}}"
        if self.images is None:
            return {{"lines": [self.data[i]["question"], guess]}}
        return {{"lines": [guess]}}
"""
_BARE_QUESTIONS = """
bare = Bare(rows)
bare
"""
_BARE_IMAGES = """
bare = Bare(data, images)
bare
"""

_BARE_CLICK = (".bare-list", ".bare-next")
SECONDS_OF_LOOKING = 0.5

# Clicks the buttons in turn, with pauses like a user's, and measures until the frame after the list
# next to it has changed: all cards are new then. Those out of view may take one frame more.
# Playwright is not called while a click is timed, because it takes time too.
_CLICKS_TO_PAINT = """async ([clicks, wait]) => {
  const times = [];
  const watched = { childList: true, subtree: true, characterData: true };
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  for (const [where, button] of clicks) {
    document.querySelector(where).scrollIntoView();
    await new Promise((done) => setTimeout(done, wait));
    const list = document.querySelector(where);
    const change = () => new Promise((done) => {
      const observer = new MutationObserver(() => { observer.disconnect(); done(); });
      observer.observe(list, watched);
    });
    const changed = change();
    const start = performance.now();
    document.querySelector(button).click();
    await changed;
    await painted();
    const inView = performance.now() - start;
    await painted();
    times.push([inView, performance.now() - start]);
  }
  return times;
}"""


# How many cards can be seen when a list begins at its top. Ours scrolls inside.
_IN_VIEW = """(where) => {
  const list = document.querySelector(where);
  list.scrollIntoView();
  const inside = list.closest('.mw-list-scroll')?.getBoundingClientRect().bottom ?? innerHeight;
  const boxes = [...list.children].map((card) => card.getBoundingClientRect());
  return boxes.filter((box) => box.bottom > 0 && box.top < Math.min(inside, innerHeight)).length;
}"""


def rows(arguments: Namespace) -> list[Row]:
    """Measure a page of questions, one of images, and a filter, each next to a bare page."""
    cells = {
        "questions": (_QUESTIONS, _BARE_QUESTIONS),
        "32×32 images": (_IMAGES, _BARE_IMAGES),
    }
    with running_lab() as lab, running_chromium() as chromium:
        found = []
        for kind, (ours, bare) in cells.items():
            notebooks: dict[str, NotebookPage] = {}
            for tree, which in trees(arguments):
                made = [tree + _MADE + _BARE, ours, bare]
                name = f"{kind.split()[-1]}{len(notebooks)}"
                notebook = open_notebook(lab, chromium, made, name=name, watched=False)
                notebook.run_all(timeout=600)
                notebook.page.wait_for_selector(".mw-card")
                notebook.page.wait_for_selector(".bare-next")
                notebooks[which] = notebook
            found += _pages(notebooks, kind)
            for notebook in notebooks.values():
                notebook.page.context.close()
        return found


def _pages(notebooks: dict[str, NotebookPage], kind: str) -> list[Row]:
    nexts = ['[aria-label="next page"]'] * TURNS
    others = ['[data-filter="missed"]', '[data-filter="left alone"]'] * (
        TURNS // 2
    )  # none is in both
    what = f"{ON_A_PAGE} of {MANY:,} {kind}, click to paint"
    found = []
    for act, buttons in (("the next page", nexts), ("another filter", others)):
        for which, times in _times(notebooks, buttons).items():
            page = notebooks[which].page
            seen = [
                page.evaluate(_IN_VIEW, where) for where in (".mw-cards", ".bare-list")
            ]
            found.append(Row(f"inspector: {act}, {what}{which}", *_beside(times, seen)))
    return found


def _times(
    notebooks: dict[str, NotebookPage], buttons: list[str]
) -> dict[str, list[list[list[float]]]]:
    """Return the milliseconds of our clicks and of bare ones, without the first of each."""
    found: dict[str, list[list[list[float]]]] = {which: [] for which in notebooks}
    for button in buttons:
        for which, notebook in notebooks.items():
            clicks = [(".mw-cards", button), _BARE_CLICK]
            asked = [clicks, SECONDS_OF_LOOKING * 1000]
            found[which].append(notebook.page.evaluate(_CLICKS_TO_PAINT, asked))
    return {which: times[1:] for which, times in found.items()}


def _beside(
    times: list[list[list[float]]], seen: list[int]
) -> tuple[str, str, str, str]:
    """Medians of ours and of the bare page, of what is in view and of the whole page.

    The ratio is the median of those of a click to the bare click after it, which a busy machine
    slows down alike.
    """
    (ours, whole), (bare, _) = np.median(times, axis=0)
    most = max(mine[0] for mine, _ in times)
    ratio = np.median([mine[0] / limit[0] for mine, limit in times])
    shown = f"{ours:.0f} ms, at most {most:.0f} ms; cards out of view {whole:.0f} ms"
    other = f"{bare:.0f} ms on a bare page (in view: {seen[0]} cards, there {seen[1]})"
    return shown, other, f"{ratio:.2f}×", GOAL
