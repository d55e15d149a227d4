"""A run that is trained and scored, the twins of which it must be told apart, and its answers."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import pytest

from tests.hostile import victim


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """The whole run. Only read it."""
    return victim.made(tmp_path_factory.mktemp("hostile") / "run", victim.data())


@pytest.fixture(scope="session")
def answers(whole, tmp_path_factory) -> dict[str, victim.Answer]:
    """What the whole run answers."""
    copy = shutil.copytree(whole, tmp_path_factory.mktemp("asked") / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {n: ask(victim.opened(copy)) for n, ask in victim.QUESTIONS.items()}


@pytest.fixture(scope="session")
def stranger(tmp_path_factory) -> Path:
    """A run of another seed."""
    return victim.made(
        tmp_path_factory.mktemp("stranger") / "run", victim.data(), seed=1
    )


@pytest.fixture
def run(whole, tmp_path) -> Path:
    """A copy of the run to break."""
    return shutil.copytree(whole, tmp_path / "run")
