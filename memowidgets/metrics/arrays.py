"""What all scores need: checked arrays of NumPy or torch, and rows of them in float32."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = Any  # a NumPy array or a torch tensor; the code of this room works on both
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

COPIED_BYTES = 2**25  # the most that a chunk of rows and what is made of it take
MOST_ROWS = 16_384
_CENTRE_ABOVE = 16.0  # squared distance from the origin, in total variances
_SAFE = (1e-6, 1e6)  # sizes whose squares are far from the ends of float32


def is_tensor(array: object) -> bool:
    """Whether `array` is a torch tensor; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(array: Array) -> Any:
    """The module whose functions work on `array`: numpy, or torch."""
    return sys.modules["torch"] if is_tensor(array) else np


def to_numpy(array: Array) -> NDArray[Any]:
    """`array` in NumPy's memory; bfloat16, which NumPy lacks, as float32."""
    if not is_tensor(array):
        return np.asarray(array)
    tensor = array.detach()
    if tensor.dtype == sys.modules["torch"].bfloat16:
        tensor = tensor.float()
    return np.asarray(tensor.cpu().numpy())


def like(array: Array, values: Any) -> Array:
    """`values` (an array, or None) beside `array`: on its device if it is a tensor."""
    if is_tensor(array) and values is not None:
        return sys.modules["torch"].as_tensor(values, device=array.device)
    return values


def checked_features(X: Any) -> Array:
    """`X` as a NumPy array or, where it is one, a torch tensor of shape (n, d); else an error."""
    array: Array = X.detach() if is_tensor(X) else np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"X must be (n_samples, n_features), but has shape {tuple(array.shape)}")
    if 0 in array.shape:
        raise ValueError(f"X is empty: its shape is {tuple(array.shape)}")
    if not _is_real(array):
        raise TypeError(f"X must hold real numbers, but has dtype {array.dtype}")
    return array


def checked_labels(y: ArrayLike, n_samples: int) -> NDArray[Any]:
    """`y` as one label for each sample, or an error."""
    labels = to_numpy(y)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"y must hold one label for each of the {n_samples} samples, but has shape "
            f"{labels.shape}"
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(f"y is NaN in row {np.isnan(labels).argmax()}")
    return labels


def complain_if_not_finite(X: Array, what: str = "X") -> None:
    """Raise a ValueError that names the first row and column that are NaN or infinite."""
    affected, first = 0, ""
    for start in range(0, X.shape[0], 4096):
        bad = ~np.isfinite(to_numpy(X[start : start + 4096]))
        if bad.any() and not affected:
            row, column = np.argwhere(bad)[0]
            kind = "NaN" if np.isnan(to_numpy(X[start + row, column])) else "infinite"
            first = f"{kind} in row {start + row}, column {column}"
        affected += int(bad.any(axis=1).sum())
    if affected:
        raise ValueError(f"{what} is {first} ({affected} of {X.shape[0]} rows are affected)")


@dataclass(frozen=True, eq=False)
class Frame:
    """How rows become float32 numbers of a size near one; scores do not depend on it.

    Attributes
    ----------
    shift : (d,) array or None
        Taken off first, where the features are far from the origin.
    scale : float
        What is left is divided by this.
    """

    shift: Array | None = None
    scale: float = 1.0

    @classmethod
    def fitting(cls, sample: NDArray[np.float64], like_array: Array) -> Frame:
        """The frame for data of which `sample` holds some rows; does nothing if it need not."""
        centre = sample.mean(axis=0)
        size = np.abs(sample).max() or 1.0
        total = float((((sample - centre) / size) ** 2).sum(axis=1).mean())
        far = float(((centre / size) ** 2).sum()) > _CENTRE_ABOVE * total
        spread = float(np.sqrt(total / sample.shape[1])) * size
        scale = 1.0 if _SAFE[0] < spread < _SAFE[1] or spread == 0 else spread
        shift = like(like_array, centre) if far and stays(like_array) else centre if far else None
        return cls(shift, scale)

    @property
    def neutral(self) -> bool:
        """Whether it leaves rows as they are."""
        return self.shift is None and self.scale == 1.0

    def rows(self, X: Array, start: int, stop: int) -> Array:
        """Rows `start` to `stop` in this frame: float32, contiguous, a copy only if it must be."""
        chunk = X[start:stop]
        if not self.neutral:
            chunk = _as_float(chunk, 64)
            chunk = (chunk if self.shift is None else chunk - self.shift) / self.scale
        return _as_float(chunk, 32)


def row_chunks(n: int, bytes_a_row: int) -> Iterator[tuple[int, int]]:
    """Bounds of chunks of rows that take some 32 MB (but hold 16 rows at least)."""
    rows = min(max(COPIED_BYTES // bytes_a_row, 16), MOST_ROWS)
    for start in range(0, n, rows):
        yield start, min(start + rows, n)


def stays(array: Array) -> bool:
    """Whether `array` is worked on where it is, by torch; all else by NumPy."""
    return is_tensor(array) and bool(array.is_cuda)


def _as_float(chunk: Array, bits: int) -> Array:
    if is_tensor(chunk) and not stays(chunk):
        chunk = to_numpy(chunk)
    if is_tensor(chunk):
        torch = sys.modules["torch"]
        return chunk.to(torch.float32 if bits == 32 else torch.float64).contiguous()
    with np.errstate(over="ignore"):  # what overflows is found, and told, as not finite
        return np.ascontiguousarray(chunk, dtype=np.float32 if bits == 32 else np.float64)


def _is_real(array: Array) -> bool:
    if is_tensor(array):
        return not array.is_complex()
    return array.dtype.kind in "biuf"
