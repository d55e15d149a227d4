"""Mahalanobis against scikit-learn, in hard cases, and on bad input."""

import numpy as np
import pytest
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import PCA

from memowidgets.metrics import Mahalanobis, mahalanobis


def made(n, d, seed=0, decay=0.5):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, d))
        * np.arange(1, d + 1) ** -decay
        @ rng.normal(size=(d, d))
        + 3
    )


def by_sklearn(X, kept):
    coordinates = PCA(kept, svd_solver="full").fit_transform(X)
    return -np.sqrt(EmpiricalCovariance().fit(coordinates).mahalanobis(coordinates))


@pytest.mark.parametrize(
    ("n", "d", "kept"), [(400, 20, 20), (60, 40, 12), (400, 60, 10)]
)
def test_agrees_with_scikit_learn(n, d, kept):
    X = made(n, d)
    metric = Mahalanobis(kept).fit(X)
    assert metric.n_components_ == kept
    assert metric.ridge_ == 0
    np.testing.assert_allclose(metric.score_samples(X), by_sklearn(X, kept), rtol=1e-9)
    np.testing.assert_allclose(metric.mean_, X.mean(axis=0))


def test_keeps_fewer_components_than_samples():
    assert Mahalanobis().fit(made(100, 300)).n_components_ == 20
    assert Mahalanobis().fit(made(3, 4)).n_components_ == 1


@pytest.mark.parametrize("exact_up_to", [4096, 500])
def test_many_features_with_a_flat_spectrum(exact_up_to, monkeypatch):
    monkeypatch.setattr(mahalanobis, "_EXACT_UP_TO", exact_up_to)
    n, d, kept = 500, 600, 80
    X = np.random.default_rng(0).normal(size=(n, d)) * np.linspace(1, 5, d)
    found = Mahalanobis(kept).fit(X).score_samples(X)
    least = 1 - 1e-6 if d <= exact_up_to else 0.999
    assert np.corrcoef(found, by_sklearn(X, kept))[0, 1] > least


def test_many_features_with_few_leading_ones(monkeypatch):
    monkeypatch.setattr(mahalanobis, "_EXACT_UP_TO", 500)
    X = made(300, 1600, decay=1.0)
    found = Mahalanobis(20).fit(X).score_samples(X)
    assert np.corrcoef(found, by_sklearn(X, 20))[0, 1] > 0.999


def test_leave_one_out_keeps_the_order():
    X = made(60, 3)
    inside = Mahalanobis().fit(X).score_samples(X)
    outside = [
        Mahalanobis().fit(np.delete(X, i, 0)).score_samples(X[i : i + 1])[0]
        for i in range(60)
    ]
    assert np.array_equal(np.argsort(inside), np.argsort(outside))


def test_a_singular_covariance_gets_a_ridge_and_says_so():
    X = made(200, 5)
    X[:, 4] = X[:, 3]
    metric = Mahalanobis().fit(X)
    assert np.isfinite(metric.score_samples(X)).all()
    assert metric.ridge_ > 0
    assert "1 of 5 components" in metric.warnings_[0]


def test_torch_and_other_layouts():
    torch = pytest.importorskip("torch")
    X = made(200, 6).astype(np.float32)
    expected = Mahalanobis().fit(X).score_samples(X)
    for other in (torch.tensor(X), np.asfortranarray(X), X.astype(np.float64) * 1e20):
        metric = Mahalanobis().fit(other)
        np.testing.assert_allclose(metric.score_samples(other), expected, rtol=1e-4)
        np.testing.assert_allclose(
            metric.mean_, np.asarray(other).mean(axis=0), rtol=1e-5
        )
    half = torch.tensor(X).bfloat16()
    np.testing.assert_allclose(
        Mahalanobis().fit(half).score_samples(half),
        Mahalanobis().fit(half.float()).score_samples(half.float()),
    )


def test_bad_input():
    X = made(50, 4)
    broken = X.copy()
    broken[0, 2] = np.nan
    cases = [
        (lambda: Mahalanobis().fit(broken), "NaN or infinite.* row 0, column 2"),
        (
            lambda: Mahalanobis().fit(X).score_samples(broken),
            "NaN or infinite.* row 0, column 2",
        ),
        (lambda: Mahalanobis().fit(X[:1]), "single row"),
        (lambda: Mahalanobis().fit(np.ones((20, 3))), "all rows of X are equal"),
        (lambda: Mahalanobis().fit(X).score_samples(X[:, :2]), "2 features"),
        (lambda: Mahalanobis().score_samples(X), "not fitted"),
        (lambda: Mahalanobis(0), "n_components"),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=sentence):
            call()
