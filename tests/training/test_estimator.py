"""Classifiers of scikit-learn, audited in one call."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from scipy.stats import mannwhitneyu
from sklearn.base import clone
from sklearn.ensemble import (
    AdaBoostClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import memowidgets as mw
from memowidgets.memorization import counterfactual
from memowidgets.store import RunDirectory
from memowidgets.training.config import derived_seed
from memowidgets.training.design import SHADOW
from tests.training.small import Inline

N = 240
WIDTH = 20
PLANTED = np.arange(0, N, 12)


def table(classes=3):
    """Clouds in many dimensions, with every twelfth label wrong."""
    rng = np.random.default_rng(0)
    labels = np.arange(N) % classes
    inputs = rng.normal(size=(N, WIDTH)) + 2 * np.eye(classes, WIDTH)[labels]
    labels[PLANTED] = (labels[PLANTED] + 1) % classes
    return inputs, labels


def audited(estimator, path, inputs=None, labels=None, **changes):
    own = table()
    given = own[0] if inputs is None else inputs, own[1] if labels is None else labels
    audit = mw.Audit.from_estimator(estimator, *given, path, **changes)
    audit.train()
    return audit


@pytest.mark.parametrize(
    ("estimator", "checkpoints", "layer"),
    [
        (LogisticRegression(C=100, max_iter=2000), 2, "logits"),
        (make_pipeline(StandardScaler(), SVC(C=10, gamma=0.1)), 2, "logits"),
        (
            make_pipeline(StandardScaler(), MLPClassifier((9,), tol=0.1)),
            2,
            "hidden",
        ),
        (RandomForestClassifier(20), 2, "leaves"),
        (DecisionTreeClassifier(), 2, "leaves"),
        (HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=5), 9, "logits"),
        (GradientBoostingClassifier(n_estimators=5), 6, "leaves"),
        (AdaBoostClassifier(n_estimators=4), 5, "logits"),
        (MLPClassifier((24,), max_iter=12, learning_rate_init=0.02), 13, "hidden"),
        (SGDClassifier(max_iter=6, tol=None), 7, "logits"),
        (SGDClassifier(), 2, "logits"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_it_is_audited_from_the_target_to_the_truth(
    tmp_path, estimator, checkpoints, layer
):
    audit = audited(estimator, tmp_path)
    assert len(audit.checkpoints) == checkpoints
    assert audit.layers == (layer,)
    audit.run_references(1, Inline())
    audit.run_shadows(4, Inline(), design="balanced")
    assert np.isfinite(audit.log_lira()).all()
    assert len(audit.score("reference")) == len(audit.members)


def test_a_shadow_model_is_one_that_is_fitted_by_hand(tmp_path):
    inputs, labels = table()
    estimator = RandomForestClassifier(15)
    audit = audited(estimator, tmp_path)
    audit.run_shadows(2, Inline())
    file = RunDirectory(tmp_path).read_tensors("shadows/0001")
    pool = audit.run.design.pool
    rows = pool[file["members"]]
    seed = derived_seed(0, SHADOW.stream, 1)
    model = clone(estimator).set_params(random_state=seed)
    model.fit(inputs[rows], labels[rows])
    shares = np.maximum(model.predict_proba(inputs[pool]), 0.5 / 15)
    own = np.take_along_axis(shares, labels[pool][:, None], axis=1)[:, 0]
    np.put_along_axis(shares, labels[pool][:, None], 0, axis=1)
    gaps = np.log(own) - np.log(shares.max(axis=1))
    np.testing.assert_allclose(file["gap.epoch-1"], gaps, rtol=1e-5, atol=1e-6)


def test_a_wrong_label_changes_more_where_it_is_trained_on(tmp_path):
    """The mean gap of models that saw a sample, less that of the others, over all of the pool."""
    audit = audited(DecisionTreeClassifier(), tmp_path)
    audit.run_shadows(20, Inline(), design="balanced")
    models = audit.evidence.shadows.read("epoch-1")
    found = counterfactual(models.gaps, models.members)
    planted = np.isin(audit.run.design.pool, PLANTED)
    test = mannwhitneyu(found[planted], found[~planted], alternative="greater")
    assert test.pvalue < 0.001  # as one in a thousand draws is by chance


def test_hidden_units_are_those_that_the_network_reads(tmp_path):
    estimator = MLPClassifier((16, 8), max_iter=3)
    audit = audited(estimator, tmp_path)
    hidden = audit.representation(checkpoint="final")
    assert hidden.shape == (len(audit.members), 8)
    assert (hidden >= 0).all()
    assert np.ptp(hidden) > 0


def test_leaves_tell_in_how_many_trees_two_samples_are_together(tmp_path):
    inputs, _ = table()
    estimator = RandomForestClassifier(80, max_depth=3)
    audit = audited(estimator, tmp_path)
    leaves = audit.representation(checkpoint="final")
    rows = audit.run.design.members
    seed = derived_seed(0, 3)
    forest = clone(estimator).set_params(random_state=seed)
    forest.fit(inputs[rows], table()[1][rows])
    found = forest.apply(inputs[rows])
    together = (found[:, None] == found[None]).mean(axis=2)
    off = leaves @ leaves.T - together
    # a sum over 64 random signs has a deviation of √2/8 = 0.18 on the diagonal, and less elsewhere
    assert abs(off.mean()) < 0.05
    assert off.std() < 0.2


@pytest.mark.parametrize("folds", [2, 5])
def test_scores_out_of_fold_are_of_models_that_never_saw_the_sample(tmp_path, folds):
    inputs, labels = table()
    estimator = LogisticRegression(C=10)
    audit = mw.Audit.from_estimator(estimator, inputs, labels, tmp_path, cv=folds)
    assert len(audit.members) == N
    files = [
        RunDirectory(tmp_path).read_tensors(audit.run.references.files._name(i))
        for i in range(folds)
    ]
    out = ~np.array([file["members"] for file in files])
    assert (out.sum(axis=0) == 1).all()
    assert set(out.sum(axis=1)) == {N // folds}
    scores = audit.score("reference").to_numpy()
    for fold in out:
        model = clone(estimator).fit(inputs[~fold], labels[~fold])
        logits = model.decision_function(inputs[fold])
        rows = np.arange(len(logits))
        own = logits[rows, labels[fold]].copy()
        logits[rows, labels[fold]] = -np.inf
        np.testing.assert_allclose(scores[fold], own - logits.max(axis=1), atol=1e-4)
    assert np.median(scores[PLANTED]) < 0 < np.median(scores)
    again = mw.Audit.from_estimator(estimator, inputs, labels, tmp_path, cv=folds)
    assert again.score("reference").equals(audit.score("reference"))
    with pytest.raises(ValueError, match="folds"):
        mw.Audit.from_estimator(estimator, inputs, labels, tmp_path, cv=folds + 1)


def test_out_of_fold_labels_at_chance_are_said(tmp_path):
    inputs, labels = table()
    labels = np.random.default_rng(1).permutation(labels)
    given = RandomForestClassifier(10), inputs, labels, tmp_path
    audit = mw.Audit.from_estimator(*given, cv=3)
    notes = [str(note) for note in audit.evidence.notes_at("final")]
    assert any("out-of-fold" in note for note in notes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cv": 1}, "cv"),
        ({"cv": N}, "smallest class"),
        ({"cv": 5, "members": np.arange(N) > 5}, "members="),
    ],
)
def test_folds_that_cannot_be_are_refused(tmp_path, changes, said):
    with pytest.raises(ValueError, match=said):
        mw.Audit.from_estimator(LogisticRegression(), *table(), tmp_path, **changes)


class Sure(DecisionTreeClassifier):
    """Answers in float32 with probabilities that are exactly 0 and 1."""

    def predict_proba(self, inputs):
        return super().predict_proba(inputs).astype(np.float32)


def test_probabilities_of_exactly_1_in_float32_have_gaps(tmp_path):
    audit = audited(Sure(), tmp_path)
    audit.run_shadows(8, Inline(), design="balanced")
    assert (audit.evidence.gaps_of_pass(audit.evidence.names.record("final")) > 9).all()
    assert np.isfinite(audit.log_lira()).all()


def test_an_epoch_of_a_network_is_one_of_its_own_fit(tmp_path):
    inputs, labels = table()
    estimator = MLPClassifier((8,), max_iter=400, tol=0.05, n_iter_no_change=2)
    audit = audited(estimator, tmp_path)
    rows = audit.run.design.members
    seed = derived_seed(0, 3)
    own = clone(estimator).set_params(random_state=seed).fit(inputs[rows], labels[rows])
    assert abs(int(audit.checkpoints["step"].iloc[-1]) - own.n_iter_) <= 3


@pytest.mark.parametrize("kind", ["frame", "texts", "series", "sparse", "binary"])
def test_what_scikit_learn_reads_is_read(tmp_path, kind):
    inputs, labels = table(2 if kind == "binary" else 3)
    estimator = LogisticRegression()
    words = np.array(["left", "middle", "right"])
    if kind == "frame":
        inputs = pd.DataFrame(inputs, index=[f"row {i}" for i in range(N)])
        inputs.columns = [f"column {i}" for i in range(WIDTH)]
        labels = words[labels]
    if kind in ("texts", "series"):
        inputs = [f"number {i} says {words[i % 3]} and {i * 7}" for i in range(N)]
        inputs = pd.Series(inputs) if kind == "series" else inputs
        estimator = make_pipeline(TfidfVectorizer(), estimator)
    if kind == "sparse":
        inputs = csr_matrix(np.where(np.abs(inputs) > 1, inputs, 0))
    audit = audited(estimator, tmp_path, inputs, labels)
    audit.run_shadows(2, Inline())
    first = "row 0" if kind == "frame" else "0"
    assert audit.data.ids[0] == first
    assert audit.n_shadows == 2


def test_labels_that_changed_are_another_run(tmp_path):
    inputs, labels = table()
    audited(LogisticRegression(), tmp_path)
    other = labels.copy()
    other[3] = (other[3] + 1) % 3
    with pytest.raises(ValueError, match="label"):
        audited(LogisticRegression(), tmp_path, inputs, other)
    with pytest.raises(ValueError, match="version"):
        audited(LogisticRegression(C=2), tmp_path)


def test_labels_at_which_the_model_does_no_better_than_chance_are_said(tmp_path):
    inputs, labels = table()
    labels = np.random.default_rng(1).permutation(labels)
    audit = audited(RandomForestClassifier(30), tmp_path, inputs, labels)
    notes = [str(note) for note in audit.evidence.notes_at("final")]
    assert any("held" in note for note in notes)


@pytest.mark.parametrize(
    "given", [LogisticRegression, 3, TfidfVectorizer(), LinearRegression()]
)
def test_what_is_no_classifier_is_refused(tmp_path, given):
    inputs, labels = table()
    with pytest.raises(TypeError, match="LogisticRegression"):
        mw.Audit.from_estimator(given, inputs, labels, tmp_path)


def test_a_class_without_rows_is_said(tmp_path):
    inputs, labels = table()
    labels = np.where(np.arange(N) == 0, 2, labels % 2)
    with pytest.raises(ValueError, match=r"classes \[2\]"):
        audited(
            LogisticRegression(), tmp_path, inputs, labels, members=np.arange(N) > 5
        )
