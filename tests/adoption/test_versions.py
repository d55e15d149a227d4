"""A user's script with the newest and the lowest versions of the libraries that it brings.

Each row has an environment of its own, in which pip puts these versions before the others here.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version

from scripts.lowest import lowest_versions

ROOT = Path(__file__).parents[2]
SCRIPTS = {  # what a user of each library runs
    "transformers": "trainer_classification",
    "trl": "trl_sft",
    "peft": "peft_lora",
    "pandas": "frame_of_anything",
}
RUN = """
import sys
from importlib.metadata import version
from pathlib import Path
from tests.adoption.test_scripts import MADE, run
name, library = sys.argv[1:]
MADE[name](Path())
audit = run(name)["audit"]
losses = audit.checkpoints["median_loss"]
assert len(losses) > 2 and losses.iloc[-1] < losses.iloc[0], losses
print(len(audit.flagged("psmi", share=0.1)), version(library))
"""


LOWEST = lowest_versions("train", "llm", "dev")
ROWS = {
    **{(name, "newest"): [name] for name in SCRIPTS},
    **{(name, "lowest"): [f"{name}=={LOWEST[name]}"] for name in SCRIPTS},
}


@pytest.fixture
def environment(tmp_path):
    """Python of an environment that has the libraries of this one behind its own."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=True)
    own = sysconfig.get_path("purelib", vars={"base": str(place)})
    (Path(own) / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place / "bin" / "python"


def output_of(*command, **how):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("library", "end"), ROWS)
def test_a_script_runs_with_these_versions(library, end, environment, tmp_path):
    wanted = ROWS[library, end]
    pip = (environment, "-m", "pip", "install", "--quiet", "--upgrade")
    output_of(*pip, *wanted)
    flagged, used = output_of(
        environment, "-c", RUN, SCRIPTS[library], library,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)},
    ).split()[-2:]  # fmt: skip
    assert int(flagged) > 4  # a tenth of the members
    if end == "newest":
        assert Version(used) >= Version(version(library))
    else:
        assert Version(used) == Version(LOWEST[library])
