"""In what order tests run, and which worker takes which of them.

A worker takes a file whole, so that its fixtures are made once, but for the files of `APART`. Tests
with a browser are apart from the others of their file and come last, because Playwright keeps an
event loop running that others trip over, and one worker has them all while there is something else
to do, because browsers beside each other starve.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.workermanage import WorkerController

__all__ = ["Scheduling", "in_order", "needs_browser"]

ROOT = Path(__file__).parents[1]
FUNCTION = re.compile(r"^def (\w+)\(([^)]*)\)", re.MULTILINE)
FIXTURES = {"chromium", "notebook_page", "voila_page", "widget_page"}  # those of tests/conftest.py

# About how long a unit takes on a quiet machine, where that is long. What takes longest goes first,
# so that at the end no worker is left alone with it.
SECONDS = {
    "training/test_executors": 180,  # with all of FORKING
    "accelerator/test_hardware": 18,
    "training/test_cluster": 60,
    "house/test_docs": 80,
    "memorization/test_posterior": 18,
    "models/test_bases": 15,
    "evaluation/test_intervals": 70,
    "training/test_probe": 65,
    "training/test_trainer_classifiers": 14,
    "hostile/test_damage": 35,
    "house/test_package": 50,
    "house/test_command_line": 40,
    "notebooks/test_notebooks[03_cifar10]": 40,
    "hostile/test_no_request": 35,
    "training/test_trainer_callback": 60,
    "notebooks/test_notebooks[07_text_and_tables]": 32,
    "evaluation/test_groups": 30,
    "house/test_readme": 33,
    "notebooks/test_notebooks[02_llm_mcq]": 30,
    "notebooks/test_notebooks[04_find_and_fix]": 30,
    "charts/test_figures": 28,
    "metrics/test_psmi": 45,
    "audit/test_audit": 30,
    "audit/test_opening_recorded": 20,
    "house/test_commands": 20,
    "models/test_torch_classifier": 20,
    "report/test_audits": 20,
    "notebooks/test_notebooks[09_out_of_fold]": 18,
    "notebooks/test_notebooks[06_choosing_tau]": 16,
    "notebooks/test_notebooks[08_which_score]": 14,
}
SECONDS_WITH_BROWSER = {
    "house/test_live_pages": 90,
    "browser/test_everywhere": 60,
    "house/test_binder": 45,
    "house/test_command_line": 40,
    "browser/test_kernels": 38,
    "browser/test_quickstart": 35,
    "teaching/test_pages": 35,
    "charts/test_in_a_browser": 30,
    "report/test_page": 30,
    "widgets/test_browser": 30,
    "widgets/test_explorer_browser": 30,
    "browser/test_accessible": 25,
    "browser/test_make_lab": 25,
    "widgets/test_inspector_browser": 25,
    "browser/test_widgets_in_lab": 22,
    "browser/test_marimo": 20,
    "browser/test_tasks": 20,
    "teaching/test_browser": 30,
    "browser/test_harness": 14,
    "browser/test_private": 12,
    "house/test_contributing": 12,
    "house/test_docs": 8,
}
OTHERS = 0.3  # a test of any other unit

# Each test of these is a unit of its own: they share nothing.
APART = ("notebooks/test_notebooks",)

# Their processes fork from one that has loaded what all need, in seconds: one worker has these
# files, and it is the first that says what is loaded.
FORKING = ("training/test_executors", "audit/test_run_killed", "hostile/test_workers")


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order in which one worker would run them.

    Tests with a browser that want the same notebook follow each other: it is open already.
    """
    units: dict[Unit, list[pytest.Item]] = {}
    for item in sorted(items, key=lambda item: _name(item.nodeid) in FORKING[1:]):
        units.setdefault(_unit(item.nodeid), []).append(item)
    for unit, tests in units.items():
        if unit.browser:
            tests.sort(key=lambda item: ",".join(sorted(item.fixturenames)))  # type: ignore[attr-defined]
    order = sorted(units, key=lambda unit: (unit.browser, -unit.seconds(units[unit])))
    return [item for unit in order for item in units[unit]]


class Unit(NamedTuple):
    """What a worker takes whole: the tests of a file that need a browser, or its other tests."""

    name: str
    browser: bool

    def seconds(self, tests: Collection[object]) -> float:
        """Return about how long its tests take."""
        known = SECONDS_WITH_BROWSER if self.browser else SECONDS
        return known.get(self.name, OTHERS * len(tests))


def _unit(test: str) -> Unit:
    name = _name(test)
    if name in APART:
        name += "[" + test.partition("[")[2]
    return Unit(FORKING[0] if name in FORKING else name, needs_browser(test))


def _name(test: str) -> str:
    return test.partition("::")[0].removeprefix("tests/").removesuffix(".py")


@cache
def needs_browser(test: str) -> bool:
    """Return whether a test of this name gets a browser; `_functions` says how that is known."""
    file, _, function = test.partition("[")[0].partition("::")
    return file.startswith("tests/") and function in _functions(file)


@cache
def _functions(file: str) -> set[str]:
    """Return the names of a file's functions that get a browser, some from each other.

    The process that hands tests to workers knows their names alone.
    """
    takes = FUNCTION.findall((ROOT / file).read_text("utf-8"))
    found = set(FIXTURES)
    while more := {name for name, given in takes if found & {*re.findall(r"\w+", given)}} - found:
        found |= more
    return found


class Scheduling(LoadFileScheduling):
    """Hands units to workers.

    One worker alone takes those with a browser, as soon as all others take the other workers no
    longer than these take it; what is left of them at the end is for all workers.
    """

    def _split_scope(self, nodeid: str) -> Unit:  # type: ignore[override]
        return _unit(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Give a worker its next unit when a single test is left to it.

        xdist does so when two are left; then a file may wait for a minute behind them. A worker
        begins a test when it knows the next one, so it can't have fewer.
        """
        if node.shutting_down or self._pending_of(self.assigned_work[node]) > 1:
            return
        unit = self._next_for(node)
        if unit is None:
            node.shutdown()
            return
        self.workqueue.move_to_end(unit, last=False)
        self._assign_work_unit(node)

    def _next_for(self, node: WorkerController) -> Unit | None:
        """Return the unit that a worker takes next, None if there is none for it."""
        browser = [unit for unit in self.workqueue if unit.browser]
        others = [unit for unit in self.workqueue if not unit.browser]
        browsing = [
            one for one, taken in self.assigned_work.items() if any(u.browser for u in taken)
        ]
        if node in browsing:
            return next(iter(browser), None)
        workers = max(len(self.assigned_work) - 1, 1)
        if not browsing and self._takes(others) / workers <= self._takes(browser):
            return next(iter(browser or others), None)
        return next(iter(others or browser), None)

    def _takes(self, units: Iterable[Unit]) -> float:
        return sum(unit.seconds(self.workqueue[unit]) for unit in units)
