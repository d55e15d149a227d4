"""The package as others get it: light to import, complete when built, and free of what is ours."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import memowidgets as mw
from tests.programs import printed

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
VERSION = PROJECT["version"]
LARGEST = 10_000_000
LARGEST_SDIST = 19_000_000  # recorded audits are most of it
RECORDINGS = ROOT / "memowidgets" / "audit" / "recordings"
OF_ANOTHER_WHEEL = ("banking77-smollm2", "cifar10-wrn")


@pytest.mark.slow
def test_a_watched_loop_waits_for_no_library_that_it_does_not_need():
    """Pandas, SciPy and widgets take a second: a tenth of a training of ten seconds."""
    heavy = (
        "pandas",
        "scipy",
        "IPython",
        "ipywidgets",
        "sklearn",
        "altair",
        "transformers",
    )
    code = f"""
import sys, tempfile, torch, memowidgets as mw
from torch import nn
data = torch.utils.data.TensorDataset(torch.rand(8, 4), torch.arange(8) % 2)
module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
watch = mw.watch(module, data, tempfile.mkdtemp(), 4, checkpoint_every=1)
[watch.step() for _ in range(4)], watch.end()
print([m for m in {heavy!r} if m in sys.modules])
print(len(watch.audit.checkpoints))
"""
    assert printed(code, options=("-W", "ignore")).split("\n")[:2] == ["[]", "2"]


# As if the libraries of the extras were not installed, for whoever asks.
WITHOUT = """
import importlib.machinery, importlib.metadata, sys
gone = set(sys.argv[1].split(","))
found = importlib.machinery.PathFinder.find_spec
importlib.machinery.PathFinder.find_spec = staticmethod(
    lambda name, path=None, target=None:
        None if name.partition(".")[0] in gone else found(name, path, target)
)
about = importlib.metadata.Distribution.from_name
def of(name):
    if name.replace("-", "_").removesuffix("_python") in gone:
        raise importlib.metadata.PackageNotFoundError(name)
    return about(name)
importlib.metadata.Distribution.from_name = of
import memowidgets as mw
"""

PLAIN = """
import numpy as np
from memowidgets.__main__ import main
y = np.arange(200) % 2
x = np.random.default_rng(0).normal(size=(200, 8)) + 4 * y[:, None]
p = 1 / (1 + np.exp(2 - x.mean(axis=1)))
for audit in (
    mw.Audit.from_arrays(y, representations=x, probabilities=p, path="arrays"),
    mw.open_recorded("digits"),  # with pictures; the demo has texts
):
    audit.score("psmi"), audit.score("loss"), audit.flagged(tau=0.0)
    dashboard = audit.dashboard()
    dashboard.compute(), dashboard.wait()
    assert dashboard.computed and dashboard.counts["n"] == len(audit.members)
    assert "text/html" in dashboard._repr_mimebundle_()[0]
    dashboard.close()
    page = audit.report(f"of-{len(audit.members)}.html")
    assert "memowidgets[figures]" in page.read_text(encoding="utf-8")
for name in ("MemorizationPlayground", "PSMIPlayground", "LiRAPlayground", "TheoremPlayground"):
    getattr(mw.teaching, name)().close()
assert main(["demo", "--no-browser", "--out", "demo"]) == 0
assert main(["report", "arrays", "again.html"]) == 0
assert main(["audits", "."]) == 0
assert main(["doctor"]) == 0
assert not gone & set(sys.modules), gone & set(sys.modules)
"""

EXTRA_OF = """
import numpy as np
from memowidgets.__main__ import main
from memowidgets.models.quantized import check_quantization
data = mw.data.load_digits().take(range(100))
for extra, call in {
    "train": lambda: mw.Audit(mw.models.ConvNet(), data, path="run"),
    "train ": lambda: mw.watch(None, data, path="watched", steps_per_epoch=4),
    "llm": lambda: mw.models.CausalLM.from_pretrained("folder"),
    "llm ": lambda: mw.models.SequenceClassifier.from_pretrained("folder"),
    "quantized": lambda: check_quantization("nf4"),
    "figures": lambda: mw.open_recorded("digits").figures(),
    "figures ": lambda: mw.charts.roc,
    "llm,vision": lambda: mw.models.ImageClassifier.from_pretrained("folder"),
    "llm  ": lambda: mw.training.MemorizationCallback,
    "llm   ": lambda: mw.data.fetch_mcq("mmlu"),
}.items():
    try:
        call()
    except ImportError as error:
        text = str(error)
        assert f"memowidgets[{extra.strip()}]" in text or extra == "llm,vision", (extra, text)
        assert "pip install 'memowidgets[" in text and chr(10) not in text, text
    else:
        raise AssertionError(extra)
assert main(["doctor", "--device", "cuda"]) == 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [PLAIN, EXTRA_OF], ids=["works", "says"])
def test_without_the_extras(code, tmp_path):
    from memowidgets.extras import LIBRARIES, PURPOSES

    extras = PROJECT["optional-dependencies"]
    named = [Requirement(text).name for extra in PURPOSES for text in extras[extra]]
    of_extras = {name.replace("-", "_") for name in named} - {"memowidgets"}
    of_users = {"datasets", "lightning", "pytorch_lightning", "trl"}
    gone = ",".join({*LIBRARIES, *of_extras, *of_users})
    printed(WITHOUT + code, gone, options=("-W", "error::RuntimeWarning"), cwd=tmp_path)


# What a room asks of another has a type: each line marked "wrong" is an error, and no other is.
MISSPELLED = """
from memowidgets.audit.views.report import Audited
from memowidgets.store import RunDirectory
from memowidgets.training.config import CheckpointPlan
from memowidgets.training.recorder import Passes, Recorder
from memowidgets.widgets import Dashboard
from memowidgets.widgets.source import Source
from tests.widgets.fake_source import FakeSource

class Lacking:
    name = "it answers nothing else"

def asked(source: Source, passes: Passes, audit: Audited) -> None:
    source.is_computed("psmi", "last", "final")
    source.is_computd("psmi", "last", "final")  # wrong
    source.is_computed("psmi", 7, "final")  # wrong
    source.missing("psmi", "last", "final").buton  # wrong
    passes.layer_name  # wrong
    audit.evidence.chekpoints  # wrong
    Dashboard(FakeSource())
    Dashboard(Lacking())  # wrong
    Recorder(RunDirectory("run"), Lacking(), CheckpointPlan(1, 1))  # wrong
"""


@pytest.mark.slow
def test_its_types_are_right_and_a_misspelled_question_is_told(tmp_path):
    snippet = tmp_path / "misspelled.py"
    snippet.write_text(MISSPELLED)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "memowidgets", str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = re.findall(r"^(\S+):(\d+): error: .*", done.stdout, re.MULTILINE)
    told = {int(line) for file, line in errors if Path(file).name == snippet.name}
    lines = enumerate(MISSPELLED.split("\n"), 1)
    assert told == {n for n, line in lines if line.endswith("# wrong")}, done.stdout
    assert not [file for file, _ in errors if file.startswith("memowidgets")]
    assert done.returncode == 1, done.stderr


def built(source, folder, target):
    """The file that a build of a source tree makes, and the names in it."""
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "-t",
        target,
        "-d",
        str(folder),
    ]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (file,) = folder.iterdir()
    if target == "wheel":
        with zipfile.ZipFile(file) as archive:
            return file, sorted(archive.namelist())
    with tarfile.open(file) as archive:
        return file, [name.partition("/")[2] for name in archive.getnames()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.mark.slow
def test_the_sdist_holds_what_is_tracked_and_makes_the_same_wheel(wheel, tmp_path):
    file, names = built(ROOT, tmp_path / "sdist", "sdist")
    ours = {str(file.relative_to(ROOT)) for file in tracked() if file.is_file()}
    # pyproject.toml
    kept = "benchmarks/confirm/", "benchmarks/when/"
    left_out = {name for name in ours if name.startswith(kept)}
    assert ours - left_out <= set(names)
    assert not left_out & set(names)
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]
    assert file.stat().st_size < LARGEST_SDIST
    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")
    again = built(tmp_path / f"memowidgets-{VERSION}", tmp_path / "dist", "wheel")
    assert again[1] == wheel[1]


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    file, names = wheel
    assert file.stat().st_size < LARGEST
    files = [f for f in (ROOT / "memowidgets").rglob("*") if f.is_file()]
    ours = {str(f.relative_to(ROOT)) for f in files if f.parent.name != "__pycache__"}
    kinds = {"py", "js", "css", "safetensors", "json", "typed"}
    assert kinds <= {name.rpartition(".")[2] for name in ours}
    of_another = (RECORDINGS / name for name in (*OF_ANOTHER_WHEEL, "pyproject.toml"))
    apart = ("memowidgets/voila/", *(str(p.relative_to(ROOT)) for p in of_another))
    assert {name for name in ours if not name.startswith(apart)} <= set(names)
    assert not [name for name in names if name.startswith(apart)]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    of_voila = (
        f"memowidgets-{VERSION}.data/data/share/jupyter/voila/templates/memowidgets/"
    )
    places = ("memowidgets/", f"memowidgets-{VERSION}.dist-info/", of_voila)
    assert [name for name in names if not name.startswith(places)] == []
    with zipfile.ZipFile(file) as archive:
        page = archive.read(f"memowidgets-{VERSION}.dist-info/METADATA").decode()
    links = re.findall(r"\]\(([^)#]+)", page) + re.findall(
        r'src(?:set)?="([^"]+)', page
    )
    assert len(links) > 10
    assert [link for link in links if not link.startswith("https://")] == []
    endings = ("constraints.txt", ".ipynb", ".pyc")
    assert [name for name in names if name.endswith(endings)] == []


FROM_THE_WHEEL = """
import importlib, pkgutil
import memowidgets as mw
for module in pkgutil.walk_packages(mw.__path__, "memowidgets."):
    importlib.import_module(module.name)
data = mw.data.load_digits(canaries=0.05, seed=0).take(range(200))
training = mw.TrainingConfig(epochs=1)
audit = mw.Audit(mw.models.ConvNet(4), data, path="run", training=training)
audit.train()
audit.score("psmi", checkpoint="final")
for name in ("mmlu-field-smollm2", "digits", "patients-smollm2"):
    mw.open_recorded(name).dashboard().close()
for name in ("banking77-smollm2", "cifar10-wrn"):
    try:
        mw.open_recorded(name)
    except ModuleNotFoundError as error:
        assert "pip install memowidgets-recordings" in str(error)
    else:
        raise AssertionError(name)
print(mw.__file__)
"""

FROM_BOTH_WHEELS = """
import memowidgets as mw
for name in ("banking77-smollm2", "cifar10-wrn"):
    mw.open_recorded(name).dashboard().close()
print(mw.__file__)
"""


@pytest.mark.slow
def test_the_wheel_alone_trains_scores_and_shows(wheel, tmp_path):
    """The wheel alone is new; what it depends on is this environment's, which takes minutes.

    tests/notebooks/test_notebooks.py runs the whole quickstart; here it is whether all is there.
    """
    place = tmp_path / "installed"
    (tmp_path / "work").mkdir()
    install_into(place, wheel[0])
    assert printed_of(place, FROM_THE_WHEEL, tmp_path / "work") == str(
        place / "memowidgets" / "__init__.py"
    )
    more, names = built(RECORDINGS, tmp_path / "more", "wheel")
    assert {name.split("/")[1] for name in names} >= set(OF_ANOTHER_WHEEL)
    install_into(place, more)
    assert printed_of(place, FROM_BOTH_WHEELS, tmp_path / "work") == str(
        place / "memowidgets" / "__init__.py"
    )


def install_into(place, wheel):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--disable-pip-version-check", f"--target={place}", str(wheel)]
    subprocess.run(command, check=True, capture_output=True)


def printed_of(place, code, work):
    """The last line that code prints with what is installed at a place."""
    own = {"cwd": work, "env": os.environ | {"PYTHONPATH": str(place)}}
    return printed(code, **own).splitlines()[-1]


# scripts and styles
FRONT_ENDS = sorted((ROOT / "memowidgets").glob("*/static/**/*.*s"))
BANNED = r"\bimport\s*\(|@import|\beval\(|\.(inner|outer)HTML|insertAdjacentHTML|changed\.changed"


@pytest.mark.parametrize("file", FRONT_ENDS, ids=lambda f: f.name)
def test_a_front_end_is_small_and_asks_nobody(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) < 50_000
    code = re.sub(r"/\*.*?\*/|(?m:^\s*//[^\n]*$)", "", text, flags=re.DOTALL)
    addresses = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", code)
    assert [address for address in addresses if "//www.w3.org/" not in address] == []
    assert not re.search(BANNED, code)


def requirements():
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    return [
        Requirement(text)
        for group in groups
        for text in group
        if "memowidgets" not in text
    ]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(requirement):
    versions = {
        canonicalize_name(p.partition("==")[0]): p.partition("==")[2] for p in pins()
    }
    assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("extras", [[], ["train", "figures"]])
def test_the_lowest_versions_are_the_bounds(extras):
    command = [sys.executable, "scripts/lowest.py", *extras]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = dict(line.split("==") for line in done.stdout.splitlines())
    assert ("torch" in found) == ("train" in extras)
    for name, version in found.items():
        groups = [
            PROJECT["dependencies"],
            *(PROJECT["optional-dependencies"][e] for e in extras),
        ]
        assert f"{name}>={version}" in [text for group in groups for text in group]


def test_the_version_is_the_same_everywhere():
    cited, changed = (
        (ROOT / name).read_text("utf-8") for name in ("CITATION.cff", "CHANGELOG.md")
    )
    assert mw.__version__ == VERSION
    of_recordings = tomllib.loads((RECORDINGS / "pyproject.toml").read_text("utf-8"))
    assert of_recordings["project"]["version"] == VERSION
    assert of_recordings["project"]["dependencies"] == [f"memowidgets>={VERSION}"]
    assert re.search(r"^version: (\S+)$", cited, re.MULTILINE)[1] == VERSION
    assert re.search(r"^## (\S+?),? ", changed, re.MULTILINE)[1] == VERSION


def test_no_two_files_or_classes_of_the_package_have_one_name():
    files = [*(ROOT / "memowidgets").rglob("*.py")]
    nodes = [
        node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))
    ]
    names = [file.name for file in files if file.name != "__init__.py"]
    names += [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert [name for name, n in Counter(names).items() if n > 1] == []


def tracked():
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: which files are ours is not known")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    )
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


FOREIGN = {
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY",
    "an access token": rb"\b(?:ghp|gho|hf|pypi|sk)[_-][A-Za-z0-9]{30,}",
    "a path of somebody's machine": rb"[\s\"'`(=](?:/home/\w+|/Users/\w+|/root|/work)/",
    "a password in an address": rb"https?://[^/\s:@]+:[^/\s:@]+@",
    "an unfinished merge": rb"(?m)^(?:<{7}|>{7}) ",
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_does_not_belong_there_is_not_in_the_repository(what):
    here = Path(__file__)
    files = [f for f in tracked() if f != here and f.is_file() and f.suffix != ".png"]
    assert not [f.name for f in files if re.search(FOREIGN[what], f.read_bytes())]
