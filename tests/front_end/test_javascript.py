"""The JavaScript of the package and the site: its tests, its types and its format."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

from tests.front_end.tools import FORMATTED, HERE, LOCK, ROOT, node_modules, prettier

TESTS = sorted((ROOT / "tests").rglob("*.test.mjs"))
FILES = [
    file for room in ("memowidgets", "docs") for file in (ROOT / room).rglob("*.js")
]


def test_all_front_ends_are_typed_and_a_wrong_type_is_noticed(tmp_path):
    wrong = tmp_path / "wrong.js"
    wrong.write_text("/** @param {number} x */\nconst f = (x) => x;\nf('1');\n")
    configuration = json.loads((HERE / "tsconfig.json").read_text())
    here = [os.path.normpath(HERE / pattern) for pattern in configuration["include"]]
    configuration["include"] = [*here, str(wrong)]
    (tmp_path / "tsconfig.json").write_text(json.dumps(configuration))
    compiler = node_modules() / "typescript" / "bin" / "tsc"
    done = subprocess.run(
        [shutil.which("node"), compiler, "--project", tmp_path, "--listFiles"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "node_modules" not in line]
    listed = {line for line in lines if line.startswith("/")}
    said = [line for line in lines if line not in listed]
    assert listed == {str(file) for file in (*FILES, wrong)}
    assert len(said) == 1, "\n".join(said)
    assert "wrong.js(3,3): error TS2345" in said[0]


def test_prettier_has_formatted_all_and_notices_what_it_has_not(tmp_path):
    done = prettier("--check", FORMATTED)
    assert done.returncode == 0, f"run `make format`\n{done.stderr}"
    (tmp_path / "wide.js").write_text(f"const sum = {'1 + ' * 30}1;\n")
    assert "wide.js" in prettier("--check", "wide.js", cwd=tmp_path).stderr


def test_no_check_is_turned_off():
    excused = [f.name for f in FILES if re.search(r"@ts-\w+", f.read_text("utf-8"))]
    assert excused == []


def test_the_lock_names_no_address():
    packages = json.loads(LOCK.read_text())["packages"]
    assert len(packages) > 1
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all("integrity" in package for name, package in packages.items() if name)


@pytest.mark.parametrize("file", TESTS, ids=lambda f: f.name)
def test_javascript(node, file):
    env = {k: v for k, v in os.environ.items() if not k.startswith("NODE_TEST")}
    result = subprocess.run(
        [node, "--test", "--test-reporter=tap", str(file)],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    passed = re.search(r"^# pass (\d+)", result.stdout, flags=re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 0, "no test ran"
