"""The four scripts of docs/scripts, from their first line to the report."""

from __future__ import annotations

import runpy
import sys

import pytest
import sklearn.datasets

import memowidgets as mw
from tests.house.test_docs import ROOT
from tests.models.test_sequence_classifier import tiny, tokenizer_of_words
from tests.training.small import Inline

N = 120
MODELS = 4


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a script of the page on few samples, with few models in this process."""

    def first(load):
        def few(**options):
            inputs, labels = load(**options)
            return inputs[:N], labels[:N]

        return few

    for name in ("load_digits", "load_breast_cancer"):
        few = first(getattr(sklearn.datasets, name))
        monkeypatch.setattr(sklearn.datasets, name, few)
    notes = mw.data.make_patients(n=60)
    monkeypatch.setattr(mw.data, "make_patients", lambda **_: notes)
    shadows = mw.Audit.run_shadows
    references = mw.Audit.run_references
    monkeypatch.setattr(
        mw.Audit,
        "run_shadows",
        lambda self, _: shadows(self, MODELS, Inline(), design="balanced"),
    )
    monkeypatch.setattr(
        mw.Audit, "run_references", lambda self, _: references(self, 1, Inline())
    )
    report = mw.Audit.report
    monkeypatch.setattr(
        mw.Audit, "report", lambda self, path: report(self, path, figures=False)
    )
    monkeypatch.chdir(tmp_path)

    def run_script(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        place = ROOT / f"docs/scripts/{name}.py"
        audit = runpy.run_path(str(place), run_name="__main__")["audit"]
        (page,) = tmp_path.glob("*.html")
        assert page.stat().st_size > 10_000
        assert audit.n_shadows == MODELS
        assert len(audit.score("reference")) == len(audit.members)
        assert len(audit.log_lira()) == len(audit.members)
        return audit

    return run_script


# so few samples are said, and Lightning and transformers warn of much that is fine here
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_loop(run):
    assert len(run("own_loop").checkpoints) == 21


def test_a_classifier_of_scikit_learn(run):
    audit = run("own_estimator")
    assert audit.layers == ("leaves",)
    assert audit.evidence.origins[-1].model == "RandomForestClassifier"


@pytest.mark.slow
def test_a_trainer_of_lightning(run):
    pytest.importorskip("lightning", reason="no Lightning: pip install lightning")
    origin = run("own_lightning").evidence.origins[-1]
    assert "Lightning" in origin.loop
    assert origin.settings["learning_rate"] == 3e-3


@pytest.mark.slow
def test_a_trainer_of_transformers(run, tmp_path):
    texts = mw.data.make_patients().to_frame()["question"].tolist()
    tokenizer = tokenizer_of_words(texts)
    folder = str(tmp_path / "model")
    tiny("bert", len(tokenizer), num_labels=6).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    origin = run("own_trainer", folder).evidence.origins[-1]
    assert origin.settings["learning_rate"] == 1e-3
    assert origin.model == "BertForSequenceClassification"
