"""What a user waits for: importing, and the size of the front ends."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from benchmarks.measure import Namespace, Row

_HEAVY = ("torch", "transformers", "peft", "altair")


def rows(_: Namespace) -> list[Row]:
    return [_import_time(), *_front_ends()]


def _import_time() -> Row:
    loaded = f"import sys, memowidgets; print([m for m in {_HEAVY!r} if m in sys.modules])"
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
    return Row(work, f"{seconds:.2f} s", f"{python:.2f} s bare Python", "", "< 1 s, none")


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
