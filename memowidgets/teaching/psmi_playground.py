"""The PSMI playground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.teaching.playground import Playground, front_end, real, result, whole
from memowidgets.widgets.widget import validate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_CLASSES = 4  # more can't be told apart by shape and colour
MOST_POINTS = 5000
_FARTHEST = 1e6


def make_cloud(n: int = 120, classes: int = 3, seed: int = 0) -> tuple[Floats, Ints]:
    """Return classes of Gaussian points around a circle, each with its own covariance.

    Examples
    --------
    >>> points, labels = make_cloud(90)
    >>> points.shape, np.bincount(labels).tolist()
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
    return centres[labels] + turned, labels


class PSMIPlayground(Playground):
    """Show how PSMI is computed: drag points and turn a direction.

    A cloud of classes in the plane; along a direction each class is a Gaussian, and the chosen
    point has a value log p(θᵀx | y) − log p(θᵀx), whose mean over directions is its PSMI.

    Parameters
    ----------
    points : (n, 2) array-like, optional
        Coordinates, at most 5000; by default `n` points of three Gaussian classes.
    labels : (n,) array-like of int, optional
        Class of each, from 0; 2 to 4 classes with two points or more.
    n : int
        How many points to draw where none are given.
    selected : int
        The point that is looked at.
    angle : float
        Of the direction, in degrees from 0 to 180.
    dimension : int
        For "the same in d dimensions": one of 2, 4, 8, 16, 32, 64, 128, 256.
    seed : int
        Of the points.

    Attributes
    ----------
    points : (n, 2) float64
        A copy; set it, or both with `update`. Points that the user moves are moved here too.
    labels : (n,) int64
        Likewise.
    selected, angle, dimension
        As above; they follow the user.
    psmi : (n,) float64
        PSMI of each point, in nats: the mean over all directions of the plane, to which
        `metrics.PSMI` comes closer with more and more of them. The page computes it. It is None
        until the playground is shown, and for a moment after Python changes a point.

    Raises
    ------
    ValueError
        If shapes differ, a coordinate is not finite, a class has fewer than two points, or a
        setting is out of its range.

    Examples
    --------
    >>> playground = PSMIPlayground(n=90)
    >>> points = playground.points
    >>> points[0] = points[playground.labels == 1].mean(axis=0)  # into another class
    >>> playground.points = points
    >>> playground.psmi is None  # no page shows it yet
    True
    >>> playground.close()
    """

    _esm = front_end("psmi")
    _title = "PSMI playground"

    selected = whole(0, 0, MOST_POINTS - 1)
    angle = real(30.0, 0.0, 180.0)
    dimension = whole(2, 2, 256, allowed=(2, 4, 8, 16, 32, 64, 128, 256))
    psmi = result()
    _cloud = traitlets.Dict().tag(sync=True, page=True)
    _first = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        n: int = 120,
        selected: int = 0,
        angle: float = 30.0,
        dimension: int = 2,
        seed: int = 0,
        **traits: Any,
    ) -> None:
        if (points is None) != (labels is None):
            raise ValueError("points and labels need each other: give both, or neither")
        seed = whole_number("seed", seed, 0, 2**31 - 1)
        if points is None or labels is None:
            points, labels = make_cloud(whole_number("n", n, 6, MOST_POINTS), seed=seed)
        cloud = _packed(points, labels)
        super().__init__(
            selected=selected,
            angle=angle,
            dimension=dimension,
            _cloud=cloud,
            _first=cloud,
            **traits,
        )

    def update(self, points: ArrayLike, labels: ArrayLike) -> None:
        """Show other points with their labels. The parameters are those of the constructor."""
        cloud = _packed(points, labels)
        with self.hold_sync():
            self._cloud = cloud
            self.selected = min(self.selected, len(self.labels) - 1)
        self._show({})

    @property
    def points(self) -> Floats:
        """Coordinates of the points (n, 2)."""
        return _unpacked(self._cloud)[0]

    @points.setter
    def points(self, points: ArrayLike) -> None:
        self.update(points, self.labels)

    @property
    def labels(self) -> Ints:
        """Class of each point."""
        return _unpacked(self._cloud)[1]

    @labels.setter
    def labels(self, labels: ArrayLike) -> None:
        self.update(self.points, labels)

    @validate("_cloud")
    def _check_cloud(self, proposal: Any) -> dict[str, Any]:
        _packed(*_unpacked(proposal["value"]))
        return dict(proposal["value"])

    @validate("selected")
    def _check_selected(self, proposal: Any) -> int:
        return whole_number("selected", proposal["value"], 0, len(self.labels) - 1)

    def _facts(self) -> list[tuple[str, str]]:
        labels = self.labels
        size = [("points", str(len(labels))), ("classes", str(labels.max() + 1))]
        return size + super()._facts()


def _packed(points: ArrayLike, labels: ArrayLike) -> dict[str, Any]:
    """Return points and labels as the page reads them, after checking them."""
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
    return {"points": places.tobytes(), "labels": classes.astype(np.uint8).tobytes()}


def _unpacked(cloud: dict[str, Any]) -> tuple[Floats, Ints]:
    points = np.frombuffer(cloud["points"], dtype=np.float64).reshape(-1, 2)
    return points.copy(), np.frombuffer(cloud["labels"], dtype=np.uint8).astype(np.int64)


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
