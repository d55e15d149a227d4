"""Exact means against adaptive quadrature, identities and simulation."""

import numpy as np
import pytest
from scipy.integrate import quad

from memowidgets.metrics.controls import (
    Gaussians,
    Leading,
    Spread,
    Whole,
    exact_means,
    leading,
)
from memowidgets.metrics.projections import _RIDGE, FOLDS, Moments

CASES = [
    ([5.0, 2.0, 0.3, 0.1], [1, 1, 1, 4]),
    ([1e4, 1.0, 1e-3], [1, 1, 50]),
    ([2.0], [1]),
    ([3.0], [4096]),
]


@pytest.mark.parametrize(("values", "counts"), CASES)
def test_the_weighted_means_add_to_one(values, counts):
    ratios, _ = exact_means(np.array(values), np.array(counts))
    assert np.multiply(values, counts) @ ratios == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("values", "counts"), CASES[:2])
def test_against_adaptive_quadrature(values, counts):
    every = np.repeat(values, counts)

    def product(t):
        return np.prod((1 + 2 * t * every) ** -0.5)

    def over_log_t(integrand):
        return quad(
            lambda u: integrand(np.exp(u)) * np.exp(u), -60, 60, limit=500, epsabs=1e-13
        )[0]

    found, log = exact_means(np.array(values), np.array(counts))
    for j, value in enumerate(values):
        expected = over_log_t(lambda t, value=value: product(t) / (1 + 2 * t * value))
        assert found[j] == pytest.approx(expected, rel=1e-8)
    gaussian = over_log_t(lambda t: (np.exp(-t) - product(t)) / t)
    sphere = over_log_t(lambda t: (np.exp(-t) - (1 + 2 * t) ** (-len(every) / 2)) / t)
    assert log == pytest.approx(gaussian - sphere, abs=1e-7)


@pytest.mark.parametrize("rows", [1200, 80])
@pytest.mark.parametrize("kind", ["equal", "slow", "fast", "one", "many", "none"])
def test_log_densities_have_the_means_of_a_whole_decomposition(kind, rows):
    rng, d = np.random.default_rng(0), 200
    order = np.arange(1.0, d + 1)
    spectrum = {
        "equal": order**0,
        "slow": order**-1,
        "fast": order**-4,
        "one": np.where(order > 1, 1e-4, 1),
        "many": np.where(order > 100, 1e-4, 1),
        "none": 0 * order,
    }[kind]
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = (rng.normal(size=(rows, d)) * np.sqrt(spectrum) @ turn).astype(np.float32)
    spread = Spread.of([X], X.mean(0), None)
    found = Whole.of(spread, 1e-12)
    values, axes = np.linalg.eigh(spread.covariance)
    values = values.clip(0) + found.added
    ratios, log = exact_means(values, np.ones(d))
    expected = -0.5 * (((X - spread.centre) @ axes) ** 2 @ ratios + log)
    np.testing.assert_allclose(found.mean_log_density(X), expected, atol=1e-4)


def test_the_corrected_mean_is_that_of_cross_fitted_regressions():
    """f on two controls; for some samples one does not vary, or is the other one."""
    rng, n, m = np.random.default_rng(0), 6, 400
    fold, folds = np.arange(m) % FOLDS, np.arange(FOLDS)
    a, b = rng.normal(size=(2, n, m))
    a += b
    b[3], b[4] = 1e-7 * b[3], a[4]
    variables = np.stack([1 + 2 * a - b + rng.normal(size=(n, m)), a, b])
    of = (fold == folds[:, None]).astype(float)
    moments = Moments(
        np.full((FOLDS, 1), m / FOLDS),
        np.einsum("inm,fm->fin", variables, of),
        np.einsum("inm,jnm,fm->fijn", variables, variables, of),
    )
    found, errors = moments.corrected()
    for i, (f, *controls) in enumerate(variables.transpose(1, 0, 2)):
        design, residual = np.column_stack(controls), np.empty(m)
        for rest, here in ((fold != one, fold == one) for one in folds):
            covariance = np.cov(np.column_stack([f, design])[rest].T)
            ridge = _RIDGE * np.diag(np.diag(covariance)[1:])
            slopes = np.linalg.solve(covariance[1:, 1:] + ridge, covariance[1:, 0])
            if i == 3:
                slopes = np.array(
                    [covariance[0, 1] / covariance[1, 1] / (1 + _RIDGE), 0]
                )
            residual[here] = f[here] - design[here] @ slopes
        assert found[i] == pytest.approx(residual.mean(), abs=1e-5)
        assert errors[i] == pytest.approx(residual.std() / np.sqrt(m - 3), rel=1e-4)


@pytest.mark.parametrize("d", [12, 60])
def test_components_are_the_leading_ones(d):
    """What they capture is held against a decomposition."""
    k, rows = (
        min(32, d - 1),
        np.random.default_rng(0).normal(size=(900, d)) * 0.8 ** np.arange(d),
    )
    axes, variances = leading(lambda columns: rows.T @ (rows @ columns), rows)
    np.testing.assert_allclose(axes @ axes.T, np.eye(k), atol=1e-12)
    most = (np.linalg.svd(rows)[1][:k] ** 2).sum()
    assert 0.999 * most < variances.sum() < 1.0001 * most


def test_variances_have_a_floor_that_a_small_class_raises():
    basis = np.eye(2, 4, dtype=np.float32)
    for count, trace, variances, tail in (
        (10, 5.0, [4, 0.125], 0.5),
        (10, 4.0, [4, 0.1], 0.1),
        (10**6, 4.0, [4, 1e-3], 1e-3),
    ):
        spread = Spread(np.zeros(4), np.diag([4.0, 0.0]), trace, count, -1, basis[0])
        found = Leading.of(spread, basis, 1e-30)
        np.testing.assert_allclose(found.variances, variances)
        assert found.tail == pytest.approx(tail)


def test_a_dominant_row_is_left_out_of_the_gaussian_of_all_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2, 50, 3))
    rows[1, 7] = 1e4
    near = np.zeros(3)
    spreads = [Spread.of([part[:20], part[20:]], near, None) for part in rows]
    assert [one.longest for one in spreads] == [-1, 7]
    total = Gaussians.of(spreads, None).total
    np.testing.assert_allclose(total.centre, rows[0].mean(axis=0), rtol=1e-6)
    only = Whole.of(spreads[0], 1e-12)
    np.testing.assert_allclose(
        total.mean_log_density(rows[0]), only.mean_log_density(rows[0]), rtol=1e-5
    )
