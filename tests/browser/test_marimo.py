"""The dashboard in marimo: one widget under `mo.ui.anywidget`, in both themes."""

from __future__ import annotations

import os
import sys

import pytest

from tests.browser.harness import (
    WatchedPage,
    fail_on,
    free_port,
    pixels_of,
    serving,
    window,
)
from tests.browser.test_everywhere import counts, drag_tau, tau

APP = """
import marimo

app = marimo.App()


@app.cell
def _():
    import json
    import marimo as mo
    from pathlib import Path
    from memowidgets.widgets import Dashboard, dashboard as looking
    from tests.widgets.test_timeline import Training

    class Run(Training):
        def revision(self):  # another process has trained on
            self.reached = 3 if Path("trained").exists() else 2
            return self.reached

    looking.SECONDS_BETWEEN_LOOKS = 0.2
    dashboard = Dashboard(Run(seconds=6))
    view = mo.ui.anywidget(dashboard)
    view
    return dashboard, json, mo, view


@app.cell
def _(dashboard, json, mo, view):
    view.value  # runs again whenever the page changes a trait
    known = {"flagged": dashboard.counts["flagged"], "tau": dashboard.tau_committed,
             "filter": dashboard.state["filter"], "decided": len(dashboard.decisions)}
    mo.Html(f"<pre id='python'>{json.dumps(known)}</pre>")
    return


@app.cell
def _(mo):
    from memowidgets.teaching import PSMIPlayground
    mo.ui.anywidget(PSMIPlayground())
    return
"""


@pytest.fixture
def marimo_page(chromium, tmp_path):
    """Open the app; fail on any error of the page and on any request that leaves the machine."""
    pytest.importorskip("marimo", reason="no marimo: pip install marimo")
    settings = tmp_path / "config" / "marimo" / "marimo.toml"
    settings.parent.mkdir(parents=True)
    (tmp_path / "app.py").write_text(APP)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    command = [
        sys.executable,
        "-m",
        "marimo",
        "-y",
        "run",
        tmp_path / "app.py",
        *options,
    ]
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    env["MARIMO_SKIP_UPDATE_CHECK"] = "1"
    with serving(command, f"{address}/health", tmp_path / "log", cwd=tmp_path, env=env):
        shown = WatchedPage(window(chromium, 1100, 1000), None, tmp_path)
        shown.watch()

        def opening(theme):
            settings.write_text(f'[display]\ntheme = "{theme}"\n')
            shown.page.goto(address)
            shown.page.locator(".mw-card").first.wait_for()
            return shown.page

        yield opening
        shown.page.context.close()
    fail_on(shown.unexpected())


KNOWN = """(wanted) => {
    const known = JSON.parse(document.querySelector('#python').innerText);
    return Object.keys(wanted).every((name) => known[name] === wanted[name]);
}"""


def python_knows(page, **wanted):
    """Wait until the second cell shows that Python has heard of it."""
    page.wait_for_function(KNOWN, arg=wanted)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_dashboard_works_in_marimo_and_is_dark_where_marimo_is(
    marimo_page, tmp_path
):
    page = marimo_page("dark")
    page.locator(".mw-play-psmi").wait_for()  # another widget, after a cold boot
    assert pixels_of(page.locator(".mw-histogram")).mean() < 110
    page = marimo_page("light")
    assert pixels_of(page.locator(".mw-histogram")).mean() > 145
    before = counts(page)
    drag_tau(page, 0.1)
    after = counts(page)
    assert after["flagged"] > before["flagged"]
    after_tau = tau(page)
    python_knows(page, flagged=after["flagged"], tau=after_tau)

    ticks = page.locator(".mw-tick")
    assert ticks.count() == 2
    (tmp_path / "trained").touch()
    ticks.nth(2).wait_for()  # it grows, and τ stays
    assert tau(page) == after_tau
    slider = page.get_by_role("slider", name="checkpoint")
    assert slider.get_attribute("aria-valuenow") == "2"

    page.locator('[data-filter="found"]').click()
    page.locator(".mw-range").get_by_text(f"of {after['found']}").wait_for()
    python_knows(page, filter="found")
    page.locator(".mw-card").first.click()
    page.keyboard.press("r")
    page.get_by_text("is to be removed.").wait_for()
    page.locator('[data-filter="all"]').click()
    python_knows(page, decided=1)
