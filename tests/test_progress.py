"""The default progress bar: it moves in a terminal, and leaves nothing in a log file."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from memowidgets import progress as of_progress
from memowidgets.progress import Progress, progress_or_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("output", "is_drawn"), [(Terminal(), True), (io.StringIO(), False)]
)
def test_a_terminal_has_a_bar_that_goes_and_a_log_file_nothing(
    output, is_drawn, monkeypatch
):
    now = iter(range(10_000))
    monkeypatch.setattr(sys, "stderr", output)
    monkeypatch.setattr(
        of_progress, "time", SimpleNamespace(monotonic=lambda: float(next(now)))
    )
    with progress_or_bar(None) as progress:
        for done in range(300):
            progress.report(done, 500, "training")
        progress.report(0, 3, "at \x1b[2J")
    text = output.getvalue()
    assert ("training:" in text) == is_drawn
    assert ("\N{MATHEMATICAL LEFT ANGLE BRACKET}U+001B" in text) == is_drawn
    assert "\n" not in text


def test_ones_own_progress_is_the_one_that_is_used():
    mine = Progress()
    with progress_or_bar(mine) as progress:
        assert progress is mine
