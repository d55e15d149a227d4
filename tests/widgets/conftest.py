"""Dashboards of made-up sources; widgets are closed after their test."""

from __future__ import annotations

import pytest
from ipywidgets.widgets.widget import _instances

from memowidgets.widgets import Dashboard
from tests.widgets.fake_source import FakeSource


@pytest.fixture(autouse=True)
def _closed():
    yield
    for widget in list(_instances.values()):
        if type(widget).__module__.startswith("memowidgets"):
            widget.close()


@pytest.fixture
def opened():
    """Opens a dashboard; gives it with its source."""

    def opening(kind=FakeSource, **options):
        source = kind(**{"n": 200, "seconds": 0.1, **options})
        return Dashboard(source), source

    return opening
