"""Random numbers that Python and the front end generate identically from one seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_SEED", "normals", "uniforms"]

Floats = NDArray[np.float64]

MOST_SEED = 2**31 - 1
_GOLDEN, _FIRST, _SECOND = (np.uint32(n) for n in (0x9E3779B1, 0x21F0AAAD, 0x735A2D97))


def uniforms(seed: int, start: int, count: int) -> Floats:
    """Return numbers `start` to `start + count` of a uniform stream on the open interval (0, 1).

    A number depends on the seed and its place alone.

    Examples
    --------
    >>> uniforms(0, 0, 3).round(4)
    array([0.5542, 0.0543, 0.913 ])
    >>> bool((uniforms(0, 1, 2) == uniforms(0, 0, 3)[1:]).all())
    True
    """
    places = np.arange(start + 1, start + 1 + count, dtype=np.uint64).astype(np.uint32)
    begin = _mixed(np.array([seed + 1], dtype=np.uint32))
    return np.asarray((_mixed(places * _GOLDEN + begin).astype(np.float64) + 0.5) / 2**32)


def normals(seed: int, start: int, count: int) -> Floats:
    """Return numbers as `uniforms` does, but from the standard normal distribution.

    Examples
    --------
    >>> round(float(normals(1, 0, 10_000).std()), 1)
    1.0
    """
    first, last = start // 2, (start + count + 1) // 2
    u = uniforms(seed, 2 * first, 2 * (last - first)).reshape(-1, 2)
    radius, angle = np.sqrt(-2 * np.log(u[:, 0])), 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).ravel()
    return np.asarray(pairs[start - 2 * first :][:count])


def _mixed(words: NDArray[Any]) -> NDArray[np.uint32]:
    """Hash integers to 32 bits, with products that overflow as in JavaScript."""
    words = (words ^ (words >> np.uint32(16))) * _FIRST
    words = (words ^ (words >> np.uint32(15))) * _SECOND
    return np.asarray(words ^ (words >> np.uint32(15)), dtype=np.uint32)
