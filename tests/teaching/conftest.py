"""The playgrounds' front ends, asked in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

JS = Path(__file__).parent / "js"


@pytest.fixture(scope="session")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("no Node: install nodejs")
    return found


@pytest.fixture(scope="session")
def ask(node):
    """Asks the front ends' modules."""
    with subprocess.Popen(
        [node, JS / "driver.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:

        def asking(what, **question):
            process.stdin.write(json.dumps({"what": what, **question}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield asking
        process.stdin.close()
