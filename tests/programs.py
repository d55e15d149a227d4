"""Python code in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

__all__ = ["printed"]


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
