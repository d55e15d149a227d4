"""Measurement of times and memory, and the rows of the table."""

from __future__ import annotations

import os
import platform
import statistics
import time
import tracemalloc
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "Namespace",
    "Row",
    "interleaved",
    "left_out",
    "machine",
    "peak_mb",
    "rms",
    "table",
    "trees",
]


@dataclass(frozen=True)
class Row:
    """Row of the table: the work, our result, the peer or limit, the ratio, and the goal."""

    work: str
    ours: str
    other: str = ""
    ratio: str = ""
    goal: str = ""


def trees(arguments: Namespace) -> list[tuple[str, str]]:
    """Return code that imports the package from each tree to be measured, and how rows name it."""
    found = [("", "")]
    if arguments.old is not None:
        path = str(arguments.old.resolve())
        found.insert(0, (f"import sys; sys.path.insert(0, {path!r})\n", ", old"))
    return found


def left_out(work: str, why: str) -> Row:
    """Return a row that says what was not measured, and why."""
    return Row(work, "left out", why)


def interleaved(
    *functions: Callable[[], Any],
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Return the median seconds of each function, with their runs interleaved."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats + 1):
        for function, kept in zip(functions, times, strict=True):
            start = clock()
            function()
            if turn:  # the first turn warms up
                kept.append(clock() - start)
    return [statistics.median(kept) for kept in times]


def peak_mb(function: Callable[[], Any]) -> float:
    """Return the peak memory of NumPy and Python while the function runs, in MB."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return (peak - before) / 1e6


def rms(difference: Any) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(difference))))


def machine() -> str:
    """Return the machine's size and the relevant versions."""
    cores = (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count()
    )
    names = [line for line in _cpu_info() if line.startswith("model name")]
    cpu = names[0].split(":")[1].strip() if names else platform.processor()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    busy = f"load {os.getloadavg()[0]:.1f}"
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    return f"{cores} cores of {cpu}, {memory:.0f} GB, {versions}, {busy} at the end"


def table(rows: list[Row]) -> str:
    """Return the rows as Markdown."""
    lines = ["| Work | Ours | Peer or limit | Ratio | Goal |", "|---|---|---|---|---|"]
    lines += [
        f"| {r.work} | {r.ours} | {r.other} | {r.ratio} | {r.goal} |" for r in rows
    ]
    return "\n".join(lines)


def _cpu_info() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
