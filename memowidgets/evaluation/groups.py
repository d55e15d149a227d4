"""Intervals for rows that depend on each other: a bootstrap that draws whole groups of rows.

If the members of several models are pooled, a sample has one row per model, and a model has one row
per member. Rows of one sample are similar, and so are rows of one model. The bootstrap draws
samples and models, each with all of its rows, so the intervals include this dependence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from memowidgets.checks import is_missing, to_numpy
from memowidgets.evaluation.intervals import Interval, clopper_pearson, newcombe, wider

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_RESAMPLES, _FEWEST = 1000, 200
_NUMBERS = 20_000_000  # maximum size of the table of draws
_STEPS = 2000  # steps of the curve for the interval of the AUC
_LIMITS = (0.025, 0.975)
_FEW = 10  # with fewer distinct samples on a side, percentile intervals are too narrow


@dataclass(frozen=True, eq=False)
class Groups:
    """Sample and model of each row.

    Attributes
    ----------
    of_row : (n,) int64
        Number of the sample of each row, from 0.
    count : int
        Number of distinct samples.
    model_of_row : (n,) int64, or None
        Number of the model of each row, from 0. None if rows are grouped by sample alone.
    n_models : int
        Number of distinct models, 1 if `model_of_row` is None.
    """

    of_row: Ints
    count: int
    model_of_row: Ints | None = None
    n_models: int = 1

    @classmethod
    def read(cls, groups: ArrayLike, n: int, models: ArrayLike | None = None) -> Groups:
        """Create groups from one name or number for each row, and optionally one for its model.

        Rows of a single model are grouped by sample alone.

        Raises
        ------
        ValueError
            If there is not one name for each row, or there are fewer than two samples.
        """
        of_row, count = _numbered(groups, n, "groups")
        if count < 2:
            raise ValueError("all rows are of one group; an interval needs two or more")
        if models is None:
            return cls(of_row, count)
        model_of_row, n_models = _numbered(models, n, "models")
        return cls(of_row, count, model_of_row if n_models > 1 else None, n_models)

    @property
    def in_words(self) -> str:
        """Description of what the bootstrap draws."""
        return "by sample" if self.model_of_row is None else "by sample and by model"

    @property
    def of_models(self) -> bool:
        """Whether models are drawn."""
        return self.model_of_row is not None

    def same_as(self, other: Groups) -> bool:
        """Return whether both group the rows in the same way."""
        return np.array_equal(self.of_row, other.of_row) and (
            (self.model_of_row is None) == (other.model_of_row is None)
            and (
                self.model_of_row is None
                or np.array_equal(self.model_of_row, np.asarray(other.model_of_row))
            )
        )

    def distinct(self, rows: Mask) -> int:
        """Return the number of distinct samples among some of the rows."""
        return len(np.unique(self.of_row[rows]))

    @cached_property
    def draws(self) -> Floats:
        """Number of draws of each sample, (resamples, samples); the same for all results."""
        return _drawn(self.count, self._resamples, seed=0)

    @cached_property
    def model_draws(self) -> Floats | None:
        """Number of draws of each model, (resamples, models); None without models."""
        if self.model_of_row is None:
            return None
        return _drawn(self.n_models, self._resamples, seed=1)

    def share(self, counted: Mask, among: Mask) -> Interval:
        """Return the 95 % interval of the share of `among`, at least one row, that is `counted`.

        A resample without any row among them is left out. If few distinct samples are counted, or
        few are not, the interval is at least as wide as Clopper and Pearson's on the distinct
        samples, so its width is never 0.
        """
        found, total = (self._totals(mask) for mask in (counted & among, among))
        some = total > 0
        interval = _limits(found[some] / total[some])
        if min(self.distinct(among & counted), self.distinct(among & ~counted)) >= _FEW:
            return interval
        distinct = self.distinct(among)
        return wider(interval, clopper_pearson(counted[among].mean() * distinct, distinct))

    def areas(self, scores: Floats, memorized: Mask) -> Floats:
        """Return the AUC of every resample, (resamples,), NaN if it lacks samples of a kind."""
        rung = _rungs(scores)
        positives, negatives = (self._resampled(rung, mask) for mask in (memorized, ~memorized))
        return _area(positives, negatives)

    def without_each_model(self, scores: Floats, memorized: Mask) -> Floats:
        """Return the AUC without each model, (n_models,); NaN if that lacks samples of a kind."""
        if self.n_models == 1:
            return np.full(1, np.nan)
        rung = _rungs(scores)
        rungs = int(rung.max()) + 1
        cell = self._models * rungs + rung
        positives, negatives = (
            np.bincount(cell[kind], minlength=self.n_models * rungs).reshape(self.n_models, rungs)
            for kind in (memorized, ~memorized)
        )
        return _area(positives.sum(axis=0) - positives, negatives.sum(axis=0) - negatives)

    def area_interval(self, scores: Floats, memorized: Mask, auc: float) -> Interval:
        """Return the 95 % interval of the AUC.

        It is at least as wide as the jackknife over the models. If few distinct samples are of a
        kind, or the AUC is 0 or 1, it is at least as wide as Newcombe's on the distinct samples.
        """
        interval = _limits(self.areas(scores, memorized))
        reach = Jackknife.of(self.without_each_model(scores, memorized)).reach(0.95)
        interval = wider(interval, (max(auc - reach, 0.0), min(auc + reach, 1.0)))
        positives, negatives = self.distinct(memorized), self.distinct(~memorized)
        if min(positives, negatives) >= _FEW and interval[0] < interval[1]:
            return interval
        return wider(interval, newcombe(auc, positives, negatives))

    def curves(self, scores: Floats, memorized: Mask) -> tuple[Floats, Floats]:
        """Return TPR and FPR of every resample at rising scores, each (resamples, 1 + steps).

        A resample that lacks samples of a kind is left out.
        """
        rung = _rungs(scores)
        tprs, fprs = (_cumulated(self._resampled(rung, m)) for m in (memorized, ~memorized))
        whole = np.isfinite(tprs[:, -1] + fprs[:, -1])
        return tprs[whole], fprs[whole]

    @property
    def _resamples(self) -> int:
        return max(_FEWEST, min(_RESAMPLES, _NUMBERS // self.count))

    def _resampled(self, rung: Ints, kind: Mask) -> Floats:
        """Return the rows of a kind at each score in every resample, (resamples, rungs)."""
        rungs = int(rung.max()) + 1
        found = np.zeros((rungs, self._resamples))
        for model in range(self.n_models):
            rows = kind & (self._models == model)
            there, at = np.unique(rung[rows], return_inverse=True)
            ones = np.ones(len(at))
            table = csr_array((ones, (at, self.of_row[rows])), shape=(len(there), self.count))
            found[there] += (table @ self._per_sample) * self._model_weights[:, model]
        return found.T

    def _totals(self, kind: Mask) -> Floats:
        """Return the number of rows of a kind in every resample, (resamples,).

        A row counts as often as its sample is drawn, multiplied by how often its model is drawn.
        """
        at = (self._models[kind], self.of_row[kind])
        table = csr_array((np.ones(len(at[0])), at), shape=(self.n_models, self.count))
        drawn = np.asarray(table @ self._per_sample, dtype=np.float64).T
        return np.asarray((drawn * self._model_weights).sum(axis=1))

    @cached_property
    def _per_sample(self) -> Floats:
        """`draws` with one row per sample, contiguous for fast products."""
        return np.ascontiguousarray(self.draws.T)

    @cached_property
    def _models(self) -> Ints:
        return np.zeros_like(self.of_row) if self.model_of_row is None else self.model_of_row

    @property
    def _model_weights(self) -> Floats:
        if self.model_draws is None:
            return np.ones((self._resamples, 1))
        return self.model_draws


@dataclass(frozen=True)
class Jackknife:
    """Standard error of a number from its values without each model.

    Attributes
    ----------
    error : float
        0 if there are fewer than two values.
    freedom : int
        Degrees of freedom: the number of values − 1.
    """

    error: float
    freedom: int

    @classmethod
    def of(cls, left_out: Floats) -> Jackknife:
        """Create it from the number without each model; NaN is left out."""
        known = left_out[np.isfinite(left_out)]
        freedom = len(known) - 1
        if freedom < 1:
            return cls(0.0, 1)
        return cls(float(np.sqrt(freedom * np.var(known))), freedom)

    def reach(self, level: float) -> float:
        """Return half of the width of the interval at this level, by Student's t."""
        from scipy.stats import t as student

        return float(student.ppf((1 + level) / 2, self.freedom)) * self.error

    def p_value(self, distance: float) -> float:
        """Return the two-sided p of so large a distance from 0."""
        if not self.error:
            return 0.0
        from scipy.stats import t as student

        return float(2 * student.sf(abs(distance) / self.error, self.freedom))


def _area(positives: Floats | Ints, negatives: Floats | Ints) -> Floats:
    """Return the AUC of each row, from the number of each kind at rising scores; NaN without."""
    before = np.cumsum(positives, axis=1) - positives / 2
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray((before * negatives).sum(axis=1) / pairs)


def _numbered(names: ArrayLike, n: int, what: str) -> tuple[Ints, int]:
    array = to_numpy(names)
    if array.shape != (n,):
        raise ValueError(
            f"{what} must have one name for each of the {n} rows, but has shape {array.shape}"
        )
    missing = np.array([is_missing(name) for name in array], dtype=np.bool_)
    if missing.any():
        raise ValueError(
            f"{what} has no name in {int(missing.sum())} of {n} rows, the first in row "
            f"{int(missing.argmax())}; name each row, or leave these rows out"
        )
    found, of_row = np.unique(array, return_inverse=True)
    return of_row.astype(np.int64), len(found)


def _drawn(count: int, times: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    return rng.multinomial(count, np.full(count, 1 / count), size=times).astype(np.float64)


def _rungs(scores: Floats) -> Ints:
    """Return the rank of each score among the unique ones, with neighbours merged if many."""
    unique, rung = np.unique(scores, return_inverse=True)
    if len(unique) <= _STEPS:
        return rung.astype(np.int64)
    last = np.cumsum(np.bincount(rung)) - 1  # last row of each unique score
    return np.asarray(last * _STEPS // len(scores), dtype=np.int64)[rung]


def _cumulated(counts: Floats) -> Floats:
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.cumsum(counts, axis=1) / total
    return np.concatenate([np.zeros((len(counts), 1)), shares], axis=1)


def _limits(values: Floats) -> Interval:
    low, high = np.quantile(values[np.isfinite(values)], _LIMITS)
    return float(low), float(high)
