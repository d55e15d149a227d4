"""What all tests share, the doctests of the package too: threads, order and the rules of CI."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

# On a busy machine a slow example is no failure, and a failure must come again.
settings.register_profile("same everywhere", deadline=None, derandomize=True)
settings.load_profile("same everywhere")

# In CI only a skip for one of these reasons is a skip; any other is a failure.
ALLOWED_SKIPS = ("no CUDA device", "no MPS device", "no shared data", "no git checkout")

os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")

# Before torch and NumPy are loaded: each core has a worker, and what a worker starts inherits it.
for library in ("OMP", "MKL", "OPENBLAS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
# shadow models: two processes, a thread each
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "2")

# To import Lightning takes five seconds of every worker; its tests look for examples in here.
collect_ignore = ["memowidgets/training/lightning_callback.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """What is left out unless asked for."""
    parser.addoption(
        "--slow",
        action="store_true",
        help="run what takes long and seldom finds a fault, too",
    )
    parser.addoption(
        "--matrix",
        action="store_true",
        help="run every row of the matrices, which takes minutes and other versions",
    )
    parser.addoption(
        "--screenshots",
        action="store_true",
        help="take browser tests' pictures, in $MEMOWIDGETS_SCREENSHOTS or .screenshots",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell the browser tests where pictures go."""
    if config.getoption("--screenshots"):
        os.environ.setdefault(
            "MEMOWIDGETS_SCREENSHOTS", str(config.rootpath / ".screenshots")
        )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from going through all modules and tests, now and in each test.

    It would find nothing there, and a single collection takes a quarter of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _needs_browser(item: pytest.Item) -> bool:
    return "chromium" in getattr(item, "fixturenames", ())


def _order(item: pytest.Item) -> tuple[bool, bool, bool]:
    needs_lab = "lab" in getattr(item, "fixturenames", ())
    return _needs_browser(item), not needs_lab, item.get_closest_marker("slow") is None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what is not asked for, begin with slow tests, and put those with a browser last.

    Workers steal tests from the end of the longest queue. A page of its own is quick to open in
    another worker and a JupyterLab is not, so tests with a JupyterLab come before the other ones.
    """
    for marker in ("slow", "matrix"):
        if not config.getoption(f"--{marker}"):
            left_out = [item for item in items if item.get_closest_marker(marker)]
            items[:] = [item for item in items if item not in left_out]
            config.hook.pytest_deselected(items=left_out)
    items.sort(key=_order)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hide the event loop of Playwright, which keeps running, from tests without a browser.

    Such a test may call `asyncio.run`, which refuses to start where another loop is running.
    """
    loop = asyncio._get_running_loop()
    if loop is None or _needs_browser(item):
        return (yield)
    asyncio._set_running_loop(None)
    try:
        return (yield)
    finally:
        asyncio._set_running_loop(None if loop.is_closed() else loop)


def _open_widgets() -> set[str]:
    module = sys.modules.get("ipywidgets.widgets.widget")
    if module is None:
        return set()
    ours = [
        w
        for w in module._instances.values()
        if type(w).__module__.startswith("memowidgets")
    ]
    return {f"{type(widget).__name__} {widget.model_id}" for widget in ours}


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """A test, or a docstring's example, closes the widgets that it opened."""
    before = _open_widgets()
    yield
    assert _open_widgets() <= before, "widgets were left open"


def _is_silent(report: pytest.CollectReport | pytest.TestReport) -> bool:
    if (
        not os.environ.get("CI")
        or report.outcome != "skipped"
        or hasattr(report, "wasxfail")
    ):
        return False
    return not any(reason in str(report.longrepr) for reason in ALLOWED_SKIPS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """A skipped test fails in CI, where everything must be there."""
    report = yield
    if _is_silent(report):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    """A module that skips itself fails in CI as well."""
    report = yield
    if _is_silent(report):
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {report.longrepr}"
    return report
