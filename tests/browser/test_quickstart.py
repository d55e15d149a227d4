"""The quickstart as its reader sees it: run all cells, drag τ, look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_everywhere import agree, counts, drag_tau
from tests.notebooks.running import check_quiet, fewer

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


@pytest.fixture
def quickstart(tmp_path):
    """The notebook with its own dashboard alone, and fewer shadow models and samples.

    `make screenshot` takes all of them.
    """
    recorded = r"mw.open_recorded(\"digits\").dashboard()"
    text = NOTEBOOK.read_text("utf-8")
    assert recorded in text
    copy = tmp_path / NOTEBOOK.name
    copy.write_text(fewer(text.replace(recorded, "1")), "utf-8")
    return copy


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_quickstart_in_a_real_jupyterlab(notebook_page, quickstart):
    notebook = notebook_page(quickstart, run=False)
    page = notebook.page
    notebook.run_all(timeout=700)
    page.locator(".mw-dashboard .mw-card").first.wait_for()
    cut = "ids => ids.filter((id) => id.scrollWidth > id.clientWidth).map((id) => id.textContent)"
    assert page.locator(".mw-dashboard .mw-id").evaluate_all(cut) == []
    check_quiet(notebook.save())
    notebook.screenshots("quickstart-lab")
    notebook.screenshots("quickstart-dashboard", of=".mw-dashboard")

    agree(notebook)
    at_zero = counts(page)
    assert at_zero["flagged"] == notebook.python("len(audit.flagged(tau=0.0))")
    drag_tau(page, 0.05)
    assert counts(page)["flagged"] > at_zero["flagged"]
    agree(notebook)
    notebook.screenshots("quickstart-dragged", of=".mw-dashboard", widths=[1400], themes=["light"])
