"""The doctor says what is there, what is missing, and the fix."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from memowidgets import doctor


def test_here_everything_is_well_and_said_in_one_line_each():
    command = [sys.executable, "-m", "memowidgets", "doctor"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    assert all(line.startswith(("ok  ", "note  ", "MISSING  ")) for line in lines)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    text = result.stdout
    for word in ("Python 3.", "numpy", "torch", "device", "ipykernel", "jupyterlab", "anywidget"):
        assert word in text


@pytest.mark.parametrize(
    ("name", "version", "how", "facts"),
    [
        ("numpy", None, "MISSING", ["'numpy>=2.1'"]),
        ("anywidget", "0.1.0", "MISSING", ["0.1.0", "'anywidget>=0.11'"]),
        ("torch", "99.0+cpu", "ok", ["99.0+cpu"]),
        ("torch", None, "note", ["memowidgets[train]"]),
        ("peft", None, "note", ["language models", "memowidgets[llm]"]),
        ("ipykernel", None, "note", ["is not installed"]),
    ],
)
def test_a_package_that_is_missing_or_old(monkeypatch, name, version, how, facts):
    real = metadata.version

    def replaced(asked):
        if asked == name and version is None:
            raise metadata.PackageNotFoundError(name)
        return version if asked == name else real(asked)

    monkeypatch.setattr(doctor.metadata, "version", replaced)
    found = map(str, [*doctor._packages(), *doctor._notebook()])
    (line,) = [finding for finding in found if f" {name} " in finding]
    assert line.split()[0] == how
    assert [fact for fact in facts if fact not in line] == []
