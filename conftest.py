"""What all tests share, the doctests of the package too: their order, and no silent skips in CI."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

# In CI only a skip for one of these reasons is a skip; any other is a failure.
ALLOWED_SKIPS = ("no CUDA device", "no MPS device", "no shared data", "no git checkout")

os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Browser tests come last: Playwright keeps an event loop running that others trip over."""
    items.sort(key=lambda item: "chromium" in getattr(item, "fixturenames", ()))


def _open_widgets() -> set[str]:
    module = sys.modules.get("ipywidgets.widgets.widget")
    if module is None:
        return set()
    ours = [w for w in module._instances.values() if type(w).__module__.startswith("memowidgets")]
    return {f"{type(widget).__name__} {widget.model_id}" for widget in ours}


@pytest.fixture(autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """A test, or a docstring's example, closes the widgets that it opened."""
    before = _open_widgets()
    yield
    assert _open_widgets() <= before, "widgets were left open"


def _is_silent(report: pytest.CollectReport | pytest.TestReport) -> bool:
    if not os.environ.get("CI") or report.outcome != "skipped" or hasattr(report, "wasxfail"):
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
