"""Waiting times of a user: import, quickstart, and size of the front ends."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from benchmarks.measure import Namespace, Row

_NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "01_quickstart.ipynb"
_HEAVY = ("torch", "transformers", "peft", "altair")


def rows(_: Namespace) -> list[Row]:
    return [_import_time(), *_quickstart(), *_front_ends()]


def _import_time() -> Row:
    loaded = (
        f"import sys, memowidgets; print([m for m in {_HEAVY!r} if m in sys.modules])"
    )
    times, bare, heavy = [], [], ""
    for _ in range(5):
        start = time.perf_counter()
        heavy = subprocess.run(
            [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
        ).stdout.strip()
        middle = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        times.append(middle - start)
        bare.append(time.perf_counter() - middle)
    seconds, python = statistics.median(times), statistics.median(bare)
    work = f"`import memowidgets` in a new process (of torch and the like it loads: {heavy})"
    return Row(
        work, f"{seconds:.2f} s", f"{python:.2f} s bare Python", "", "< 1 s, none"
    )


def _quickstart() -> list[Row]:
    """Measure the notebook from Run All to the dashboard, with its workers, without a browser."""
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    done, peak, times = threading.Event(), [0.0], [time.perf_counter()]
    watcher = threading.Thread(target=_watch_memory, args=(done, peak))
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=600, resources={"metadata": {"path": folder}}
        )
        client.on_cell_executed = lambda **_cell: times.append(time.perf_counter())
        watcher.start()
        client.execute()
    done.set()
    watcher.join()
    seconds = times[-1] - times[0]
    work = "quickstart with 32 shadow models, from Run All to the dashboard"
    return [
        Row(work, f"{seconds:.0f} s", "25 s", f"{seconds / 25:.2f}×", "≤ 25 s"),
        Row(
            "its memory, kernel and workers together",
            f"{peak[0]:.2f} GB",
            "2 GB",
            "",
            "< 2 GB",
        ),
    ]


def _watch_memory(done: threading.Event, peak: list[float]) -> None:
    """Watch the peak memory of this process's children in GB, counting shared pages once."""
    while not done.wait(1):
        total = 0
        for child in psutil.Process().children(recursive=True):
            try:
                total += child.memory_full_info().pss
            except psutil.Error:
                continue  # the process has ended
        peak[0] = max(peak[0], total / 1e9)


def _front_ends() -> list[Row]:
    package = find_spec("memowidgets")
    folders = package.submodule_search_locations if package else None
    static = Path((folders or ["."])[0]) / "widgets" / "static"
    files = sorted(static.glob("*.js")) + sorted(static.glob("*.css"))
    if not files:
        return []
    largest = max(files, key=lambda file: file.stat().st_size)
    size = largest.stat().st_size / 1000
    work = f"largest of {len(files)} front-end files ({largest.name})"
    return [Row(work, f"{size:.1f} KB", "50 KB", f"{size / 50:.2f}×", "< 50 KB each")]
