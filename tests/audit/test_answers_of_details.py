"""What an audit knows of one member, against the definitions."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from scipy.stats import norm

import memowidgets as mw
from memowidgets.audit.views.answers import AuditView, nearest
from tests.audit.conftest import small_audit
from tests.widgets.page import say


@pytest.fixture(scope="module")
def view(finished):
    return AuditView(finished)


def detail(view, position, score="psmi", layer=None, checkpoint=None):
    names = view._audit.evidence.names
    chosen = checkpoint or names.prediction().record.name
    return view.detail(position, score, layer or names.layer_names[-1], chosen)


def test_scores_everywhere_are_those_of_the_audit(finished, tmp_path):
    finished.score("psmi")
    finished.score("psmi", layer=1, checkpoint=1)
    shutil.copytree(finished.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/scores/epoch-1")
    found = detail(AuditView(small_audit(tmp_path / "run")), 7)
    assert found.scores.shape == (len(found.checkpoints), len(finished.layers))
    assert [c.value for c in found.checkpoints if c.marked] == [finished.prediction.record.name]
    assert [c.value for c in found.layers if c.marked] == [finished.layers[-1]]
    at = {choice.value: i for i, choice in enumerate(found.checkpoints)}
    assert found.computed[at[finished.prediction.record.name], -1]
    assert not found.computed[at["epoch-1"]].any()
    for i, j in zip(*np.nonzero(found.computed), strict=True):
        place = found.layers[j].value, found.checkpoints[i].value
        assert found.scores[i, j] == finished.score("psmi", *place).iloc[7]
    assert np.isnan(found.scores[~found.computed]).all()


def test_a_score_without_layers_has_one_column(finished, view):
    found = detail(view, 3, "loss")
    assert [layer.value for layer in found.layers] == [""]
    assert found.scores.shape == (len(found.checkpoints), 1)
    at = [c.value for c in found.checkpoints].index(finished.prediction.record.name)
    assert found.scores[at, 0] == finished.score("loss").iloc[3]


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
        ratio = norm.logpdf(shadows.target, *shadows.fit_in) - norm.logpdf(
            shadows.target, *shadows.fit_out
        )
        assert shadows.log_lira == log_lira[name]
        assert ratio == pytest.approx(log_lira[name], rel=1e-4, abs=1e-4)


def test_neighbours_are_the_nearest_by_brute_force(finished, view):
    n = len(finished.members)
    states = np.array(finished.representation(), dtype=np.float64).reshape(n, -1)
    found = detail(view, 20).neighbours
    distances = np.linalg.norm(states - states[20], axis=1)
    distances[20] = np.inf
    assert [row for row, _ in found] == np.argsort(distances, kind="stable")[:6].tolist()
    assert [d for _, d in found] == pytest.approx(np.sort(distances)[:6], rel=1e-5)


def test_few_samples_have_few_neighbours():
    assert nearest(np.array([[0.0], [2.0]]), 0, 6) == [(1, 2.0)]


def test_what_is_missing_is_said(tmp_path):
    from tests.audit.conftest import small_audit

    audit = small_audit(tmp_path / "run", training=mw.TrainingConfig(epochs=1, batch_size=8))
    audit.train()
    view = AuditView(audit)
    found = detail(view, 0)
    assert found.shadows is None
    assert found.neighbours == []
    assert not found.computed.any()
    assert any("no shadow models" in note for note in found.notes)
    assert any("nothing was scored" in note for note in found.notes)


def test_the_dashboard_of_an_audit_decides_for_the_audit(finished, tmp_path):
    dashboard = finished.dashboard(edits_file=tmp_path / "edits.jsonl")
    try:
        assert finished.edits_file == tmp_path / "edits.jsonl"
        reply = say(dashboard, "decide", positions=[0], decision="remove", note="a patient")
        assert "to be removed" in reply["text"]
        assert finished.decisions.values.tolist() == [
            [str(finished.members[0]), "remove", "a patient"]
        ]
        assert dashboard.decisions.equals(finished.decisions)
        assert str(finished.members[0]) not in finished.kept().ids
        assert "score:loss" in dashboard._rows.sorts()
        order = dashboard._rows.order("score:loss")
        assert order[0] == int(np.argmin(finished.score("loss").to_numpy()))
    finally:
        say(dashboard, "undo")
        dashboard.close()
        finished.edits_file = None
