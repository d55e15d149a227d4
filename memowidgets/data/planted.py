"""Canaries with wrong labels, for samples of any kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from memowidgets.data.base import Dataset

_D = TypeVar("_D", bound=Dataset)


def with_wrong_labels(data: _D, n: int, kind: str, seed: int) -> _D:
    """Return a dataset in which `n` samples have a wrong label and are marked as canaries.

    Raises
    ------
    ValueError
        If there are fewer samples that are not canaries yet, or the kind is unknown.
    """
    if kind != "mislabelled":
        raise ValueError(f"unknown kind of canaries {kind!r}; valid: 'mislabelled'")
    planted = np.zeros(len(data), np.bool_) if data.canaries is None else data.canaries
    free = np.flatnonzero(~planted)
    if not 0 <= n <= len(free):
        raise ValueError(
            f"{n} canaries do not fit into {len(free)} samples that are not canaries yet"
        )
    rng = np.random.default_rng(seed)
    chosen = rng.choice(free, size=n, replace=False)
    mask, labels, n_classes = planted.copy(), data.labels.copy(), len(data.class_names)
    mask[chosen] = True
    labels[chosen] = (labels[chosen] + rng.integers(1, n_classes, size=n)) % n_classes
    changed = replace(cast("Any", data), labels=labels, canaries=mask, source=None)
    return cast("_D", changed)
