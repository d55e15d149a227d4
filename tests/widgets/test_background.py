"""Background threads are used again, and keep nothing of a job that is done."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest

from memowidgets.widgets.threads import in_background


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
