"""The quickstart as its reader sees it: run all cells, drag τ, pick, compute, cancel, look."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.test_everywhere import agree, counts, drag_tau, tau
from tests.notebooks.running import check_quiet, fewer

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"

# The digits are scored too fast to be cancelled by hand.
WAITING = """exec('''
import time
from memowidgets.progress import Progress
report = Progress.report

def report_and_wait(self, *step):
    report(self, *step)
    while not self.cancelled:
        time.sleep(0.05)
    report(self, *step)

Progress.report = report_and_wait
''', {})"""


def assert_both_sides_agree(notebook):
    """The page and Python count the same at the same τ, and the evaluation is behind it."""
    agree(notebook)
    at_tau = notebook.python(f"dashboard.evaluation.at({tau(notebook.page)!r}).flagged")
    assert at_tau == counts(notebook.page)["flagged"]


@pytest.fixture
def quickstart(tmp_path):
    """The notebook, with fewer shadow models and samples: `make screenshot` takes all of them."""
    copy = tmp_path / NOTEBOOK.name
    copy.write_text(fewer(NOTEBOOK.read_text("utf-8")), "utf-8")
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

    assert_both_sides_agree(notebook)
    at_zero = counts(page)
    assert at_zero["flagged"] == notebook.python("len(audit.flagged(tau=0.0))")
    drag_tau(page, 0.05)
    assert counts(page)["flagged"] > at_zero["flagged"]
    assert_both_sides_agree(notebook)
    notebook.screenshots("quickstart-dragged", of=".mw-dashboard", widths=[1400], themes=["light"])

    pick_another_checkpoint_and_compute(notebook)
    cancel_a_computation(notebook)
    notebook.screenshots("quickstart-cancelled", of=".mw-dashboard", widths=[1400], themes=["dark"])


def uncomputed_checkpoints(notebook):
    """Checkpoints of the picker that nothing was scored at yet, last first."""
    options = notebook.page.get_by_label("checkpoint", exact=True).locator("option")
    names = [option.get_attribute("value") for option in options.all()]
    layer = notebook.python("dashboard.layer")
    room = "__import__('memowidgets.audit.numbers.scores', fromlist=['is_computed'])"
    asked = f"{room}.is_computed(audit.evidence, 'psmi', {layer!r}, {{!r}})"
    return [n for n in names[::-1] if not notebook.python(asked.format(n))]


def pick_another_checkpoint_and_compute(notebook):
    """What is not computed waits for Compute, which shows it and keeps it for other scores."""
    page = notebook.page
    checkpoint = uncomputed_checkpoints(notebook)[0]
    page.get_by_label("checkpoint", exact=True).select_option(checkpoint)
    waiting = page.locator(".mw-dashboard").get_by_text("Not computed yet")
    waiting.wait_for()
    page.get_by_role("button", name="Compute", exact=True).click()
    waiting.wait_for(state="hidden")
    notebook.eventually("dashboard.computed", wanted=True)
    assert notebook.python("dashboard.state['checkpoint']") == checkpoint
    assert_both_sides_agree(notebook)


def cancel_a_computation(notebook):
    """Cancel stops between batches, says so, and the kernel was free all the while."""
    page = notebook.page
    notebook.python(WAITING)
    before = counts(page)
    page.get_by_label("checkpoint", exact=True).select_option(uncomputed_checkpoints(notebook)[0])
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("button", name="Cancel").wait_for()
    assert notebook.python("1 + 1") == 2
    page.get_by_role("button", name="Cancel").click()
    page.locator(".mw-dashboard").get_by_text("Cancelled").wait_for()
    assert counts(page) == before
