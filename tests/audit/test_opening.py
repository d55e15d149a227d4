"""Texts and questions from a file: a run names the file, and reads it again where it is passed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import memowidgets as mw

SHORT = mw.TrainingConfig(epochs=1, batch_size=16, precision="float32")
WORDS = {
    "card": "my card {} is lost",
    "cash": "no cash at machine {}",
    "loan": "my loan {} is late",
}


def texts(folder):
    path = folder / "messages.csv"
    rows = [(text.format(i % 7), label) for i in range(24) for label, text in WORDS.items()]
    pd.DataFrame(rows, columns=["text", "intent"]).to_csv(path, index=False)
    data = mw.data.TextDataset.from_csv(path, label="intent")
    return path, data, mw.models.SequenceClassifier.from_scratch(data, layers=1, width=16)


def questions(folder):
    path = folder / "deeds.csv"
    lines = [f"{i % 2},I {['paid', 'lied'][i % 2]} {i} times." for i in range(60)]
    path.write_text("label,input\n" + "\n".join(lines) + "\n")
    columns = {"question": "input", "answer": "label"}
    data = mw.data.MCQDataset.from_csv(path, columns, choices=["no", "yes"])
    return path, data, mw.models.CausalLM.from_scratch(data, layers=1, width=16)


@pytest.mark.parametrize("make", [texts, questions])
def test_a_run_opens_again_with_its_file(tmp_path, make):
    path, data, model = make(tmp_path)
    audit = mw.Audit(model, data, path=tmp_path / "run", training=SHORT, seed=0, device="cpu")
    audit.train()
    before = audit.score("loss", checkpoint="final")
    source = json.loads((Path(audit.path) / "manifest.json").read_text())["data"]["source"]
    assert source["arguments"]["path"] == str(path)
    with pytest.warns(UserWarning, match="refers to paths outside of itself"):
        assert isinstance(mw.Audit.open(audit.path).data, mw.data.WithheldDataset)
    again = mw.Audit.open(audit.path, data=shutil.move(path, tmp_path / "moved.csv"))
    assert again.data.content_hashes() == data.content_hashes()
    assert again.data.class_names == data.class_names
    pd.testing.assert_series_equal(again.score("loss", checkpoint="final"), before)
    changed = Path(tmp_path / "moved.csv").read_text().replace(" 3", " 4")
    (tmp_path / "changed.csv").write_text(changed)
    with pytest.raises(ValueError, match="samples have another content"):
        mw.Audit.open(audit.path, data=tmp_path / "changed.csv")


def test_equal_texts_are_members_together(tmp_path):
    _, data, model = texts(tmp_path)
    audit = mw.Audit(model, data, path=tmp_path / "run", training=SHORT, seed=0, device="cpu")
    members = set(audit.members.tolist())
    for text in set(data.texts):
        same = [
            str(name) for name, other in zip(data.ids, data.texts, strict=True) if other == text
        ]
        assert len(members & set(same)) in (0, len(same))
    assert 0.35 < len(members) / len(data) < 0.55
    assert np.isin(audit.run.held_out.ids, list(members)).sum() == 0
