"""Fixtures that any test may use: a browser, a JupyterLab, Node; what all tests have around them.

No test asks another machine for anything. Shadow models are trained in a worker process.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest

from memowidgets.registry import Score, registered
from memowidgets.training.shadows import ShadowSet
from tests.browser.bare import bare_server, widget_page
from tests.browser.harness import chromium, lab, notebook_page, voila_page
from tests.javascript import ask, node
from tests.programs import FORKS

__all__ = [
    "ask",
    "bare_server",
    "chromium",
    "lab",
    "node",
    "notebook_page",
    "voila_page",
    "widget_page",
]


OWN_PROCESSES = [False]  # whether the test that runs wants them


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before fixtures, those of its module too."""
    OWN_PROCESSES[0] = item.get_closest_marker("own_processes") is not None


@pytest.fixture(scope="session")
def worker() -> Iterator[Executor]:
    """A worker process for all tests of this one: it takes seconds to start, a training less."""
    with ProcessPoolExecutor(1, mp_context=FORKS) as pool:
        yield pool


@pytest.fixture(scope="session", autouse=True)
def _one_worker_trains_shadows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Train shadow models in that process where a test names neither processes nor an executor.

    The marker `own_processes` of a test or module keeps the default of users, local processes that
    end with the call. A test that needs a thread names it.
    """
    fill = ShadowSet.fill

    def fill_by_default(self, n, job, processes, progress, executor=None, indices=None):
        if not OWN_PROCESSES[0] and processes is None and executor is None:
            executor = request.getfixturevalue("worker")
        return fill(self, n, job, processes, progress, executor, indices)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShadowSet, "fill", fill_by_default)
        yield


ASKED: list[str] = []  # what a test has asked for elsewhere


def _is_here(host: object) -> bool:
    try:
        return host in HERE or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


HERE = (None, "", "localhost", socket.gethostname())


def _guard(event: str, args: tuple) -> None:
    """Refuse to look up a name or to connect, of another machine."""
    is_connection = event == "socket.connect" and isinstance(args[1], tuple)
    if is_connection or event == "socket.getaddrinfo":
        host = args[1][0] if is_connection else args[0]
        if not _is_here(host):
            ASKED.append(host)
            raise OSError(f"{host} is elsewhere")


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def _no_request() -> Iterator[None]:
    """A request is a failure also where a library goes on without an answer."""
    yield
    asked, ASKED[:] = [*ASKED], []
    assert not asked, "a request left this machine"


@pytest.fixture(autouse=True)
def own_scores(monkeypatch: pytest.MonkeyPatch) -> dict[str, Score]:
    """Scores that the test adds: they are gone after it, and so are those of tests before."""
    added: dict[str, Score] = {}
    monkeypatch.setattr(registered.REGISTRY, "_of_session", added)
    return added
