"""What an audit tells the dashboard: what can be picked, and that there is something new."""

from __future__ import annotations

import shutil
from pathlib import Path

from memowidgets.audit.views.dashboard import AuditView


def test_the_view_says_which_scores_have_layers(finished):
    by_layer = {c.value: c.uses_layer for c in AuditView(finished.source).score_choices()}
    assert by_layer.items() >= {
        ("psmi", True),
        ("mahalanobis", True),
        ("loss", False),
        ("logit_gap", False),
    }


def test_a_revision_differs_once_there_is_more(finished):
    view = AuditView(finished.source)
    before = view.revision()
    assert before
    assert view.revision() == before
    shadows = Path(finished.path) / "shadows"
    first = next(shadows.rglob("*.safetensors"))
    another = first.with_name("9999-copy.safetensors")
    shutil.copy(first, another)
    try:
        assert view.revision() != before
    finally:
        another.unlink()
    assert view.revision() == before
    (shadows / ".unfinished-note").write_text("not a result")
    assert view.revision() == before
    (shadows / ".unfinished-note").unlink()
