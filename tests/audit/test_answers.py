"""What an audit tells the dashboard: what can be picked, and that there is something new."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw
from memowidgets.audit.views.answers import AuditView


def test_the_view_says_which_scores_have_layers(finished):
    by_layer = {c.value: c.uses_layer for c in AuditView(finished).score_choices()}
    assert by_layer.items() >= {
        ("psmi", True),
        ("mahalanobis", True),
        ("loss", False),
        ("logit_gap", False),
    }


def test_a_revision_differs_once_there_is_more(finished):
    view = AuditView(finished)
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


@pytest.mark.parametrize("small", [1, 6])
def test_what_a_score_says_of_small_classes_is_shown(small):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(small + 1), [5] * small + [60])
    features, logits = rng.normal(size=(len(labels), 4)), rng.normal(size=(len(labels), small + 1))
    view = AuditView(mw.Audit.from_arrays(labels, features, logits))
    choice = view.layer_choices()[-1].value, view.checkpoint_choices()[-1].value
    said = view.view("psmi", *choice).warnings
    small_ones = [note for note in said if "20" in note or "5 samples" in note]
    assert len(small_ones) == 1
    assert all(f"{i}" in small_ones[0] for i in range(small))
    assert not [note for note in view.view("loss", *choice).warnings if "only 5" in note]


def test_the_export_has_what_is_known_of_flagged_and_of_decided_samples(finished):
    view, layer = AuditView(finished), finished.layers[-1]
    with pytest.warns(UserWarning, match="fewer than 20"):
        flagged = finished.flagged("psmi", layer, "prediction", 0.0)
    other = next(name for name in finished.evidence.members if name not in flagged.index)
    finished.decision_log.decide([other], "remove", "a reason")
    try:
        place = "psmi", layer, "prediction", 0.0, 4.0
        text = view.export_text(*place, ".csv", samples=False)
        lines = view.export_text(*place, ".jsonl", samples=True).splitlines()
        with pytest.raises(ValueError, match=r"\.xls.*") as refused:
            view.export_text(*place, ".xls", samples=False)
    finally:
        finished.decision_log.undo()
    rows = pd.read_csv(io.StringIO(text), dtype={"id": str}).set_index("id")
    assert set(rows.index) == {*flagged.index, other}
    np.testing.assert_allclose(rows["score"][flagged.index], flagged["score"])
    assert rows.loc[other, ["decision", "note"]].tolist() == ["remove", "a reason"]
    assert {"label", "guess", "log_lira", "verdict", "to"} <= set(rows)
    assert not {"text", "question"} & set(rows)
    assert [json.loads(line)["id"] for line in lines] == list(rows.index)
    assert all(name in str(refused.value) for name in (".csv", ".jsonl"))
