"""The dashboard wherever it must run: JupyterLab, Notebook 7, Voila; and what may befall it there.

One page for each, because a kernel takes seconds to start: every step leaves the view as the next
one needs it.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from tests.browser.harness import in_view, pixels_of, save, settled
from tests.front_end.tools import serious
from tests.widgets.private import names, spellings

DASHBOARD = """
from memowidgets.widgets import Dashboard
from tests.widgets.fake_source import FakeSource
source = FakeSource(seconds=60)  # a computation ends by being cancelled
dashboard = Dashboard(source)
dashboard.page_size = 12
dashboard
"""
N = 600
LINE_HEIGHTS = "all => all.map((one) => Math.round(one.getBoundingClientRect().height))"
OWN = f"from tests.widgets.private import questions\nsource.data = questions({N})\ndashboard ="
PRIVATE = DASHBOARD.replace("dashboard =", OWN)
NOTE = "her sister told me"


def recorded(name):
    """A cell that shows a recorded audit."""
    opened = f"import memowidgets as mw\naudit = mw.open_recorded({name!r})"
    return f"{opened}\ndashboard = audit.dashboard()\ndashboard"


LIVING = (
    "len([w for w in __import__('ipywidgets').widgets.widget._instances.values()"
    " if type(w).__module__.startswith('memowidgets')])"
)
GONE = "The kernel has stopped"
WAITING = "Waiting for the kernel"
STILL = re.compile(r"^\d+ flagged of 600; ")

# JupyterLab keeps the models of closed widgets as long as their kernel runs.
KEEP_MODEL = """async (id) => {
    const { rendermime } = window.jupyterapp.shell.currentWidget.content;
    const renderer = rendermime.createRenderer('application/vnd.jupyter.widget-view+json');
    window.mwKept = await (await renderer._manager.promise).get_model(id);
    return null;
}"""
KEPT = """() => [
    window.mwKept.get('_esm').length, Object.keys(window.mwKept.get('_data')).length,
]"""

LONG = "for i in range(60):\n    print(i)"
TOP = "document.querySelector('.mw-histogram').getBoundingClientRect().top"
SCROLL = (
    "(i) => { window.jupyterapp.shell.currentWidget.content.scrollToItem(i, 'start'); }"
)

# Every socket that the page opens can be cut, and no new one gets through while it is offline.
OFFLINE = """(() => {
    const Real = window.WebSocket;
    const open = new Set();
    window.mwOffline = false;
    window.WebSocket = class extends Real {
        constructor(url, protocols) {
            super(window.mwOffline ? 'ws://127.0.0.1:1/' : url, protocols);
            open.add(this);
        }
    };
    window.mwCut = () => {
        window.mwOffline = true;
        for (const socket of open) socket.close();
        open.clear();
    };
})()"""


def counts(page):
    """What the front end counts, as `ThresholdExplorer.counts` names it."""
    shown = json.loads(page.locator(".mw-explorer").get_attribute("data-counts"))
    return {
        re.sub("[A-Z]", lambda big: "_" + big[0].lower(), name): n
        for name, n in shown.items()
    }


def tau(page):
    """Where τ stands on the page."""
    return float(page.locator(".mw-explorer").get_attribute("data-tau"))


def agree(opened):
    """Both sides stand at the same τ and count the same."""
    opened.eventually("dashboard.tau_committed", lambda: tau(opened.page))
    shown = counts(opened.page)
    of = opened.python("dashboard.counts")
    assert {name: of[name] for name in shown} == shown


def drag_tau(page, share):
    """Drag τ with the mouse by a share of the histogram's width."""
    page.locator(".mw-histogram").scroll_into_view_if_needed()
    width = page.locator(".mw-histogram").bounding_box()["width"]
    knob = page.locator(".mw-tau-knob").bounding_box()
    x, y = knob["x"] + knob["width"] / 2, knob["y"] + knob["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + share * width, y, steps=10)
    page.mouse.up()


def drag_filter_decide_undo(opened):
    """What a user does first, heard on both sides."""
    page = opened.page
    page.locator(".mw-card").first.wait_for()
    before = counts(page)
    drag_tau(page, 0.1)
    assert counts(page)["flagged"] > before["flagged"]
    agree(opened)
    page.locator('[data-filter="found"]').click()
    page.locator(".mw-range").get_by_text(f"of {counts(page)['found']}").wait_for()
    opened.eventually("dashboard.filter", "found")
    page.locator(".mw-card").first.click()
    names = page.locator(".mw-facts-of dt").evaluate_all(LINE_HEIGHTS)
    assert 20 in names
    assert set(names) <= {0, 20}  # folded or one line, whatever lists are in this host
    page.keyboard.press("r")
    opened.eventually("dashboard.decisions.decision.tolist()", ["remove"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("z")
    opened.eventually("len(dashboard.decisions)", 0)


def decided(page, n):
    """Wait until the page says on how many of the listed samples there are decisions."""
    page.locator(".mw-progress").get_by_text(re.compile(rf"^{n} of ")).wait_for()


def decide_on_ten(page, unmoved="() => []"):
    """By key and by button: the sample that each decision leads to is seen whole.

    What the script `unmoved` answers stays with the first decision.
    """
    places = page.evaluate(unmoved)
    for done in range(10):
        if done % 2:
            page.locator(".mw-decide .mw-choice[data-decision=remove]").click()
        else:
            page.keyboard.press("k")
        decided(page, done + 1)
        chosen = page.locator(f".mw-card:nth-child({done + 2})[aria-selected=true]")
        chosen.wait_for()
        assert in_view(chosen, page.locator(".mw-sample")), done
        if done == 0:
            assert page.evaluate(unmoved) == places
        chosen.evaluate("(card) => card.focus({ preventScroll: true })")
    for up in range(10):
        page.keyboard.press("ArrowUp")
        assert in_view(page.locator(".mw-card:focus"), page.locator(".mw-sample")), up


def decide_at_a_laptops_size(notebook):
    """JupyterLab scrolls, not the window, and clips what would stick."""
    page = notebook.page
    notebook.resize(960, 780)
    page.locator('[data-filter="all"]').click()
    page.locator(".mw-range").get_by_text("of 600").wait_for()
    page.locator(".mw-card").first.click()
    decide_on_ten(page)
    for _ in range(10):
        page.keyboard.press("z")
    decided(page, 0)
    notebook.resize(1400)


def compute_and_cancel(opened):
    """Compute runs beside the kernel: it answers meanwhile, an interrupt harms nothing."""
    page = opened.page
    page.get_by_label("layer", exact=True).select_option("1")
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("button", name="Cancel").wait_for()
    opened.lab.api(f"kernels/{opened.kernel}/interrupt", method="POST")
    assert opened.python("dashboard._progress is not None") is True
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled; what was finished is kept.").wait_for()
    page.get_by_label("layer", exact=True).select_option("last")
    page.locator(".mw-explorer:not(.mw-dimmed)").wait_for()
    agree(opened)


def lose_the_connection(notebook):
    """Without a connection the view moves on; with it again, Python hears of every move."""
    page = notebook.page
    # What Jupyter says of a lost connection, and of requests of its own that went with it.
    notebook.allow(r"127\.0\.0\.1:1/|WebSocket|Canceled future for \w+ message")
    page.evaluate("() => window.mwCut()")
    before = counts(page)
    drag_tau(page, 0.05)
    assert counts(page)["flagged"] > before["flagged"]
    page.evaluate("() => { window.mwOffline = false; }")
    notebook.wait_until_connected()
    page.locator('[data-filter="all"]').click()
    page.locator(".mw-range").get_by_text("of 600").wait_for()
    drag_tau(page, -0.05)
    agree(notebook)


def run_the_cell_again(notebook):
    """The new view takes the old one's place, on the page and in the kernel, and its memory."""
    before = notebook.python(LIVING)
    notebook.page.evaluate(KEEP_MODEL, notebook.python("dashboard.model_id"))
    assert all(notebook.page.evaluate(KEPT))
    for _ in range(2):
        notebook.run_all()
    notebook.page.locator(".mw-card").first.wait_for()
    assert notebook.page.locator(".mw-explorer").count() == 1
    assert notebook.python(LIVING) == before
    notebook.page.wait_for_function(f"() => !({KEPT})().some(Boolean)")


def look_search_and_note(notebook):
    """Use everything that shows a sample or says something of one."""
    inspector = notebook.page.locator(".mw-inspector")
    inspector.locator('[data-filter="all"]').click()
    inspector.get_by_text("wobbling").first.wait_for()
    inspector.get_by_role("button", name="search, order, select").click()
    inspector.get_by_label("search", exact=True).fill("bed 77 ")
    inspector.locator(".mw-range").get_by_text(f"1 of {N} match").wait_for()
    inspector.get_by_label("search", exact=True).fill("")
    inspector.locator(".mw-card").nth(1).wait_for()
    inspector.locator(".mw-card").first.click()
    inspector.locator(".mw-models").wait_for()
    inspector.locator(".mw-fold > summary").click()
    inspector.locator(".mw-near").first.wait_for()
    notebook.page.keyboard.press("k")
    inspector.locator(".mw-made-keep").wait_for()
    inspector.locator(
        ".mw-card:nth-child(2)[aria-selected=true]"
    ).wait_for()  # the next one
    inspector.locator(".mw-card").first.click()
    inspector.get_by_label("note").fill(NOTE)
    inspector.get_by_label("note").press("Tab")
    inspector.get_by_text("Note saved.").wait_for()
    notebook.eventually("dashboard.decisions.note.tolist()", [NOTE])
    shown = notebook.page.content()
    assert "wobbling" in shown
    assert any(name in shown for name in names(N))


def assert_nobody_is_given_away(notebook):
    """What is saved has the front end, and no sample."""
    from nbconvert import HTMLExporter

    saved = notebook.save()
    models = saved.metadata.widgets["application/vnd.jupyter.widget-state+json"][
        "state"
    ]
    assert sum("_esm" in model["state"] for model in models.values()) == 1
    html, _ = HTMLExporter().from_notebook_node(saved)
    assert "widget-view+json" in html
    assert_a_picture_is_seen_offline(notebook.page, html)
    state = notebook.python("__import__('ipywidgets').Widget.get_manager_state()")
    for text in (notebook.path.read_text("utf-8"), html, json.dumps(state)):
        assert [word for word in [*spellings(N), NOTE] if word in text] == []


def assert_a_picture_is_seen_offline(page, html):
    """What would draw the widget is on the internet; the live page hides the picture."""
    assert page.get_by_role("img", name=STILL).count() == 0
    exported = page.context.browser.new_page()
    exported.route("http**", lambda route: route.abort())
    exported.set_content(html, wait_until="domcontentloaded")
    exported.get_by_role("img", name=STILL).wait_for()
    exported.close()


def reload_the_page(notebook):
    """The kernel lives on, and so does the view with what was decided; the file tells nothing."""
    page = notebook.page
    drag_tau(page, 0.1)
    agree(notebook)
    before = counts(page), tau(page)
    look_search_and_note(notebook)
    assert_nobody_is_given_away(notebook)
    notebook.open()
    page.locator(".mw-made-keep").wait_for()
    assert (counts(page), tau(page)) == before
    agree(notebook)


def restart_the_kernel(notebook):
    """The view says by itself that it is left alone, and stays readable, an opened sample too."""
    page = notebook.page
    page.locator(".mw-card").first.click()
    page.locator(".mw-opened .mw-models").wait_for()
    notebook.restart()
    left_alone(page)
    assert page.locator(".mw-inspector").get_by_text(GONE).count() == 0
    page.locator(".mw-card").first.click()
    page.keyboard.press("r")
    page.locator(".mw-inspector").get_by_text(GONE).wait_for()
    assert page.locator(".mw-opened .mw-models").is_visible()


def left_alone(page):
    """One sentence says so, what only a kernel can do is gone, and dots and ROC follow τ."""
    page.locator(".mw-bar").get_by_text(GONE).wait_for()
    assert page.get_by_label("layer", exact=True).is_disabled()
    assert page.locator(".mw-export").is_hidden()
    before = counts(page)
    drag_tau(page, 0.1)
    assert counts(page)["flagged"] > before["flagged"]


@pytest.mark.timeout(600)
def test_jupyterlab(notebook_page):
    notebook = notebook_page([PRIVATE], script=OFFLINE)
    drag_filter_decide_undo(notebook)
    decide_at_a_laptops_size(notebook)
    compute_and_cancel(notebook)
    lose_the_connection(notebook)
    run_the_cell_again(notebook)
    reload_the_page(notebook)
    restart_the_kernel(notebook)


@pytest.fixture
def other_settings(lab):
    """JupyterLab that draws only cells in view."""
    place = "@jupyterlab/notebook-extension/tracker.jupyterlab-settings"
    file = lab.home / "settings" / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"windowingMode": "full"}))
    yield
    file.unlink()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("other_settings")
def test_jupyterlab_with_other_settings(notebook_page):
    """What was taken off the page while it was out of view looks as it did."""
    notebook = notebook_page([DASHBOARD, *[LONG] * 12])
    page = notebook.page
    page.evaluate(SCROLL, 0)
    page.locator(".mw-card").first.wait_for()
    parts = [
        page.locator(part).first for part in (".mw-histogram", ".mw-roc", ".mw-card")
    ]
    settled(page, TOP)
    before = [pixels_of(part) for part in parts]
    page.evaluate(SCROLL, 12)
    page.locator(".mw-dashboard").wait_for(state="hidden")
    page.evaluate(SCROLL, 0)
    page.locator(".mw-dashboard").wait_for()
    settled(page, TOP)
    for part, pixels in zip(parts, before, strict=True):
        assert np.array_equal(pixels_of(part), pixels)


# The second time, with the interpreter's lock: other threads of the kernel would answer.
SLEEP = "import ctypes\nctypes.PyDLL(None).sleep(seconds)\nseconds = 6"
RUN_LAST = """() => {
    const { content } = window.jupyterapp.shell.currentWidget;
    content.activeCellIndex = content.widgets.length - 1;
    window.jupyterapp.commands.execute('notebook:run-cell');
}"""
SHUT_DOWN = (
    "() => { window.jupyterapp.commands.execute('kernelmenu:shutdown'); return null; }"
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_kernel_that_is_busy_is_told_from_one_that_was_shut_down(notebook_page):
    notebook = notebook_page([f"seconds = 0\n{DASHBOARD}", SLEEP])
    page = notebook.page
    page.locator(".mw-card").first.wait_for()
    page.evaluate(RUN_LAST)
    page.wait_for_timeout(500)  # it cannot say that it is busy
    page.locator('[data-filter="all"]').click()
    page.locator(".mw-inspector").get_by_text(WAITING).wait_for()
    assert page.get_by_text(GONE).count() == 0
    page.locator(".mw-range").get_by_text("of 600").wait_for()
    page.evaluate(SHUT_DOWN)
    left_alone(page)
    assert page.get_by_text(WAITING).count() == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_notebook_7(notebook_page):
    notebook = notebook_page([PRIVATE], app="notebook")
    drag_filter_decide_undo(notebook)
    reload_the_page(notebook)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_voila(voila_page):
    """It alone has an address that a reader can send: another kernel shows the same view."""
    voila = voila_page([DASHBOARD], fragment="top")
    page = voila.page
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute(
        "content"
    )
    assert policy.startswith("default-src 'self' ")
    assert not [
        name for name in ("mermaid.esm", "cdnjs", "jsdelivr") if name in page.content()
    ]
    drag_filter_decide_undo(voila)
    page.locator(".mw-card").nth(1).click()
    chosen = int(page.locator(".mw-card").nth(1).get_attribute("data-position"))
    voila.eventually("dashboard.selected", chosen)
    state = voila.python("dashboard.state")
    page.wait_for_function(
        "(n) => location.hash.includes(`selected%22%3A${n}`)", arg=state["selected"]
    )
    page.locator(".mw-sharing summary").click()
    page.get_by_role("button", name="Copy a link").click()
    copied = page.get_by_label("to copy").input_value()
    assert voila.lab.token not in copied
    address = copied.partition("#")[2]
    assert address.startswith("top&memowidgets=")
    voila.open("dark", address)
    page.locator(".mw-card").first.wait_for()
    voila.eventually("dashboard.state", state)
    voila.eventually("dashboard.tau", lambda: tau(page))
    page.locator(".mw-opened .mw-models").wait_for()
    save(page, "everywhere-voila")


COLOURS = "() => [...document.querySelectorAll('.mw *')].map((e) => getComputedStyle(e).color)"


def judged(notebook):
    """What is serious or critical, in both themes."""
    found = []
    for theme in ("light", "dark"):
        notebook.theme(theme)
        notebook.page.mouse.move(0, 0)
        settled(notebook.page, COLOURS)  # they fade from one to the other
        found += [
            f"{theme}: {problem}" for problem in serious(notebook.page, ".mw-dashboard")
        ]
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_axe_finds_nothing_serious(notebook_page):
    notebook = notebook_page([DASHBOARD])
    page = notebook.page
    page.locator(".mw-card").first.wait_for()
    problems = judged(notebook)
    page.get_by_role("button", name="about these numbers").click()
    problems += [f"menus: {problem}" for problem in judged(notebook)]
    page.get_by_role("button", name="about these numbers").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.locator(".mw-parts td").first.wait_for()
    problems += [f"compare: {problem}" for problem in judged(notebook)]
    page.get_by_role("button", name="close").click()
    page.locator(".mw-card").first.click()
    page.keyboard.press("r")
    page.keyboard.press("Enter")
    page.locator(".mw-models").wait_for()
    problems += [f"open: {problem}" for problem in judged(notebook)]
    page.keyboard.press("Escape")
    page.get_by_label("layer", exact=True).select_option("1")
    page.get_by_role("button", name="Compute", exact=True).click()
    page.get_by_role("progressbar", name="progress").wait_for()
    problems += [f"busy: {problem}" for problem in judged(notebook)]
    assert not problems, "\n".join(problems)
    page.evaluate(
        "() => document.querySelector('[aria-label=layer]').removeAttribute('aria-label')"
    )
    # it would have been found
    assert "select-name" in str(serious(page, ".mw-dashboard"))
