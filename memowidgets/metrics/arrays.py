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
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def like(array: Array, values: NDArray[Any]) -> Array:
    """Return `values` where `array` is: on its device if that is a tensor."""
    if isinstance(array, np.ndarray):
        return values
    return sys.modules["torch"].as_tensor(values, device=array.device)


def fetched(array: Array) -> NDArray[Any]:
    """Return what was computed here as an array of NumPy."""
    return array if isinstance(array, np.ndarray) else np.asarray(array.cpu())


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Real numbers as they were given, one row for each sample, read in pieces.

    They are converted a piece at a time: all at once they could take several times their memory.

    Attributes
    ----------
    values : array or tensor
        The numbers, of whatever type they have. An array may lie on disk.
    on_device : bool
        Whether torch works on them on their device. NumPy works on all others.
    """

    values: Array
    on_device: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows first."""
        return tuple(self.values.shape)

    def __getitem__(self, rows: slice | Ints) -> GivenRows:
        """Return some of the rows, which are not converted yet."""
        return GivenRows(self.values[rows], self.on_device)

    def in_numpy(self) -> NDArray[Any]:
        """Return all of them as an array, with the type that they have if NumPy has it."""
        return to_numpy(self.values)

    def exact(self) -> Floats:
        """Return all of them as a float64 array."""
        return np.asarray(self.in_numpy(), dtype=np.float64)

    def floats(self, bits: int) -> Array:
        """Return all of them as contiguous float32 or float64, where they are worked on."""
        return as_float(self.values if self.on_device else self.in_numpy(), bits)


def checked_features(X: object) -> GivenRows:
    """Return `X` as rows (n, d), or raise; sparse ones get dense."""
    rows = checked_numbers(dense(X, "X"), "X")
    if len(rows.shape) != 2 or 0 in rows.shape:
        raise ValueError(
            f"X must be (n_samples, n_features), but has shape {rows.shape}"
        )
    return rows


def checked_numbers(values: object, what: str) -> GivenRows:
    """Return real numbers where they are; raise for anything else."""
    if not is_tensor(values):
        return GivenRows(real_numbers(values, what))
    tensor = strided(values, what)
    if tensor.is_complex():
        raise TypeError(
            f"{what} must be real numbers, not values of type {tensor.dtype}"
        )
    return GivenRows(tensor, tensor.device.type not in _ON_THE_CPU)


def checked_labels(y: ArrayLike, n_samples: int) -> NDArray[Any]:
    """Return `y` as an array with one label for each sample, or raise."""
    labels = plain_labels(y)
    check_one_each(labels, n_samples)
    return labels


def check_one_each(labels: NDArray[Any], n_samples: int) -> None:
    """Raise if there is not one label for each sample."""
    if labels.shape != (n_samples,):
        raise ValueError(
            f"y must hold one label for each of the {n_samples} samples, but has shape "
            f"{labels.shape}"
        )


def refuse_rows(X: GivenRows, scores: Floats | None = None) -> NoReturn:
    """Raise for rows that led to a result that is not finite.

    Parameters
    ----------
    X : GivenRows
        All rows, (n, d).
    scores : (n,) float64, optional
        Scores of the rows, of which some are not finite.

    Raises
    ------
    ValueError
        With the first row and column that are NaN or infinite. If there is none, with the row that
        is too far from the others: the first without a finite score, or the largest.
    """
    check_finite(X.in_numpy(), "X")
    largest = np.abs(X.exact()).max(axis=1)
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
    def fitting(cls, sample: Array) -> Frame:
        """Return the frame for data of which `sample` holds some rows; neutral if possible."""
        centre = sample.mean(0)
        size = float(abs(sample).max()) or 1.0
        total = float((((sample - centre) / size) ** 2).sum(1).mean())
        far = float(((centre / size) ** 2).sum()) > _CENTRE_ABOVE * total
        spread = float(np.sqrt(total / sample.shape[1])) * size
        scale = 1.0 if _SAFE[0] < spread < _SAFE[1] or spread == 0 else spread
        return cls(centre if far else None, scale)

    @property
    def neutral(self) -> bool:
        """Whether the frame leaves rows unchanged."""
        return self.shift is None and self.scale == 1.0

    def rows(self, X: GivenRows) -> Array:
        """Return rows in this frame: float32, contiguous, copied if needed."""
        if self.neutral:
            return X.floats(32)
        chunk = X.floats(64)
        if self.shift is not None:
            chunk = chunk - self.shift
        return as_float(chunk / self.scale, 32)


def row_chunks(n: int, bytes_a_row: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of rows that take up to 32 MB, or 16 rows if that is more."""
    rows = min(max(COPIED_BYTES // bytes_a_row, 16), MOST_ROWS)
    for start in range(0, n, rows):
        yield start, min(start + rows, n)


def as_float(chunk: Array, bits: int) -> Array:
    """Return an array or a tensor as contiguous float32 or float64."""
    if isinstance(chunk, np.ndarray):
        with np.errstate(over="ignore"):  # the caller reports overflow as infinite
            dtype = np.float32 if bits == 32 else np.float64
            return np.ascontiguousarray(chunk, dtype=dtype)
    torch = sys.modules["torch"]
    kind = torch.float32 if bits == 32 else torch.float64
    return chunk.to(kind).contiguous()
