"""What of the widgets depends on JupyterLab, a saved notebook, or a kernel that is busy or gone."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.browser.harness import SESSION
from tests.widgets.test_browser import DASHBOARD, agree, chips, counts, drag
from tests.widgets.test_inspector_browser import QUESTIONS, said

# Everything down to the first row of samples, in the window that a notebook scrolls in.
FIRST_SCREEN = """() => {
    const [top] = document.querySelectorAll('.mw-dashboard');
    top.scrollIntoView();
    const window = document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect();
    const card = document.querySelector('.mw-card').getBoundingClientRect();
    return [top.clientWidth, card.bottom - top.getBoundingClientRect().top, window.height];
}"""
RECORDED = (
    "import memowidgets as mw\ndashboard = mw.open_recorded('cifar10-wrn').dashboard()\ndashboard"
)


BUSY = "another cell is running"
# As with kernels without subshells: a kernel that runs a cell answers no widget.
MAIN_SHELL = f"() => Object.assign({SESSION}.kernel, {{ commsOverSubshells: 'disabled' }}) && true"


@contextmanager
def another_cell_running(notebook):
    """Keep the kernel busy until the block ends, as another cell does."""
    end = notebook.path.with_suffix(".end")
    code = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"
    notebook.page.evaluate(f"(code) => {{ {SESSION}.kernel.requestExecute({{code}}); }}", code)
    notebook.page.wait_for_function(f"() => {SESSION}.kernel.status === 'busy'")
    try:
        yield
    finally:
        end.touch()
        notebook.wait_until_idle()
        end.unlink()


def opacity(page):
    """How clearly the numbers are seen: 1 where they are not dimmed."""
    plots = page.locator(".mw-explorer .mw-plots")
    return float(plots.evaluate("(e) => getComputedStyle(e).opacity"))


@pytest.fixture
def in_lab(notebook_page):
    """The same in JupyterLab, for what depends on a notebook or a kernel."""
    notebook = notebook_page([DASHBOARD])
    notebook.page.wait_for_selector(".mw-card")
    return notebook


def test_a_laptop_shows_the_first_samples_without_scrolling(notebook_page):
    notebook = notebook_page([DASHBOARD], width=1440, height=900)
    page = notebook.page
    page.wait_for_selector(".mw-card")
    page.evaluate("() => window.jupyterapp.shell.expandLeft()")
    for width in (1440, 1392):
        notebook.resize(width)
        there, needed, window = page.evaluate(FIRST_SCREEN)
        assert there < 1010
        assert needed <= window
    assert 950 < there <= 960
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")


def test_many_scores_are_in_a_drop_down_and_take_no_second_row(notebook_page):
    notebook = notebook_page([RECORDED], width=1440, height=900)
    page = notebook.page
    page.wait_for_selector(".mw-card")
    page.evaluate("() => window.jupyterapp.shell.expandLeft()")
    _, needed, window = page.evaluate(FIRST_SCREEN)
    assert needed <= window  # cards without samples, but with bars of the likeliest classes
    pickers = [picker.bounding_box() for picker in page.locator(".mw-bar .mw-picker").all()]
    assert len({round(box["y"] + box["height"]) for box in pickers}) == 1
    page.get_by_label("metric", exact=True).select_option(label="Mean log-probability so far")
    notebook.eventually("dashboard.metric", "csl")
    page.locator(".mw-axis-title", has_text="Mean log-probability so far").wait_for()
    assert not page.get_by_role("button", name="τ = 0").is_visible()
    page.get_by_role("button", name="More controls").click()
    page.get_by_role("button", name="75 % of canaries").click()
    notebook.eventually("dashboard.tau", notebook.python("dashboard._data['canary_tau']"))
    page.get_by_role("button", name="Fewer controls").click()
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")


def test_a_page_whose_kernel_is_busy_says_so_and_goes_on_afterwards(in_lab):
    page = in_lab.page
    page.evaluate(MAIN_SHELL)
    in_lab.run_all()  # comms from now on go that way
    page.wait_for_selector(".mw-card")
    in_lab.python("source.done.add(('psmi', '1', 'epoch-2'))")
    busy = [page.locator(name, has_text=BUSY) for name in (".mw-message", ".mw-empty", ".mw-said")]
    with another_cell_running(in_lab):
        for share in (0.5, 0.6, 0.45):
            drag(page, ".mw-histogram", (0.4, 0.5), (share, 0.5))
            page.wait_for_timeout(50)
            assert chips(page) == counts(page)
        flagged = counts(page)["flagged"]
        page.locator(".mw-card").first.click()
        page.locator(".mw-decide-row button", has_text="Keep").click()
        page.get_by_label("layer", exact=True).select_option("1")
        for text in busy:
            text.wait_for()
        assert opacity(page) < 0.5
        assert page.get_by_text("✓ computed").count() == 0
        in_lab.screenshots("lab-busy", widths=[1200], themes=["light"])
    in_lab.eventually("len(dashboard.decisions)", 1)
    page.get_by_text("✓ computed").wait_for()
    for text in busy:
        text.wait_for(state="hidden")
    assert opacity(page) == 1
    page.get_by_label("layer", exact=True).select_option("last")
    in_lab.eventually("dashboard.counts['flagged']", flagged)
    page.locator(".mw-axis-title", has_text="layer last").wait_for()
    page.locator('[data-filter="all"]').click()
    page.locator(".mw-range").get_by_text("of 600").wait_for()
    assert chips(page)["flagged"] == flagged
    agree(in_lab)


def test_on_a_laptop_the_buttons_of_decisions_are_in_one_line(widget_page):
    questions = widget_page([QUESTIONS], width=900)
    questions.page.wait_for_selector(".mw-card")
    names = ["Keep", "Anonymise", "Remove", "Undecided", "Undo"]
    buttons = [questions.page.locator(".mw-decide-row button", has_text=name) for name in names]
    before = [button.bounding_box() for button in buttons]
    assert len({box["y"] for box in before}) == 1
    questions.page.locator(".mw-card").first.click()
    buttons[2].click()
    said(questions.page, "is to be removed.")
    assert [button.bounding_box()["y"] for button in buttons] == [box["y"] for box in before]


def test_the_strip_with_the_counts_follows_the_notebook(in_lab):
    page = in_lab.page
    in_lab.resize(1200, 620)
    panel = page.locator(".jp-WindowedPanel-outer")
    panel.evaluate("(panel) => { panel.scrollTop = 640; }")
    strip = page.locator(".mw-strip")
    strip.wait_for()
    page.wait_for_timeout(300)
    assert abs(strip.bounding_box()["y"] - panel.bounding_box()["y"]) <= 2
    in_lab.screenshots("lab-strip", widths=[1200], themes=["light"])
    panel.evaluate("(panel) => { panel.scrollTop = 0; }")
    strip.wait_for(state="hidden")
