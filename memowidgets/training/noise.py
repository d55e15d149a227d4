"""Label noise: a seeded share of the pool gets a wrong label, equal in every model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.training.seeds import derived_seed

_NOISE_STREAM = 5


@dataclass(frozen=True)
class LabelNoise:
    """Samples that are trained on a wrong label.

    Attributes
    ----------
    positions : array of shape (n_flipped,), int64
        Ascending positions in the dataset.
    labels : array of shape (n_flipped,), int64
        Labels that they are trained on.
    """

    positions: NDArray[np.int64]
    labels: NDArray[np.int64]

    def applied(self, data: Dataset) -> Dataset:
        """Return the dataset with these labels."""
        if not len(self.positions):
            return data
        labels = data.labels.copy()
        labels[self.positions] = self.labels
        return data.with_labels(labels)


def draw_noise(
    data: Dataset,
    pool: NDArray[np.int64],
    share: float,
    seed: int,
) -> LabelNoise:
    """Flip a share of the pool's labels to another class of the sample, drawn evenly.

    Canaries keep their label, which is wrong on purpose.

    Parameters
    ----------
    data : Dataset
        Dataset with the true labels.
    pool : array of shape (n_pool,), int64
        Samples that a model may train on. Held-out samples keep their labels.
    share : float
        Share from 0 to below 1. The paper's reference code uses 0.033.
    seed : int
        Seed of the draw.
    """
    rng = np.random.default_rng(derived_seed(seed, _NOISE_STREAM))
    wanted = round(share * len(pool))
    if data.canaries is not None:
        pool = pool[~data.canaries[pool]]
    positions = np.sort(rng.choice(pool, size=min(wanted, len(pool)), replace=False))
    n_classes = getattr(data, "n_choices", np.full(len(data), len(data.class_names)))[positions]
    shift = rng.integers(1, n_classes)
    return LabelNoise(positions, (data.labels[positions] + shift) % n_classes)
