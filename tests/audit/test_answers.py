"""What an audit tells the dashboard: what can be picked, what is new, and all of one member."""

from __future__ import annotations

import gc
import io
import shutil
import weakref
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import memowidgets as mw
from memowidgets.audit.numbers.truth import answered_rightly
from memowidgets.audit.views.nearest import distances as away
from memowidgets.audit.views.nearest import majority_of_nearest, nearest
from tests.audit.conftest import small_audit, small_data, view_of
from tests.javascript import asking
from tests.widgets.page import say

DRIVER = Path(__file__).parents[1] / "widgets" / "js" / "driver.mjs"
# memorised at η = 4, and of these answered wrongly at the end
RECORDED = {"mmlu-field-smollm2": (35, 20), "banking77-smollm2": (349, 1)}


@pytest.fixture(scope="module")
def view(finished):
    return view_of(finished)


def test_a_revision_differs_once_there_is_more(finished, tmp_path):
    shutil.copytree(finished.path, tmp_path / "run")
    audit, other = (small_audit(tmp_path / "run") for _ in range(2))
    view = view_of(audit)
    before = view.revision()
    assert view.revision() == before
    other.decision_log.decide([str(other.members[0])], "keep")
    (tmp_path / "run/shadows/.unfinished-note").write_text("not a result")
    assert view.revision() == before
    other.run.run.forget("shadows/0019")
    later = view.revision()
    assert later != before
    assert view.revision() == later


def test_dashboards_of_one_choice_hold_its_arrays_once_and_the_last_one_lets_them_go():
    audit = mw.open_recorded("digits")
    place = "psmi", audit.layers[-1], audit.prediction.record.name
    first, second = view_of(audit).view(*place), view_of(audit).view(*place)
    assert np.shares_memory(first.ids, second.ids)
    assert np.shares_memory(first.probabilities, second.probabilities)
    assert first.doubt(4.0) is second.doubt(4.0)
    assert first.doubt(5.0).expected < first.doubt(4.0).expected
    held = weakref.ref(first)
    del first, second
    gc.collect()
    assert held() is None


def test_the_export_has_what_is_known_of_flagged_and_of_decided_samples(finished, view):
    layer = finished.layers[-1]
    with (
        pytest.warns(UserWarning, match="fewer than 20"),
        pytest.warns(UserWarning, match="τ = 0 may be strict"),
    ):
        flagged = finished.flagged("psmi", layer, "prediction", 0.0)
    other = next(
        name for name in finished.evidence.members if name not in flagged.index
    )
    finished.decision_log.decide([other], "remove", "a reason")
    try:
        place = "psmi", layer, "prediction", 0.0, 4.0
        text = view.export_text(*place)
    finally:
        finished.decision_log.undo()
    rows = pd.read_csv(io.StringIO(text), dtype={"id": str}).set_index("id")
    assert set(rows.index) == {*flagged.index, other}
    np.testing.assert_allclose(rows["score"][flagged.index], flagged["score"])
    assert rows.loc[other, ["decision", "note"]].tolist() == ["remove", "a reason"]
    assert {"label", "guess", "log_lira", "status", "to"} <= set(rows)
    assert not {"text", "question"} & set(rows)


# one member


def detail(view, position, score="psmi", layer=None, checkpoint=None):
    names = view._audit.evidence.names
    chosen = checkpoint or names.prediction().record.name
    return view.detail(position, score, layer or names.layer_names[-1], chosen)


def test_scores_everywhere_are_those_of_the_audit(finished, tmp_path):
    finished.score("psmi")
    finished.score("psmi", layer=1, checkpoint=1)
    shutil.copytree(finished.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/scores/epoch-1")
    found = detail(view_of(small_audit(tmp_path / "run")), 7)
    assert found.scores.shape == (len(found.checkpoints), len(finished.layers))
    assert [c.value for c in found.checkpoints if c.marked] == [
        finished.prediction.record.name
    ]
    assert [c.value for c in found.layers if c.marked] == [finished.layers[-1]]
    at = {choice.value: i for i, choice in enumerate(found.checkpoints)}
    there = ~np.isnan(found.scores)
    assert there[at[finished.prediction.record.name], -1]
    assert not there[at["epoch-1"]].any()
    for i, j in zip(*np.nonzero(there), strict=True):
        place = found.layers[j].value, found.checkpoints[i].value
        assert found.scores[i, j] == finished.score("psmi", *place).iloc[7]
    found = detail(view_of(finished), 3, "loss")  # which has no layers
    assert [layer.value for layer in found.layers] == [""]
    assert found.scores.shape == (len(found.checkpoints), 1)
    row = [c.value for c in found.checkpoints].index(finished.prediction.record.name)
    assert found.scores[row, 0] == finished.score("loss").iloc[3]


def test_the_gaussians_are_those_behind_log_lira(finished, view):
    log_lira = finished.log_lira()
    for position in (0, 11, 50):
        shadows = detail(view, position).shadows
        name = finished.members[position]
        if shadows is None:
            assert name not in log_lira.index
            continue
        assert len(shadows.inside) + len(shadows.outside) == finished.n_shadows
        assert shadows.fit_in[0] == pytest.approx(shadows.inside.mean(), rel=1e-4)
        assert shadows.fit_out[0] == pytest.approx(shadows.outside.mean(), rel=1e-4)
        both = shadows.fit_in, shadows.fit_out
        inside, outside = (norm.logpdf(shadows.target, *fit) for fit in both)
        assert shadows.log_lira == log_lira[name]
        assert inside - outside == pytest.approx(log_lira[name], rel=1e-4, abs=1e-4)


@pytest.mark.filterwarnings(
    "ignore:8 of 10 classes:UserWarning", "ignore:PSMI's τ = 0:UserWarning"
)
def test_support_is_over_all_models_the_target_among_them(finished, view, tmp_path):
    rows = pd.read_csv(finished.export(tmp_path / "all.csv", all_members=True, eta=1.0))
    rows = rows.set_index(rows["id"].astype(str)).loc[list(map(str, finished.members))]
    assert 0 < rows["memorized_by"].count() < len(rows)
    assert rows["memorized_by"].max() > 0
    for position in range(40):
        name, row = str(finished.members[position]), rows.iloc[position]
        shadows = view.detail(
            position, "psmi", finished.layers[-1], "prediction", 1.0
        ).shadows
        assert row["learned_by"] == len(shadows.inside) + 1
        enough = 9 <= row["learned_by"] <= 21 - 9
        assert (
            enough
            == (shadows.support is not None)
            == (not np.isnan(row["memorized_by"]))
        ), name
        if enough:
            assert shadows.support == (row["memorized_by"], row["learned_by"])


def test_neighbours_are_the_nearest_by_brute_force(finished, view):
    n = len(finished.members)
    states = np.array(finished.representation(), dtype=np.float64).reshape(n, -1)
    found = detail(view, 20).neighbours
    distances = np.linalg.norm(states - states[20], axis=1)
    distances[20] = np.inf
    assert [row for row, _ in found] == np.argsort(distances, kind="stable")[
        :6
    ].tolist()
    assert [d for _, d in found] == pytest.approx(np.sort(distances)[:6], rel=1e-5)
    assert nearest(away(np.array([[0.0], [2.0]]), 0), 6) == [(1, 2.0)], (
        "fewer where there are few"
    )


def test_a_near_duplicate_is_told_that_a_low_log_lira_says_little():
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 2
    states = rng.normal(size=(80, 6)) + 4 * labels[:, None]
    states[2] = states[0] + 1e-3  # of its class
    states[5] = states[4] + 1e-3  # of another class
    members, logits = rng.random((12, 80)) < 0.5, rng.normal(size=(80, 2))
    gaps = mw.metrics.logit_gap(logits, labels) + rng.normal(size=(12, 80))
    shadows = {"shadow_gaps": gaps, "shadow_members": members}
    audit = mw.Audit.from_arrays(labels, states, **shadows, final_logits=logits)
    said = [
        i for i in range(80) if "Near-dup" in " ".join(detail(view_of(audit), i).notes)
    ]
    assert said == [0, 2]
    unjudged = view_of(mw.Audit.from_arrays(labels, states))
    assert "Near-dup" not in " ".join(detail(unjudged, 0).notes)


def test_what_is_missing_is_said_and_what_computing_it_takes(tmp_path, monkeypatch):
    training = mw.TrainingConfig(epochs=3, checkpoint_every=1)
    audit = small_audit(tmp_path / "run", training=training, model=mw.models.ConvNet(8))
    audit.train()
    view, layer = view_of(audit), audit.layers[-1]
    found = detail(view, 0)
    assert found.shadows is None
    assert found.neighbours == []
    assert np.isnan(found.scores).all()
    for fact in ("no shadow models", "nothing was scored"):
        assert any(fact in note for note in found.notes)
    n = len(audit.members)
    first = view.missing("psmi", layer, "epoch-1")
    assert first.cost.startswith(f"Scoring {n} samples, about ")
    assert first.short, "an epoch of its training took a moment"
    with monkeypatch.context() as patch:
        patch.setattr(type(audit.run), "_seconds", lambda *_: 100.0)
        assert not view.missing("psmi", layer, "epoch-1").short
    audit.score("psmi", checkpoint="epoch-1")
    both = view.missing("psmi_mean", layer, "epoch-3")
    file = tmp_path / "run/forward/epoch-1.safetensors"
    assert both.cost.startswith(f"Scoring {n} samples at 2 checkpoints, about ")
    assert f"{2 * file.stat().st_size / 1e3:.0f} kB of disk" in both.cost
    assert both.short
    places = [
        (score, layer, f"epoch-{i}") for score in ("psmi", "loss") for i in (1, 2, 3)
    ]
    assert view.cost(places) == both.cost  # a pass is for both scores
    assert view.cost(places[:1]) == ""
    dashboard = audit.dashboard()
    dashboard.wait(60)
    assert dashboard.computed, "a pass that takes a moment begins by itself"
    dashboard.close()


@pytest.mark.filterwarnings("ignore:only members of the target:UserWarning")
def test_the_dashboard_of_an_audit_decides_for_the_audit(finished):
    dashboard = finished.dashboard()
    try:
        reply = say(
            dashboard, "decide", positions=[0], decision="remove", note="a patient"
        )
        assert "to be removed" in reply["text"]
        what = ["id", "decision", "note"]
        assert finished.decisions[what].values.tolist() == [
            [str(finished.members[0]), "remove", "a patient"]
        ]
        assert dashboard.decisions.equals(finished.decisions)
        assert str(finished.members[0]) not in finished.kept().ids
    finally:
        say(dashboard, "undo")
        dashboard.close()


# every member


def test_log_lira_and_eta_are_written_on_the_side_that_they_are_on(node):
    # many of which one digit shows as 4.0
    values = np.random.default_rng(0).normal(4, 0.1, 200)
    with asking(node, DRIVER) as ask:
        for eta in (4.0, *values[:9]):
            texts = ask(what="beside", cases=[[value, eta] for value in values])
            shown = [[float(text.replace("−", "-")) for text in pair] for pair in texts]
            assert [value >= eta for value in values] == [a >= b for a, b in shown]


@pytest.mark.parametrize("name", RECORDED)
def test_memorised_is_not_answered_rightly(name):
    audit = mw.open_recorded(name)
    shown = view_of(audit).view("psmi", "last", audit.prediction.record.name)
    memorized = shown.log_lira >= 4
    assert (memorized.sum(), (memorized & ~shown.right).sum()) == RECORDED[name]
    gaps = audit.score("logit_gap", checkpoint="final").to_numpy()
    assert (shown.right == (gaps > 0)).all()


def test_the_answers_of_arrays_are_not_known():
    rng = np.random.default_rng(0)
    audit = mw.Audit.from_arrays(
        labels=rng.integers(0, 3, 60), logits=rng.normal(size=(60, 3))
    )
    assert answered_rightly(audit.evidence) is None


@pytest.mark.filterwarnings("ignore:the drop jumped:UserWarning")
def test_shadow_models_are_offered_where_they_can_be_trained_else_it_says_why(
    view, tmp_path
):
    there = view.steps().know.missing
    assert there.trains
    assert "shadow models" in there.button
    labels = np.arange(40) % 2
    arrays = mw.Audit.from_arrays(labels=labels, logits=3 * np.eye(2)[labels])
    practitioner = small_audit(tmp_path / "all", members="all")
    untrained = small_audit(tmp_path / "half")
    for audit, word in (
        (arrays, "shadow_gaps"),
        (untrained, "train"),
    ):
        know = view_of(audit).steps().wire["know"]
        assert know["button"] == ""
        assert word in know["said"]
    assert "reference_gaps" in view_of(arrays).steps().wire["more"]["said"]
    practitioner.train(stop_at_drop=0.5)
    steps = view_of(practitioner).steps()
    assert "short models" in steps.more.missing.button
    assert (steps.know.missing.label, steps.know.missing.why_not) == ("", "")
    lines = steps.know.lines
    assert "half of the data" in lines.said
    scope = {"mw": mw, "model": mw.models.ConvNet(16), "data": small_data()}
    first, second = lines.code.replace("with-half", str(tmp_path / "new")).split("\n")
    exec(first, scope)
    assert len(scope["audit"].data) == len(practitioner.data)
    assert "run_shadows(32)" in second


@pytest.mark.parametrize("bound", [None, 60])
def test_most_of_the_nearest_are_those_of_a_plain_loop(monkeypatch, bound):
    rng = np.random.default_rng(0)
    states = rng.normal(size=(900, 2, 3)).astype(np.float32)
    labels, rows = rng.integers(0, 3, 900), rng.choice(900, 700, replace=False)
    among = np.arange(900)
    if (
        bound is not None
    ):  # where they are too many, they are compared with some of them
        monkeypatch.setattr("memowidgets.audit.views.nearest._FEWEST", bound)
        monkeypatch.setattr("memowidgets.audit.views.nearest._PRODUCTS", 1)
        among = np.sort(np.random.default_rng(0).choice(900, bound, replace=False))
    expected = []
    for row in rows:
        others = among[among != row]
        far = ((states[others] - states[row]) ** 2).sum(axis=(1, 2))
        counts = np.bincount(labels[others[np.argsort(far)[:6]]])
        expected.append(counts.argmax() if counts.max() > 3 else -1)
    assert majority_of_nearest(states, labels, rows).tolist() == expected


def test_few_rows_have_few_neighbours():
    states, labels = np.zeros((2, 1)), np.array([0, 1])
    assert majority_of_nearest(states, labels, np.array([0])).tolist() == [1]
    assert majority_of_nearest(states[:1], labels[:1], np.array([0])).tolist() == [-1]


def test_a_label_looks_wrong_where_model_and_neighbours_agree_and_not_where_a_note_is_rare():
    for name, most, planted in (("patients-smollm2", 24, 8), ("digits", 45, 28)):
        dashboard = mw.open_recorded(name).dashboard()
        scored, wrong = dashboard._rows.scored, dashboard._rows.looks_wrong
        dashboard.close()
        other = scored.probabilities.argmax(axis=1) != scored.labels
        assert not (wrong & ~other).any()
        assert wrong.sum() <= most < other.sum()
        assert (wrong & scored.canaries).sum() >= planted
