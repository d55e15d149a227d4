"""Counterfactual memorisation: the mean effect of training on a sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memowidgets.memorization.gaps import Floats, checked_models, moments


def counterfactual(gaps: ArrayLike, members: ArrayLike) -> Floats:
    """Return the mean logit gap of models that trained on a sample minus that of the others.

    Parameters
    ----------
    gaps : (n_models, n_samples) array_like
        Logit gap of each sample under each model.
    members : (n_models, n_samples) array_like of bool
        Whether the model trained on the sample.

    Returns
    -------
    (n_samples,) float64
        Difference in logits. A high value means memorised. NaN for a sample that is in every model
        or in none, for which the difference is not defined.

    Raises
    ------
    ValueError
        If shapes differ, or a gap is NaN or infinite.
    TypeError
        If the mask is not bool.

    Notes
    -----
    This is the memorisation of Feldman and Zhang, with the gap as the measure. The paper uses it
    in its comparison of definitions of memorisation.

    Examples
    --------
    >>> gaps = [[3.0, 1.0], [1.0, 1.0], [4.0, 2.0], [2.0, 2.0]]
    >>> members = [[True, True], [False, True], [True, False], [False, False]]
    >>> counterfactual(gaps, members)
    array([ 2., -1.])
    """
    found = moments(*checked_models(gaps, members))
    inside, outside = found.inside, found.outside
    defined = (inside.count > 0) & (outside.count > 0)
    return np.where(defined, inside.mean - outside.mean, np.nan)
