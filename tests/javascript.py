"""The front ends' modules, asked in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import contextmanager

import pytest

__all__ = ["ask", "asking", "node"]


@pytest.fixture(scope="session")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("no Node: install nodejs")
    return found


@contextmanager
def asking(node, driver):
    """Ask a driver, which answers one line of JSON with another, in one process."""
    with subprocess.Popen(
        [node, driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def ask(what, **question):
            process.stdin.write(json.dumps({"what": what, **question}) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            assert answer, f"the front end failed at {what!r}: its error is on stderr"
            return json.loads(answer)

        yield ask
        process.stdin.close()


@pytest.fixture(scope="module")
def ask(node, request):
    """Asks the front ends, by the driver in the folder of the test."""
    with asking(node, request.path.parent / "js" / "driver.mjs") as ask:
        yield ask
