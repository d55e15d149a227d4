"""Checks that several rooms share. This room imports no other."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["check_finite"]


def check_finite(values: ArrayLike, what: str, remedy: str = "") -> None:
    """Raise if an array has a NaN or an infinite number.

    Parameters
    ----------
    values : (n, ...) array_like of float
        Numbers, with one row for each sample.
    what : str
        Name of the values in the message, in the plural.
    remedy : str
        What to do about it, as the end of the message.

    Raises
    ------
    ValueError
        If a row has such a number. The message has the number of these rows and the first one.

    Examples
    --------
    >>> check_finite([0.5, float("nan"), 0.2], "scores", "leave out samples without a score")
    Traceback (most recent call last):
    ...
    ValueError: scores must be finite: 1 of 3 are NaN or infinite, the first in row 1; leave out
    samples without a score
    """
    rows = np.asarray(values)
    wrong = ~np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    if wrong.any():
        raise ValueError(
            f"{what} must be finite: {int(wrong.sum())} of {len(wrong)} are NaN or infinite, the "
            f"first in row {int(wrong.argmax())}{remedy and f'; {remedy}'}"
        )
