"""The PSMI playground, Python side."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from memowidgets.metrics import PSMI
from memowidgets.metrics.fitted import fill_directions
from memowidgets.teaching.checks import whole_within, within
from memowidgets.teaching.clouds import (
    DIMENSIONS,
    MOST_POINTS,
    Cloud,
    lifted,
    make_cloud,
    value_along,
)
from memowidgets.teaching.playground import STYLE, Playground, front_end
from memowidgets.widgets.guarded import validate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["PSMIPlayground"]

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
    angle = traitlets.Any(30.0).tag(sync=True)
    dimension = traitlets.Any(2).tag(sync=True)
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
        self._seed = whole_within("seed", seed, 0, 2**31 - 1)
        if points is None or labels is None:
            cloud = make_cloud(whole_within("n", n, 6, MOST_POINTS), seed=self._seed)
        else:
            cloud = Cloud.of(points, labels)
        self._now = self._first = cloud
        self._told = _packed(cloud)
        whole_within("selected", selected, 0, len(cloud.labels) - 1)
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
        return whole_within("selected", proposal["value"], 0, last)

    @validate("angle")
    def _check_angle(self, proposal: Any) -> float:
        return within("angle", proposal["value"], 0.0, 180.0)

    @validate("dimension")
    def _check_dimension(self, proposal: Any) -> int:
        return whole_within("dimension", proposal["value"], 2, 256, allowed=DIMENSIONS)

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
        self._job = partial(
            _in_dimensions, weakref.ref(self), cloud, chosen, self._seed, self._round
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


def _in_dimensions(
    widget: weakref.ref[PSMIPlayground], cloud: Cloud, chosen: int, seed: int, number: int
) -> None:
    """Send the page the cloud's PSMI in increasing numbers of dimensions.

    The number of the computation makes the page hear of a result that equals the last one.
    """
    found = [
        lifted(cloud, dimension, seed).summary(chosen) | {"round": number}
        for dimension in DIMENSIONS
    ]
    playground = widget()
    if playground is not None and playground._shows(cloud, chosen):  # noqa: SLF001 - its worker
        playground._dimensions = found  # noqa: SLF001
