"""`make lab` in a fresh configuration: JupyterLab opens and asks nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.harness import empty_settings, serving_lab

ROOT = Path(__file__).parents[2]
OPTIONS = "print-options: ; @printf '%s\\n' $(QUIET_LAB)"


def asked_at_start(page):
    """What JupyterLab asks in its corner, soon after it is there."""
    page.wait_for_timeout(2500)
    return page.locator(".Toastify__toast").all_inner_texts()


@pytest.mark.slow
def test_it_asks_nothing(chromium, tmp_path):
    """With the options of `make lab`, for somebody who never started it before."""
    asked = ["make", "--silent", "--no-print-directory", f"--eval={OPTIONS}", "print-options"]
    options = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    fresh = empty_settings(tmp_path)
    with serving_lab(sys.executable, tmp_path, tmp_path, fresh, options.splitlines()) as server:
        page = chromium.new_page()
        page.goto(f"{server.url}/lab?token={server.token}")
        page.locator(".jp-LauncherCard").first.wait_for()
        assert asked_at_start(page) == []
        page.close()
