"""The papers beside the code: how to cite it, and what runs its checks elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import memowidgets as mw

ROOT = Path(__file__).parents[2]


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_this_version_and_the_paper():
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)
    assert citation["version"] == mw.__version__
    paper = citation["preferred-citation"]
    assert paper["title"].startswith("Predicting memorization within Large Language Models")
    assert [a["family-names"] for a in paper["authors"]] == [
        "Dentan",
        "Buscaldi",
        "Shabou",
        "Vanier",
    ]


def is_orcid(address):
    """Whether the last digit is the check digit of the others (ISO 7064, mod 11-2)."""
    digits = address.removeprefix("https://orcid.org/").replace("-", "")
    total = 0
    for digit in digits[:-1]:
        total = 2 * (total + int(digit))
    return digits[-1] == "0123456789X"[(12 - total % 11) % 11]


def test_orcids_have_no_slip_of_the_pen():
    authors = read("CITATION.cff")["preferred-citation"]["authors"]
    assert all(is_orcid(author["orcid"]) for author in authors)
    assert not is_orcid("https://orcid.org/0009-0001-5561-8031")


def targets():
    return re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/start.md"])
def test_commands_of_make_that_are_named_exist(page):
    named = re.findall(
        r"(?:^|`)make ([a-z]+)", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE
    )
    assert named
    assert set(named) <= set(targets())
