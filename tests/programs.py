"""Python code and functions in processes of their own."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from typing import Any

__all__ = ["FORKS", "printed"]

# Forks processes that train, from one server for all tests of a process. It has loaded all that
# they need, which takes seconds.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["distributed", "tests.audit.warm"])


def printed(
    code: str, *arguments: object, options: tuple[str, ...] = (), **how: Any
) -> str:
    """Return what Python code prints; fails with what it says of its error.

    `options` are Python's, as in ``("-W", "error")``, `arguments` the code's, and `how` is given to
    `subprocess.run`.
    """
    done = subprocess.run(
        [sys.executable, *options, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, check=False, **how,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout
