"""What widgets do in threads of their own, and when they die."""

from __future__ import annotations

import gc
import time
import weakref

from memowidgets.widgets import SampleInspector
from memowidgets.widgets.widget import watch


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


def test_a_widget_that_dies_runs_nothing():  # modules may be gone by then
    closed = []

    class Counted(SampleInspector):
        def close(self):
            closed.append(self.page)
            super().close()

    Counted(["a", "b"]).close()
    gc.collect()
    assert closed == [0]
