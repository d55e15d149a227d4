"""Global LiRA: success rate of an attacker who knows all other models."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.memorization.density import check_sides, warn_if_few
from memowidgets.memorization.gaps import Floats, checked_models, moments
from memowidgets.memorization.hierarchical import fitted
from memowidgets.memorization.variance import checked_variance


def attack_success_rate(
    gaps: ArrayLike, members: ArrayLike, variance: str = "per-sample"
) -> Floats:
    """Return the share of models for which LiRA, fitted on the others, tells who is a member.

    Parameters
    ----------
    gaps : (n_models, n_samples) array_like
        Logit gap of each sample under each model.
    members : (n_models, n_samples) array_like of bool
        Whether the model trained on the sample.
    variance : {"per-sample", "global", "shrunk", "hierarchical"}
        As in `log_lira`. "shrunk" and "hierarchical" fit their priors anew for each attacked model;
        "hierarchical" has no covariates here.

    Returns
    -------
    (n_samples,) float64
        Mean over the attacked models of 1[1(p_in > p_out) = member], between 0 and 1. A value near
        0.5 means no memorisation. A model without which a side is empty is left out of the mean.
        NaN if no member, or no non-member, is left to attack.

    Raises
    ------
    ValueError
        If shapes differ, a gap is NaN or infinite, the variance is unknown, or no sample has
        enough models on each side (the attacked model is left out of both).
    TypeError
        If the mask is not bool.

    Warns
    -----
    UserWarning
        If a sample has fewer than eight models on a side, with "per-sample".

    Notes
    -----
    The attacked model is always left out of the fit. The paper compares this global LiRA with
    the local one.

    Examples
    --------
    >>> import numpy as np
    >>> members = np.arange(20)[:, None] % 2 == [0, 0]
    >>> gaps = np.random.default_rng(0).normal(size=(20, 2)) + 9 * members * [1, 0]
    >>> attack_success_rate(gaps, members).round(2)
    array([1.  , 0.45])
    """
    checked_variance(variance)
    table, mask = checked_models(gaps, members)
    found = moments(table, mask)
    check_sides(found)
    if variance == "per-sample":
        warn_if_few(found)
    right = np.zeros(table.shape[1])
    attacked = {True: np.zeros(table.shape[1]), False: np.zeros(table.shape[1])}
    for row, member in zip(table, mask, strict=True):
        own = row.astype(np.float64)
        inside = found.inside.without(own, member)
        outside = found.outside.without(own, ~member)
        ratio = fitted(inside, outside, variance).ratio(own)
        defined = ~np.isnan(ratio)
        for side in attacked:
            attacked[side] += defined & (member == side)
        right += defined & ((ratio > 0) == member)
    both = (attacked[True] > 0) & (attacked[False] > 0)
    if not both.any():
        raise ValueError(
            "too few shadow models to attack: without the attacked model no sample has enough "
            'inside and outside. Train more, or use variance="shrunk"'
        )
    return np.where(both, right / np.maximum(attacked[True] + attacked[False], 1), np.nan)
