"""The two commands say in one line what is missing, and do their work once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.order import needs_browser

ROOT = Path(__file__).parents[2]

if shutil.which("make") is None:
    pytest.skip("no make", allow_module_level=True)


def make(*arguments, **env):
    changed = ("PIP_", "MAKE", "WORKERS")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(changed)}
    return subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=ROOT,
        env=clean | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def said(result):
    """What a failed command told the user, less make's own closing line."""
    assert result.returncode != 0
    return [line for line in result.stderr.splitlines() if not line.startswith("make: ***")]


def test_a_python_that_is_too_old(tmp_path):
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\ncase "$2" in *print*) echo 3.9 ;; *) exit 1 ;; esac\n')
    old.chmod(0o755)
    (line,) = said(make("lab", f"PYTHON={old}", f"VENV={tmp_path}/venv"))
    assert "is Python 3.9, but 3.11 or newer is needed: install one" in line
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_no_package_index(tmp_path):
    result = make(
        "lab", f"PYTHON={sys.executable}", f"VENV={tmp_path}/venv",
        PIP_CONFIG_FILE=os.devnull, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="1",
    )  # fmt: skip
    (line,) = said(result)
    assert "no package index can be reached: check the connection" in line
    assert not (tmp_path / "venv" / ".installed").exists()


def test_an_environment_is_made_once(tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".installed").touch()
    result = make("--question", f"{venv}/.installed", f"VENV={venv}")
    assert result.returncode == 0
    os.utime(venv / ".installed", (0, 0))
    assert make("--question", f"{venv}/.installed", f"VENV={venv}").returncode == 1


@pytest.mark.parametrize(("types", "tests"), [(0, 0), (0, 1), (1, 0)])
def test_types_and_tests_must_both_be_well(tmp_path, types, tests):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".installed").touch()
    for name, code in {"ruff": 0, "lint-imports": 0, "mypy": types, "pytest": tests}.items():
        (venv / "bin" / name).write_text(f"#!/bin/sh\necho {name} said $*\nexit {code}\n")
        (venv / "bin" / name).chmod(0o755)
    result = make("test", f"VENV={venv}", "TEST_ARGS=--slow")
    assert (result.returncode == 0) == (types == tests == 0)
    assert "mypy said" in result.stdout
    workers = re.search(r"pytest said -n (\d+) .*--slow", result.stdout)
    assert int(workers[1]) > os.cpu_count()


def test_a_skip_fails_in_ci_unless_it_is_allowed(tmp_path):
    (tmp_path / "test_skips.py").write_text(
        "import pytest\n"
        "def test_browser(): pytest.skip('no Chromium: install it')\n"
        "def test_gpu(): pytest.skip('no CUDA device')\n"
        "@pytest.mark.skipif(True, reason='no Node')\ndef test_mark(): pass\n"
        "@pytest.mark.xfail(strict=True)\ndef test_known(): assert False\n"
    )
    (tmp_path / "test_module.py").write_text(
        "import pytest\npytest.skip('no make', allow_module_level=True)\n"
    )

    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    # A folder of its own for temporary files: pytest deletes those of earlier runs from the usual.
    apart = (
        "-p",
        "conftest",
        "-c",
        str(tmp_path / "pytest.ini"),
        f"--basetemp={tmp_path / 'temp'}",
    )

    def outcome(*options, **env):
        clean = {k: v for k, v in os.environ.items() if k not in {"CI", "PYTEST_ADDOPTS"}}
        result = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *apart, str(tmp_path), *options],
            cwd=ROOT, env=clean | {"PYTHONPATH": str(ROOT)} | env,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return result.returncode, result.stdout.splitlines()[-1]

    code, line = outcome()
    assert code == 0
    assert "4 skipped, 1 xfailed" in line
    code, line = outcome("-n1", CI="1", PYTEST_ADDOPTS="--continue-on-collection-errors")
    assert code == 1
    assert "1 failed, 1 skipped, 1 xfailed, 2 errors" in line


def test_the_rule_on_skips_holds_for_doctests_too(pytestconfig):
    loaded = {
        getattr(plugin, "__file__", None) for plugin in pytestconfig.pluginmanager.get_plugins()
    }
    assert str(ROOT / "conftest.py") in loaded


def test_who_hands_tests_to_workers_knows_which_need_a_browser(request):
    """By their names alone: with a wrong answer they are in the wrong place."""
    for item in request.session.items:
        wanted = "chromium" in getattr(item, "fixturenames", ())
        assert needs_browser(item.nodeid) == wanted, item.nodeid


def test_without_chromium_browser_tests_are_skipped(tmp_path):
    clean = {k: v for k, v in os.environ.items() if k not in {"CI", "PYTEST_ADDOPTS"}}
    test = "tests/browser/test_harness.py::test_a_widget_is_shown_and_answers"
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--basetemp={tmp_path / 'temp'}", test],
        cwd=ROOT, env=clean | {"CHROMIUM": "/nowhere/chromium"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "no Chromium: install chromium, or name a Chrome in $CHROMIUM" in result.stdout
    assert "1 skipped" in result.stdout.splitlines()[-1]
