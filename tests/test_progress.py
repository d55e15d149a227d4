"""The default progress bar: it moves in a terminal, and leaves one line in a log file."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest

from memowidgets import progress as of_progress
from memowidgets.progress import Progress, shown

STEPS = 300


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def written(monkeypatch):
    """What a piece of work writes to an error output of a kind."""

    def of(output, seconds_each=1.0, work=None):
        now = [0.0]
        monkeypatch.setattr(sys, "stderr", output)
        monkeypatch.setattr(of_progress, "time", SimpleNamespace(monotonic=lambda: now[0]))

        def each_takes_time(report):
            def reported(*about):
                now[0] += seconds_each
                report(*about)

            return reported

        with shown(None) as progress:
            monkeypatch.setattr(progress, "report", each_takes_time(progress.report))
            (work or trained)(progress)
            now[0] += seconds_each
        return output.getvalue()

    return of


def trained(progress):
    progress.report(0, 1, "waiting")
    for done in range(STEPS + 1):
        progress.report(done, 500, "training", "first at 12:00")
    for done in range(3):
        progress.report(done, 2, "a forward pass")


def test_a_log_file_has_one_line_of_the_longest_part(written):
    """Each report takes a second: 301 of training, one before, three after, and the end."""
    assert written(io.StringIO()) == f"training: {STEPS} of 500, {STEPS + 6} s\n"


def test_short_work_and_no_work_leave_nothing_in_a_log_file(written):
    assert written(io.StringIO(), seconds_each=1e-6) == ""
    assert written(io.StringIO(), work=lambda _: None) == ""


def test_work_that_cannot_be_counted_has_no_numbers(written):
    line = written(io.StringIO(), work=lambda p: p.report(0, 1, "computing \x1b[2J psmi"))
    assert line == "computing ⟨U+001B⟩[2J psmi, 2 s\n"


def test_a_failure_leaves_no_line(written):
    def fails(progress):
        trained(progress)
        raise ZeroDivisionError

    output = io.StringIO()
    with pytest.raises(ZeroDivisionError):
        written(output, work=fails)
    assert output.getvalue() == ""


def test_a_terminal_has_a_bar_that_goes(written):
    text = written(Terminal())
    assert "training (first at 12:00):" in text
    assert "⟨U+001B⟩" in written(Terminal(), work=lambda p: p.report(0, 3, "at \x1b[2J"))
    assert "\n" not in text


def test_ones_own_progress_is_the_one_that_is_used():
    mine = Progress()
    with shown(mine) as progress:
        assert progress is mine
