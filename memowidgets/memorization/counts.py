"""How many of the models that trained on a sample memorised it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import real_number
from memowidgets.memorization.densities import Densities
from memowidgets.memorization.gaps import Floats, Side, checked_models, moments

_FEWEST_MODELS = 9  # on each side: eight are left where one of them is the target


class Support(NamedTuple):
    """How many of the models that trained on a sample memorised it.

    Attributes
    ----------
    memorized : (n_samples,) float64
        Number of models that memorised the sample. NaN with fewer than nine models on a side.
    models : (n_samples,) int64
        Number of models that trained on the sample.
    per_model : (n_models,) float64
        Number of samples that each model memorised, of those with nine models on each side. NaN
        for a model that trained on none of these.
    """

    memorized: Floats
    models: NDArray[np.int64]
    per_model: Floats


def support(gaps: ArrayLike, members: ArrayLike, eta: float = 4.0) -> Support:
    """Count the models that memorised each sample, of those that trained on it.

    A high count means that models of this kind memorise the sample, and not this one model alone.

    Parameters
    ----------
    gaps : (n_models, n_samples) array_like
        Logit gap of each sample under each model. The target is a model like the others here.
    members : (n_models, n_samples) array_like of bool
        Whether the model trained on the sample.
    eta : float
        A model has memorised a sample if its log-LiRA is at least this (paper: 4).

    Returns
    -------
    Support
        Counts for each sample, (n_samples,), and for each model, (n_models,).

    Raises
    ------
    ValueError
        If shapes differ, a gap is NaN or infinite, or η is not a finite number.
    TypeError
        If the mask is not bool.

    Notes
    -----
    Each model is the target in its turn. Its log-LiRA is that of `log_lira` with the variance
    "shrunk", of the samples that it trained on and with the other models as shadow models. A
    sample needs nine models on each side, so that eight are left on the target's.

    Examples
    --------
    >>> import numpy as np
    >>> members = np.arange(24)[:, None] % 2 == np.zeros(40)
    >>> gaps = np.random.default_rng(0).normal(size=(24, 40))
    >>> gaps[:, 0] += 9 * members[:, 0]
    >>> found = support(gaps, members)
    >>> found.memorized[:3], found.models[:3]
    (array([12.,  0.,  0.]), array([12, 12, 12]))
    """
    real_number("eta", eta)
    table, mask = checked_models(gaps, members)
    found = moments(table, mask)
    equal = found.coinciding
    enough = np.minimum(found.inside.count, found.outside.count) >= _FEWEST_MODELS
    memorized, per_model = np.zeros(len(enough)), np.full(len(table), np.nan)
    for model, (row, member) in enumerate(zip(table, mask, strict=True)):
        own = np.flatnonzero(member)
        if not enough[own].any():
            continue
        inside, outside = (
            Side(side.count[own], side.mean[own], side.squares[own])
            for side in (found.inside, found.outside)
        )
        target = row[own].astype(np.float64)
        others = inside.without(target, member[own])
        ratio = Densities.fit(others, outside, "shrunk").ratio(target)
        ratio[equal[own]] = 0.0
        over = enough[own] & (ratio >= eta)
        memorized[own] += over
        per_model[model] = over.sum()
    models = found.inside.count.astype(np.int64)
    return Support(np.where(enough, memorized, np.nan), models, per_model)
