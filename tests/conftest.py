"""Fixtures that any test may use: a browser, a JupyterLab, Node; and where shadows are trained."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from memowidgets.training.engine import ShadowSet
from tests.browser.bare import bare_server, widget_page
from tests.browser.harness import chromium, lab, notebook_page, voila_page
from tests.javascript import node

__all__ = [
    "bare_server",
    "chromium",
    "lab",
    "node",
    "notebook_page",
    "voila_page",
    "widget_page",
]


@pytest.fixture(scope="session", autouse=True)
def _one_thread_trains_shadows() -> Iterator[list[bool]]:
    """Train shadow models in a thread: a worker process takes seconds to start, the training less.

    Only where a test names neither processes nor an executor. The marker `worker_processes` of a
    test or module keeps the default, local processes.
    """
    default = [False]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShadowSet, "fill", _filling_in_a_thread(ShadowSet.fill, default))
        yield default


def _filling_in_a_thread(fill, default):
    def fill_in_a_thread(self, n, job, processes, progress, executor=None, indices=None):
        if default[0] or processes is not None or executor is not None:
            return fill(self, n, job, processes, progress, executor, indices)
        with ThreadPoolExecutor(1) as thread:
            return fill(self, n, job, processes, progress, thread, indices)

    return fill_in_a_thread


@pytest.fixture(scope="module", autouse=True)
def _workers_of_a_module(request, _one_thread_trains_shadows) -> Iterator[None]:
    """Whether a whole module, its fixtures too, wants worker processes."""
    marks = [mark.name for mark in request.node.own_markers]
    _one_thread_trains_shadows[0] = "worker_processes" in marks
    yield
    _one_thread_trains_shadows[0] = False


@pytest.fixture(autouse=True)
def _workers_of_a_test(request, _one_thread_trains_shadows, _workers_of_a_module) -> Iterator[None]:
    before = _one_thread_trains_shadows[0]
    _one_thread_trains_shadows[0] = request.node.get_closest_marker("worker_processes") is not None
    yield
    _one_thread_trains_shadows[0] = before
