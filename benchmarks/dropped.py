"""Memory of dashboards that are dropped without `close`, each of which ipywidgets keeps."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measure import Namespace, Row, trees

WARM_UP, DROPPED = 5, 100
MOST_MB = 1
NAME = "cifar10-wrn"

# It runs in an older checkout too, so it imports nothing from here.
_PROGRAM = f"""
import gc
import psutil
import memowidgets as mw

audit = mw.open_recorded({NAME!r})

def show(times):
    for _ in range(times):
        dashboard = audit.dashboard()
        dashboard.compute()
        dashboard.wait()
    del dashboard
    gc.collect()
    return psutil.Process().memory_full_info().uss

before = show({WARM_UP})
print((show({DROPPED}) - before) / {DROPPED} / 1e6)
"""


def rows(arguments: Namespace) -> list[Row]:
    found = [_megabytes(code) for code, _ in trees(arguments)]
    work = f"each of {DROPPED} dashboards of {NAME} that are dropped without close()"
    other = f"{found[0]:.2f} MB in the other checkout" if len(found) > 1 else ""
    ratio = f"{found[-1] / found[0]:.2f}×" if other else ""
    return [Row(work, f"{found[-1]:.2f} MB", other, ratio, f"≤ {MOST_MB} MB")]


def _megabytes(code: str) -> float:
    """Return the memory that each one takes, in a process of its own."""
    program = [sys.executable, "-c", code + _PROGRAM]
    answer = subprocess.run(program, check=True, capture_output=True, text=True)
    return float(answer.stdout)
