"""Exact means against adaptive quadrature, identities and simulation."""

import numpy as np
import pytest
from scipy.integrate import quad

from memowidgets.metrics import PSMI
from memowidgets.metrics.controls import (
    _RIDGE,
    FOLDS,
    Moments,
    Shapes,
    corrected,
    mean_log,
    mean_ratios,
)
from tests.metrics import reference

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


def test_against_simulation():
    leading, tail, multiplicity = CASES[0]
    values = np.append(leading, np.full(multiplicity, tail))
    theta = np.random.default_rng(0).normal(size=(400_000, len(values)))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    form = theta**2 @ values
    simulated = [np.mean(theta[:, j] ** 2 / form) for j in range(4)]
    np.testing.assert_allclose(mean_ratios(leading, tail, multiplicity), simulated, rtol=0.01)
    assert mean_log(leading, tail, multiplicity) == pytest.approx(np.log(form).mean(), abs=0.01)


@pytest.mark.parametrize("m", [2, 5])
def test_the_error_of_few_plain_directions_is_that_of_a_mean(m):
    X, y = reference.made(60, 6, 3)
    errors = PSMI(m, "plain").fit(X, y).score_samples(X, y, return_std=True)[1]
    values = reference.values(X, y, reference.directions(m, X.shape[1]))
    np.testing.assert_allclose(
        errors, values.std(axis=1, ddof=1) / np.sqrt(m), rtol=1e-3, atol=1e-4
    )


def test_the_corrected_mean_is_that_of_cross_fitted_regressions():
    """f on two controls of each sample, a common one, and one that does not vary."""
    rng, n, m = np.random.default_rng(0), 4, 400
    fold, folds = np.arange(m) % FOLDS, np.arange(FOLDS)
    shared, own = rng.normal(size=m), rng.normal(size=(2, n, m))
    own[1] += own[0]
    f = 1 + 2 * own[0] - own[1] - shared + rng.normal(size=(n, m))
    variables = np.stack([f, *own])
    common = np.stack([np.ones(m), shared, np.zeros(m)])
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
        assert errors[i] == pytest.approx(residual.std() / np.sqrt(m - 1 - 4), rel=1e-4)


def test_variances_have_a_floor_that_a_small_class_raises():
    variances, counts = np.array([[4.0, 0.0]] * 3), np.array([10.0, 10.0, 1e6])
    shapes = Shapes.of(variances, np.array([5.0, 4.0, 4.0]), counts, 4)
    assert shapes.multiplicity == 2
    np.testing.assert_allclose(shapes.variances, [[4, 0.125], [4, 0.1], [4, 1e-3]])
    np.testing.assert_allclose(shapes.tails, [0.5, 0.1, 1e-3])
