"""Values with arrays of bytes among them, as one text for a page; pure."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["packed", "thousandths"]

LEVEL = 6  # 9 takes twice as long for a hundredth less
_MOST_THOUSANDTHS = 2**31 - 1


def packed(content: dict[str, Any]) -> str:
    """Return values that JSON knows, and bytes among them, as letters that no HTML can end.

    The text is zlib in base64 of four bytes, which say how long the JSON is, the JSON, and all
    bytes. In the JSON, bytes are ``{"$bytes": [start, length]}``. `unpack.js` reads it.
    """
    blobs: list[bytes] = []

    def put_aside(blob: bytes) -> dict[str, list[int]]:
        start = sum(map(len, blobs))
        blobs.append(blob)
        return {"$bytes": [start, len(blob)]}

    head = json.dumps(content, ensure_ascii=True, default=put_aside).encode()
    whole = b"".join([len(head).to_bytes(4, "little"), head, *blobs])
    return base64.b64encode(zlib.compress(whole, LEVEL)).decode()


def thousandths(values: Floats) -> NDArray[np.int32] | None:
    """Return the largest whole number of thousandths that is not above each value.

    For every η with at most three decimals, ``value >= η`` is ``thousandths / 1000 >= η``. A page
    gets a third of the bytes that the values themselves would take.

    Returns
    -------
    array of shape (n,), int32, or None
        None if a value is too large for it, or infinite.

    Examples
    --------
    >>> thousandths(np.array([4.0, 3.9999, -0.0001])).tolist()
    [4000, 3999, -1]
    """
    if not len(values) or not np.isfinite(values).all():
        return None
    if np.abs(values).max() > _MOST_THOUSANDTHS / 1000 - 2:
        return None
    found = np.floor(values * 1000)
    found -= found / 1000 > values  # the product was rounded
    found += (found + 1) / 1000 <= values
    return found.astype("<i4")
