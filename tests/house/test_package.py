"""The package as others get it: light to import, complete when built, and free of what is ours."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "memowidgets" / "widgets" / "static"
HEAVY = ("torch", "transformers", "peft", "altair", "sklearn", "pandas", "anywidget", "distributed")


def test_importing_the_package_loads_nothing_heavy():
    code = f"import memowidgets, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("heavy", ["transformers", "peft", "altair"])
def test_no_room_loads_what_only_some_need(heavy):
    rooms = [p.stem for p in (ROOT / "memowidgets").iterdir() if p.suffix == ".py" or p.is_dir()]
    named = ", ".join(f"memowidgets.{r}" for r in rooms if not r.startswith("_"))
    code = f"import sys, {named}; print({heavy!r} in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    assert "memowidgets/py.typed" in wheel
    assert "memowidgets/constraints.txt" in wheel
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    package, data = "memowidgets", "memowidgets-0.1.0.data"
    assert {name.split("/")[0] for name in wheel} == {package, data, "memowidgets-0.1.0.dist-info"}
    template = f"{data}/data/share/jupyter/voila/templates/memowidgets/"
    assert [name for name in wheel if name.startswith(data) and not name.startswith(template)] == []
    assert not [name for name in wheel if "__pycache__" in name or name.endswith(".ipynb")]


def test_the_wheel_holds_every_front_end_file(wheel):
    files = {f"memowidgets/widgets/static/{file.name}" for file in STATIC.iterdir()}
    assert files
    assert files <= set(wheel)


def front_ends():
    return sorted(f for f in STATIC.rglob("*") if f.suffix in {".js", ".css"})


@pytest.mark.parametrize("file", front_ends(), ids=lambda f: f.name)
def test_a_front_end_is_small_and_asks_nobody(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) < 50_000
    urls = [
        u
        for u in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", text)
        if "//www.w3.org/" not in u
    ]
    comments = re.findall(r"/\*.*?\*/|(?m:^\s*//.*$)", text, flags=re.DOTALL)
    assert not [u for u in urls if not any(u in c for c in comments)]
    code = text
    for comment in comments:
        code = code.replace(comment, "")
    for banned in (
        r"\bimport\s*\(",
        r"@import",
        r"\beval\(",
        r"\.innerHTML",
        r"\.outerHTML",
        r"insertAdjacentHTML",
        r"changed\.changed",
    ):
        assert not re.search(banned, code), banned


def requirements():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return [Requirement(text) for group in groups for text in group]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(requirement):
    versions = {canonicalize_name(p.partition("==")[0]): p.partition("==")[2] for p in pins()}
    assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_constraints_are_exact_and_of_any_machine():
    assert [p for p in pins() if not re.fullmatch(r"[\w.-]+==[\w.]+", p)] == []


def test_every_pin_works_on_the_oldest_python():
    oldest = str(metadata.metadata("memowidgets")["Requires-Python"]).removeprefix(">=") + ".0"
    refusing = {}
    for pin in pins():
        with contextlib.suppress(metadata.PackageNotFoundError):
            needs = metadata.metadata(pin.partition("==")[0])["Requires-Python"]
            if needs and oldest not in SpecifierSet(needs):
                refusing[pin] = needs
    assert refusing == {}


def tracked():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: which files are ours is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a private key", rb"-----BEGIN [A-Z ]*PRIVATE KEY"),
        ("an access token", rb"\b(?:ghp|gho|hf|pypi|sk)[_-][A-Za-z0-9]{30,}"),
        ("a path of somebody's machine", rb"[\s\"'`(=](?:/home/\w+|/Users/\w+|/root|/work)/"),
        ("a password in an address", rb"https?://[^/\s:@]+:[^/\s:@]+@"),
    ],
)
def test_nothing_private_is_in_the_repository(what, pattern):
    here = Path(__file__)
    files = [f for f in tracked() if f != here and f.is_file() and f.suffix != ".png"]
    assert not [f.name for f in files if re.search(pattern, f.read_bytes())], what


def test_saved_notebooks_hold_no_output():
    for file in (f for f in tracked() if f.suffix == ".ipynb"):
        assert '"outputs": [\n' not in file.read_text(encoding="utf-8"), (
            f"{file.name}: clear its outputs"
        )
