"""What widgets do in threads of their own."""

from __future__ import annotations

import gc
import platform
import time
import weakref

import psutil
import pytest

from memowidgets.widgets.widget import give_back, watch

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
