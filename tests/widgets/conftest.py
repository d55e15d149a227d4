"""Dashboards of made-up sources; widgets are closed after their test."""

from __future__ import annotations

import pytest

from memowidgets.widgets import Dashboard
from tests.browser.bare import close_widgets
from tests.widgets.fake_source import FakeSource


@pytest.fixture(autouse=True)
def _closed():
    yield
    close_widgets()


@pytest.fixture
def opened():
    """Opens a dashboard; gives it with its source."""

    def opening(kind=FakeSource, **options):
        source = kind(**{"n": 200, "seconds": 0.1, **options})
        return Dashboard(source), source

    return opening
