"""What a release must pass: the package index takes its files, and fresh environments run them.

Each environment has only what pip puts there, of the lowest versions that pyproject.toml allows or
of the newest, for each Python that is at hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.lowest import lowest_versions

ROOT = Path(__file__).parents[2]
RECORDINGS = ROOT / "memowidgets" / "audit" / "recordings"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CHECKS = ("twine", "validate-pyproject", "check-wheel-contents")
FIRST_MINUTE = """
import numpy as np
import memowidgets as mw
from memowidgets.__main__ import main
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 300)
hidden = rng.normal(size=(300, 16)) + labels[:, None]
audit = mw.Audit.from_arrays(labels, representations=hidden, path="arrays")
assert len(audit.flagged(share=0.1)) == 30
dashboard = audit.dashboard()
dashboard.compute(), dashboard.wait()
assert dashboard.computed
dashboard.close()
assert main(["demo", "--no-browser", "--out", "demo"]) == 0
assert main(["report", "arrays", "page.html"]) == 0
assert main(["doctor"]) == 0
"""


def python_of(version):
    """The interpreter of a version: on the path, or of pyenv."""
    ours = ".".join(map(str, sys.version_info[:2])) == version
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    of_pyenv = [*installed.glob(f"{version}.*/bin/python")]
    return (
        sys.executable
        if ours
        else next((str(one) for one in of_pyenv), shutil.which(f"python{version}"))
    )


def run(*command, **how):
    """What a command prints that finds no other package than those of its environment."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        **how,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


def environment(python, place):
    run(python, "-m", "venv", place)
    return place / "bin"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Both wheels and the sdist, built by the tool that pyproject.toml names."""
    folder = tmp_path_factory.mktemp("dist")
    for source, target in ((ROOT, "wheel"), (ROOT, "sdist"), (RECORDINGS, "wheel")):
        run(
            sys.executable,
            "-m",
            "hatchling",
            "build",
            "-t",
            target,
            "-d",
            folder,
            cwd=source,
        )
    return sorted(folder.iterdir())


@pytest.mark.matrix
@pytest.mark.timeout(600)
def test_a_package_index_takes_the_files(files, tmp_path):
    bin_ = environment(sys.executable, tmp_path / "checks")
    run(bin_ / "pip", "install", "--quiet", *CHECKS)
    run(bin_ / "twine", "check", "--strict", *files)
    for source in (ROOT, RECORDINGS):
        run(bin_ / "validate-pyproject", source / "pyproject.toml")
    package, recordings = wheels(files)
    run(bin_ / "check-wheel-contents", package)
    # W010: it has no code
    run(bin_ / "check-wheel-contents", "--ignore=W010", recordings)


def wheels(files):
    """The wheel of the package, and that of the larger recordings."""
    return [file for file in files if file.suffix == ".whl"]


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("versions", ["lowest", "newest"])
@pytest.mark.parametrize("python", PYTHONS)
def test_the_first_minute_in_a_fresh_environment(python, versions, files, tmp_path):
    interpreter = python_of(python)
    if interpreter is None:
        pytest.skip(f"Python {python} is not at hand")
    bin_ = environment(interpreter, tmp_path / "fresh")
    lowest = tmp_path / "lowest.txt"
    lowest.write_text(
        "\n".join(f"{name}=={low}" for name, low in lowest_versions().items())
    )
    bounds = ["--constraint", lowest] if versions == "lowest" else ["--upgrade"]
    wheel, _ = wheels(files)
    run(bin_ / "pip", "install", "--quiet", "--only-binary=:all:", *bounds, wheel)
    printed = run(
        bin_ / "python",
        "-W",
        "error::DeprecationWarning:memowidgets",
        "-c",
        FIRST_MINUTE,
        cwd=tmp_path,
    )
    assert "The page is" in printed
