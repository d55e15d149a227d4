"""The package as others get it: light to import, complete when built, and free of what is ours."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.programs import printed

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
LARGEST = 19_000_000  # recorded audits are most of it
HEAVY = ("torch", "transformers", "peft", "altair", "sklearn", "pandas", "anywidget", "distributed")


def test_importing_the_package_loads_nothing_heavy():
    code = f"import memowidgets, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert printed(code).strip() == "[]"


def test_a_watched_loop_waits_for_no_library_that_it_does_not_need():
    """Pandas, SciPy and widgets take a second: a tenth of a training of ten seconds."""
    heavy = ("pandas", "scipy", "IPython", "ipywidgets", "sklearn", "altair", "transformers")
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
figures = audit.figures()
figures._repr_html_()
for chart in figures.values():
    assert "layer" in str(chart._repr_mimebundle_()["application/vnd.vegalite.v5+json"])
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
data = mw.data.load_digits().take(range(100))
for extra, call in {
    "train": lambda: mw.Audit(mw.models.ConvNet(), data, path="run"),
    "train ": lambda: mw.watch(None, data, path="watched", steps_per_epoch=4),
    "llm": lambda: mw.models.CausalLM.from_pretrained("folder"),
    "llm ": lambda: mw.models.SequenceClassifier.from_pretrained("folder"),
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
@pytest.mark.parametrize(
    "code",
    [pytest.param(PLAIN, id="works"), pytest.param(EXTRA_OF, id="says")],
)
def test_without_the_extras(code, tmp_path):
    from memowidgets.extras import LIBRARIES

    gone = ",".join([*LIBRARIES, "datasets", "lightning", "pytorch_lightning", "trl"])
    printed(WITHOUT + code, gone, options=("-W", "error::RuntimeWarning"), cwd=tmp_path)


def built(source, folder, target):
    """The file that a build of a source tree makes."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def wheel_file(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def wheel(wheel_file):
    with zipfile.ZipFile(wheel_file) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def sdist_file(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.mark.slow
def test_wheel_and_sdist_are_small(wheel_file, sdist_file):
    assert max(wheel_file.stat().st_size, sdist_file.stat().st_size) < LARGEST


@pytest.mark.slow
def test_the_sdist_holds_what_is_tracked(sdist_file):
    with tarfile.open(sdist_file) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    ours = {str(file.relative_to(ROOT)) for file in tracked() if file.is_file()}
    left_out = {name for name in ours if name.startswith("benchmarks/confirm/")}  # pyproject.toml
    assert ours - left_out <= names
    assert not left_out & names
    assert not [name for name in names if ".venv" in name or "__pycache__" in name]


@pytest.mark.slow
def test_the_wheel_of_the_sdist_is_the_same(wheel, sdist_file, tmp_path):
    with tarfile.open(sdist_file) as archive:
        archive.extractall(tmp_path, filter="data")
    again = built(tmp_path / f"memowidgets-{VERSION}", tmp_path / "dist", "wheel")
    with zipfile.ZipFile(again) as archive:
        assert sorted(archive.namelist()) == sorted(wheel)


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    files = [f for f in (ROOT / "memowidgets").rglob("*") if f.is_file()]
    ours = {str(f.relative_to(ROOT)) for f in files if f.parent.name != "__pycache__"}
    kinds = {"py", "js", "css", "safetensors", "json", "typed"}
    assert kinds <= {name.rpartition(".")[2] for name in ours}
    template = {name for name in ours if name.startswith("memowidgets/voila/")}
    assert ours - template <= set(wheel)
    assert not [name for name in wheel if name.endswith("constraints.txt")]
    assert any(name.endswith("licenses/LICENSE") for name in wheel)
    package, data = "memowidgets", f"memowidgets-{VERSION}.data"
    about = f"memowidgets-{VERSION}.dist-info"
    assert {name.split("/")[0] for name in wheel} == {package, data, about}
    template = f"{data}/data/share/jupyter/voila/templates/memowidgets/"
    assert [name for name in wheel if name.startswith(data) and not name.startswith(template)] == []
    assert not [name for name in wheel if "__pycache__" in name or name.endswith(".ipynb")]


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
names = "mmlu-field-smollm2 cifar10-wrn banking77-smollm2 digits patients-smollm2"
for name in names.split():
    mw.open_recorded(name).dashboard().close()
print(mw.__file__)
"""


@pytest.mark.slow
def test_the_wheel_alone_trains_scores_and_shows(wheel_file, tmp_path):
    """The wheel alone is new; what it depends on is this environment's, which takes minutes.

    tests/browser/test_quickstart.py runs the whole quickstart; here it is whether all is there.
    """
    place = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--disable-pip-version-check", f"--target={place}", str(wheel_file)]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "work").mkdir()
    own = {"cwd": tmp_path / "work", "env": os.environ | {"PYTHONPATH": str(place)}}
    found = printed(FROM_THE_WHEEL, **own).splitlines()[-1]
    assert found == str(place / "memowidgets" / "__init__.py")


def front_ends():
    """Those of the report, the playgrounds and the widgets."""
    files = (ROOT / "memowidgets").glob("*/static/**/*")
    return sorted(f for f in files if f.suffix in {".js", ".css"})


@pytest.mark.parametrize("file", front_ends(), ids=lambda f: f.name)
def test_a_front_end_is_small_and_asks_nobody(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) < 50_000
    urls = [
        u
        for u in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", text)
        if "//www.w3.org/" not in u
    ]
    comments = re.findall(r"/\*.*?\*/|(?m:^\s*//[^\n]*$)", text, flags=re.DOTALL)
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
    return [Requirement(text) for group in groups for text in group if "memowidgets" not in text]


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_dependency_is_pinned_within_its_bounds(requirement):
    versions = {canonicalize_name(p.partition("==")[0]): p.partition("==")[2] for p in pins()}
    assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_every_pin_works_on_the_oldest_python():
    oldest = str(metadata.metadata("memowidgets")["Requires-Python"]).removeprefix(">=") + ".0"
    refusing = {}
    for pin in pins():
        with contextlib.suppress(metadata.PackageNotFoundError):
            needs = metadata.metadata(pin.partition("==")[0]).get("Requires-Python")
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
        ("an unfinished merge", rb"(?m)^(?:<{7}|>{7}) "),
    ],
)
def test_what_does_not_belong_there_is_not_in_the_repository(what, pattern):
    here = Path(__file__)
    files = [f for f in tracked() if f != here and f.is_file() and f.suffix != ".png"]
    assert not [f.name for f in files if re.search(pattern, f.read_bytes())], what
