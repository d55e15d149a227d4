"""Clouds of classes in the plane and their PSMI, without widgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.metrics import PSMI

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "DIMENSIONS",
    "MOST_CLASSES",
    "MOST_POINTS",
    "Cloud",
    "Lifted",
    "lift",
    "lifted",
    "make_cloud",
    "value_along",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 256)
MOST_CLASSES = 4  # more can't be told apart by shape and colour
MOST_POINTS = 5000
_FARTHEST = 1e6
_FLOOR = 1e-6  # of the deviation of all points along a direction, as in `metrics.PSMI`


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points in the plane with their classes.

    Attributes
    ----------
    points : (n, 2) float64
        Coordinates.
    labels : (n,) int64
        Classes, numbered from 0.
    """

    points: Floats
    labels: Ints

    @classmethod
    def of(cls, points: ArrayLike, labels: ArrayLike) -> Cloud:
        """Check and copy points and labels.

        Raises
        ------
        ValueError
            Shapes are wrong, a coordinate is not finite, there are fewer than 2 or more than 4
            classes or more than 5000 points, or a class has fewer than 2 points.
        TypeError
            The labels are not whole numbers.
        """
        places = np.array(points, dtype=np.float64)
        classes: NDArray[Any] = np.array(labels)
        if places.ndim != 2 or places.shape[1] != 2:
            raise ValueError(f"points must have the shape (n, 2), not {places.shape}")
        if classes.shape != (len(places),):
            raise ValueError(
                f"there are {len(places)} points and labels of shape {classes.shape}: give one "
                "label for each, both together with update(points, labels)"
            )
        if classes.dtype.kind not in "iu":
            raise TypeError(f"labels must be whole numbers from 0, not {classes.dtype}")
        _check_places(places)
        _check_classes(classes)
        return cls(places, classes.astype(np.int64))


def _check_places(places: Floats) -> None:
    wrong = ~(np.abs(places) <= _FARTHEST).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"points must be finite and within ±{_FARTHEST:g}: point {row} is {places[row]}"
        )
    if len(places) > MOST_POINTS:
        raise ValueError(f"there are {len(places)} points; a playground takes {MOST_POINTS}")
    if len(places) and not np.ptp(places, axis=0).any():
        raise ValueError("all points lie in one place: nothing there could tell classes apart")


def _check_classes(classes: NDArray[Any]) -> None:
    if len(classes) and (classes.min() < 0 or classes.max() >= MOST_CLASSES):
        raise ValueError(
            f"labels must be between 0 and {MOST_CLASSES - 1}, but one is "
            f"{classes.min() if classes.min() < 0 else classes.max()}"
        )
    counts = np.bincount(classes, minlength=2)
    if counts.min() < 2:
        few = int(counts.argmin())
        raise ValueError(
            f"class {few} has {counts[few]} points: give two or more to each of the classes 0 "
            f"to {len(counts) - 1}"
        )


def make_cloud(n: int = 120, classes: int = 3, seed: int = 0) -> Cloud:
    """Return classes of Gaussian points around a circle, each with its own covariance.

    Examples
    --------
    >>> cloud = make_cloud(90)
    >>> cloud.points.shape, np.bincount(cloud.labels).tolist()
    ((90, 2), [30, 30, 30])
    """
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    around = 2 * np.pi * np.arange(classes) / classes + np.pi / 6
    centres = 2.5 * np.stack([np.cos(around), np.sin(around)], axis=1)
    noise = rng.normal(size=(n, 2)) * [1.0, 0.6]
    turn = around[labels] + np.pi / 3
    cos, sin = np.cos(turn), np.sin(turn)
    turned = np.stack(
        [cos * noise[:, 0] - sin * noise[:, 1], sin * noise[:, 0] + cos * noise[:, 1]], 1
    )
    return Cloud.of(centres[labels] + turned, labels)


def value_along(cloud: Cloud, angle: float) -> Floats:
    """Return log p(θᵀx | y) − log p(θᵀx) of each point, for the direction at an angle.

    Parameters
    ----------
    cloud : Cloud
        Points and labels.
    angle : float
        Of the direction θ, in degrees from the first axis.

    Returns
    -------
    (n,) float64
        Pointwise values, in nats; their mean over all angles is PSMI.

    Examples
    --------
    >>> cloud = make_cloud(90)
    >>> value_along(cloud, 0.0).shape
    (90,)
    """
    turn = np.deg2rad(angle)
    z = cloud.points @ np.array([np.cos(turn), np.sin(turn)])
    counts = np.bincount(cloud.labels)
    prior = counts / len(z)
    mean = np.bincount(cloud.labels, z) / counts
    variance = np.bincount(cloud.labels, (z - mean[cloud.labels]) ** 2) / counts
    deviation = np.maximum(np.sqrt(variance), _FLOOR * z.std())
    if not z.std():
        return np.zeros(len(z))
    logs = np.log(prior / deviation) - 0.5 * ((z[:, None] - mean) / deviation) ** 2
    own = logs[np.arange(len(z)), cloud.labels]
    return np.asarray(own - np.log(prior)[cloud.labels] - np.logaddexp.reduce(logs, axis=1))


def lift(cloud: Cloud, dimension: int, seed: int = 0) -> Floats:
    """Add dimensions of noise that is independent of the labels.

    Parameters
    ----------
    cloud : Cloud
        Points in the first two dimensions.
    dimension : int
        2 or more; fewer dimensions are the first ones of more.
    seed : int
        Of the noise, whose deviation is that of the points within their classes.

    Returns
    -------
    (n, dimension) float64
    """
    counts = np.bincount(cloud.labels)
    means = [np.bincount(cloud.labels, column) / counts for column in cloud.points.T]
    centres = np.stack(means, axis=1)[cloud.labels]
    within = float(np.sqrt(((cloud.points - centres) ** 2).mean()))
    rng = np.random.default_rng([seed, 1])
    noise = rng.normal(size=(DIMENSIONS[-1] - 2, len(cloud.points)))[: dimension - 2].T
    return np.concatenate([cloud.points, (within or 1.0) * noise], axis=1)


@dataclass(frozen=True)
class Lifted:
    """PSMI of a cloud in a number of dimensions.

    Attributes
    ----------
    dimension : int
    psmi, std : (n,) float64
        Of each point, and its standard error, in nats.
    """

    dimension: int
    psmi: Floats
    std: Floats

    def summary(self, chosen: int) -> dict[str, Any]:
        """Return the chosen point's value, the others' quantiles and the share below 0."""
        others = np.delete(self.psmi, chosen)
        low, middle, high = np.quantile(others, [0.05, 0.5, 0.95])
        return {
            "dimension": self.dimension,
            "psmi": float(self.psmi[chosen]),
            "std": float(self.std[chosen]),
            "others": [float(low), float(middle), float(high)],
            "below": float((self.psmi <= 0).mean()),
        }


def lifted(cloud: Cloud, dimension: int, seed: int = 0) -> Lifted:
    """Compute `metrics.PSMI` of the cloud after adding noise dimensions."""
    X = lift(cloud, dimension, seed)
    found = PSMI(random_state=seed).fit(X, cloud.labels)
    return Lifted(dimension, *found.score_samples(X, cloud.labels, return_std=True))
