"""The front ends' own tests, under ``node --test``."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests").rglob("*.test.mjs"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_javascript(node, file):
    env = {k: v for k, v in os.environ.items() if not k.startswith("NODE_TEST")}
    result = subprocess.run(
        [node, "--test", "--test-reporter=tap", str(file)],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    passed = re.search(r"^# pass (\d+)", result.stdout, flags=re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 0, "no test ran"
