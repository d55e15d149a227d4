"""From texts to the flagged ones, as the page on own arrays shows it."""

from __future__ import annotations

import pandas as pd

import memowidgets as mw
from tests.house.test_docs import ROOT, blocks

(ARRAYS,) = blocks(ROOT / "docs/own_arrays.md", "python")
N, WRONG = 240, 12


def test_arrays_of_scikit_learn_find_the_wrong_labels(tmp_path, monkeypatch):
    """Texts on six wards, some with a wrong one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mw.Audit, "dashboard", lambda _audit: None)
    patients = mw.data.make_mcqs(n=N, atypical=WRONG / N, seed=0)
    told = [patient.choices[patient.label] for patient in patients]
    texts = [patient.question for patient in patients]
    data = mw.data.TextDataset.from_texts(texts, told, ids=patients.ids)
    names, wrong = {"mw": mw, "data": data}, patients.ids[patients.canaries]
    exec(ARRAYS, names)
    assert 0.95 <= names["drop"] < 0.999
    assert names["audit"].score("psmi").nsmallest(WRONG).index.isin(wrong).mean() > 0.7
    assert pd.read_csv("flagged.csv", index_col="id").index.isin(wrong).sum() > 0.7 * WRONG
