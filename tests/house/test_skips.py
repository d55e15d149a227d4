"""In CI a skip is a failure unless it is allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # each test runs pytest

ROOT = Path(__file__).parents[2]


def test_a_skip_fails_in_ci_unless_it_is_allowed(tmp_path):
    (tmp_path / "test_skips.py").write_text(
        "import pytest\n"
        "def test_browser(): pytest.skip('no Chromium: install it')\n"
        "def test_gpu(): pytest.skip('no CUDA device')\n"
        "@pytest.mark.skipif(True, reason='no Node')\ndef test_mark(): pass\n"
        "@pytest.mark.xfail(strict=True)\ndef test_known(): assert False\n"
    )
    (tmp_path / "test_module.py").write_text(
        "import pytest\npytest.skip('no make', allow_module_level=True)\n"
    )

    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    # A folder of its own for temporary files: pytest deletes those of earlier runs from the usual.
    apart = (
        "-p",
        "conftest",
        "-c",
        f"{tmp_path}/pytest.ini",
        f"--basetemp={tmp_path}/temp",
    )

    ours = {k: v for k, v in os.environ.items() if k not in {"CI", "PYTEST_ADDOPTS"}}
    ours["PYTHONPATH"] = str(ROOT)
    ours |= {"CI": "1", "PYTEST_ADDOPTS": "--continue-on-collection-errors -n1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *apart, str(tmp_path)],
        cwd=ROOT, env=ours, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 1 skipped, 1 xfailed, 2 errors" in done.stdout.splitlines()[-1]
