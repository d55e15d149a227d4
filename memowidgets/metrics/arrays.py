"""Helpers for all scores: checks of NumPy arrays and torch tensors, and rows in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import (
    check_finite,
    dense,
    is_tensor,
    plain_labels,
    real_numbers,
    strided,
    to_numpy,
)

Array = Any  # a NumPy array or a torch tensor; the code of this room works on both
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COPIED_BYTES = 2**25  # maximum size of a chunk of rows with its intermediate results
MOST_ROWS = 16_384
_ON_THE_CPU = ("cpu", "mps")  # tensors that NumPy works on: MPS has no float64
_CENTRE_ABOVE = 16.0  # squared distance from the origin, in units of the total variance
_SAFE = (1e-6, 1e6)  # magnitudes whose squares float32 can represent


def namespace(array: Array) -> Any:
    """Return the module whose functions work on `array`: numpy or torch."""
    return sys.modules["torch"] if is_tensor(array) else np


def like(array: Array, values: Any) -> Array:
    """Return `values` (an array or None) on the device of `array` if that is a tensor."""
    if is_tensor(array) and values is not None:
        return sys.modules["torch"].as_tensor(values, device=array.device)
    return values


def checked_features(X: Any) -> Array:
    """Return `X` as an array or a torch tensor of shape (n, d), or raise; sparse ones get dense."""
    array = checked_numbers(dense(X, "X"), "X")
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"X must be (n_samples, n_features), but has shape {tuple(array.shape)}"
        )
    return array


def checked_numbers(values: Any, what: str) -> Array:
    """Return real numbers as an array, or as a tensor where they are; raise for anything else."""
    if not is_tensor(values):
        return real_numbers(values, what)
    tensor = strided(values, what)
    if tensor.is_complex():
        raise TypeError(
            f"{what} must be real numbers, not values of type {tensor.dtype}"
        )
    return tensor


def checked_labels(y: ArrayLike, n_samples: int) -> NDArray[Any]:
    """Return `y` as an array with one label for each sample, or raise."""
    labels = to_numpy(y, "y")
    if labels.dtype.kind not in "biu":
        labels = plain_labels(labels if labels.dtype.kind == "f" else y)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"y must hold one label for each of the {n_samples} samples, but has shape "
            f"{labels.shape}"
        )
    return labels


def refuse_rows(X: Array, scores: Floats | None = None) -> NoReturn:
    """Raise for rows that led to a result that is not finite.

    Parameters
    ----------
    X : (n, d) array or tensor
        All rows.
    scores : (n,) float64, optional
        Scores of the rows, of which some are not finite.

    Raises
    ------
    ValueError
        With the first row and column that are NaN or infinite. If there is none, with the row that
        is too far from the others: the first without a finite score, or the largest.
    """
    check_finite(to_numpy(X), "X")
    largest = np.abs(to_numpy(X).astype(np.float64)).max(axis=1)
    row = int(largest.argmax() if scores is None else (~np.isfinite(scores)).argmax())
    raise ValueError(
        f"row {row} of X, with values up to {largest[row]:.3g}, is too far from the fitted rows "
        "for a finite score; scale it as the others are, or leave it out"
    )


@dataclass(frozen=True, eq=False)
class Frame:
    """Shift and scale that bring rows to a magnitude near 1 in float32; no score changes.

    Attributes
    ----------
    shift : (d,) array or None
        Subtracted first, if the features are far from the origin.
    scale : float
        Divides the shifted features.
    """

    shift: Array | None = None
    scale: float = 1.0

    @classmethod
    def fitting(cls, sample: Array, like_array: Array) -> Frame:
        """Return the frame for data of which `sample` holds some rows; neutral if possible."""
        centre = sample.mean(0)
        size = float(abs(sample).max()) or 1.0
        total = float((((sample - centre) / size) ** 2).sum(1).mean())
        far = float(((centre / size) ** 2).sum()) > _CENTRE_ABOVE * total
        spread = float(np.sqrt(total / sample.shape[1])) * size
        scale = 1.0 if _SAFE[0] < spread < _SAFE[1] or spread == 0 else spread
        if not far:
            return cls(None, scale)
        return cls(like(like_array, centre) if stays(like_array) else centre, scale)

    @property
    def neutral(self) -> bool:
        """Whether the frame leaves rows unchanged."""
        return self.shift is None and self.scale == 1.0

    def rows(self, X: Array, start: int, stop: int) -> Array:
        """Return rows `start` to `stop` in this frame: float32, contiguous, copied if needed."""
        chunk = X[start:stop]
        if not self.neutral:
            chunk = as_float(chunk, 64)
            if self.shift is not None:
                chunk = chunk - self.shift
            chunk = chunk / self.scale
        return as_float(chunk, 32)


def row_chunks(n: int, bytes_a_row: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of rows that take up to 32 MB, or 16 rows if that is more."""
    rows = min(max(COPIED_BYTES // bytes_a_row, 16), MOST_ROWS)
    for start in range(0, n, rows):
        yield start, min(start + rows, n)


def stays(array: Array) -> bool:
    """Return whether torch works on `array` on its device; NumPy works on all other arrays."""
    return is_tensor(array) and array.device.type not in _ON_THE_CPU


def as_float(chunk: Array, bits: int) -> Array:
    """Return contiguous float32 or float64: a tensor if it is on a device, else an array."""
    if is_tensor(chunk) and not stays(chunk):
        chunk = to_numpy(chunk)
    if is_tensor(chunk):
        torch = sys.modules["torch"]
        kind = torch.float32 if bits == 32 else torch.float64
        return chunk.to(kind).contiguous()
    with np.errstate(over="ignore"):  # the caller reports overflow as infinite
        dtype = np.float32 if bits == 32 else np.float64
        return np.ascontiguousarray(chunk, dtype=dtype)
