"""Exact means against adaptive quadrature, identities and simulation."""

import numpy as np
import pytest
from scipy.integrate import quad

from memowidgets.metrics.controls import (
    _RIDGE,
    Moments,
    Shapes,
    components,
    corrected,
    mean_log,
    mean_ratios,
)
from memowidgets.metrics.directions import FOLDS

CASES = [
    (np.array([5.0, 2.0, 0.3]), 0.1, 4),
    (np.array([1e4, 1.0]), 1e-3, 50),
    (np.array([]), 2.0, 1),
    (np.full(16, 3.0), 3.0, 4080),
]


@pytest.mark.parametrize(("leading", "tail", "multiplicity"), CASES)
def test_the_weighted_means_add_to_one(leading, tail, multiplicity):
    ratios = mean_ratios(leading, tail, multiplicity)
    total = leading @ ratios[:-1] + multiplicity * tail * ratios[-1]
    assert total == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("leading", "tail", "multiplicity"), CASES[:2])
def test_against_adaptive_quadrature(leading, tail, multiplicity):
    values = np.append(leading, np.full(multiplicity, tail))

    def product(t):
        return np.prod((1 + 2 * t * values) ** -0.5)

    def over_log_t(integrand):
        return quad(lambda u: integrand(np.exp(u)) * np.exp(u), -60, 60, limit=500, epsabs=1e-13)[0]

    found = mean_ratios(leading, tail, multiplicity)
    for j, value in enumerate([*leading, tail]):
        expected = over_log_t(lambda t, value=value: product(t) / (1 + 2 * t * value))
        assert found[j] == pytest.approx(expected, rel=1e-8)
    gaussian = over_log_t(lambda t: (np.exp(-t) - product(t)) / t)
    sphere = over_log_t(lambda t: (np.exp(-t) - (1 + 2 * t) ** (-len(values) / 2)) / t)
    assert mean_log(leading, tail, multiplicity) == pytest.approx(gaussian - sphere, abs=1e-7)


def test_the_corrected_mean_is_that_of_cross_fitted_regressions():
    """f on two controls of each sample, a common one, and two that do not vary but for rounding."""
    rng, n, m = np.random.default_rng(0), 4, 400
    fold, folds = np.arange(m) % FOLDS, np.arange(FOLDS)
    shared, own = rng.normal(size=m), rng.normal(size=(2, n, m))
    own[1] += own[0]
    f = 1 + 2 * own[0] - own[1] - shared + rng.normal(size=(n, m))
    variables = np.stack([f, *own])
    common = np.stack([np.ones(m), shared, np.zeros(m), 1e-7 * rng.normal(size=m)])
    of = (fold == folds[:, None]).astype(float)
    moments = Moments(
        np.einsum("inm,jnm,fm->fijn", variables, variables, of),
        np.einsum("inm,zm,fm->fizn", variables, common, of),
        np.einsum("ym,zm,fm->fyz", common, common, of),
    )
    means = np.array([[0.1], [-0.2]]) * np.ones(n)
    found, errors = corrected(moments, means)
    for i in range(n):
        design = np.column_stack([np.ones(m), own[0, i] - 0.1, own[1, i] + 0.2, shared])
        residual = np.empty(m)
        for rest, here in ((fold != one, fold == one) for one in folds):
            covariance = np.cov(np.column_stack([f[i], design[:, 1:]])[rest].T)
            ridge = _RIDGE * np.diag(np.diag(covariance)[1:])
            slopes = np.linalg.solve(covariance[1:, 1:] + ridge, covariance[1:, 0])
            residual[here] = f[i, here] - design[here, 1:] @ slopes
        assert found[i] == pytest.approx(residual.mean(), abs=1e-5)
        assert errors[i] == pytest.approx(residual.std() / np.sqrt(m - 1 - 5), rel=1e-4)


@pytest.mark.parametrize(("n_classes", "k"), [(8, 16), (9, 32)])
@pytest.mark.parametrize("d", [12, 60])
def test_components_are_the_leading_ones(d, n_classes, k):
    """One set for each of up to 8 classes. What they capture is held against a decomposition."""
    k, codes = min(k, d - 1), np.arange(900) % n_classes
    rows = np.random.default_rng(0).normal(size=(900, d)) * 0.8 ** np.arange(d)
    found = components(rows.astype(np.float32), codes)
    groups = [rows[codes == c] for c in range(n_classes)] if n_classes <= 8 else [rows]
    assert found.shape == (len(groups), k, d)
    for axes, group in zip(found, groups, strict=True):
        np.testing.assert_allclose(axes @ axes.T, np.eye(k), atol=1e-5)
        most = (np.linalg.svd(group)[1][:k] ** 2).sum()
        assert 0.999 * most < ((group @ axes.T) ** 2).sum() < 1.0001 * most


def test_variances_have_a_floor_that_a_small_class_raises():
    variances, counts = np.array([[4.0, 0.0]] * 3), np.array([10.0, 10.0, 1e6])
    shapes = Shapes.of(variances, np.array([5.0, 4.0, 4.0]), counts, 4)
    assert shapes.multiplicity == 2
    np.testing.assert_allclose(shapes.variances, [[4, 0.125], [4, 0.1], [4, 1e-3]])
    np.testing.assert_allclose(shapes.tails, [0.5, 0.1, 1e-3])
