"""Checks of the playgrounds' settings, without widgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memowidgets.checks import real_number

__all__ = ["whole_within", "within"]


def within(name: str, value: Any, low: float, high: float) -> float:
    """Return a number after checking that it is finite and within its limits.

    Examples
    --------
    >>> within("epsilon", 0.1, 0.0, 0.5)
    0.1
    """
    return real_number(name, value, low, high)


def whole_within(name: str, value: Any, low: int, high: int, *, allowed: Sequence[int] = ()) -> int:
    """Return an integer after checking its limits or the allowed values."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if allowed and value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {value}")
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, not {value}")
    return int(value)
