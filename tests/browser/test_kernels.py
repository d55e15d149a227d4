"""Older kernels call a widget's handlers on other threads than the newest one does."""

from __future__ import annotations

import pytest

from tests.browser.kernels import add_kernel
from tests.browser.test_everywhere import (
    DASHBOARD,
    agree,
    compute_and_cancel,
    drag_filter_decide_undo,
    run_the_cell_again,
)

pytestmark = pytest.mark.slow
VERSION = "6.31.0"


@pytest.mark.timeout(600)
def test_an_older_kernel(notebook_page, lab):
    notebook = notebook_page([DASHBOARD], kernel=add_kernel(lab, VERSION))
    assert notebook.python("__import__('ipykernel').__version__") == VERSION
    drag_filter_decide_undo(notebook)
    compute_and_cancel(notebook)
    compute(notebook)
    run_the_cell_again(notebook)


def compute(notebook):
    """Compute to its end, and show what came of it."""
    page = notebook.page
    notebook.python("setattr(source, 'seconds', 1)")
    page.get_by_label("layer", exact=True).select_option("2")
    page.get_by_role("button", name="Compute", exact=True).click()
    notebook.eventually("dashboard.computed", wanted=True)
    agree(notebook)
