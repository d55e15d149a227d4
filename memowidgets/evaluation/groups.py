"""Intervals where rows depend on each other: a bootstrap that draws whole groups of them.

Where the members of several models are pooled, a sample comes in as many rows as it has models, and
those rows are alike. Drawing samples, with all their rows, keeps the intervals honest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

__all__ = ["Groups"]

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Interval = tuple[float, float]

_RESAMPLES, _FEWEST = 1000, 200
_NUMBERS = 20_000_000  # that the draws may hold at once
_STEPS = 2000  # of the curve, for the area's interval
_LIMITS = (0.025, 0.975)


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows that belong together.

    Attributes
    ----------
    of_row : (n,) int64
        The group of each row, from 0.
    count : int
        How many groups there are.
    """

    of_row: NDArray[np.int64]
    count: int

    @classmethod
    def read(cls, groups: ArrayLike, n: int) -> Groups:
        """Groups from one name, or number, for each row.

        Raises
        ------
        ValueError
            If there is not one for each row, or there are fewer than two groups.
        """
        names: NDArray[Any] = np.asarray(groups)
        if names.shape != (n,):
            raise ValueError(f"groups must name one of each of {n} rows, but has {names.shape}")
        found, of_row = np.unique(names, return_inverse=True)
        if len(found) < 2:
            raise ValueError("all rows are of one group: an interval needs two or more")
        return cls(of_row.astype(np.int64), len(found))

    @cached_property
    def draws(self) -> Floats:
        """How often each group is drawn, (resamples, groups); the same for every question."""
        rng = np.random.default_rng(0)
        shares = np.full(self.count, 1 / self.count)
        times = max(_FEWEST, min(_RESAMPLES, _NUMBERS // self.count))
        return rng.multinomial(self.count, shares, size=times).astype(np.float64)

    def share(self, counted: Mask, among: Mask) -> Interval | None:
        """95 % interval of the share of rows `among` that is `counted`; None where there is none.

        A resample without any row among them says nothing and is left out.
        """
        if not among.any():
            return None
        hits, total = (self.draws @ self._per_group(mask) for mask in (counted & among, among))
        some = total > 0
        return _limits(hits[some] / total[some])

    def areas(self, scores: Floats, memorized: Mask) -> Floats:
        """The AUC of every resample, (resamples,); NaN where it lacks a kind."""
        rung = _rungs(scores)
        positives, negatives = (self._resampled(rung, mask) for mask in (memorized, ~memorized))
        before = np.cumsum(positives, axis=1) - positives / 2
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray((before * negatives).sum(axis=1) / pairs)

    def area_interval(self, scores: Floats, memorized: Mask) -> Interval:
        """95 % interval of the AUC."""
        return _limits(self.areas(scores, memorized))

    def curves(self, scores: Floats, memorized: Mask) -> tuple[Floats, Floats]:
        """TPR and FPR of every resample along the rising scores, each (resamples, 1 + steps)."""
        rung = _rungs(scores)
        tprs, fprs = (_cumulated(self._resampled(rung, m)) for m in (memorized, ~memorized))
        return tprs, fprs

    def _resampled(self, rung: NDArray[np.int64], kind: Mask) -> Floats:
        """Rows of a kind at each rung in every resample, (resamples, rungs)."""
        rows = np.flatnonzero(kind)
        at = (self.of_row[rows], rung[rows])
        table = csr_array((np.ones(len(rows)), at), shape=(self.count, int(rung.max()) + 1))
        return np.asarray((table.T @ self.draws.T).T)

    def _per_group(self, mask: Mask) -> Floats:
        return np.bincount(self.of_row[mask], minlength=self.count).astype(np.float64)


def _rungs(scores: Floats) -> NDArray[np.int64]:
    """The place of each score among the unique ones, neighbours merged where there are too many."""
    unique, rung = np.unique(scores, return_inverse=True)
    if len(unique) <= _STEPS:
        return rung.astype(np.int64)
    last = np.cumsum(np.bincount(rung)) - 1  # rows up to each unique score
    return np.asarray(last * _STEPS // len(scores), dtype=np.int64)[rung]


def _cumulated(counts: Floats) -> Floats:
    total = counts.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        shares = np.cumsum(counts, axis=1) / total
    return np.concatenate([np.zeros((len(counts), 1)), shares], axis=1)


def _limits(values: Floats) -> Interval:
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = np.quantile(known, _LIMITS)
    return float(low), float(high)
