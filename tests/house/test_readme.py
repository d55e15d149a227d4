"""What the README shows works as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_the_ten_lines_run(tmp_path):
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    fewer = code.replace(
        "run_shadows(64)", "run_shadows(12)"
    )  # the notebook's test trains them all
    assert fewer != code
    (tmp_path / "lines.py").write_text(fewer, encoding="utf-8")
    command = [sys.executable, "-W", "error", "lines.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]


def test_the_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"make ([a-z]+)", "".join(blocks("sh"))):
        assert f"\n{command}:" in makefile


def test_what_it_links_to_and_shows_is_there():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
