"""How often a run with 100 shadow models is looked up on disk, which a network disk makes slow.

Counted are stat, lstat, listing a folder, opening a file, and all that changes a folder: by a
patched `os` and Python's own event of an opened file. Each counts once, whatever its file.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING
from unittest import mock

import safetensors

from benchmarks.measure import Namespace, Row, trees

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SHADOWS = 100
GOALS = {
    "audit.members": 2,
    "a score that is kept, read from its file": 10,
    "the same again": 10,
    "an opened sample": 10,
    "what is new, for the dashboard": 2,
}


def counted(work: Callable[[], object]) -> int:
    """Return how often files and folders are looked up while something is asked."""
    looks, here = 0, threading.get_ident()  # a dashboard looks from a thread of its own
    changes = "mkdir", "rmdir", "unlink", "remove", "rename", "replace"

    def counting(function: Callable[..., object]) -> Callable[..., object]:
        def count(*given: object, **named: object) -> object:
            nonlocal looks
            looks += threading.get_ident() == here
            return function(*given, **named)

        return count

    def hear(event: str, found: tuple[object, ...]) -> None:
        nonlocal looks
        # a number is of a file that was opened before
        if event == "open" and not isinstance(found[0], int):
            looks += threading.get_ident() == here

    with contextlib.ExitStack() as stack:
        for name in ("stat", "lstat", "listdir", "scandir", *changes):
            found = counting(getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, found))
        # it opens the file from Rust, which Python does not see
        found = counting(safetensors.safe_open)
        stack.enter_context(mock.patch.object(safetensors, "safe_open", found))
        sys.addaudithook(hear)
        before = looks
        work()
        return looks - before


# It runs in an older checkout too, so it imports nothing from here.
_PROGRAM = f"""
import contextlib, json, os, sys, tempfile, threading, warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import safetensors
import memowidgets as mw

warnings.simplefilter("ignore")
{inspect.getsource(counted)}
data = mw.data.load_digits(canaries=0.05).take(range(300))
how = dict(training=mw.TrainingConfig(epochs=2, checkpoint_every=1), device="cpu")
with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as one:
    def opened():
        return mw.Audit(mw.models.ConvNet(2), data, folder + "/run", **how)
    audit = opened()
    audit.train()
    for checkpoint in (1, 2):
        for layer in audit.layers:
            audit.score("psmi", layer, checkpoint)
    audit.run_shadows(int(sys.argv[1]), one)
    audit.log_lira()
    audit = opened()
    found = {{}}
    found["the first look, at every file"] = counted(lambda: audit.evidence)
    found["audit.members"] = counted(lambda: audit.members)
    score = lambda: audit.score("psmi")
    found["a score that is kept, read from its file"] = counted(score)
    found["the same again"] = counted(score)
    dashboard = audit.dashboard()
    dashboard.wait(60)
    source, place = dashboard._source, ("psmi", audit.layers[-1], "epoch-2")
    found["a view of the dashboard"] = counted(lambda: source.view(*place))
    detail = lambda position: (lambda: dashboard._detail_of(position))
    found["the first opened sample, which reads each kept score"] = counted(detail(1))
    found["an opened sample"] = counted(detail(2))
    found["what is new, for the dashboard"] = counted(source.revision)
    dashboard.close()
print(json.dumps(found))
"""


def rows(arguments: Namespace) -> list[Row]:
    found = [_counts(code) for code, _ in trees(arguments)]
    now, before = found[-1], found[0] if len(found) > 1 else {}
    return [_row(work, n, before) for work, n in now.items()]


def _row(work: str, n: int, before: Mapping[str, int]) -> Row:
    goal = f"≤ {GOALS[work]}" if work in GOALS else ""
    if work not in before:
        return Row(f"{work}, {SHADOWS} shadow models", f"{n} look-ups", goal=goal)
    old = before[work]
    return Row(
        f"{work}, {SHADOWS} shadow models",
        f"{n} look-ups",
        f"{old} in the other checkout",
        f"{n / old:.3f}×" if old else "",
        goal,
    )


def _counts(code: str) -> dict[str, int]:
    """Return the look-ups of each question, in a process of its own."""
    program = [sys.executable, "-c", code + _PROGRAM, str(SHADOWS)]
    answer = subprocess.run(program, check=True, capture_output=True, text=True)
    counts: dict[str, int] = json.loads(answer.stdout.splitlines()[-1])
    return counts
