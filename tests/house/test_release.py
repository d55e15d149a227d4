"""What a release rests on: one version, its citation, and workflows that name what is there."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import memowidgets as mw

ROOT = Path(__file__).parents[2]
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def test_the_version_is_the_same_everywhere():
    citation = read(ROOT / "CITATION.cff")["version"]
    assert PROJECT["version"] == mw.__version__ == citation
    assert re.search(r"^## (\S+?),? ", CHANGES, re.MULTILINE)[1] == PROJECT["version"]


@pytest.mark.parametrize("extras", [[], ["train", "figures"]])
def test_the_lowest_versions_are_the_bounds(extras):
    command = [sys.executable, "scripts/lowest.py", *extras]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = dict(line.split("==") for line in done.stdout.splitlines())
    assert ("torch" in found) == ("train" in extras)
    for name, version in found.items():
        groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in extras)]
        assert f"{name}>={version}" in [text for group in groups for text in group]
