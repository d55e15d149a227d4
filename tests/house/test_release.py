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
GITHUB = ROOT / ".github"
CHANGES = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MADE = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FILES = sorted(file for kind in ("*.yml", "*/*.yml") for file in GITHUB.glob(kind))


def read(file):
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_file_is_yaml(file):
    assert isinstance(read(file), dict)


def test_the_version_is_the_same_everywhere():
    citation = read(ROOT / "CITATION.cff")["version"]
    assert PROJECT["version"] == mw.__version__ == citation
    assert re.search(r"^## (\S+?),? ", CHANGES, re.MULTILINE)[1] == PROJECT["version"]


def test_the_citation_names_the_paper_and_its_authors():
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("Predicting memorization within Large Language Models")
    names = ["Dentan", "Buscaldi", "Shabou", "Vanier"]
    assert [author["family-names"] for author in paper["authors"]] == names
    assert all(is_orcid(author["orcid"]) for author in paper["authors"])
    assert not is_orcid("https://orcid.org/0009-0001-5561-8031")


def is_orcid(address):
    """Whether the last digit is the check digit of the others (ISO 7064, mod 11-2)."""
    digits = address.removeprefix("https://orcid.org/").replace("-", "")
    total = 0
    for digit in digits[:-1]:
        total = 2 * (total + int(digit))
    return digits[-1] == "0123456789X"[(12 - total % 11) % 11]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/start.md"])
def test_commands_of_make_that_are_named_exist(page):
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"(?:^|`)make ([a-z]+)", text, flags=re.MULTILINE)
    assert set(named) <= set(MADE)
    assert named


def test_the_newest_release_says_wrong_numbers_first():
    newest = re.split(r"^## ", CHANGES, flags=re.MULTILINE)[1]
    _about, *sections = re.split(r"^### ", newest, flags=re.MULTILINE)
    titles = [part.partition("\n")[0] for part in sections]
    assert titles == ["Fixed: wrong numbers", "Added", "Changed", "Fixed"]
    assert all(
        line.startswith("- ") for part in sections for line in part.split("\n\n")[1:] if line
    )


def test_tests_run_on_every_python_that_the_package_claims():
    job = read(GITHUB / "workflows" / "test.yml")["jobs"]["linux"]
    claimed = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert job["strategy"]["matrix"]["python"] == claimed


def test_what_workflows_run_is_there():
    commands = [
        step["run"]
        for file in (GITHUB / "workflows").glob("*.yml")
        for job in read(file)["jobs"].values()
        for step in job.get("steps", ())
        if "run" in step
    ]
    made = [name for command in commands for name in re.findall(r"^make ([a-z]+)", command)]
    assert set(made) == {"test", "docs"} <= set(MADE)
    scripts = [name for command in commands for name in re.findall(r"scripts/[\w.]+", command)]
    assert scripts
    assert all((ROOT / name).is_file() for name in scripts)
    extras = [
        e for c in commands for group in re.findall(r"\.\[([\w,]+)\]", c) for e in group.split(",")
    ]
    assert set(extras) <= set(PROJECT["optional-dependencies"])


def test_publishing_needs_the_tests_and_no_secret():
    text = (GITHUB / "workflows" / "publish.yml").read_text(encoding="utf-8")
    job = yaml.safe_load(text)["jobs"]["publish"]
    assert job["needs"] == "test"
    assert job["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


def test_the_hooks_have_the_version_of_the_constraints():
    pinned = re.search(r"^ruff==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["rev"] == f"v{pinned}"


def test_the_issue_about_a_gpu_asks_for_the_report():
    assert "doctor --device cuda --json" in (GITHUB / "ISSUE_TEMPLATE" / "gpu.yml").read_text()


@pytest.mark.parametrize("extras", [[], ["train", "figures"]])
def test_the_lowest_versions_are_the_bounds(extras):
    command = [sys.executable, "scripts/lowest.py", *extras]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = dict(line.split("==") for line in done.stdout.splitlines())
    assert ("torch" in found) == ("train" in extras)
    for name, version in found.items():
        groups = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][e] for e in extras)]
        assert f"{name}>={version}" in [text for group in groups for text in group]
