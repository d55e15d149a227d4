"""The PSMI playground, Python side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.metrics import PSMI
from memowidgets.metrics.fitted import fill_directions
from memowidgets.teaching.playground import STYLE, Playground, front_end, real, whole
from memowidgets.widgets.widget import validate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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


N_DIRECTIONS = 256


class PSMIPlayground(Playground):
    """Show how PSMI is computed: drag points and turn a direction.

    A cloud of classes in the plane; along a direction each class is a Gaussian, and the chosen
    point has a value log p(θᵀx | y) − log p(θᵀx), whose mean over directions is its PSMI. The
    front end moves by itself; the traits below are worked out with `metrics.PSMI` when the hand
    rests, or at once when Python sets a point.

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
        Of the points and the directions.

    Attributes
    ----------
    points : (n, 2) float64
        A copy; set it, or both with `update`.
    labels : (n,) int64
        Likewise.
    selected, angle, dimension
        As above; they follow the user.
    psmi, psmi_std : (n,) float64
        PSMI of each point from 256 directions with control variates, and its standard error, in
        nats; what ``metrics.PSMI(256, random_state=seed)`` says.
    value : float
        Pointwise value of the selected point along the direction, in nats.

    Raises
    ------
    ValueError
        If shapes differ, a coordinate is not finite, a class has fewer than two points, or a
        setting is out of its range.

    Examples
    --------
    >>> playground = PSMIPlayground(n=90)
    >>> bool(playground.psmi[playground.selected] > 0)
    True
    >>> points = playground.points
    >>> points[0] = points[playground.labels == 1].mean(axis=0)  # into another class
    >>> playground.points = points
    >>> bool(playground.psmi[0] < 0)
    True
    >>> playground.close()
    """

    _esm = front_end("psmi")
    _css = STYLE
    _title = "PSMI playground"

    points = traitlets.Any()
    labels = traitlets.Any()
    selected = traitlets.Any(0).tag(sync=True)
    angle = real(30.0, 0.0, 180.0)
    dimension = whole(2, 2, 256, allowed=DIMENSIONS)
    psmi = traitlets.Any(read_only=True)
    psmi_std = traitlets.Any(read_only=True)
    _cloud = traitlets.Dict().tag(sync=True, page=True)
    _directions = traitlets.Bytes().tag(sync=True)
    _every_dimension = traitlets.List(list(DIMENSIONS)).tag(sync=True)
    _official = traitlets.Dict().tag(sync=True)
    _dimensions: traitlets.List[Any] = traitlets.List().tag(sync=True)
    _reset = traitlets.Int(0).tag(sync=True, page=True)

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
        self._seed = whole_number("seed", seed, 0, 2**31 - 1)
        if points is None or labels is None:
            cloud = make_cloud(whole_number("n", n, 6, MOST_POINTS), seed=self._seed)
        else:
            cloud = Cloud.of(points, labels)
        self._now = self._first = cloud
        self._told = _packed(cloud)
        whole_number("selected", selected, 0, len(cloud.labels) - 1)
        self._scored: Cloud | None = None
        self._round = 0
        directions = np.empty((N_DIRECTIONS, 2), dtype=np.float32)
        fill_directions(directions, self._seed)
        super().__init__(
            points=cloud.points.copy(),
            labels=cloud.labels.copy(),
            selected=selected,
            angle=angle,
            dimension=dimension,
            _cloud=self._told,
            _directions=directions.tobytes(),
            **traits,
        )

    def update(self, points: ArrayLike, labels: ArrayLike) -> None:
        """Show other points with their labels. The parameters are those of the constructor."""
        self._take(Cloud.of(points, labels))

    @property
    def value(self) -> float:
        """Pointwise value of the selected point along the direction, in nats."""
        return float(value_along(self._now, self.angle)[self._chosen])

    @property
    def _chosen(self) -> int:
        """The selected point, or the last one if there are fewer."""
        return min(int(self.selected), len(self._now.labels) - 1)

    def _shows(self, cloud: Cloud, chosen: int) -> bool:
        return self._now is cloud and self._chosen == chosen

    def _take(self, cloud: Cloud, *, tell: bool = True) -> None:
        """Show a checked cloud, and send it to the page if asked for."""
        with self._at_once():
            self._now = cloud
            if tell:
                self._tell()
                self.selected = min(self.selected, len(cloud.labels) - 1)
            self.points, self.labels = cloud.points.copy(), cloud.labels.copy()

    def _tell(self) -> None:
        """Send the page the points."""
        self._told = _packed(self._now)
        self._cloud = self._told

    # ---------------------------------------------------------------- what is set

    @validate("points", "labels")
    def _check_cloud(self, proposal: Any) -> Any:
        name = proposal["trait"].name
        if self._held:
            return proposal["value"]
        given = {"points": self._now.points, "labels": self._now.labels, name: proposal["value"]}
        return getattr(Cloud.of(**given), name)

    @validate("selected")
    def _check_selected(self, proposal: Any) -> int:
        last = MOST_POINTS if self._held else len(self._now.labels) - 1
        return whole_number("selected", proposal["value"], 0, last)

    @traitlets.observe("points", "labels")
    def _set_by_python(self, _change: Any) -> None:
        if not self._held:
            self._take(Cloud.of(self.points, self.labels))

    @traitlets.observe("_cloud")
    def _set_by_page(self, change: Any) -> None:
        if change["new"] is self._told:
            return
        try:
            points = np.frombuffer(memoryview(change["new"]["points"]), dtype=np.float64)
            labels = np.frombuffer(memoryview(change["new"]["labels"]), dtype=np.uint8)
            cloud = Cloud.of(points.reshape(-1, 2), labels)
        except (KeyError, TypeError, ValueError):
            self._tell()  # what the page must not send is undone
            return
        self._take(cloud, tell=False)

    @traitlets.observe("_reset")
    def _start_again(self, _change: Any) -> None:
        self._take(self._first)

    @traitlets.observe("selected")
    def _choose(self, change: Any) -> None:
        self._changed(change)

    # ---------------------------------------------------------------- official numbers

    def _settle(self) -> None:
        cloud = self._now
        if self._scored is not cloud:
            fitted = PSMI(N_DIRECTIONS, random_state=self._seed).fit(cloud.points, cloud.labels)
            psmi, std = fitted.score_samples(cloud.points, cloud.labels, return_std=True)
            self.set_trait("psmi", psmi)
            self.set_trait("psmi_std", std)
            self._scored = cloud
        chosen = self._chosen
        self._official = {
            "point": chosen,
            "psmi": float(self.psmi[chosen]),
            "std": float(self.psmi_std[chosen]),
        }
        self._round += 1
        self._compute(
            "_dimensions",
            partial(_in_dimensions, cloud, chosen, self._seed, self._round),
            lambda playground: playground._shows(cloud, chosen),  # noqa: SLF001 - its own
        )

    def _facts(self) -> list[tuple[str, str]]:
        chosen = self._chosen
        return [
            ("points", str(len(self._now.labels))),
            ("selected", str(chosen)),
            ("PSMI of the selected", f"{self.psmi[chosen]:.3f} ± {self.psmi_std[chosen]:.3f}"),
            (f"value at {self.angle:g}°", f"{self.value:.3f}"),
            ("points at or below 0", str(int((self.psmi <= 0).sum()))),
        ]


def _packed(cloud: Cloud) -> dict[str, Any]:
    return {
        "points": cloud.points.tobytes(),
        "labels": cloud.labels.astype(np.uint8).tobytes(),
    }


def _in_dimensions(cloud: Cloud, chosen: int, seed: int, number: int) -> list[dict[str, Any]]:
    """Return what the page gets: the cloud's PSMI in increasing numbers of dimensions.

    That is the chosen point's value, the others' quantiles and the share at or below 0. The number
    of the computation makes the page hear of a result that equals the last one.
    """
    found = []
    for dimension in DIMENSIONS:
        X = lift(cloud, dimension, seed)
        fitted = PSMI(random_state=seed).fit(X, cloud.labels)
        psmi, std = fitted.score_samples(X, cloud.labels, return_std=True)
        found.append(
            {
                "dimension": dimension,
                "psmi": float(psmi[chosen]),
                "std": float(std[chosen]),
                "others": np.quantile(np.delete(psmi, chosen), [0.05, 0.5, 0.95]).tolist(),
                "below": float((psmi <= 0).mean()),
                "round": number,
            }
        )
    return found
