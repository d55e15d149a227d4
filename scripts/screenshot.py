"""Create docs/dashboard.png from the quickstart in JupyterLab, and print its numbers."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.browser.harness import open_notebook, running_chromium, running_lab

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "01_quickstart.ipynb"
PICTURE = ROOT / "docs" / "dashboard.png"
SAMPLES = 16  # two rows


def main() -> int:
    """Run all cells, wait until the first samples are painted, and take the picture."""
    with running_lab() as lab, running_chromium() as chromium:
        notebook = open_notebook(lab, chromium, NOTEBOOK, scale=1.5)
        started = time.monotonic()
        notebook.run_all(timeout=600)
        dashboard = notebook.page.locator(".mw-dashboard")
        notebook.python(f"setattr(dashboard, 'page_size', {SAMPLES})")
        dashboard.get_by_text(f"1–{SAMPLES} of").wait_for()
        print(f"quickstart: {time.monotonic() - started:.0f} s from Run All to the dashboard")
        PICTURE.parent.mkdir(exist_ok=True)
        notebook.screenshot(PICTURE, of=dashboard)
        for output in (output for cell in notebook.outputs() for output in cell):
            if output["output_type"] == "stream":  # the numbers that the README quotes
                print(output["text"], end="")
        for problem in notebook.unexpected():
            print(problem, file=sys.stderr)
        return int(bool(notebook.unexpected()))


if __name__ == "__main__":
    sys.exit(main())
