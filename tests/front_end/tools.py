"""What checks and formats the front ends comes from npm, in the versions of package-lock.json.

`python -m tests.front_end.tools` formats all JavaScript and styles in place.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["FORMATTED", "HERE", "node_modules", "prettier", "serious"]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FORMATTED = (
    "**/*.{js,mjs,css}"  # what Prettier formats, in each folder but the ignored ones
)
LOCK = HERE / "package-lock.json"
ALONE = Path(
    tempfile.gettempdir(),
    f"memowidgets-npm-{hashlib.sha256(bytes(HERE)).hexdigest()[:8]}",
)
JUDGED = """async ([part, impacts]) => {
    const found = await window.axe.run(part, {preload: false, resultTypes: ['violations']});
    return found.violations
        .filter(({ impact }) => impacts.includes(impact))
        .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) =>
            `${id}: ${html.slice(0, 160)}: ${failureSummary.slice(0, 300)}`));
}"""
INSTALLED = HERE / "node_modules" / ".package-lock.json"


def node_modules() -> Path:
    """Where the packages are; they are installed first where they are not, or others are."""
    npm = shutil.which("npm")
    if shutil.which("node") is None or npm is None:
        pytest.skip("no npm: install nodejs and npm")
    with FileLock(ALONE):  # tests run in several processes
        _install(npm)
    return INSTALLED.parent


def prettier(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Prettier in a folder, by the settings of this repository."""
    program = node_modules() / "prettier" / "bin" / "prettier.cjs"
    config = ROOT / ".prettierrc.json"
    return subprocess.run(
        ["node", program, "--config", config, "--log-level=warn", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def serious(page: Page, part: str = "html", also: tuple[str, ...] = ()) -> list[str]:
    """What keeps people from a part of a page, as axe-core judges it, and what it judges `also`."""
    if not page.evaluate("'axe' in window"):
        page.evaluate((node_modules() / "axe-core" / "axe.min.js").read_text("utf-8"))
    asked = [part, ["serious", "critical", *also]]
    found: list[str] = page.evaluate(JUDGED, asked)
    return found


def _install(npm: str) -> None:
    if not INSTALLED.exists() or INSTALLED.stat().st_mtime < LOCK.stat().st_mtime:
        done = subprocess.run(
            [npm, "ci"],
            cwd=HERE,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        if done.returncode:
            pytest.skip(f"no package index: npm ci failed: {done.stderr[-500:]}")
        INSTALLED.touch()


if __name__ == "__main__":
    sys.exit(prettier("--write", FORMATTED).stderr)
