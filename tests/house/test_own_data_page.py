"""From one file of texts to the flagged ones, as the pages on own data and own arrays show it."""

from __future__ import annotations

import csv

import pandas as pd
import pytest
import torch

import memowidgets as mw
from tests.house.test_docs import ROOT, blocks

(OWN,) = blocks(ROOT / "docs/own_data.md", "python")
(ARRAYS,) = blocks(ROOT / "docs/own_arrays.md", "python")
N, WRONG, FEW = 240, 12, 80
NAME = "distilbert/distilbert-base-uncased"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with messages.csv, of texts on six wards, some with a wrong one."""
    folder = tmp_path_factory.mktemp("page")
    patients = mw.data.make_mcqs(n=N, atypical=WRONG / N, seed=0)
    _write(folder, patients)
    return folder, patients


def _write(folder, patients):
    with (folder / "messages.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "text", "category"])
        for name, patient, label in zip(patients.ids, patients, patients.labels, strict=True):
            rows.writerow([name, patient.question, patient.choices[label]])


@pytest.fixture
def pretrained(place, tmp_path, monkeypatch):
    """A tiny model without a head, beside few of the messages, in a folder with the hub's name."""
    from transformers import DistilBertConfig, DistilBertModel

    from memowidgets.models.tokens import tokenizer_of_words

    folder, patients = tmp_path, place[1].take(range(FEW))
    monkeypatch.chdir(folder)
    _write(folder, patients)
    tokenizer = tokenizer_of_words(patient.question for patient in patients)
    size = {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 64}
    torch.manual_seed(0)
    DistilBertModel(DistilBertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(
        folder / NAME
    )
    tokenizer.save_pretrained(folder / NAME)


@pytest.fixture(autouse=True)
def _in_the_folder_without_a_dashboard(place, monkeypatch):
    monkeypatch.chdir(place[0])
    monkeypatch.setenv("MEMOWIDGETS_CACHE", str(place[0] / "cache"))
    monkeypatch.setattr(mw.Audit, "dashboard", lambda _audit: None)


def test_arrays_of_scikit_learn_find_the_wrong_labels(place):
    data = mw.data.TextDataset.from_csv("messages.csv", text="text", label="category")
    names, wrong = {"mw": mw, "data": data}, place[1].ids[place[1].canaries]
    exec(ARRAYS, names)
    assert 0.95 <= names["drop"] < 0.999
    assert names["audit"].score("psmi").nsmallest(WRONG).index.isin(wrong).mean() > 0.7
    assert pd.read_csv("flagged.csv", index_col="id").index.isin(wrong).sum() > 0.7 * WRONG


# A random DistilBERT learns little in five epochs at the rates for a pretrained one: it is told.
@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.*(no checkpoint reached|not learned|no better than shuffled labels).*:UserWarning"
)
@pytest.mark.filterwarnings("ignore:.*their scores are inaccurate:UserWarning")  # of few texts
@pytest.mark.usefixtures("pretrained")
def test_a_classifier_of_texts_from_a_file_is_audited():
    names = {}
    exec(OWN, names)
    assert names["audit"].layers == ("1", "2", "3")
    assert {"score", "label"} <= {*pd.read_csv("flagged.csv").columns}
