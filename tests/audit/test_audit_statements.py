"""What an audit says of its numbers is true of them, and ids are those of its samples."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from benchmarks.recording import export
from memowidgets.decisions import DecisionLog
from memowidgets.metrics import PSMI
from memowidgets.metrics.psmi import IMPRECISE, KNOWS_NO_LABELS
from memowidgets.models import ConvNet
from tests.training.small import TRAINING, tiny_audit, trained

ABOUT = {"title": "digits", "data": "mw.data.load_digits()", "command": "none"}


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    made = trained(tmp_path_factory.mktemp("statements") / "run")
    made.run_shadows(6, keep_forward=True)
    made.score("psmi")
    return made


@pytest.fixture(scope="module")
def recording(audit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings") / "digits"
    export(audit.path, folder, ABOUT, {})
    return mw.Audit.open(folder)


# Decisions


def test_an_unknown_id_is_named_and_nothing_is_decided(audit, recording):
    wrong = "x\u202e" + "y" * 60
    shown = "x⟨U[+]202E⟩" + "y" * 37 + "…"
    arrays = mw.Audit.from_arrays([0, 1, 0, 1], np.eye(4), ids=list("abcd"))
    for log in (a.decision_log for a in (audit, audit.as_target(1), recording, arrays)):
        good = "a" if log is arrays.decision_log else str(audit.members[0])
        with pytest.raises(
            ValueError, match=f"unknown id '{shown}'; it is not in the data"
        ):
            log.decide([good, wrong], "remove")
        assert not log.table()
    assert DecisionLog().decide(["anything"], "keep") == 1


def test_what_is_no_member_can_be_decided_on_and_a_stranger_taken_back(audit, tmp_path):
    other = next(
        name for name in audit.data.ids.tolist() if name not in set(audit.members)
    )
    assert audit.decision_log.decide([other], "remove") == 1
    assert audit.decision_log.undo() == 1
    shutil.copytree(audit.path, tmp_path / "run")
    (tmp_path / "run" / "decisions.csv").write_text(
        'id,decision,note\n"gone","remove",""\n'
    )
    again = tiny_audit(tmp_path / "run")
    assert again.decisions["id"].tolist() == ["gone"]
    assert again.decision_log.decide(["gone"], "undecided") == 1
    assert again.decisions.empty


# Figures and sliders


def test_the_figure_has_the_rmia_of_the_comparison_or_none(audit, recording):
    figures = audit.figures()
    assert "rmia" not in figures.data["definitions"]
    assert "audit.compare_memorization() makes" in figures.notes["definitions"][0]
    for one in (recording, audit.as_target(2)):
        found = one.compare_memorization().values  # makes the pass that it needs
        drawn = one.figures().data["definitions"]
        np.testing.assert_array_equal(drawn["rmia"], found["rmia"])


# What the positives are


def test_canaries_are_not_called_memorised(audit):
    found = audit.evaluate("psmi", truth="canaries")
    assert f"{found.n_memorized} of {found.n} samples planted (canaries)" in repr(found)
    pooled = audit.evaluate_pooled("psmi", truth="canaries")
    assert f"{pooled.n_memorized} of {pooled.n} rows planted (canaries)" in repr(pooled)
    for one in (found, pooled):
        assert "memorised" not in repr(one) + one._repr_html_()


def test_a_mask_of_the_user_is_not_called_memorised(audit):
    mask = np.arange(len(audit.members)) % 2 == 0
    found = audit.evaluate("psmi", truth=mask)
    assert f"of {found.n} samples positive as given" in repr(found)
    some = pd.Series(mask, audit.members).iloc[5:]
    found = audit.evaluate("psmi", truth=some)
    assert "no score or no ground truth" in repr(found)
    assert "memorised" not in repr(found)
    with pytest.raises(ValueError, match="no sample is positive as given"):
        audit.evaluate("psmi", truth=np.zeros(len(audit.members), dtype=bool))
    eta = float(audit.log_lira().median())
    assert "samples memorised" in repr(audit.evaluate("psmi", eta=eta))


# Reports


def test_no_rule_chose_the_checkpoint_of_arrays(audit, tmp_path):
    rng = np.random.default_rng(0)
    arrays = mw.Audit.from_arrays(np.arange(40) % 2, logits=rng.normal(size=(40, 2)))
    for name, one, chosen in (("arrays", arrays, 0), ("run", audit, 1)):
        page = one.report(tmp_path / f"{name}.html", figures=False)
        rows = json.loads(page.with_suffix(".json").read_text("utf-8"))["checkpoints"]
        assert sum(row["prediction"] for row in rows) == chosen
        assert page.read_text("utf-8").count("<td>look here</td>") == chosen


def test_scores_that_2048_directions_leave_too_inaccurate_are_named():
    """A large class that hides a tiny one: nearly all scores are nearly 0."""
    rng = np.random.default_rng(0)
    labels = np.append(np.zeros(500, dtype=int), np.ones(20, dtype=int))
    states = rng.normal(size=(520, 10)) + 2 * labels[:, None]
    audit = mw.Audit.from_arrays(labels, states)
    with pytest.warns(UserWarning, match="2048 directions leave"):
        table = audit.flagged("psmi", share=0.1)
    (note,) = table.attrs["notes"]
    assert note.key == IMPRECISE
    assert note.numbers["directions"] == 2048
    assert note.numbers["error"] > note.numbers["allowed"]


@pytest.mark.filterwarnings(
    "ignore:.*(nothing has settled|not learned|τ = 0 is):UserWarning"
)
def test_a_reopened_run_still_says_that_representations_know_no_labels(
    tmp_path, monkeypatch
):
    rng = np.random.default_rng(0)
    images, labels = rng.random((300, 8, 8, 1)), rng.integers(0, 4, 300)
    data = mw.data.ImageDataset.from_arrays(images, labels, list("abcd"))
    path = tmp_path / "run"
    first = mw.Audit(ConvNet(4), data, path=path, training=TRAINING, device="cpu")
    first.train()
    first.score("psmi", checkpoint="epoch-0")
    export(path, tmp_path / "recording", ABOUT, {})
    monkeypatch.setattr(PSMI, "fit", lambda *_: pytest.fail("PSMI was computed again"))
    again = [mw.Audit.open(path, data=data), mw.Audit.open(path)]
    for audit in (first, *again, mw.Audit.open(tmp_path / "recording")):
        with pytest.warns(UserWarning, match=KNOWS_NO_LABELS):
            audit.flagged("psmi", checkpoint="epoch-0")
