"""What all of memorization needs: checked gaps and masks, and their moments inside and outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """Moments of each sample's gaps over the models on one side (in, or out).

    Attributes
    ----------
    count : (n,) float64
        Models on this side.
    mean : (n,) float64
        Mean gap; 0 where `count` is 0.
    squares : (n,) float64
        Sum of the squared deviations from `mean`.
    """

    count: Floats
    mean: Floats
    squares: Floats

    def without(self, gaps: Floats, present: Mask) -> Side:
        """The same side with one model's `gaps` taken out where it is `present`."""
        count = self.count - present
        deviation = np.where(present, gaps - self.mean, 0.0)
        mean = self.mean - deviation / np.maximum(count, 1)
        squares = self.squares - deviation**2 * self.count / np.maximum(count, 1)
        return Side(count, np.where(count > 0, mean, 0.0), np.where(count > 1, squares.clip(0), 0))


def checked_models(gaps: ArrayLike, members: ArrayLike, name: str = "gaps") -> tuple[Floats, Mask]:
    """Gaps as (m, n) float64 and members as (m, n) bool, or one sentence on what is wrong."""
    table = np.asarray(gaps, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"{name} must be (n_models, n_samples), but has shape {table.shape}")
    if table.size == 0:
        raise ValueError(f"{name} is empty: its shape is {table.shape}")
    mask = checked_mask(members)
    if mask.shape != table.shape:
        raise ValueError(
            f"{name} and the member mask must have the same shape, but have "
            f"{table.shape} and {mask.shape}"
        )
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{name} holds {len(bad)} values that are NaN or infinite, the first for "
            f"model (row) {row}, sample (column) {column}"
        )
    return table, mask


def checked_mask(members: ArrayLike) -> Mask:
    """Members as a bool array; whole numbers pass if they are 0 or 1."""
    mask: NDArray[Any] = np.asarray(members)
    if mask.dtype == np.bool_:
        return mask
    if mask.dtype.kind in "iuf" and np.isin(mask, (0, 1)).all():
        return mask.astype(np.bool_)
    raise TypeError(f"a member mask must be bool (or 0 and 1), but has dtype {mask.dtype}")


def sides(gaps: Floats, members: Mask) -> tuple[Side, Side]:
    """Moments of the gaps under the models that trained on a sample, and of the others."""
    return _moments(gaps, members), _moments(gaps, ~members)


def _moments(gaps: Floats, chosen: Mask) -> Side:
    count = chosen.sum(axis=0).astype(np.float64)
    mean = np.where(chosen, gaps, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = (np.where(chosen, gaps - mean, 0.0) ** 2).sum(axis=0)
    return Side(count, mean, squares)


def coinciding(gaps: Floats) -> Mask:
    """Samples whose gap is the same under all models, up to the rounding of float32."""
    resolution = 8 * np.finfo(np.float32).eps * np.abs(gaps).max(axis=0)
    return np.asarray(np.ptp(gaps, axis=0) <= resolution)
