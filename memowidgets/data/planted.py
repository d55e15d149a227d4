"""Canaries with wrong labels, for samples of any kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.data.base import Dataset

_D = TypeVar("_D", bound=Dataset)


def with_wrong_labels(
    data: _D, n: int, kind: str, seed: int, what: str, n_choices: NDArray[np.int64] | None = None
) -> _D:
    """Return a dataset in which `n` samples have a wrong label and are marked as canaries.

    A sample that is a canary already is not chosen, because its label could become right again.

    Parameters
    ----------
    data : Dataset
        Samples, which may have canaries.
    n : int
        Number of new canaries.
    kind : {"mislabelled"}
        Kind of canaries.
    seed : int
        Seed of the choice of samples and labels.
    what : str
        Name of several samples in messages.
    n_choices : array of shape (n_samples,), int64, optional
        Number of labels that each sample can have. By default the number of classes.

    Raises
    ------
    ValueError
        If there are fewer samples that are not canaries yet, or the kind is unknown.
    """
    if kind != "mislabelled":
        raise ValueError(f"unknown kind of canaries {kind!r}; valid: 'mislabelled'")
    mask, free = unplanted(data, n, what)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(free, size=n, replace=False)
    mask[chosen] = True
    labels = data.labels.copy()
    if n_choices is None:
        n_classes = len(data.class_names)
        labels[chosen] = (labels[chosen] + rng.integers(1, n_classes, size=n)) % n_classes
    else:
        own = n_choices[chosen]
        labels[chosen] = (labels[chosen] + rng.integers(1, own)) % own
    changed = replace(cast("Any", data), labels=labels, canaries=mask, source=None)
    return cast("_D", changed)


def unplanted(data: Dataset, n: int, what: str) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return a copy of the canaries' mask, and the positions of the other samples.

    Raises
    ------
    TypeError, ValueError
        If `n` is not a whole number from 0, or there are fewer other samples.
    """
    n = whole_number("n, the number of canaries,", n)
    mask = np.zeros(len(data), np.bool_) if data.canaries is None else data.canaries.copy()
    free = np.flatnonzero(~mask)
    if n > len(free):
        raise ValueError(
            f"{n} canaries do not fit into {len(free)} {what} that are not canaries yet"
        )
    return mask, free
