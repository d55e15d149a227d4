"""A report of 100 000 samples: time to write it, its size, and time to open it in Chromium."""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import memowidgets as mw
from benchmarks.measure import Namespace, Row, interleaved
from memowidgets.audit.views.report import FEW_ETAS
from tests.browser.harness import running_chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

MANY = 100_000
CLASSES = 10
TURNS = 3


def rows(_arguments: Namespace) -> list[Row]:
    """Measure a report with log-LiRA, errors, four precomputed scores and figures."""
    audit = _audit()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.html"
        first = _timed(lambda: audit.report(path, overwrite=True))
        times, figures = interleaved(
            lambda: audit.report(path, overwrite=True),
            lambda: _drawn(audit),
            repeats=TURNS,
        )
        used, drawing = (
            statistics.median(_processor_seconds(work) for _ in range(TURNS))
            for work in (
                lambda: audit.report(path, overwrite=True),
                lambda: _drawn(audit),
            )
        )
        opened = _opened(path)
        size = path.stat().st_size / 1e6
    what = f"report: {MANY:,} samples with log-LiRA"
    return [
        Row(f"{what}, written, the first of a process", f"{first:.1f} s"),
        Row(
            f"{what}, written again",
            f"{times:.1f} s",
            f"{figures:.1f} s for its figures alone",
            f"{times / figures:.2f}×",
            "≤ 1.3×",
        ),
        Row(
            f"{what}, written again, processor time",
            f"{used:.1f} s",
            f"{drawing:.1f} s for its figures alone",
            f"{used / drawing:.2f}×",
            "≤ 1.3×",
        ),
        Row(f"{what}, the page", f"{size:.2f} MB", goal="≤ 2 MB"),
        Row(f"{what}, opened until it moves", f"{opened:.2f} s", goal="≤ 2 s"),
    ]


def _drawn(audit: mw.Audit) -> None:
    """The figures of a report, drawn and saved as it does."""
    for figure in audit.figures(etas=FEW_ETAS).values():
        image = io.StringIO()
        figure.save(image, format="svg")


def _audit() -> mw.Audit:
    """Return an audit of generated states with bimodal scores; its four scores are computed."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, MANY)
    states = rng.normal(0, 1, (MANY, 32)).astype(np.float32)
    states[:, :CLASSES] += 2.5 * np.eye(CLASSES, dtype=np.float32)[labels]
    log_lira = rng.gumbel(-2, 1.5, MANY)
    audit = mw.Audit.from_arrays(
        labels, states, 2 * states[:, :CLASSES], log_lira=log_lira
    )
    for metric in ("psmi", "mahalanobis"):
        audit.score(metric)
    return audit


def _opened(page_file: Path) -> float:
    """Return the seconds from the address to a threshold that can be dragged."""
    times = []
    with running_chromium() as chromium:
        for _ in range(TURNS):
            page = chromium.new_context(offline=True).new_page()
            times.append(_timed(partial(_until_it_moves, page, page_file)))
            page.context.close()
    return statistics.median(times)


def _until_it_moves(page: Page, page_file: Path) -> None:
    page.goto(page_file.as_uri())
    page.wait_for_selector("body[data-ready] .mw-card")


def _processor_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
