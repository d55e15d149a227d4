"""The doctor says what is there, what is missing, and the fix."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

from memowidgets import doctor


def findings(monkeypatch=None, **versions):
    """What the doctor says about packages, with some versions replaced (None: not installed)."""
    real = metadata.version

    def version(name):
        if name not in versions:
            return real(name)
        if versions[name] is None:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    if monkeypatch is not None:
        monkeypatch.setattr(doctor.metadata, "version", version)
    return [str(finding) for finding in [*doctor._packages(), *doctor._notebook()]]


def test_here_everything_is_well_and_said_in_one_line_each():
    command = [sys.executable, "-m", "memowidgets", "doctor"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    assert all(line.startswith(("ok  ", "note  ", "MISSING  ")) for line in lines)
    has_front_ends = any(line.startswith("ok       front ends") for line in lines)
    assert result.returncode == (0 if has_front_ends else 1), result.stdout + result.stderr
    assert result.stderr == ""
    text = result.stdout
    for word in ("Python 3.", "numpy", "torch", "device", "ipykernel", "jupyterlab", "anywidget"):
        assert word in text


TESTED = doctor._tested_versions()["torch"]


@pytest.mark.parametrize(
    ("name", "version", "how", "facts"),
    [
        ("numpy", None, "MISSING", ["'numpy>=2.1'"]),
        ("anywidget", "0.1.0", "MISSING", ["0.1.0", "'anywidget>=0.11'"]),
        ("scipy", "99.0", "note", ["99.0", "tested: 1."]),
        ("torch", f"{TESTED}+cpu", "ok", [f"{TESTED}+cpu"]),  # a local build is the tested one
        ("torch", None, "note", ["memowidgets[train]"]),
        ("peft", None, "note", ["language models", "memowidgets[llm]"]),
        ("ipykernel", None, "note", ["is not installed"]),
    ],
)
def test_a_package_that_is_missing_old_or_untested(monkeypatch, name, version, how, facts):
    (line,) = [f for f in findings(monkeypatch, **{name: version}) if f" {name} " in f]
    assert line.split()[0] == how
    assert [fact for fact in facts if fact not in line] == []


def test_labs_extensions_are_looked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.sys, "prefix", str(tmp_path))
    assert sum("is not in this environment" in line for line in findings()) == 2


@pytest.mark.parametrize("files", [{}, {"style.css": b"a{}"}, {"explorer.js": b"\xff\xfe\x00"}])
def test_front_ends_that_are_not_in_place(monkeypatch, tmp_path, files):
    static = tmp_path / "widgets" / "static"
    static.mkdir(parents=True)
    for name, content in files.items():
        (static / name).write_bytes(content)
    monkeypatch.setattr(doctor, "_PACKAGE", tmp_path)
    (line,) = map(str, doctor._front_ends())
    assert line.startswith("MISSING")
    assert "fix: " in line


def test_pythons_outside_the_tested_range(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 1))
    assert doctor._python().essential
    monkeypatch.setattr(doctor.sys, "version_info", (3, 99, 0))
    assert "use Python 3.11 to 3.13" in doctor._python().fix
    assert not doctor._python().essential
