"""The site, built once for all tests of a run, whichever worker needs it first; and a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
CODE = """
import sys
from pathlib import Path
from scripts.docs import build

status = build(Path(sys.argv[1]))
heavy = {"lightning", "transformers"} & sys.modules.keys()
sys.exit(f"imported: {heavy}" if heavy else status)
"""


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="no Sphinx: pip install 'memowidgets[docs]'")
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    place, said = shared / "docs" / "site", shared / "docs" / "said.txt"
    place.parent.mkdir(exist_ok=True)
    with FileLock(shared / "docs.lock"):
        if not said.exists():
            done = subprocess.run(
                [sys.executable, "-c", CODE, str(place)],
                cwd=ROOT, capture_output=True, text=True, check=False,
            )  # fmt: skip
            said.write_text(f"{done.returncode} {done.stderr}")
    assert said.read_text() == "0 "
    return place


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What a clone holds, and nothing that only lies here; the packages are those of the tests."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: there is nothing to clone")
    place = tmp_path_factory.mktemp("cloned") / "clone"
    command = ["git", "clone", "--quiet", "--depth=1", ROOT.as_uri(), str(place)]
    subprocess.run(command, check=True, capture_output=True)
    return place
