"""A small run that is trained and scored, and a copy of it to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.audit.conftest import small_audit


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """The audit of the whole run. Only read it."""
    audit = small_audit(tmp_path_factory.mktemp("hostile") / "run")
    audit.train()
    audit.score("psmi", checkpoint="final")
    return audit


@pytest.fixture
def run(made, tmp_path) -> Path:
    return shutil.copytree(made.path, tmp_path / "run")
