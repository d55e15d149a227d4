"""A run so small that it is trained in a moment, once for all tests of this folder."""

from __future__ import annotations

import shutil

import pytest

from tests.training.small import tiny_audit, trained


@pytest.fixture(scope="session")
def source(tmp_path_factory):
    """The run, trained and without shadow models. Tests copy it."""
    path = tmp_path_factory.mktemp("tiny") / "run"
    trained(path)
    return path


@pytest.fixture
def audit(source, tmp_path):
    """The audit of a copy, which this test may change."""
    shutil.copytree(source, tmp_path / "run")
    return tiny_audit(tmp_path / "run")
