"""Recognise the kind of samples by their attributes. No other place does this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memowidgets.data.dataset import value_of

__all__ = ["kind_of", "kind_of_sample"]


def kind_of(samples: Any) -> str | None:
    """Return the kind of samples in a sequence, by the first one.

    Parameters
    ----------
    samples : sequence
        A dataset, an array of images, or a list of texts or records.

    Returns
    -------
    str or None
        ``"pixels"`` (an array of images), or the kind of the first sample by `kind_of_sample`.

    Examples
    --------
    >>> kind_of(["a text"]), kind_of([{"question": "Why?", "choices": ["a", "b"]}])
    ('text', 'question')
    """
    if isinstance(samples, np.ndarray) and samples.dtype.kind in "fiub":
        return "pixels"
    return kind_of_sample(samples[0])


def kind_of_sample(sample: Any) -> str | None:
    """Return the kind of one sample.

    Returns
    -------
    str or None
        ``"text"``, ``"record"`` (one with a text), ``"image"``, ``"question"``, ``"row"`` (of a
        table), ``"withheld"`` (an id and a label alone), or None.
    """
    signs = {
        "text": isinstance(sample, str),
        "image": _has(sample, "image"),
        "question": _has(sample, "question") and _has(sample, "choices"),
        "record": isinstance(value_of(sample, "text"), str),
        "row": isinstance(getattr(sample, "values", None), Mapping),
        "withheld": _has(sample, "id") and _has(sample, "label"),
    }
    return next((kind for kind, is_there in signs.items() if is_there), None)


def _has(sample: Any, name: str) -> bool:
    return value_of(sample, name) is not None
