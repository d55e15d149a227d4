"""Order of the samples in an epoch, with samples of similar length in the same batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BATCHES_SORTED = 50  # number of batches among which samples are sorted by length
_FEWEST_GROUPS = 4  # so that small sets do not have the same batches in every epoch


def epoch_order(
    members: NDArray[np.int64],
    lengths: NDArray[Any] | None,
    batch_size: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Return the samples in the order of an epoch, drawn from `rng`.

    With lengths, a random order is cut into groups of up to 50 batches. Samples are sorted by
    length within each group, and then the batches are shuffled. Random samples, not the longest,
    are left for the last, smaller batch.

    Parameters
    ----------
    members : array of shape (n,), int64
        Positions of the samples.
    lengths : array or None
        Length of each sample of the data. None for a random order.
    batch_size : int
        Number of samples in a batch.
    rng : numpy.random.Generator
        Source of random numbers.

    Returns
    -------
    array of shape (n,), int64

    Examples
    --------
    >>> lengths = np.array([9, 1, 8, 2, 9, 1, 8, 2])
    >>> order = epoch_order(np.arange(8), lengths, 4, np.random.default_rng(3))
    >>> order.tolist(), lengths[order].tolist()
    ([1, 7, 6, 2, 5, 3, 4, 0], [1, 2, 8, 8, 1, 2, 9, 9])
    """
    order = rng.permutation(members)
    n_batches = len(order) // batch_size
    if lengths is None or n_batches < 2:
        return order
    full, rest = np.split(order, [n_batches * batch_size])
    n_sorted = min(_BATCHES_SORTED, max(1, n_batches // _FEWEST_GROUPS)) * batch_size
    groups = np.split(full, range(n_sorted, len(full), n_sorted))
    grouped = np.concatenate([g[np.argsort(lengths[g], kind="stable")] for g in groups])
    batches = rng.permutation(grouped.reshape(n_batches, batch_size), axis=0)
    return np.concatenate([batches.ravel(), rest])
