"""Checks of the arrays that widgets are given, and their form on the wire; no widgets here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

__all__ = ["checked_flags", "checked_floats", "checked_tau", "packed_scores", "packed_undecided"]


def checked_floats(name: str, values: ArrayLike, n: int | None = None) -> Floats:
    """A vector of finite numbers, or an error that says how many are not and which is first."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be real numbers, not {array.dtype}")
    if n is None and len(array) == 0:
        raise ValueError(f"{name} is empty: there must be at least one sample")
    if n is not None and len(array) != n:
        raise ValueError(f"{name} has {len(array)} entries for {n} samples: give one for each")
    floats = array.astype(np.float64)
    wrong = ~np.isfinite(floats)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise ValueError(
            f"{name} must be finite: {int(wrong.sum())} of {len(floats)} are NaN or infinite, "
            f"the first in row {first}"
        )
    return floats


def checked_flags(name: str, values: ArrayLike, n: int) -> Bools:
    """A vector of true and false (or 0 and 1), one for each sample."""
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must be one truth value for each of {n} samples, not of shape {array.shape}"
        )
    if array.dtype.kind == "b":
        return array.astype(np.bool_)
    if array.dtype.kind not in "iuf" or not np.isin(array, (0, 1)).all():
        raise TypeError(
            f"{name} must be true or false; to turn log-LiRA into that, compare it with η, "
            "as in log_lira >= 4"
        )
    return array.astype(np.bool_)


def checked_tau(tau: float) -> float:
    """A finite threshold; infinity has no place on an axis."""
    number = float(tau)
    if not np.isfinite(number):
        raise ValueError(f"tau must be a finite number, not {number}")
    return number


def packed_scores(scores: Floats, memorized: Bools | None) -> dict[str, Any]:
    """The scores as the front end takes them.

    Parameters
    ----------
    scores : array of shape (n,), float64
        Finite.
    memorized : array of shape (n,), bool, or None
        None without ground truth.

    Returns
    -------
    dict
        ``values``: the distinct scores, ascending, as float32 if that loses nothing, else
        (``wide``) as float64, so that the front end counts exactly what Python does;
        ``bits``: one bit a value, whether its sample is memorised; ``ties``: position, number
        of samples and number of memorised ones (uint32) of each value that several samples
        share. A million distinct scores are at most 8.2 MB.
    """
    values, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    hits = None if memorized is None else np.bincount(inverse[memorized], minlength=len(values))
    shared = np.flatnonzero(counts > 1)
    shared_hits = np.zeros_like(shared) if hits is None else hits[shared]
    ties = np.stack([shared, counts[shared], shared_hits], axis=1)
    narrow = values.astype(np.float32)
    wide = not np.array_equal(narrow.astype(np.float64), values)
    return {
        "values": (values if wide else narrow).tobytes(),
        "wide": wide,
        "bits": None if hits is None else np.packbits(hits > 0).tobytes(),
        "ties": ties.astype(np.uint32).tobytes(),
    }


def packed_undecided(scores: Floats, errors: Floats | None) -> dict[str, bytes | None]:
    """Where each score's interval of two standard errors begins and ends, ascending, float32."""
    if errors is None:
        return {"lows": None, "highs": None}
    return {
        "lows": np.sort(scores - 2 * errors).astype(np.float32).tobytes(),
        "highs": np.sort(scores + 2 * errors).astype(np.float32).tobytes(),
    }
