"""Run directories that earlier versions wrote still open, and give the numbers they gave.

`kept/run` and `kept/arrays` were written by the code before the audit room became functions over
a source; `kept/expected.json` holds the numbers that it answered with. Weights are not kept.
Log-LiRA there is of the prior as it is fitted since then, up to .002 from what it was.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import memowidgets as mw
from memowidgets.__main__ import main
from memowidgets.decisions import Decision
from memowidgets.store import StoreError
from tests.hostile.old import written_by_format_1

KEPT = Path(__file__).parent / "kept"
EXPECTED = json.loads((KEPT / "expected.json").read_text("utf-8"))


def copied(name: str, place: Path) -> Path:
    """A copy: opening a run may write to it."""
    shutil.copytree(KEPT / name, place / name)
    return place / name


@pytest.fixture(params=["as it was", "format 1"])
def old(request, tmp_path) -> mw.Audit:
    path = copied("run", tmp_path)
    if request.param == "format 1":
        written_by_format_1(path)
    return mw.Audit.open(path, device="cpu")


def test_an_old_run_gives_the_numbers_it_gave(old):
    assert old.members.tolist() == EXPECTED["members"]
    assert old.prediction.record.name == EXPECTED["prediction"]
    assert old.shadow_sets == EXPECTED["shadow_sets"]
    with pytest.warns(UserWarning, match="2 members have no score"):
        assert old.score("psmi").tolist() == EXPECTED["psmi"]
    for metric in ("mahalanobis", "loss"):
        assert old.score(metric).tolist() == EXPECTED[metric]
    assert old.log_lira().to_dict() == pytest.approx(EXPECTED["log_lira"], abs=1e-6)
    assert old.evaluate("psmi", truth="canaries").auc == EXPECTED["auc"]
    assert old.decision_log[str(old.members[0])] == Decision("remove", "a name")


def test_a_shadow_model_of_an_old_run_takes_the_targets_place(tmp_path):
    target = mw.Audit.open(copied("run", tmp_path), device="cpu").as_target(1)
    assert target.score("psmi").to_dict() == EXPECTED["shadow_psmi"]
    assert target.log_lira().to_dict() == pytest.approx(EXPECTED["shadow_log_lira"], abs=1e-6)


def test_the_decisions_on_old_arrays_are_found_again(tmp_path, capsys):
    path = copied("arrays", tmp_path)
    with pytest.raises(
        StoreError, match=r"call Audit.from_arrays\(…, path=…\) with them once more"
    ):
        mw.Audit.open(path)
    assert main(["audits", str(tmp_path)]) == 0
    assert "Audit.from_arrays" in capsys.readouterr().out
    labels = np.arange(40) % 2
    states = np.random.default_rng(0).normal(size=(40, 4)) + 2 * labels[:, None]
    audit = mw.Audit.from_arrays(labels=labels, representations=states, path=path)
    assert audit.decision_log["03"] == Decision("anonymise", "a ward")
    states = states.astype(np.float32)
    expected = mw.metrics.PSMI(random_state=0).fit(states, labels).score_samples(states, labels)
    assert audit.score("psmi").tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert mw.Audit.open(path).decision_log["03"] == Decision("anonymise", "a ward")
