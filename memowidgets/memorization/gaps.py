"""Helpers for the whole room: checks of gaps and masks, and the moments of both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_finite, check_same_order, real_numbers, to_numpy

Floats = NDArray[np.float64]
Table = NDArray[np.float32] | Floats
Mask = NDArray[np.bool_]

_BLOCK = 2**18  # gaps per step; they fit in a core's cache
_WIDEST = 1e100  # float64 holds squares of smaller differences


@dataclass(frozen=True)
class Side:
    """Moments of each sample's gaps over the models on one side (in or out).

    Attributes
    ----------
    count : (n,) float64
        Number of models on this side.
    mean : (n,) float64
        Mean gap, 0 if `count` is 0.
    squares : (n,) float64
        Sum of the squared deviations from `mean`.
    """

    count: Floats
    mean: Floats
    squares: Floats

    def without(self, gaps: Floats, present: Mask) -> Side:
        """Return this side without one model's `gaps` where that model is `present`."""
        count = self.count - present
        deviation = np.where(present, gaps - self.mean, 0.0)
        mean = self.mean - deviation / np.maximum(count, 1)
        squares = self.squares - deviation**2 * self.count / np.maximum(count, 1)
        return Side(count, np.where(count > 0, mean, 0.0), np.where(count > 1, squares.clip(0), 0))


@dataclass(frozen=True)
class GapMoments:
    """Moments of both sides of every sample.

    Attributes
    ----------
    inside, outside : Side
        Moments over the models that trained on the sample, and over the others.
    coinciding : (n,) bool
        Samples whose gap is equal under all models, up to the rounding of float32.
    """

    inside: Side
    outside: Side
    coinciding: Mask


def checked_models(gaps: ArrayLike, members: ArrayLike, name: str = "gaps") -> tuple[Table, Mask]:
    """Return gaps as (m, n) floats and members as (m, n) bool, or raise.

    Floating-point gaps are not copied. `moments` checks that they are finite.
    """
    table = real_numbers(gaps, name)
    if table.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
        table = table.astype(np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"{name} must be (n_models, n_samples), but has shape {table.shape}")
    mask = checked_mask(members)
    if mask.shape != table.shape:
        raise ValueError(
            f"{name} and the member mask must have the same shape, but have "
            f"{table.shape} and {mask.shape}"
        )
    for axis in ("index", "columns"):  # the models and the samples, where pandas names them
        both = {name: getattr(gaps, axis, None), "the member mask": getattr(members, axis, None)}
        check_same_order(**{f"{one}.{axis}": names for one, names in both.items()})
    return table, mask


def checked_mask(members: ArrayLike, name: str = "a member mask") -> Mask:
    """Return members as a bool array; numbers are refused, because 0 and 1 may be scores."""
    mask = to_numpy(members)
    if mask.dtype == np.bool_:
        return mask
    raise TypeError(
        f"{name} must be bool, but has dtype {mask.dtype}: if it holds 0 and 1, pass "
        "mask.astype(bool)"
    )


def check_width(widest: float, name: str) -> None:
    """Raise if gaps are so large that float64 does not hold their squares."""
    if widest > _WIDEST:
        raise ValueError(f"{name} reach over {widest:.1g}, which no logits do")


def moments(gaps: Table, members: Mask, name: str = "gaps") -> GapMoments:
    """Return the moments of the gaps under the models that trained on a sample, and the others.

    Raises
    ------
    ValueError
        If a gap is NaN or infinite.
    """
    inside, outside, coinciding = [], [], []
    width = max(1, _BLOCK // len(gaps))
    for start in range(0, gaps.shape[1], width):
        columns = slice(start, start + width)
        block, trained = gaps[:, columns].astype(np.float64), members[:, columns]
        low, high = block.min(axis=0), block.max(axis=0)
        widest = float((high - low).max())
        if not np.isfinite(widest):
            check_finite(gaps, name, row="model (row)")
        check_width(widest, name)
        resolution = 8 * np.finfo(np.float32).eps * np.maximum(np.abs(low), np.abs(high))
        inside.append(_of_side(block, trained))
        outside.append(_of_side(block, ~trained))
        coinciding.append(high - low <= resolution)
    one, other = (Side(*np.concatenate(side, axis=1)) for side in (inside, outside))
    return GapMoments(one, other, np.concatenate(coinciding))


def _of_side(block: Floats, present: Mask) -> Floats:
    """Return count, mean and squares of one side of some samples, (3, n)."""
    weights = present.astype(np.float64)
    count = weights.sum(axis=0)
    mean = np.einsum("ij,ij->j", block, weights) / np.maximum(count, 1)
    deviation = (block - mean) * weights
    return np.array([count, mean, np.einsum("ij,ij->j", deviation, deviation)])
