"""Binder's files, as far as they go without the service: run in a clone, served, and looked at."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from scripts import live
from tests.browser.harness import VoilaPage, save, serving_lab, window

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def environment(clone):
    """A new environment without memowidgets, which sees what this one has of everything else."""
    venv = clone.parent / "venv"
    command = [sys.executable, "-m", "venv", "--without-pip", str(venv)]
    subprocess.run(command, check=True, capture_output=True)
    purelib = sysconfig.get_path("purelib", vars={"base": str(venv)})
    Path(purelib, "zz-others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    others = ("JUPYTER", "PYTHONPATH")
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(others)
    }
    return ours | {
        "PATH": os.pathsep.join([str(venv / "bin"), os.environ.get("PATH", "")]),
        "PIP_NO_INDEX": "1",  # what is pinned is there: nothing is fetched
        "JUPYTER_PATH": str(Path(sys.prefix, "share", "jupyter")),
        "JUPYTER_CONFIG_PATH": str(Path(sys.prefix, "etc", "jupyter")),
        "JUPYTER_RUNTIME_DIR": str(clone.parent / "runtime_dir"),
        "JUPYTERLAB_DIR": str(Path(sys.prefix, "share", "jupyter", "lab")),
        "JUPYTER_PLATFORM_DIRS": "1",
        "JUPYTER_PREFER_ENV_PATH": "1",
        "HOME": str(clone.parent),
    }


@pytest.fixture(scope="module")
def served(clone, environment):
    """Binder's two steps: the build, then a server in the repository."""
    build = subprocess.run(
        [str(clone / "binder" / "postBuild")],
        cwd=clone, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert build.returncode == 0, build.stdout[-3000:] + build.stderr[-3000:]
    with serving_lab("python", clone, clone.parent, environment, []) as server:
        yield server


def opened(chromium, served, address):
    """A page of the server, watched from the start."""
    shown = VoilaPage(window(chromium, 1400, 900), served, served.root)
    shown.watch()
    shown.page.goto(f"{served.url}/{address}?token={served.token}")
    return shown


def test_voila_shows_the_lesson(chromium, served, clone):
    shown = opened(chromium, served, "voila/render/notebooks/05_teaching.ipynb")
    for name in live.PLAYGROUNDS:
        shown.page.locator(f".mw-play-{name} canvas").first.wait_for(timeout=90_000)
    assert shown.python("__import__('memowidgets').__file__").startswith(str(clone))
    save(shown.page, "binder-voila")
    assert shown.unexpected() == []
    shown.page.context.close()


def test_jupyterlab_opens_the_quickstart(chromium, served):
    shown = opened(chromium, served, "lab/tree/notebooks/01_quickstart.ipynb")
    title = "Which of these digits will the model memorise?"
    shown.page.locator(".jp-NotebookPanel").get_by_role(
        "heading", name=title
    ).wait_for()
    # what JupyterLab would ask is in its corner by then
    shown.page.wait_for_timeout(2500)
    assert shown.page.locator(".Toastify__toast").all_inner_texts() == []
    assert shown.unexpected() == []
    shown.page.context.close()
