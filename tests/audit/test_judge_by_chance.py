"""Every evaluation that rests on shadow models says what chance alone would give."""

from __future__ import annotations

import pytest

import memowidgets as mw
from memowidgets.audit.numbers.truth import member_gaps
from memowidgets.audit.views.answers import AuditView
from memowidgets.evaluation import chance_note, roc
from memowidgets.memorization.chance import ByChance
from memowidgets.progress import Progress


@pytest.fixture(scope="module")
def audit():
    return mw.open_recorded("mmlu-field-smollm2")


def test_an_evaluation_says_how_many_chance_would_give(audit):
    found = audit.evaluate("psmi")
    _, members, gaps, _ = member_gaps(audit.evidence)
    assert found.by_chance == pytest.approx(ByChance.of(gaps, members).share(4.0) * found.n)
    assert found.warnings[-1] == chance_note(found.by_chance, found.n_memorized, 32)
    assert "more than a quarter" not in found.warnings[-1]
    low = audit.evaluate("psmi", eta=1.0)
    assert low.by_chance > found.by_chance
    assert audit.evaluate("psmi", truth=audit.log_lira() >= 4).by_chance is None


def test_many_by_chance_are_warned_of():
    found = roc([1.0, 2.0, 3.0, 4.0], [True, True, False, False])
    assert found.by_chance is None
    assert "more than a quarter" not in found.with_chance(0.5, 8).warnings[-1]
    noisy = found.with_chance(0.51, 8)
    assert noisy.by_chance == 0.51
    for fact in ("8 shadow models", "0.5 of the 2 memorised", "more than a quarter", "raise η"):
        assert fact in noisy.warnings[-1]


def test_the_dashboard_says_it_too(audit):
    view = AuditView(audit)
    shown = view.view("loss", "last", audit.prediction.record.name)
    (note,) = shown.notes
    assert note.startswith("At η = 4, with 32 shadow models, chance alone would give 0.3 of the 35")
    assert shown.warnings == ()  # so little is good news


def test_many_by_chance_are_a_warning(audit, monkeypatch):
    monkeypatch.setattr("memowidgets.audit.numbers.truth.share_by_chance", lambda *_: 0.02)
    shown = AuditView(audit).view("loss", "last", audit.prediction.record.name)
    assert shown.notes == ()
    assert any("20.0 of the 35 memorised" in text for text in shown.warnings)


def test_pooled_evaluations_say_it():
    recorded = mw.open_recorded("cifar10-wrn")
    recorded.use_shadows("canaries")
    found = recorded.evaluate_pooled("loss", targets=[0, 1], progress=Progress())
    assert found.by_chance is not None
    assert "chance alone would give" in found.warnings[-1]
    planted = recorded.evaluate_pooled("loss", truth="canaries", targets=[0], progress=Progress())
    assert planted.by_chance is None
