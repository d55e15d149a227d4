"""Checks that a broken estimator must fail: used by the tests, and by the test of the tests."""

import numpy as np
from sklearn.metrics import roc_auc_score

from memowidgets.evaluation import roc
from memowidgets.metrics import PSMI
from memowidgets.metrics.fitted import fit
from tests.metrics import reference


def plain_agrees_with_the_formula():
    X, y = reference.made(90, 6, 3)
    y[:12] = 0  # unequal classes: a prior that is left out shows
    scores = PSMI(300, "plain").fit(X, y).score_samples(X, y)
    expected = reference.psmi(X, y, reference.directions(300, 6))
    np.testing.assert_allclose(scores, expected, atol=2e-5)


def few_directions_are_not_biased():
    X, y, expected = reference.long_reference(300, 24, 4)
    runs = [PSMI(64, random_state=s).fit(X, y).score_samples(X, y) for s in range(60)]
    error = np.mean(runs, axis=0) - expected
    noise = np.std(runs, axis=0) / np.sqrt(len(runs))
    assert np.mean(np.abs(error) < 3.5 * noise + 0.002) > 0.98


def means_of_controls_are_exact():
    for n_classes in (3, 12):
        X, y = reference.made(400, 30, n_classes, decay=0.5)
        y = np.unique(y, return_inverse=True)[1]
        fitted = fit(X, y, 8192, 5, use_controls=True)
        m, tables = 8192, fitted.tables
        along = fitted.controls.along(X @ fitted.onto[m:].T)
        means = fitted.controls.means(X, along, y)
        ratios = (X @ fitted.onto[:m].T)[None] - tables.mean[:, None]
        ratios = ratios**2 * tables.weight[:, None]
        if n_classes > 8:
            ratios = np.stack([ratios[y, np.arange(len(y))], ratios.mean(axis=0)])
        simulated, spread = ratios.mean(axis=2), ratios.std(axis=2) / np.sqrt(m)
        far = np.abs(simulated - means[: len(ratios)]) / spread
        assert far.max() < 5
        logs = tables.log_form
        assert np.all(np.abs(logs.mean(axis=1)) < 5 * logs.std(axis=1) / np.sqrt(m))


def ties_count_a_half():
    rng = np.random.default_rng(0)
    truth = rng.random(500) < 0.2
    scores = np.round(rng.normal(size=500) - truth)
    np.testing.assert_allclose(roc(scores, truth).auc, roc_auc_score(truth, -scores), atol=1e-12)
