"""Measures of memorisation from shadow models: LiRA, its counts over models, and its relatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_finite, check_same_order, real_number, real_numbers
from memowidgets.memorization.densities import Densities, check_sides
from memowidgets.memorization.gaps import (
    Floats,
    Mask,
    Table,
    check_width,
    checked_mask,
    checked_models,
    moments,
)
from memowidgets.memorization.posterior import probability_memorized

# models on each side: eight are left where one of them is the target
_FEWEST_TO_COUNT = 9
_ENOUGH_TO_TELL = 3  # this many samples with exactly equal gaps are not a coincidence


def log_lira(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    variance: str = "per-sample",
    *,
    return_std: bool = False,
) -> Any:
    """Return the log-likelihood ratio of the target's logit gap, in training against not.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gap (true label's logit minus the largest other) under each shadow model.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether the shadow model trained on the sample. The target must not be a shadow model.
    target_gaps : (n_samples,) array_like
        Logit gap under the target model.
    variance : {"per-sample", "global", "shrunk"}
        How a sample's two variances are estimated. "per-sample" uses its own gaps, as in the paper
        (ddof = 0). "global" uses one variance per side, from the residuals of all samples; it is
        better below about 32 models per side. "shrunk" interpolates between both: it is the
        posterior mean under a prior that is fitted per side on all samples.
    return_std : bool
        Whether to also return standard errors.

    Returns
    -------
    log_lira : (n_samples,) float64
        log p_in(gap) − log p_out(gap), in nats (natural logarithms). The paper calls a sample
        memorised from η = 4 on. The value is 0 if the gap is equal under all models. It is NaN if
        the sample is in every shadow model or in none, and with "per-sample" if a side has a single
        model.
    errors : (n_samples,) float64
        Standard errors in nats, if `return_std` is true, see the notes. NaN where the value is.

    Raises
    ------
    ValueError
        If shapes differ, pandas names the same samples in another order, a gap is NaN or infinite,
        the variance is unknown, no sample has two models on each side, or a shadow model is
        the target itself.
    TypeError
        If the mask is not bool.

    Warns
    -----
    UserWarning
        If a sample has fewer than 8 models on a side, with "per-sample".

    Notes
    -----
    All densities are computed in log space. Both variances are at least 1e-6 of the variance
    pooled over samples and sides. The definition is that of the paper's Appendix C. "shrunk"
    follows BaVarIA (arXiv 2603.11799): a scaled inverse χ² prior, fitted by marginal likelihood.

    A standard error is the root mean square distance of the value from the log-LiRA at the true
    means and variances. Those have the posterior that the gaps of each side say: the mean is known
    as that of so many gaps, and the variance as a scaled inverse χ², with the prior's degrees of
    freedom where there is a prior ("global": infinitely many).
    ``python -m benchmarks intervals`` measures what value ± 1.96 errors covers.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> members = np.arange(40)[:, None] % 2 == [0, 1]
    >>> gaps = rng.normal(size=(40, 2)) + 6 * members * [1, 0]
    >>> log_lira(gaps, members, [6.0, 0.0]).round(1)
    array([15.5, -0.1])
    >>> _, errors = log_lira(gaps, members, [6.0, 0.0], return_std=True)
    >>> errors.round(1)
    array([4.8, 0.2])
    """
    gaps, members, target = _read_gaps(shadow_gaps, shadow_members, target_gaps)
    sides = moments(gaps, members, "shadow_gaps")
    check_sides(sides, variance)
    if not sides.coinciding.all():
        _refuse_target(gaps, target)
    fits = Densities.fit(sides.inside, sides.outside, variance)
    equal = sides.coinciding & fits.defined
    ratio = np.where(equal, 0.0, fits.ratio(target))
    if not return_std:
        return ratio
    return ratio, np.where(equal, 0.0, fits.errors(target))


def _read_gaps(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    **others: object,
) -> tuple[Table, Mask, Floats]:
    """Return gaps and members of the shadow models, and the target's gaps, or raise."""
    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    target = real_numbers(target_gaps, "target_gaps").astype(np.float64)
    n = gaps.shape[1]
    if target.shape != (n,):
        raise ValueError(
            f"target_gaps must hold one gap for each of the {n} samples, but has shape "
            f"{target.shape}"
        )
    check_finite(target, "target_gaps")
    check_width(float(np.abs(target).max()), "target_gaps")
    names = {"shadow_gaps.columns": getattr(shadow_gaps, "columns", None)}
    check_same_order(**names, target_gaps=target_gaps, **others)
    return gaps, members, target


def _refuse_target(gaps: Table, target: Floats) -> None:
    """Raise if a shadow model is the target: its log-LiRA would always be high."""
    if len(target) < _ENOUGH_TO_TELL:
        return
    same = target.astype(gaps.dtype)  # saved gaps are rounded to their dtype
    alike = np.flatnonzero((gaps[:, :100] == same[:100]).all(axis=1))
    for row in alike:
        if np.array_equal(gaps[row], same):
            raise ValueError(
                f"shadow model (row) {row} has exactly the target's gaps, so it seems to be the "
                "target itself; leave that row out"
            )


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
    variance : {"per-sample", "global", "shrunk"}
        As in `log_lira`. "shrunk" fits its priors anew for each attacked model.

    Returns
    -------
    (n_samples,) float64
        Mean over the models of 1[1(p_in > p_out) = member], between 0 and 1. A value near 0.5 means
        no memorisation. NaN if too few models are left on a side without the attacked one.

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
    table, mask = checked_models(gaps, members)
    sides = moments(table, mask)
    check_sides(sides, variance)
    n = table.shape[1]
    right = np.zeros(n)
    attacked = np.ones(n, dtype=np.bool_)
    for row, member in zip(table, mask, strict=True):
        own = row.astype(np.float64)
        inside = sides.inside.without(own, member)
        outside = sides.outside.without(own, ~member)
        fits = Densities.fit(inside, outside, variance)
        attacked &= fits.defined
        right += (fits.ratio(own) > 0) == member
    if not attacked.any():
        raise ValueError(
            "too few shadow models to attack: without the attacked model no sample has enough "
            'inside and outside. Train more, or use variance="shrunk"'
        )
    return np.where(attacked, right / len(table), np.nan)


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
    table, mask = checked_models(gaps, members)
    sides = moments(table, mask)
    defined = np.minimum(sides.inside.count, sides.outside.count) > 0
    return np.where(defined, sides.inside.mean - sides.outside.mean, np.nan)


def rmia(
    shadow_gaps: ArrayLike,
    shadow_members: ArrayLike,
    target_gaps: ArrayLike,
    population: ArrayLike | None = None,
    gamma: float = 2.0,
) -> Floats:
    """Return the share of a population that the target favours less than the sample.

    Parameters
    ----------
    shadow_gaps : (n_models, n_samples) array_like
        Logit gap (true label's logit minus the largest other) under each shadow model.
    shadow_members : (n_models, n_samples) array_like of bool
        Whether the shadow model trained on the sample. The target must not be a shadow model.
    target_gaps : (n_samples,) array_like
        Logit gap under the target model.
    population : (n_samples,) array_like of bool, optional
        Samples z that each sample x is compared with. The best choice is samples that the target
        did not train on; the default is all. A sample is never compared with itself.
    gamma : float
        Factor by which x must be likelier than z under the target, relative to the shadow models.

    Returns
    -------
    (n_samples,) float64
        Shares from 0 to 1. A high value means memorised. NaN for a sample without a model on a
        side.

    Raises
    ------
    ValueError
        If shapes differ, a gap is NaN or infinite, γ is not above 0, or the population has fewer
        than two samples that can be compared with.
    TypeError
        If a mask is not bool.

    Notes
    -----
    The method is that of Zarifzadeh, Liu and Shokri (arXiv 2312.03262), with the pool's own
    samples as population (the pool is the set that training sets are drawn from). The likelihood
    of the label is computed from its gap as 1 / (1 + e^−gap), so against the strongest other label;
    this is exact for two classes. The general likelihood p(x) of a sample is the mean of its
    likelihood inside and outside, as shadow models on halves of the pool have both.

    Examples
    --------
    >>> import numpy as np
    >>> members = np.arange(20)[:, None] % 2 == np.zeros(50)
    >>> gaps = np.random.default_rng(0).normal(size=(20, 50))
    >>> target = np.append(8.0, np.zeros(49))
    >>> rmia(gaps, members, target, gamma=1.2)[:2].round(2)
    array([1., 0.])
    """
    if not real_number("gamma", gamma) > 0:
        raise ValueError(f"gamma must be above 0, not {gamma}")
    table, mask, target = _read_gaps(
        shadow_gaps, shadow_members, target_gaps, population=population
    )
    moments(table, mask, "shadow_gaps")  # raises for gaps that are not finite
    likelihoods = np.exp(_log_likelihood(table.astype(np.float64)))
    sides = moments(likelihoods, mask)
    general = 0.5 * (sides.inside.mean + sides.outside.mean)
    log_general = np.log(np.maximum(general, np.finfo(np.float64).tiny))
    relative = _log_likelihood(target) - log_general
    relative[np.minimum(sides.inside.count, sides.outside.count) == 0] = np.nan
    chosen = ~np.isnan(relative)
    if population is not None:
        among = checked_mask(population, "population")
        if among.shape != chosen.shape:
            raise ValueError(
                f"population must be a mask over the {len(target)} samples, but has shape "
                f"{among.shape}"
            )
        chosen &= among
    if chosen.sum() < 2:
        raise ValueError(
            f"the population holds {chosen.sum()} samples with a general likelihood; it needs "
            "two or more"
        )
    others = np.sort(relative[chosen])
    margin = float(np.log(gamma))
    beaten = np.searchsorted(others, relative - margin, side="right").astype(np.float64)
    if margin <= 0:  # a sample is never compared with itself
        beaten -= chosen
    return np.where(np.isnan(relative), np.nan, beaten / (len(others) - chosen))


def _log_likelihood(gaps: Floats) -> Floats:
    """Return the log-probability of the label against its strongest rival, without overflow."""
    return np.asarray(-np.logaddexp(0.0, -gaps))


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
    truly_per_model : (n_models,) float64
        Expected number of them whose true log-LiRA, from infinitely many models, is at least η: the
        sum of `probability_memorized`.
    """

    memorized: Floats
    models: NDArray[np.int64]
    per_model: Floats
    truly_per_model: Floats


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
    sample needs nine models on each side, so that eight are left on the target's. How rare large
    true values are is estimated from all models together.

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
    sides = moments(table, mask)
    enough = np.minimum(sides.inside.count, sides.outside.count) >= _FEWEST_TO_COUNT
    values = np.full(table.shape, np.nan)
    errors = np.full(table.shape, np.nan)
    for model, (row, member) in enumerate(zip(table, mask, strict=True)):
        if not (member & enough).any():
            continue
        # the priors of the variances are fitted to all that the model trained on
        own = np.flatnonzero(member)
        equal = sides.coinciding[own]
        target = row[own].astype(np.float64)
        inside = sides.inside.only(own).without(target, member[own])
        fits = Densities.fit(inside, sides.outside.only(own), "shrunk")
        values[model, own] = np.where(equal, 0.0, fits.ratio(target))
        errors[model, own] = np.where(equal, 0.0, fits.errors(target))
    values[:, ~enough] = np.nan
    over = values >= eta
    probability = probability_memorized(values, errors, eta)
    nothing = np.isnan(values).all(axis=1)
    return Support(
        memorized=np.where(enough, over.sum(axis=0), np.nan),
        models=sides.inside.count.astype(np.int64),
        per_model=np.where(nothing, np.nan, over.sum(axis=1)),
        truly_per_model=np.where(nothing, np.nan, np.nansum(probability, axis=1)),
    )
