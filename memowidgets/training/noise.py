"""Label noise: a seeded share of the pool gets another label, the same for every model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memowidgets.data import Dataset
from memowidgets.training.seeds import derived_seed

__all__ = ["NOISE_DRAW", "LabelNoise", "draw_noise"]

_NOISE_STREAM = 5
NOISE_DRAW = 2  # 1 fell on canaries too


@dataclass(frozen=True)
class LabelNoise:
    """Which samples are trained on a wrong label.

    Attributes
    ----------
    positions : array of shape (n_flipped,), int64
        In the dataset, ascending.
    labels : array of shape (n_flipped,), int64
        What they are trained on.
    """

    positions: NDArray[np.int64]
    labels: NDArray[np.int64]

    def applied(self, data: Dataset) -> Dataset:
        """The dataset as it is trained on."""
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
    draw: int = NOISE_DRAW,
) -> LabelNoise:
    """Flip a share of the pool's labels to another of the sample's own classes, drawn evenly.

    Canaries keep their label, which is wrong on purpose.

    Parameters
    ----------
    data : Dataset
        With the true labels.
    pool : array of shape (n_pool,), int64
        The samples that a model may train on; the held-out ones keep their labels.
    share : float
        From 0 to below 1; the paper's reference code takes 0.033.
    seed : int
        Of the draw.
    draw : int
        Which way to draw, as the run's manifest says: 1 of runs from before canaries were spared.
    """
    rng = np.random.default_rng(derived_seed(seed, _NOISE_STREAM))
    wanted = round(share * len(pool))
    if draw > 1 and data.canaries is not None:
        pool = pool[~data.canaries[pool]]
    positions = np.sort(rng.choice(pool, size=min(wanted, len(pool)), replace=False))
    n_classes = getattr(data, "n_choices", np.full(len(data), len(data.class_names)))[positions]
    shift = rng.integers(1, n_classes)
    return LabelNoise(positions, (data.labels[positions] + shift) % n_classes)
