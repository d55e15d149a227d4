"""`make lab` in a fresh configuration: JupyterLab opens and asks nothing."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.harness import Lab, _end, _free_port, _wait_until_up

ROOT = Path(__file__).parents[2]
OPTIONS = "print-options: ; @printf '%s\\n' $(QUIET_LAB)"


def asked_at_start(page):
    """What JupyterLab asks in its corner, soon after it is there."""
    page.wait_for_timeout(2500)
    return page.locator(".Toastify__toast").all_inner_texts()


@pytest.fixture
def lab_of_the_makefile(tmp_path):
    """JupyterLab with the options of `make lab`, for somebody who never started it before."""
    asked = ["make", "--silent", "--no-print-directory", f"--eval={OPTIONS}", "print-options"]
    options = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    port, token, log = _free_port(), secrets.token_hex(16), tmp_path / "server.log"
    own = {
        "ServerApp.port": port,
        "ServerApp.allow_root": True,
        "ServerApp.open_browser": False,
        "ServerApp.root_dir": tmp_path,
        "IdentityProvider.token": token,
    }
    env = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    for name in ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR"):
        env[f"JUPYTER_{name}"] = str(tmp_path / name)
    env |= {f"JUPYTERLAB_{name}_DIR": str(tmp_path / name) for name in ("SETTINGS", "WORKSPACES")}
    command = [sys.executable, "-m", "jupyterlab", *(f"--{k}={v}" for k, v in own.items())]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, *options.stdout.splitlines()], cwd=tmp_path, env=env, stdout=out, stderr=out
        )
    server = Lab(f"http://127.0.0.1:{port}", token, tmp_path, tmp_path)
    try:
        _wait_until_up(server, process, log)
        yield server
    finally:
        _end(process)


def test_it_asks_nothing(chromium, lab_of_the_makefile):
    page = chromium.new_page()
    page.goto(f"{lab_of_the_makefile.url}/lab?token={lab_of_the_makefile.token}")
    page.locator(".jp-LauncherCard").first.wait_for()
    assert asked_at_start(page) == []
    page.close()
