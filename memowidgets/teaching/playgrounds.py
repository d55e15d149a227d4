"""The playgrounds: settings that are checked here, and a page that computes everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import as_code, check_finite, real_number, whole_number
from memowidgets.widgets.standin import table
from memowidgets.widgets.widget import (
    Guarded,
    close_earlier_runs,
    refusing,
    script,
    style,
    validate,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STATIC = Path(__file__).parent / "static"
STYLE = style("shared", STATIC / "playground.css")
MOST_CLASSES = 4  # more can't be told apart by shape and colour
MOST_POINTS = 5000
MOST_MODELS = 256


def front_end(name: str) -> str:
    """Return the ES module of one playground."""
    return script(STATIC / f"{name}_view.js")


class Setting(traitlets.TraitType[Any, Any]):
    """A trait that both sides share, with the check of its value: `check(name, value)`."""

    def __init__(self, default: object, check: Callable[[str, Any], Any]) -> None:
        super().__init__(default)
        self._check = check
        self.tag(sync=True)

    def validate(self, _owner: object, value: object) -> Any:
        """Return the value as the check returns it."""
        with refusing():
            return self._check(str(self.name), value)


def real(default: float, low: float, high: float) -> Setting:
    """Return a setting that is a number within limits."""
    return Setting(default, partial(real_number, low=low, high=high))


def whole(default: int, low: int, high: int) -> Setting:
    """Return a setting that is a whole number within limits."""
    return Setting(default, partial(whole_number, least=low, most=high))


def choice(default: object, valid: Sequence[Any]) -> Setting:
    """Return a setting that is one of some values."""

    def check(name: str, value: object) -> Any:
        if value not in valid:
            names = ", ".join(map(repr, valid))
            raise ValueError(f"{name} must be one of {names}, not {as_code(value)}")
        return valid[valid.index(value)]

    return Setting(default, check)


def switch() -> Setting:
    """Return a setting that is True or False, at first False."""

    def check(name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, not {as_code(value)}")
        return value

    return Setting(default=False, check=check)


def result() -> Any:
    """Return a trait that is None until the page has computed it."""
    return traitlets.Any(None, read_only=True).tag(result=True)


class Playground(Guarded, anywidget.AnyWidget):
    """A widget whose page computes everything, from settings that are checked here."""

    _css = STYLE
    _title = "Playground"
    _results = traitlets.Dict().tag(sync=True, page=True)

    def __init_subclass__(cls) -> None:
        """Let help and completion show the settings, which are the parameters."""
        super().__init_subclass__()
        if "__init__" not in vars(cls):
            settings = [
                (name, one)
                for name, one in vars(cls).items()
                if isinstance(one, Setting)
            ]
            cls.__signature__ = Signature(
                [
                    Parameter(name, Parameter.KEYWORD_ONLY, default=one.default_value)
                    for name, one in settings
                ]
            )

    def __init__(self, **settings: Any) -> None:
        self._hearing = False
        super().__init__(**settings)
        close_earlier_runs(self)

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the page sends."""
        self._hearing = True
        try:
            super().set_state(sync_data)
        finally:
            self._hearing = False

    @validate("_results")
    def _check_results(self, proposal: Any) -> dict[str, Any]:
        _read(proposal["value"])
        return dict(proposal["value"])

    @traitlets.observe(traitlets.All)
    def _follow(self, change: Any) -> None:
        """Take results from the page; they are forgotten when Python changes a setting."""
        if change["name"] == "_results":
            self._show(_read(change["new"]))
        elif isinstance(self.traits()[change["name"]], Setting) and not self._hearing:
            self._show({})

    def _show(self, found: dict[str, Any]) -> None:
        for name in self.trait_names(result=True):
            self.set_trait(name, found.get(name))

    def _facts(self) -> list[tuple[str, str]]:
        settings = [
            name for name, trait in self.traits().items() if isinstance(trait, Setting)
        ]
        return [(name.replace("_", " "), str(getattr(self, name))) for name in settings]

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"{type(self).__name__}({facts})"

    def _stand_in(self) -> str:
        return table(self._title, self._facts())


def _read(sent: object) -> Any:
    """Return what the page sent, with arrays for bytes and lists."""
    if isinstance(sent, dict):
        return {name: _read(value) for name, value in sent.items()}
    if isinstance(sent, bytes | memoryview):
        return np.frombuffer(sent, dtype=np.float64)
    return np.array(sent) if isinstance(sent, list) else sent


class MemorizationPlayground(Playground):
    """Train a small network in the browser and guess what it memorises.

    Two hidden layers of tanh neurons learn points in the plane, some of which have a wrong label.
    The labels are hidden until the training begins, because whoever sees them need not guess.
    The training stops where the median loss has dropped by ρ. There, PSMI of the last hidden
    layer and the loss each name five points. At the end, 32 other networks, half of them trained
    on each named point, show by log-LiRA which points were memorised.

    The page computes everything. The attributes are None until a round is finished there.

    Parameters
    ----------
    width : int
        Neurons in each hidden layer: one of 8, 16, 24, 32, 48, 64.
    noise : float
        Probability of a wrong label, from 0 to 0.2.
    rho : float
        Drop of the median loss at which PSMI is computed, from 0.5 to 0.99.
    n : int
        Number of points, from 30 to 400.
    classes : int
        Number of classes, 2 or 3.
    seed : int
        Seed of the points and of all networks, below 1 000 000.

    Attributes
    ----------
    guess : array of int
        Positions of the points that the user ringed.
    psmi, losses : (n,) float64
        PSMI, in nats, and loss of each point where ρ stopped the training.
    log_lira : (n,) float64
        Log-LiRA of each point, in nats. It is NaN for points that nobody named.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a setting is not a number.

    Examples
    --------
    >>> playground = MemorizationPlayground(width=16, seed=3)
    >>> playground.log_lira is None  # the page has not trained yet
    True
    >>> playground.close()
    """

    _esm = front_end("watch")
    _title = "Playground of a network that memorises"

    width = choice(24, (8, 16, 24, 32, 48, 64))
    noise = real(0.06, 0.0, 0.2)
    rho = real(0.95, 0.5, 0.99)
    n = whole(150, 30, 400)
    classes = whole(3, 2, 3)
    seed = whole(0, 0, 999_999)
    guess = result()
    psmi = result()
    losses = result()
    log_lira = result()


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
    cos = np.cos(turn)
    sin = np.sin(turn)
    turned = np.stack(
        [cos * noise[:, 0] - sin * noise[:, 1], sin * noise[:, 0] + cos * noise[:, 1]],
        1,
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
    dimension = choice(2, (2, 4, 8, 16, 32, 64, 128, 256))
    psmi = result()
    _cloud = traitlets.Dict().tag(sync=True, page=True)
    _first = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        points: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        n: int = 120,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        if (points is None) != (labels is None):
            raise ValueError("points and labels need each other: give both, or neither")
        if points is None or labels is None:
            points, labels = make_cloud(whole_number("n", n, 6, MOST_POINTS), seed=seed)
        cloud = _packed(points, labels)
        super().__init__(_cloud=cloud, _first=cloud, **settings)

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
    check_finite(places, "points", row="point")
    if len(places) > MOST_POINTS:
        raise ValueError(
            f"there are {len(places)} points; a playground takes {MOST_POINTS}"
        )
    if len(places) and not np.ptp(places, axis=0).any():
        raise ValueError(
            "all points lie in one place: nothing there could tell classes apart"
        )
    _check_classes(classes)
    return {"points": places.tobytes(), "labels": classes.astype(np.uint8).tobytes()}


def _unpacked(cloud: dict[str, Any]) -> tuple[Floats, Ints]:
    points = np.frombuffer(cloud["points"], dtype=np.float64).reshape(-1, 2)
    return points.copy(), np.frombuffer(cloud["labels"], dtype=np.uint8).astype(
        np.int64
    )


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


def _checked_models(name: str, value: object) -> int:
    number = whole_number(name, value, 4, MOST_MODELS)
    if number % 2:
        raise ValueError(
            f"{name} must be even, half of them in and half out, not {number}"
        )
    return number


def _checked_gaps(name: str, gaps: ArrayLike) -> bytes:
    side = np.array(gaps, dtype=np.float64)
    if side.ndim != 1 or not 2 <= len(side) <= MOST_MODELS // 2:
        raise ValueError(
            f"{name} must hold 2 to {MOST_MODELS // 2} gaps in one row, not {side.shape}"
        )
    check_finite(side, name, row="gap")
    return side.tobytes()


class LiRAPlayground(Playground):
    """Show how LiRA is wrong when there are few shadow models.

    One sample's logit gaps under shadow models that trained on it and under others, a Gaussian
    for each, and the gap of the audited model to drag. 200 re-draws show what other shadow
    models would have said. The pooled variances take 100 simulated other samples into account.

    The page computes everything. The attributes are None until it has: that is when the
    playground is shown, and shortly after a setting is changed.

    Parameters
    ----------
    n_shadows : int
        Shadow models, an even number from 4 to 256; half of them trained on the sample.
    target_gap : float
        Gap of the audited model, from −5 to 14 logits.
    variance : {"per-sample", "global", "shrunk"}
        As for `memorization.log_lira`.
    effect : float
        By how much training on the sample raises its mean gap, from 0 to 8 logits.
    spread : float
        True deviation of its gaps, from 0.4 to 3 logits; that of usual samples is about 1.5.
    eta : float
        The sample counts as memorised from this log-LiRA on; from 0 to 12.
    seed : int
        Of the shadow models, below 1 000 000.

    Attributes
    ----------
    gaps_in, gaps_out : (models,) float64
        Gaps under the models that trained on the sample, and the others; set both with `update`
        to look at measured ones.
    log_lira : float
        Of `target_gap`, in nats, as `memorization.log_lira` computes it. It is None where
        log-LiRA is not defined.
    log_lira_std : float
        Its standard error; None likewise.
    true_log_lira : float
        What infinitely many shadow models would give.
    redraws : dict of str to (200,) float64
        For each variance, log-LiRA under other shadow models.

    Raises
    ------
    ValueError
        If a setting is out of its range, or the variance is unknown.

    Examples
    --------
    >>> playground = LiRAPlayground(n_shadows=256, target_gap=7.0)
    >>> playground.log_lira is None  # no page shows it yet
    True
    >>> playground.close()
    """

    _esm = front_end("lira")
    _title = "LiRA playground"

    n_shadows = Setting(16, _checked_models)
    target_gap = real(6.5, -5.0, 14.0)
    variance = choice("per-sample", ("per-sample", "global", "shrunk"))
    effect = real(4.0, 0.0, 8.0)
    spread = real(1.5, 0.4, 3.0)
    eta = real(4.0, 0.0, 12.0)
    seed = whole(0, 0, 999_999)
    gaps_in = result()
    gaps_out = result()
    log_lira = result()
    log_lira_std = result()
    true_log_lira = result()
    redraws = result()
    _given: traitlets.List[Any] = traitlets.List().tag(sync=True)

    def update(self, gaps_in: ArrayLike, gaps_out: ArrayLike) -> None:
        """Show measured gaps instead of simulated ones.

        Parameters
        ----------
        gaps_in, gaps_out : (models,) array-like
            Logit gaps under the shadow models that trained on the sample, and the others; 2 to
            128 of each. The re-draws then come from Gaussians with the moments of these gaps.
        """
        self._given = [
            _checked_gaps("gaps_in", gaps_in),
            _checked_gaps("gaps_out", gaps_out),
        ]
        self._show({})

    def simulate(self) -> None:
        """Show simulated gaps again."""
        self._given = []
        self._show({})


class TheoremPlayground(Playground):
    """Show what Theorem 1 says about PSMI and τ = 0, and where its assumptions fail.

    Two Gaussian classes; with probability ε a sample's label is a coin toss. The theorem states
    E[PSMI | not an outlier] > 0 and E[PSMI | outlier] = 0. As PSMI is defined and computed, with
    p the joint law of all samples, what holds is
    E[PSMI | not an outlier] > 0 ≥ E[PSMI | outlier].

    The page computes everything. The attributes are None until it has: that is when the
    playground is shown, and shortly after a setting is changed.

    Parameters
    ----------
    epsilon : float
        Share of outliers, from 0 to 0.5.
    separation : float
        Distance between the classes' means, from 0 to 6 standard deviations of a class.
    dimension : int
        Of the space: one of 1, 2, 4, 8, 16, 32, 64.
    tau : float
        Samples with PSMI of at most τ are flagged.
    imbalance : bool
        The second class has 10 % of the samples.
    overlap : bool
        The deviation within a class is 3 in place of 1.
    heavy_tails : bool
        Student's t with two degrees of freedom in place of Gaussian.
    n : int
        Samples, from 100 to 5000.
    seed : int
        Below 1 000 000.

    Attributes
    ----------
    means : dict
        Mean PSMI of ``outliers``, ``others``, and outliers with a ``wrong`` or a ``right`` label,
        in nats. None where there are no such samples.
    rates : dict
        At `tau`: ``flagged``, ``n``, ``tpr``, ``fpr`` and ``tpr_wrong`` (the share of wrong labels
        that is flagged), each rate with its 95 % interval (``tpr_interval`` and so on).

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a switch is not true or false, or a number is not one.

    Examples
    --------
    >>> playground = TheoremPlayground(epsilon=0.05, separation=2.0)
    >>> playground.rates is None  # no page shows it yet
    True
    >>> playground.close()
    """

    _esm = front_end("theorem")
    _title = "Playground of Theorem 1"

    epsilon = real(0.1, 0.0, 0.5)
    separation = real(4.0, 0.0, 6.0)
    dimension = choice(2, (1, 2, 4, 8, 16, 32, 64))
    tau = real(0.0, -1e3, 1e3)
    imbalance = switch()
    overlap = switch()
    heavy_tails = switch()
    n = whole(2000, 100, 5000)
    seed = whole(0, 0, 999_999)
    means = result()
    rates = result()
