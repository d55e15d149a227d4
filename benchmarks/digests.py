"""What the checksums of arrays cost: a run of 1 GB written, read, and asked for a single row."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.measure import Namespace, Row, interleaved
from memowidgets.store import RunDirectory

TURNS = 5
PASSES, MEMBERS, WIDTH = 4, 40_000, 1536  # of float32: 0.98 GB


def rows(_arguments: Namespace) -> list[Row]:
    """Write and read passes with and without checksums, in turns.

    The time is a core's, which does not wait for the disk.
    """
    rng = np.random.default_rng(0)
    states = rng.standard_normal((MEMBERS, WIDTH), np.float32)
    size = f"{PASSES * states.nbytes / 1e9:.2f} GB"
    with tempfile.TemporaryDirectory() as folder:

        def write(name: str = "written") -> None:
            run = RunDirectory(Path(folder, name))
            for i in range(PASSES):
                with run.new_tensors(f"forward/{i}", {"layer": states.shape}) as made:
                    made["layer"][:] = states

        def read(use: Callable[[np.ndarray], object]) -> None:
            run = RunDirectory(Path(folder, "kept"))
            for i in range(PASSES):
                use(run.read_tensors(f"forward/{i}")["layer"])

        def copy() -> None:
            read(np.array)

        def take_a_row() -> None:
            read(lambda layer: np.array(layer[0]))

        works = {
            "written": write,
            "read into memory": copy,
            "a single row of each read": take_a_row,
        }
        write("kept")
        return [
            _row(f"{PASSES} passes, {size}, {what}", work)
            for what, work in works.items()
        ]


def _row(what: str, work: Callable[[], None]) -> Row:
    with_them, without = interleaved(
        work, _without(work), repeats=TURNS, clock=time.process_time
    )
    return Row(
        what,
        f"{with_them:.3f} s of a core",
        f"{without:.3f} s without checksums",
        f"{with_them / without:.2f}×",
    )


def _without(work: Callable[[], None]) -> Callable[[], None]:
    def bare() -> None:
        with _no_checksums():
            work()

    return bare


@contextmanager
def _no_checksums() -> Iterator[None]:
    """Write zeros for the checksums, and compare nothing."""
    with (
        mock.patch("memowidgets.store.tensors.checksum", return_value="0" * 32),
        mock.patch("memowidgets.store.tensors.Tensors._check", return_value=None),
    ):
        yield
