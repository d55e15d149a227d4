"""Plain float64 transcriptions of the formulas, to hold the fast code against."""

import numpy as np
from scipy.special import logsumexp


def values(X, y, theta, ddof=0, prior=True):
    """Pointwise values (n, m): log p(θᵀx | y) − log Σ p(y) p(θᵀx | y)."""
    P = np.asarray(X, dtype=np.float64) @ np.asarray(theta, dtype=np.float64).T
    y = np.asarray(y)
    classes = np.unique(y)
    logs, own = [], np.empty_like(P)
    for label in classes:
        members = P[y == label]
        mean, deviation = members.mean(axis=0), members.std(axis=0, ddof=ddof)
        log_density = -0.5 * ((P - mean) / deviation) ** 2 - np.log(deviation)
        share = np.mean(y == label) if prior else 1.0
        logs.append(np.log(share) + log_density)
        own[y == label] = log_density[y == label]
    return own - logsumexp(logs, axis=0)


def psmi(X, y, theta, **kwargs):
    return values(X, y, theta, **kwargs).mean(axis=1)
