"""Out-of-fold probabilities against early scores: planted label errors, and what is memorised."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import memowidgets as mw
from benchmarks.measure import Namespace, Row

SHADOWS = 16
ERRORS = 0.05


def rows(_arguments: Namespace) -> list[Row]:
    """Plant label errors among digits; count those found, and judge what a network memorises."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        data = mw.data.load_digits(canaries=ERRORS, seed=0)
        audit = mw.Audit(mw.models.ConvNet(), data, path=Path(folder) / "run", seed=0)
        audit.train()
        audit.run_shadows(SHADOWS)
        planted, labels = audit.member_data.canaries, audit.labels
        truth = audit.log_lira().to_numpy()
        X = audit.member_data.images.reshape(len(labels), -1)
        logistic = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        trees = HistGradientBoostingClassifier(random_state=0)
        scores = {
            "out-of-fold, logistic regression": out_of_fold(logistic, X, labels),
            "out-of-fold, boosted trees": out_of_fold(trees, X, labels),
            "early PSMI of the network": audit.score("psmi").to_numpy(),
            "early loss of the network": audit.score("loss").to_numpy(),
            "early PSMI + csl of the network": audit.score("psmi+csl").to_numpy(),
        }
    n = int(planted.sum())
    found = []
    for name, values in scores.items():
        found = int(planted[np.argsort(values, kind="stable")[:n]].sum())
        memorized = mw.evaluation.roc(values, truth >= 4)
        others = mw.evaluation.roc(values[~planted], truth[~planted] >= 4)
        found.append(
            Row(
                f"{len(labels)} digits, {n} label errors, {SHADOWS} shadow models: {name}",
                f"{found} of {n} errors among the lowest {n}",
                f"AUC {memorized.auc:.3f} for the {memorized.n_memorized} memorised",
                f"{others.auc:.3f} without the errors ({others.n_memorized} memorised)",
                "no target",
            )
        )
    return found


def out_of_fold(
    model: object, X: NDArray[np.float32], labels: NDArray[np.int64]
) -> NDArray:
    """Return the mean log-probability of each label under models of the other four folds."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    shares = cross_val_predict(model, X, labels, cv=folds, method="predict_proba")
    audit = mw.Audit.from_arrays(labels=labels, probabilities=shares)
    return audit.score("loss").to_numpy()
