"""Older kernels call a widget's handlers on other threads than the newest one does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.harness import ROOT
from tests.browser.test_everywhere import (
    DASHBOARD,
    agree,
    compute_and_cancel,
    drag_filter_decide_undo,
    run_the_cell_again,
)

VERSION = "6.31.0"
KEPT = Path(sys.prefix) / "other-kernels" / VERSION
ALSO = "nest-asyncio==1.6.0"  # the newest kernel has no need of it, the environment has the rest


@pytest.fixture
def older(lab):
    """Name of a kernel with the older ipykernel, in a folder beside the environment."""
    if not (KEPT / f"ipykernel-{VERSION}.dist-info").exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "-q",
        ]
        done = subprocess.run(
            [*command, "--no-deps", "--target", KEPT, ALSO, f"ipykernel=={VERSION}"],
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(
                f"no package index: pip can't install ipykernel: {done.stderr[-500:]}"
            )
    specification = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "older",
        "language": "python",
        "env": {"PYTHONPATH": f"{KEPT}:{ROOT}"},
    }
    folder = lab.home / "data_dir" / "kernels" / "older"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(specification))
    return folder.name


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_older_kernel(notebook_page, older):
    notebook = notebook_page([DASHBOARD], kernel=older)
    assert notebook.python("__import__('ipykernel').__version__") == VERSION
    drag_filter_decide_undo(notebook)
    compute_and_cancel(notebook)
    compute(notebook)
    run_the_cell_again(notebook)


def compute(notebook):
    """Compute to its end, and show what came of it."""
    page = notebook.page
    notebook.python("setattr(source, 'seconds', 1)")
    page.get_by_label("layer", exact=True).select_option("2")
    page.get_by_role("button", name="Compute", exact=True).click()
    page.locator(".mw-explorer:not(.mw-dimmed)").wait_for()
    agree(notebook)
