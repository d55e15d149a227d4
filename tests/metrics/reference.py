"""Plain float64 transcriptions of the formulas and made-up data, to hold the fast code against."""

import functools

import numpy as np
from scipy.special import logsumexp

from memowidgets.metrics import PSMI
from memowidgets.metrics.projections import independent_directions


def directions(m, d, seed=0):
    return independent_directions(m, d, seed)


def values(X, y, theta):
    """Pointwise values (n, m): log p(θᵀx | y) − log Σ p(y) p(θᵀx | y)."""
    P = np.asarray(X, dtype=np.float64) @ np.asarray(theta, dtype=np.float64).T
    y = np.asarray(y)
    logs, own = [], np.empty_like(P)
    for label in np.unique(y):
        members = P[y == label]
        mean, deviation = members.mean(axis=0), members.std(axis=0)
        log_density = -0.5 * ((P - mean) / deviation) ** 2 - np.log(deviation)
        logs.append(np.log(np.mean(y == label)) + log_density)
        own[y == label] = log_density[y == label]
    return own - logsumexp(logs, axis=0)


def psmi(X, y, theta):
    return values(X, y, theta).mean(axis=1)


def made(n, d, n_classes, seed=0, separation=3.0, decay=0.0, noise=0.05):
    """Gaussian classes; a share of the labels is wrong, as samples to memorise have it."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    X = rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -decay
    X += separation * rng.normal(size=(n_classes, d))[y] / np.sqrt(d)
    wrong = rng.random(n) < noise
    return X.astype(np.float32), np.where(wrong, rng.permutation(y), y)


@functools.cache
def long_reference(n, d, n_classes, decay=0.0, m=65_536):
    """PSMI over many plain directions, none of which other seeds draw."""
    X, y = made(n, d, n_classes, decay=decay)
    parts = [
        PSMI(4096, "plain", random_state=1000 + part).fit(X, y).score_samples(X, y)
        for part in range(m // 4096)
    ]
    return X, y, np.mean(parts, axis=0)
