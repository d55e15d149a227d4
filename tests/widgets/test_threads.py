"""Background threads are used again, keep nothing of a job that is done, and end quietly."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import threading
import time
import weakref

import psutil
import pytest

from memowidgets.widgets.threads import give_back, in_background, watch


@pytest.fixture(autouse=True)
def _others_are_idle():
    """Wait until the threads of earlier tests have ended their jobs."""
    resting, deadline = ("memowidgets-idle", "memowidgets-watch"), time.monotonic() + 60
    while any(
        thread.name.startswith("memowidgets-") and thread.name not in resting
        for thread in threading.enumerate()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ident_of_next() -> int:
    idents: list[int] = []
    assert in_background(lambda: idents.append(threading.get_ident()), "test").wait(30)
    return idents[0]


def test_one_thread_does_one_job_after_another():
    assert len({ident_of_next() for _ in range(50)}) == 1
    assert ident_of_next() != threading.get_ident()


def test_a_busy_thread_keeps_nobody_waiting():
    end, names = threading.Event(), []
    busy = in_background(lambda: end.wait(30), "busy")
    assert in_background(lambda: names.append(threading.current_thread().name), "other").wait(30)
    assert names == ["other"]
    assert not busy.is_set()
    end.set()
    assert busy.wait(30)


def test_an_exception_is_heard_and_the_thread_goes_on(monkeypatch):
    heard = []
    monkeypatch.setattr(threading, "excepthook", lambda args: heard.append(args.exc_type))
    first = ident_of_next()
    assert in_background(lambda: next(iter([])), "test").wait(30)
    assert heard == [StopIteration]
    assert ident_of_next() == first


def test_nothing_of_a_job_is_kept():
    class Owner:
        def work(self) -> None:
            pass

    owner = Owner()
    gone = weakref.ref(owner)
    assert in_background(owner.work, "test").wait(30)
    del owner
    ident_of_next()  # the thread is behind the job by now
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_starts_threads_of_its_own():
    ident_of_next()
    child = os.fork()
    if child == 0:
        os._exit(0 if in_background(lambda: None, "test").wait(30) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDING = """
import time
from concurrent.futures import ThreadPoolExecutor
from memowidgets.widgets.threads import Newest
def job():
    while True:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(time.sleep, 0.01).result()
Newest("example").run(job)
ThreadPoolExecutor(1).submit(time.sleep, 0.3)  # for which the process waits; no new one may begin
"""


def test_a_process_that_ends_meanwhile_ends_quietly():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


BLOCK, BLOCKS = 100_000, 600  # bytes; smaller than what glibc maps on its own


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps what is freed")
def test_freed_blocks_below_one_that_is_held_go_back():
    process = psutil.Process()
    blocks = [bytes(BLOCK) for _ in range(BLOCKS)]
    for block in range(len(blocks)):  # bytes(n) is zeros that are not yet in memory
        blocks[block] = b"x" * BLOCK
    held = blocks[::50]
    del blocks
    before = process.memory_info().rss
    give_back()
    assert before - process.memory_info().rss > BLOCK * BLOCKS / 2
    assert len(held) == BLOCKS / 50


def test_a_watch_ends_with_its_owner():
    class Owner:
        seen = 0

    def look(owner):
        owner.seen += 1

    owner = Owner()
    watch(owner, look, 0.001)
    deadline = time.monotonic() + 60
    while owner.seen < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert owner.seen >= 3
    reference = weakref.ref(owner)
    del owner
    while reference() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.001)
    assert reference() is None
