"""Helpers for the whole room: checks of gaps and masks, and the moments of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import check_finite, check_same_order, real_numbers, to_numpy
from memowidgets.vocabulary import Note

Floats = NDArray[np.float64]
Table = NDArray[np.float32] | Floats
Mask = NDArray[np.bool_]

_BLOCK = 2**18  # gaps per step; they fit in a core's cache
_MANY = 2**24  # from this many gaps on, sums use float32 where gaps do, to save time
# deviations between which squares neither underflow nor overflow
_LEAST_IN_FLOAT32 = 1e-12
_MOST_IN_FLOAT32 = 1e12
_WIDEST = 1e100  # float64 holds squares of smaller differences
_FEWEST_TO_AGREE = 50  # samples
# as models of one task: `tests/memorization/test_gaps.py` and the recordings have more
_LEAST_AGREEMENT = 0.2


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

    def only(self, samples: NDArray[np.int64]) -> Side:
        """Return this side of some samples."""
        return Side(self.count[samples], self.mean[samples], self.squares[samples])

    def without(self, gaps: Floats, present: Mask) -> Side:
        """Return this side without one model's `gaps` where that model is `present`."""
        count = self.count - present
        divisor = np.maximum(count, 1)
        deviation = np.where(present, gaps - self.mean, 0.0)
        mean = self.mean - deviation / divisor
        squares = self.squares - deviation**2 * self.count / divisor
        return Side(
            count,
            np.where(count > 0, mean, 0.0),
            np.where(count > 1, squares.clip(0), 0),
        )


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


def checked_models(
    gaps: ArrayLike, members: ArrayLike, name: str = "gaps"
) -> tuple[Table, Mask]:
    """Return gaps as (m, n) floats and members as (m, n) bool, or raise.

    Floating-point gaps are not copied. `moments` checks that they are finite.
    """
    table = real_numbers(gaps, name)
    if table.dtype not in {np.dtype(np.float32), np.dtype(np.float64)}:
        table = table.astype(np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            f"{name} must be (n_models, n_samples), but has shape {table.shape}"
        )
    mask = checked_mask(members)
    if mask.shape != table.shape:
        raise ValueError(
            f"{name} and the member mask must have the same shape, but have "
            f"{table.shape} and {mask.shape}"
        )
    # the models and the samples, where pandas names them
    for axis in ("index", "columns"):
        of_gaps = getattr(gaps, axis, None)
        of_mask = getattr(members, axis, None)
        names = {f"{name}.{axis}": of_gaps, f"the member mask.{axis}": of_mask}
        check_same_order(**names)
    return table, mask


def checked_mask(members: ArrayLike, name: str = "a member mask") -> Mask:
    """Return members as a bool array; numbers are refused, because 0 and 1 may be scores."""
    mask = to_numpy(members, name)
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
    parts = []
    width = max(1, _BLOCK // len(gaps))
    for start in range(0, gaps.shape[1], width):
        columns = slice(start, start + width)
        block = gaps[:, columns]
        low = block.min(axis=0).astype(np.float64)
        high = block.max(axis=0).astype(np.float64)
        widest = float((high - low).max())
        if not np.isfinite(widest):
            check_finite(gaps, name, row="model")
        check_width(widest, name)
        is_safe = _LEAST_IN_FLOAT32 < widest < _MOST_IN_FLOAT32
        saves_time = gaps.size >= _MANY and block.dtype == np.float32
        precision = np.float32 if is_safe and saves_time else np.float64
        inside, outside = _of_sides(block.astype(precision), members[:, columns])
        largest = np.maximum(np.abs(low), np.abs(high))
        equal = high - low <= 8 * np.finfo(np.float32).eps * largest
        parts.append((inside, outside, equal))
    inside, outside, equal = (
        np.concatenate(of_parts, axis=-1) for of_parts in zip(*parts, strict=True)
    )
    return GapMoments(Side(*inside), Side(*outside), equal)


def _of_sides(block: Any, members: Mask) -> tuple[Floats, Floats]:
    """Return count, mean and squares of both sides of some samples; this overwrites `block`.

    The sums are of deviations from the first model's gaps, so that single precision suffices
    where gaps are large and similar.
    """
    weights = members.astype(block.dtype)
    origin = block[0].astype(np.float64)
    block -= block[0].copy()
    count_in = weights.sum(axis=0).astype(np.float64)
    count_out = len(block) - count_in
    total_in = np.einsum("ij,ij->j", block, weights)
    mean_in = total_in / np.maximum(count_in, 1)
    mean_out = (block.sum(axis=0) - total_in) / np.maximum(count_out, 1)
    block -= mean_out.astype(block.dtype)
    block -= weights * (mean_in - mean_out).astype(block.dtype)
    np.square(block, out=block)
    squares_in = np.einsum("ij,ij->j", block, weights)
    squares_out = np.maximum(block.sum(axis=0) - squares_in, 0)
    mean_in = np.where(count_in > 0, origin + mean_in, 0.0)
    mean_out = np.where(count_out > 0, origin + mean_out, 0.0)
    inside = np.array([count_in, mean_in, squares_in])
    outside = np.array([count_out, mean_out, squares_out])
    return inside, outside


def note_on_order(
    shadow_gaps: ArrayLike, shadow_members: ArrayLike, target_gaps: ArrayLike
) -> Note | None:
    """Return a note if target and shadow models agree no more than on shuffled samples.

    It compares the ranks of the target's gaps with those of the mean gap of the models that trained
    on the sample. Honest models agree, because some samples are easier than others.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ease = rng.normal(size=400)
    >>> members = rng.random((8, 400)) < 0.5
    >>> gaps = ease + members + rng.normal(size=(8, 400))
    >>> note_on_order(gaps, members, ease + 1 + rng.normal(size=400)) is None
    True
    >>> note_on_order(gaps, members, rng.permutation(ease))[:41]
    'the shadow models and the target hardly a'
    """
    import pandas as pd  # which nothing else here needs

    gaps, members = checked_models(shadow_gaps, shadow_members, "shadow_gaps")
    count = members.sum(axis=0)
    means = gaps.sum(axis=0, where=members, dtype=np.float64) / np.maximum(count, 1)
    both = pd.DataFrame({"shadows": means, "target": np.asarray(target_gaps)})
    ranks = both[count > 0].rank()
    # NaN where all gaps of a side are equal, which says nothing
    agreement = float(ranks.corr().iloc[0, 1])
    if len(ranks) < _FEWEST_TO_AGREE or not agreement < _LEAST_AGREEMENT:
        return None
    return Note(
        "order of samples",
        "the shadow models and the target hardly agree on which samples are easy (rank correlation "
        f"of their logit gaps {agreement:.2f}, where models of one task have "
        f"{_LEAST_AGREEMENT} or more): samples in another order look like this, so compare the "
        "order of shadow_gaps and final_logits before you read another number",
        correlation=agreement,
    )
