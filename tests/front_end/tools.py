"""What checks the front ends comes from npm, in the versions of package-lock.json."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

__all__ = ["HERE", "axe", "node_modules"]

HERE = Path(__file__).parent
LOCK = HERE / "package-lock.json"
ALONE = Path(
    tempfile.gettempdir(), f"memowidgets-npm-{hashlib.sha256(bytes(HERE)).hexdigest()[:8]}"
)
INSTALLED = HERE / "node_modules" / ".package-lock.json"


def node_modules() -> Path:
    """Where the packages are; they are installed first where they are not, or others are."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        pytest.skip("no npm: install nodejs and npm")
    with FileLock(ALONE):  # tests run in several processes
        _install(npm)
    return INSTALLED.parent


def axe() -> str:
    """The script that judges whether everybody can use a page."""
    return (node_modules() / "axe-core" / "axe.min.js").read_text("utf-8")


def _install(npm: str) -> None:
    if not INSTALLED.exists() or INSTALLED.stat().st_mtime < LOCK.stat().st_mtime:
        done = subprocess.run(
            [npm, "ci"], cwd=HERE, capture_output=True, text=True, check=False, timeout=240
        )
        if done.returncode:
            pytest.skip(f"no package index: npm ci failed: {done.stderr[-500:]}")
        INSTALLED.touch()
