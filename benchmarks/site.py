"""The site: time to build it, of each page that moves its weight and time, and the demo's time."""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Namespace, Row
from scripts.live import PLAYGROUNDS
from tests.browser.harness import running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
PAGES = (
    "index",
    *(
        f"live/{name}"
        for name in ("digits", "mmlu", "banking77", "cifar10", *PLAYGROUNDS)
    ),
)
OPENINGS = 5
READY = "() => performance.getEntriesByName('live-ready')[0].startTime / 1000"


def rows(_arguments: Namespace) -> list[Row]:
    """Build the site from nothing, and open each page that moves from disk."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "site"
        code = "import sys, scripts.docs as d; sys.exit(d.build(d.Path(sys.argv[1])))"
        started, before = time.perf_counter(), _processor_seconds()
        subprocess.run([sys.executable, "-c", code, str(place)], cwd=ROOT, check=True)
        built, used = time.perf_counter() - started, _processor_seconds() - before
        shutil.rmtree(place.with_name("site-trees"))
        found = [
            Row("site: built from nothing", f"{built:.0f} s", goal="≤ 60 s"),
            Row("site: built from nothing, processor time", f"{used:.0f} s"),
        ]
        with running_chromium() as chromium:
            found += _demo(chromium, Path(folder) / "demo")
            for name in PAGES:
                weight, ready, used = _opened(chromium, place / f"{name}.html")
                what = f"site: {name}.html, with what it loads"
                found.append(Row(what, f"{weight / 1e6:.2f} MB", goal="≤ 1.5 MB"))
                what = f"site: {name}.html, opened until it moves (its thread worked)"
                found.append(Row(what, f"{ready:.2f} s ({used:.2f} s)", goal="≤ 1 s"))
    return found


def _demo(chromium: Browser, place: Path) -> list[Row]:
    """Return how long the demo takes from its command until its page moves."""
    command = [sys.executable, "-m", "memowidgets", "demo", "--no-browser", "--out"]
    started, before = time.perf_counter(), _processor_seconds()
    subprocess.run([*command, str(place)], check=True, stdout=subprocess.DEVNULL)
    written, used = time.perf_counter() - started, _processor_seconds() - before
    _, ready, in_page = _opened(chromium, place / "index.html")
    what = "demo: from the command until its page moves (processor time)"
    took = f"{written + ready:.2f} s ({used + in_page:.2f} s)"
    return [Row(what, took, goal="≤ 3 s")]


def _processor_seconds() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _opened(chromium: Browser, page_file: Path) -> tuple[int, float, float]:
    """Return the bytes of a page with its files, and the median seconds until it moves.

    The processor time of its thread comes last. Other processes do not change it.
    """
    times, used, files = [], [], set()
    for _ in range(OPENINGS):
        context = chromium.new_context(
            viewport={"width": 1440, "height": 900}, offline=True
        )
        page = context.new_page()
        page.on("request", lambda request: files.add(request.url.partition("?")[0]))
        session = context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(page_file.as_uri())
        page.wait_for_selector("body[data-ready]")
        times.append(float(page.evaluate(READY)))
        metrics = session.send("Performance.getMetrics")["metrics"]
        used += [one["value"] for one in metrics if one["name"] == "TaskDuration"]
        context.close()
    paths = [
        Path(url.removeprefix("file://")) for url in files if url.startswith("file:")
    ]
    weight = sum(path.stat().st_size for path in paths)
    return weight, statistics.median(times), statistics.median(used)
