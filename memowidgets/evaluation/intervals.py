"""Scores in rising order; 95 % intervals of a share, of an AUC and of a difference of AUCs.

Where the members of several models are pooled, rows depend on each other: a sample has one row per
model, and a model has one row per member. A bootstrap then draws samples and models, each with all
of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, expit, logit, pdtr, stdtr, stdtrit

from memowidgets.checks import real_number, to_numpy

Interval = tuple[float, float]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

Z95 = 1.959963984540054
_EDGE = 1e-13
_ROUNDING = 1e-9  # relative; expected counts are sums of many numbers
_RESAMPLES = 1000
_FEWEST = 200  # resamples
_NUMBERS = 20_000_000  # maximum size of the table of draws
_LABELLINGS = 1000  # most draws of labels
_LABELS = 4_000_000  # most labels in all draws
_MOST_COPIES = 6  # of a sample in a draw
_STEPS = 2000  # steps of the curve for the interval of the AUC
_LIMITS = (0.025, 0.975)
_AT_ONCE = 2**17  # numbers of the table of draws by rows
NO_ERROR = float(np.finfo(np.float64).tiny)  # 0 that numbers can be divided by
_FEW = 10  # with fewer distinct samples on a side, percentile intervals are too narrow


@dataclass(frozen=True, eq=False)
class SortedScores:
    """Scores in rising order, each value once.

    Attributes
    ----------
    order : (n,) int64
        The samples by their scores, ascending.
    firsts : (u,) int64
        Where in that order each distinct score begins.
    values : (u,) float64
        The distinct scores, ascending.
    """

    order: Ints
    firsts: Ints
    values: Floats

    @classmethod
    def of(cls, scores: Floats) -> SortedScores:
        """Sort scores, one for each sample, none of them NaN."""
        order = np.argsort(scores)
        rising = scores[order]
        differs = rising[1:] != rising[:-1]
        is_first = np.append(True, differs)[: len(order)]  # of no scores none is
        firsts = np.flatnonzero(is_first)
        return cls(order, firsts, rising[firsts])

    @cached_property
    def counts(self) -> Ints:
        """Number of samples with each value."""
        return np.diff(np.append(self.firsts, len(self.order)))

    @cached_property
    def rung(self) -> Ints:
        """Place of each sample's score among the values."""
        rung = np.empty_like(self.order)
        rung[self.order] = np.repeat(np.arange(len(self.values)), self.counts)
        return rung

    def total(self, of_samples: NDArray[Any]) -> Floats:
        """Return the sum over the samples with each value, or their number of a mask."""
        up_to = np.cumsum(of_samples[self.order], dtype=np.float64)
        return np.diff(up_to[np.cumsum(self.counts) - 1], prepend=0.0)

    def flagging(self, n: int) -> float:
        """Return the score up to which the `n` lowest are flagged, with all that tie with them.

        `n` is at least 1. Of fewer than `n` samples all are.

        Examples
        --------
        >>> scores = SortedScores.of(np.array([0.3, -0.2, 0.1, 0.1]))
        >>> scores.flagging(1), scores.flagging(2), scores.flagging(9)
        (-0.2, 0.1, 0.3)
        """
        up_to = np.cumsum(self.counts)
        rung = int(np.searchsorted(up_to, min(n, len(self.order))))
        return float(self.values[rung])


def clopper_pearson(count: float, total: float) -> Interval:
    """Return the exact 95 % interval of a share.

    Parameters
    ----------
    count, total : int
        Successes and trials. Shares of distinct samples need not be whole. Of no trials the
        interval is all of [0, 1].

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1].

    Raises
    ------
    TypeError, ValueError
        If they are not numbers from 0, or `count` is above `total`.

    Examples
    --------
    >>> low, high = clopper_pearson(5, 10)
    >>> round(low, 3), round(high, 3)
    (0.187, 0.813)
    """
    real_number("total", total, 0, finite=True)
    real_number("count", count, 0, total * (1 + _ROUNDING))
    low = float(betaincinv(count, total - count + 1, 0.025)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, total - count, 0.975)) if count < total else 1.0
    return low, high


def newcombe(
    auc: float, n_positives: float, n_negatives: float, z: float = Z95
) -> Interval:
    """Return the score interval of an AUC.

    Parameters
    ----------
    auc : float
        AUC, from 0 to 1.
    n_positives, n_negatives : int
        Numbers of samples of each kind, above 0. Expected counts need not be whole.
    z : float
        Normal quantile of the level. Default: that of 95 %.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1]. The width is never 0.

    Notes
    -----
    Method 5 of Newcombe (2006), Statistics in Medicine 25:559-573: all areas θ with
    (auc − θ)² ≤ z² V(θ). V is the variance of Hanley and McNeil (1982), with both sample sizes
    inside its bracket replaced by their mean.

    Examples
    --------
    >>> low, high = newcombe(1.0, 20, 1000)
    >>> round(low, 3), high
    (0.95, 1.0)
    """
    mean = (n_positives + n_negatives) / 2
    pairs = n_positives * n_negatives

    def outside(area: float) -> float:
        spread = (1 - area) / (2 - area) + area / (1 + area)
        variance = area * (1 - area) * (1 + (mean - 1) * spread) / pairs
        return (auc - area) ** 2 - z**2 * variance

    inside = min(max(auc, _EDGE), 1 - _EDGE)  # at 0 and 1 no area differs from itself
    if outside(inside) >= 0:  # z is too small to reach another area
        return auc, auc
    low = brentq(outside, 0.0, inside, xtol=_EDGE)
    high = brentq(outside, inside, 1.0, xtol=_EDGE)
    return float(low), float(high)


def of_area(
    auc: float, n_positives: float, n_negatives: float, error: float, z: float = Z95
) -> Interval:
    """Return the interval of an AUC: the wider of two, so that it covers where one of them fails.

    Parameters
    ----------
    auc, n_positives, n_negatives, z
        As for `newcombe`.
    error : float
        DeLong's standard error of the AUC; NaN where a kind has a single sample.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [0, 1]. The width is never 0.

    Notes
    -----
    `newcombe` takes the positives to be of one kind. Where half of them are obvious and half are
    like the rest, its 95 % interval covers .86 to .92. DeLong's variance sees such a mixture. Its
    interval on the logit scale is too narrow where positives are few and the AUC is near 1.
    ``python -m benchmarks intervals`` measures what both cover.

    Examples
    --------
    >>> low, high = of_area(0.9, 20, 1000, error=0.05)
    >>> round(low, 3), round(high, 3)
    (0.752, 0.964)
    """
    score = newcombe(auc, n_positives, n_negatives, z)
    if not 0 < auc < 1 or not error > 0:
        return score
    middle = logit(auc)
    reach = z * error / (auc * (1 - auc))
    low = float(expit(middle - reach))
    high = float(expit(middle + reach))
    return wider(score, (low, high))


def of_difference(
    aucs: tuple[float, float], each: tuple[Interval, Interval], correlation: float
) -> Interval:
    """Return the interval of a difference of AUCs from the interval of each.

    Parameters
    ----------
    aucs : (float, float)
        Both AUCs.
    each : ((float, float), (float, float))
        Interval of each, at the level of the result.
    correlation : float
        Correlation of their errors.

    Returns
    -------
    (float, float)
        Lower and upper bound, within [−1, 1].

    Notes
    -----
    MOVER, the method of variance estimates recovery: Zou and Donner (2008), Statistics in Medicine
    27:1693-1702, with the correlation as in Newcombe's interval of paired proportions.

    Examples
    --------
    >>> low, high = of_difference((0.9, 0.8), ((0.8, 0.95), (0.7, 0.88)), 0.5)
    >>> round(low, 3), round(high, 3)
    (0.008, 0.187)
    """
    a, b = aucs
    (low_a, high_a), (low_b, high_b) = each

    def reach(one: float, other: float) -> float:
        square = one**2 + other**2 - 2 * correlation * one * other
        return float(np.sqrt(max(square, 0.0)))

    low = a - b - reach(a - low_a, high_b - b)
    high = a - b + reach(high_a - a, b - low_b)
    return max(low, -1.0), min(high, 1.0)


def wider(one: Interval, other: Interval) -> Interval:
    """Return the smallest interval that contains both."""
    return min(one[0], other[0]), max(one[1], other[1])


@dataclass(frozen=True, eq=False)
class Groups:
    """Sample and model of each row.

    Attributes
    ----------
    of_row : (n,) int64
        Number of the sample of each row, from 0.
    count : int
        Number of distinct samples.
    model_of_row : (n,) int64
        Number of the model of each row, from 0.
    n_models : int
        Number of distinct models. With a single one, only samples are drawn.
    """

    of_row: Ints
    count: int
    model_of_row: Ints
    n_models: int

    @classmethod
    def read(cls, groups: ArrayLike, n: int, models: ArrayLike | None = None) -> Groups:
        """Create groups from one name or number for each row, and optionally one for its model.

        Raises
        ------
        ValueError
            If there is not one name for each row, or there are fewer than two samples.
        """
        of_row, count = _number_names(groups, n, "groups")
        if count < 2:
            raise ValueError("all rows are of one group; an interval needs two or more")
        of_one = np.zeros(n)
        names = of_one if models is None else models
        model_of_row, n_models = _number_names(names, n, "models")
        return cls(of_row, count, model_of_row, n_models)

    @property
    def rows(self) -> Ints:
        """Number of the sample and of the model of each row, (2, n)."""
        return np.stack([self.of_row, self.model_of_row])

    def distinct(self, rows: Mask) -> int:
        """Return the number of distinct samples among some of the rows."""
        return len(np.unique(self.of_row[rows]))

    @cached_property
    def draws(self) -> Floats:
        """Number of draws of each sample, (resamples, samples); the same for all results."""
        return _draw_counts(self.count, self._resamples, seed=0)

    @cached_property
    def model_draws(self) -> Floats:
        """Number of draws of each model, (resamples, models)."""
        return _draw_counts(self.n_models, self._resamples, seed=1)

    def share(self, counted: Mask, among: Mask) -> Interval:
        """Return the 95 % interval of the share of `among` that is `counted`; of no rows, [0, 1].

        A resample without any row among them is left out. If few distinct samples are counted, or
        few are not, the interval is at least as wide as Clopper and Pearson's on the distinct
        samples, so its width is never 0.
        """
        if not among.any():
            return 0.0, 1.0
        count = self._totals(counted & among)
        total = self._totals(among)
        some = total > 0
        interval = _limits(count[some] / total[some])
        fewest = min(self.distinct(among & counted), self.distinct(among & ~counted))
        if fewest >= _FEW:
            return interval
        distinct = self.distinct(among)
        expected = counted[among].mean() * distinct
        return wider(interval, clopper_pearson(expected, distinct))

    def areas(self, scores: Floats, memorized: Mask) -> Floats:
        """Return the AUC of every resample, (resamples,), NaN if it lacks samples of a kind."""
        return _weighted_areas(scores, memorized, self._weights())

    def without_each_model(self, scores: Floats, memorized: Mask) -> Floats:
        """Return the AUC without each model, (n_models,); NaN if that lacks samples of a kind."""
        others = self.model_of_row != np.arange(self.n_models)[:, None]
        return _weighted_areas(scores, memorized, others)

    def area_interval(self, scores: Floats, memorized: Mask, auc: float) -> Interval:
        """Return the 95 % interval of the AUC.

        It is at least as wide as the jackknife over the models. If few distinct samples are of a
        kind, or the AUC is 0 or 1, it is at least as wide as Newcombe's on the distinct samples.
        """
        interval = _limits(self.areas(scores, memorized))
        reach = Jackknife.of(self.without_each_model(scores, memorized)).reach
        interval = wider(interval, (max(auc - reach, 0.0), min(auc + reach, 1.0)))
        positives = self.distinct(memorized)
        negatives = self.distinct(~memorized)
        if min(positives, negatives) >= _FEW and interval[0] < interval[1]:
            return interval
        return wider(interval, newcombe(auc, positives, negatives))

    @property
    def _resamples(self) -> int:
        return max(_FEWEST, min(_RESAMPLES, _NUMBERS // self.count))

    def _weights(self) -> Iterator[Floats]:
        """Yield how often each resample has each row: as often as its sample, times its model."""
        some = max(1, _AT_ONCE // len(self.of_row))
        for start in range(0, self._resamples, some):
            part = slice(start, start + some)
            of_samples = self.draws[part, self.of_row]
            of_models = self.model_draws[part, self.model_of_row]
            yield from of_samples * of_models

    def _totals(self, kind: Mask) -> Floats:
        """Return the number of rows of a kind in every resample, (resamples,)."""
        cell = self.model_of_row[kind] * self.count + self.of_row[kind]
        table = np.bincount(cell, minlength=self.n_models * self.count)
        by_model = self.draws @ table.reshape(self.n_models, self.count).T
        return np.asarray((by_model * self.model_draws).sum(axis=1))


@dataclass(frozen=True)
class Jackknife:
    """Standard error of a number from its values without each model.

    Attributes
    ----------
    error : float
        Nearly 0 if there are fewer than two values.
    freedom : int
        Degrees of freedom: the number of values − 1, but at least 1.
    """

    error: float
    freedom: int

    @classmethod
    def of(cls, left_out: Floats) -> Jackknife:
        """Create it from the number without each model; NaN is left out."""
        values = left_out[np.isfinite(left_out)]
        freedom = max(len(values) - 1, 1)
        error = float(np.sqrt(freedom * values.var())) if len(values) else 0.0
        return cls(max(error, NO_ERROR), freedom)

    @property
    def reach(self) -> float:
        """Half of the width of the 95 % interval, by Student's t."""
        return float(stdtrit(self.freedom, _LIMITS[1])) * self.error

    def p_value(self, distance: float) -> float:
        """Return the two-sided p of so large a distance from 0."""
        return 2 * float(stdtr(self.freedom, -abs(distance) / self.error))


@dataclass(frozen=True, eq=False)
class TrueArea:
    """AUC for the true labels, where these are known by their probabilities.

    Attributes
    ----------
    rising : SortedScores
        The scores. A low score means risk.
    probability : (n,) float64
        Probability that each sample is memorised, neither 0 for all nor 1 for all. It must take
        the score into account: otherwise an uncertain sample has the same probability whatever its
        score, which pulls the AUC towards ½.
    find_bias : callable
        Returns how far above the truth such an AUC is in the mean, see `bias_of`. It takes its
        time, so it is asked for the interval alone.

    Notes
    -----
    Think of labels that are drawn independently with pᵢ. The number of pairs of a memorised sample
    i and another sample j then has the mean Σ pᵢ(1 − pⱼ) over i ≠ j. The number of pairs in the
    right order has the mean Σ pᵢ(1 − pⱼ) k, where k is 1, ½ or 0. The AUC is the ratio of these
    means. A hard label would often put a sample near η on the wrong side, which pulls the AUC
    towards ½.
    """

    rising: SortedScores
    probability: Floats
    find_bias: Callable[[], float] = float

    @cached_property
    def bias(self) -> float:
        """How far above the truth the AUC is, in simulations."""
        return self.find_bias()

    @cached_property
    def auc(self) -> float:
        """AUC for the true labels."""
        positives, others = (self.rising.total(of) for of in self._kinds)
        above = others.sum() - (np.cumsum(others) - others / 2)
        # no sample is paired with itself
        with_itself = float((self.probability * (1 - self.probability)).sum())
        in_order = above @ positives - with_itself / 2
        pairs = positives.sum() * others.sum() - with_itself
        return min(max(float(in_order / pairs), 0.0), 1.0)

    @cached_property
    def areas(self) -> Floats:
        """AUCs of a bootstrap, in which every draw takes a sample and then its label.

        The draws depend on the number of samples alone, so those of two scores of the same samples
        are paired.
        """
        rng = np.random.default_rng(0)
        n = len(self.probability)
        order = self.rising.order
        times = max(_FEWEST, min(_LABELLINGS, _LABELS // n))
        at_once = max(1, _AT_ONCE // n)
        levels = [_poisson_levels(kind)[:, None, order] for kind in self._kinds]

        def counts(levels: Floats, draws: int) -> Ints:
            """Draw how many samples of a kind have each score, (draws, scores)."""
            uniform = rng.random((draws, n))[:, order]
            copies = (uniform > levels).sum(axis=0, dtype=np.int64)
            return np.asarray(np.add.reduceat(copies, self.rising.firsts, axis=1))

        areas = []
        for start in range(0, times, at_once):
            draws = min(at_once, times - start)
            positives, others = (counts(one, draws) for one in levels)
            areas.append(_area(positives, others))
        return np.concatenate(areas)

    @cached_property
    def interval(self) -> Interval:
        """95 % interval: of the bootstrap, Newcombe's at the expected counts, and the bias."""
        low, high = widened(self.unbiased_interval, self.bias)
        return max(low, 0.0), min(high, 1.0)

    @cached_property
    def unbiased_interval(self) -> Interval:
        """The same if there were no bias."""
        counts = (float(kind.sum()) for kind in self._kinds)
        low, high = _limits_around(self.auc, self.areas)
        of_draws = max(low, 0.0), min(high, 1.0)
        return wider(of_draws, newcombe(self.auc, *counts))

    @property
    def _kinds(self) -> tuple[Floats, Floats]:
        return self.probability, 1 - self.probability


def of_true_difference(one: TrueArea, other: TrueArea) -> Interval:
    """Return the 95 % interval of the difference of two AUCs for the true labels.

    It is the wider of that of the paired draws and of `of_difference`, and has the difference of
    the biases too.
    """
    difference = one.auc - other.auc
    differences = one.areas - other.areas
    there = np.isfinite(differences)
    areas = one.areas[there]
    other_areas = other.areas[there]
    covariance = np.cov(areas, other_areas, bias=True)[0, 1]
    deviations = [areas.std(), other_areas.std()]
    varies = min(deviations) > 0
    correlation = float(covariance / np.prod(deviations)) if varies else 0.0
    aucs = one.auc, other.auc
    each = one.unbiased_interval, other.unbiased_interval
    mover = of_difference(aucs, each, min(correlation, 1.0))
    interval = wider(_limits_around(difference, differences), mover)
    low, high = widened(interval, one.bias - other.bias)
    return max(low, -1.0), min(high, 1.0)


def bias_of(scores: Floats, truths: Iterable[tuple[Mask, Floats]]) -> float:
    """Return how far above the truth the AUC by probabilities is, in the mean of simulations.

    Parameters
    ----------
    scores : (n,) float64
        Scores. A low score means risk.
    truths : iterable of ((n,) bool, (n,) float64)
        Who is memorised in a simulation, and the probabilities that were estimated in it. Those in
        which all or no samples are memorised are left out.
    """
    rising = SortedScores.of(scores)
    biases = []
    for truth, probability in truths:
        n = len(truth)
        if not (0 < truth.sum() < n and 0 < probability.sum() < n):
            continue
        estimate = TrueArea(rising, probability).auc
        true = TrueArea(rising, truth.astype(np.float64)).auc
        biases.append(estimate - true)
    return float(np.mean(biases)) if biases else 0.0


def widened(interval: Interval, bias: float) -> Interval:
    """Return the smallest interval that holds this one with and without its bias."""
    low, high = interval
    return wider(interval, (low - bias, high - bias))


def _poisson_levels(means: Floats) -> Floats:
    """Return where a uniform number passes each count of a Poisson variable, (counts, n)."""
    return np.stack([pdtr(count, means) for count in range(_MOST_COPIES)])


def _limits_around(value: float, draws: Floats) -> Interval:
    """Return the bounds of draws, moved so that their mean is the value."""
    return _limits(draws - np.nanmean(draws) + value)


def _weighted_areas(
    scores: Floats, memorized: Mask, weights: Iterable[Floats | Mask]
) -> Floats:
    """Return the AUC for each weighting of the rows."""
    rung = _steps_of(scores)
    rungs = int(rung.max()) + 1
    cell = rung + rungs * memorized
    counts = np.stack([np.bincount(cell, each, 2 * rungs) for each in weights])
    return _area(counts[:, rungs:], counts[:, :rungs])


def _area(positives: Floats | Ints, negatives: Floats | Ints) -> Floats:
    """Return the AUC of each row, from the number of each kind at rising scores; NaN without."""
    before = np.cumsum(positives, axis=1) - positives / 2
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((before * negatives).sum(axis=1) / pairs)


def _number_names(names: ArrayLike, n: int, what: str) -> tuple[Ints, int]:
    array = to_numpy(names)
    if array.shape != (n,):
        raise ValueError(
            f"{what} must have one name for each of the {n} rows, but has shape {array.shape}"
        )
    of_row, distinct = pd.factorize(array, sort=True)
    missing = of_row < 0
    if missing.any():
        raise ValueError(
            f"{what} has no name in {int(missing.sum())} of {n} rows, the first in row "
            f"{int(missing.argmax())}; name each row, or leave these rows out"
        )
    return of_row.astype(np.int64), len(distinct)


def _draw_counts(count: int, times: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    equally = np.full(count, 1 / count)
    return rng.multinomial(count, equally, size=times).astype(np.float64)


def _steps_of(scores: Floats) -> Ints:
    """Return the rank of each score among the unique ones, with neighbours merged if many."""
    steps = SortedScores.of(scores)
    if len(steps.values) <= _STEPS:
        return steps.rung
    last = np.cumsum(steps.counts) - 1  # last row of each unique score
    return np.asarray(last * _STEPS // len(scores))[steps.rung]


def _limits(values: Floats) -> Interval:
    low, high = np.quantile(values[np.isfinite(values)], _LIMITS)
    return float(low), float(high)
