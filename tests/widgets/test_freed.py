"""Freed memory goes back to the system."""

from __future__ import annotations

import platform

import psutil
import pytest

from memowidgets.widgets.threads import give_back

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
