"""The four examples of CONTRIBUTING.md work where it puts them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import reading
from tests.front_end.tools import prettier
from tests.programs import printed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(
    r"`(memowidgets/[\w/.]+)`[^`\n]*?(?:(in|end of) `(\w+)`)?[^`\n]*:\n\n```\w+\n(.*?)^```",
    re.DOTALL | re.MULTILINE,
)


def sections():
    """The text of each section, by its title."""
    parts = re.split(r"^## (.+)\n", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def files(title):
    """Path, where of what it goes, and text of each file that a section shows."""
    return FILE.findall(sections()[title])


EXAMPLES = [title for title in sections() if title.startswith("Add a ")]


def pasted(before, where, name, text):
    """A file with a text in it: with the imports, or at the start or the end of a name."""
    if not before:
        return text
    line = rf"^{name}\b.*\n" if name else r"^(?=from memowidgets)"
    at = re.search(line, before, re.MULTILINE).end()
    if where == "end of":
        at += re.search(r"^[)\]}]", before[at:], re.MULTILINE).start()
    return before[:at] + text + before[at:]


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with all the examples' files in it."""
    place = tmp_path_factory.mktemp("extended")
    ignored = shutil.ignore_patterns("recordings", "__pycache__")
    shutil.copytree(ROOT / "memowidgets", place / "memowidgets", ignore=ignored)
    for path, where, name, text in (f for title in EXAMPLES for f in files(title)):
        target = place / path
        before = target.read_text("utf-8") if target.exists() else ""
        target.write_text(pasted(before, where, name, text), encoding="utf-8")
    return place


def python(place, code):
    """Run code in a process of its own with the extended package."""
    head = "import memowidgets as mw, numpy as np\n"
    return printed(head + code, options=("-W", "error"), cwd=place).split()


def test_who_pastes_them_passes_the_checks_of_style(extended):
    """After `make format`, which leaves the new files as the page shows them."""
    shutil.copy(ROOT / "pyproject.toml", extended)
    format_names = ["check", "--fix-only"]
    for check in (format_names, ["format"], ["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *check, "memowidgets"],
            cwd=extended, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    for path, _, _, text in (file for title in EXAMPLES for file in files(title)):
        if not (ROOT / path).exists():
            assert (extended / path).read_text("utf-8") == text
    scripts = [path for title in EXAMPLES for path, *_ in files(title) if ".js" in path]
    done = prettier("--check", *scripts, cwd=extended)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=extended, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(extended)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    total = sum(reading.rooms(extended / "memowidgets").values(), reading.Reading())
    assert total.density <= reading.DENSEST


def test_the_dataset_is_audited_with_the_score_and_opens_again(extended):
    code = """
import doctest
from memowidgets.data import stripes
from memowidgets.metrics import neighbours as module
print(*doctest.testmod(module), *doctest.testmod(stripes))
data = mw.data.make_stripes(300, seed=1)
training = mw.TrainingConfig(epochs=2)
audit = mw.Audit(mw.models.ConvNet(), data, path="run", members="all", training=training)
audit.train()
again = mw.Audit.open("run")
score = module.neighbours
scores = again.score(score, name="neighbours", checkpoint="final")
found = again.evaluate(score, truth="canaries", checkpoint="final")
print(scores.name, len(scores) == len(audit.members), found.auc > 0.9)
print(again.score("neighbours", checkpoint="final").equals(scores), "neighbours" in again.metrics)
"""
    printed = ["0", "1", "0", "1", "neighbours", "True", "True", "True", "True"]
    assert python(extended, code) == printed


def test_the_way_to_train_records_and_stops_at_rho(extended):
    """With a stand-in for Ignite that has its names and calls handlers as it does."""
    code = """
import sys, types, torch
from torch import nn
events = types.SimpleNamespace(ITERATION_COMPLETED="iteration", COMPLETED="end")
sys.modules["ignite"] = sys.modules["ignite.engine"] = types.SimpleNamespace(Events=events)
from memowidgets.training.ignite import IgniteHandler

handlers, stopped = {}, []
engine = types.SimpleNamespace(
    add_event_handler=handlers.__setitem__, terminate=lambda: stopped.append(True)
)
y = torch.arange(64) % 2
data = torch.utils.data.TensorDataset(torch.randn(64, 8) + 2 * y[:, None], y)
loader = torch.utils.data.DataLoader(data, batch_size=8)
for rho, epochs in ((0.5, 50), (None, 2)):
    module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    watch = mw.watch(module, data, f"{rho}", len(loader), checkpoint_every=0.3, stop_at_drop=rho)
    IgniteHandler(watch).attach(engine)
    stopped.clear()
    for batch in (batch for _ in range(epochs) for batch in loader):
        nn.functional.cross_entropy(module(batch[0]), batch[1]).backward()
        optimizer.step()
        optimizer.zero_grad()
        handlers["iteration"](engine)
        if stopped:
            break
    else:
        handlers["end"](engine)
    print(watch.reached, bool(stopped), watch.audit.checkpoints["step"].iloc[-1] == watch.steps)
"""
    assert python(extended, code)[-6:] == [
        "True",
        "True",
        "True",
        "False",
        "False",
        "True",
    ]


def test_the_widget_moves(extended, notebook_page):
    cells = [
        f"import sys; sys.path.insert(0, {str(extended)!r})",
        "from memowidgets.widgets.flagged import FlaggedCount",
        "count = FlaggedCount([-1, 0, 0.5, 1.5])\ncount",
    ]
    notebook = notebook_page(cells)
    page = notebook.page
    page.get_by_text("2 flagged").wait_for()
    page.get_by_label("τ").fill("0.6")
    page.get_by_text("3 flagged").wait_for()
    notebook.eventually("count.tau", 0.6)
    notebook.python("setattr(count, 'tau', -2.0)")
    page.get_by_text("0 flagged").wait_for()
    notebook.screenshots("contributing-widget", of=".mw-flagged", widths=[600])
    notebook.python("count.close()")
