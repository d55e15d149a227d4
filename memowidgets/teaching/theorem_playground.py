"""The playground of Theorem 1, Python side."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import traitlets
from numpy.typing import NDArray

from memowidgets.checks import whole_number
from memowidgets.evaluation import Evaluation, clopper_pearson, roc
from memowidgets.metrics import PSMI
from memowidgets.teaching.playground import (
    STYLE,
    Playground,
    Setting,
    front_end,
    normals,
    real,
    uniforms,
    whole,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DIMENSIONS = (1, 2, 4, 8, 16, 32, 64)
SEPARATIONS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0)
RARE = 0.1  # share of the second class where classes are imbalanced
WIDE = 3.0  # deviation within a class where classes overlap
_NOISE, _COINS = 1, 2  # streams beside each other


@dataclass(frozen=True)
class Mixture:
    """Two Gaussian classes. With probability ε a sample's label is random.

    Attributes
    ----------
    epsilon : float
        Share of outliers: samples whose label was tossed (half of them keep the right one).
    separation : float
        Distance between the classes' means, in standard deviations of a class.
    dimension : int
        Of the space; the means differ along one axis of it.
    imbalance, overlap, heavy_tails : bool
        What the theorem rules out: the second class has 10 % of the samples; within a class the
        deviation is 3 in place of 1; Student's t with two degrees of freedom in place of Gaussian.
    n : int
        Samples.
    seed : int
        The same seed gives the same numbers here and in the front end.
    """

    epsilon: float = 0.1
    separation: float = 4.0
    dimension: int = 2
    imbalance: bool = False
    overlap: bool = False
    heavy_tails: bool = False
    n: int = 2000
    seed: int = 0

    def draw(self) -> Draws:
        """Draw the samples. A small change of a parameter changes them little."""
        coins = uniforms(_COINS + 4 * self.seed, 0, 4 * self.n).reshape(self.n, 4)
        noise = normals(_NOISE + 4 * self.seed, 0, self.n * DIMENSIONS[-1])
        X = noise.reshape(self.n, DIMENSIONS[-1])[:, : self.dimension].copy()
        if self.heavy_tails:
            X /= np.sqrt(-np.log(coins[:, 3]))[:, None]
        if self.overlap:
            X *= WIDE
        true = coins[:, 0] < (RARE if self.imbalance else 0.5)
        outliers = coins[:, 1] < self.epsilon
        labels = np.where(outliers, coins[:, 2] < 0.5, true)
        X[:, 0] += np.where(true, 0.5, -0.5) * self.separation
        return Draws(X, labels.astype(np.int64), outliers, labels != true)


@dataclass(frozen=True, eq=False)
class Draws:
    """Samples of a mixture.

    Attributes
    ----------
    X : (n, dimension) float64
    labels : (n,) int64
        0 or 1, as they were given.
    outliers : (n,) bool
        Whose label was tossed.
    wrong : (n,) bool
        Outliers whose label is not that of their class.
    """

    X: Floats
    labels: NDArray[np.int64]
    outliers: Bools
    wrong: Bools


@dataclass(frozen=True, eq=False)
class Judged:
    """A mixture's samples with their PSMI from `metrics.PSMI`.

    Attributes
    ----------
    draws : Draws
    psmi, std : (n,) float64
        In nats.
    """

    draws: Draws
    psmi: Floats
    std: Floats

    @classmethod
    def of(cls, mixture: Mixture, n_directions: int = 256) -> Judged:
        """Score all samples."""
        draws = mixture.draw()
        psmi = PSMI(n_directions, random_state=mixture.seed)
        if mixture.dimension == 1:  # there is one direction, and nothing left for controls
            psmi = PSMI(1, method="plain")
        found = psmi.fit(draws.X, draws.labels)
        return cls(draws, *found.score_samples(draws.X, draws.labels, return_std=True))

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """Evaluate PSMI with the outliers as truth. None if there is only one kind."""
        outliers = self.draws.outliers
        return None if outliers.all() or not outliers.any() else roc(self.psmi, outliers)

    def means(self) -> dict[str, float]:
        """Mean PSMI of outliers, of others, and of outliers with a wrong and with a right label."""
        outliers, wrong = self.draws.outliers, self.draws.wrong
        groups = {"outliers": outliers, "others": ~outliers, "wrong": wrong}
        groups["right"] = outliers & ~wrong
        return {name: _mean(self.psmi[group]) for name, group in groups.items()}

    def rates(self, tau: float) -> dict[str, Any]:
        """Flagged samples and rates with 95 % intervals: outliers, others, wrong labels."""
        flagged = self.psmi <= tau
        found: dict[str, Any] = {"flagged": int(flagged.sum()), "n": len(flagged)}
        if self.evaluation is None:
            return found
        point = self.evaluation.at(tau)
        return found | {
            "tpr": point.tpr,
            "tpr_interval": list(point.tpr_interval),
            "fpr": point.fpr,
            "fpr_interval": list(point.fpr_interval),
            "auc": self.evaluation.auc,
            **_rate_of("tpr_wrong", flagged[self.draws.wrong]),
        }


def _rate_of(name: str, flagged: Bools) -> dict[str, Any]:
    """Return a share with its interval; NaN and no interval where there is nothing to flag."""
    found: dict[str, Any] = {name: _mean(flagged)}
    if len(flagged):
        found[f"{name}_interval"] = list(clopper_pearson(int(flagged.sum()), len(flagged)))
    return found


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _checked_switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return value


class TheoremPlayground(Playground):
    """Show what Theorem 1 says about PSMI and τ = 0, and where its assumptions fail.

    Two Gaussian classes; with probability ε a sample's label is a coin toss. The theorem states
    E[PSMI | not an outlier] > 0 and E[PSMI | outlier] = 0. As PSMI is defined and computed, with
    p the joint law of all samples, what holds is
    E[PSMI | not an outlier] > 0 ≥ E[PSMI | outlier].

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
    psmi : (n,) float64
        By `metrics.PSMI`, in nats.
    outliers, wrong : (n,) bool
        Whose label was tossed; and for whom it came out wrong.
    means : dict
        Mean PSMI of ``outliers``, ``others``, and outliers with a ``wrong`` or a ``right`` label.
    rates : dict
        At `tau`: ``flagged``, ``n``, and where there are outliers ``tpr``, ``fpr`` and
        ``tpr_wrong`` (the share of wrong labels that is flagged), each with its 95 % interval,
        and ``auc``.

    Raises
    ------
    ValueError
        If a setting is out of its range.
    TypeError
        If a switch is not true or false, or a number is not one.

    Examples
    --------
    >>> playground = TheoremPlayground(epsilon=0.05, separation=2.0)
    >>> playground.means["others"] > 0 > playground.means["outliers"]
    True
    >>> playground.rates["tpr"] > playground.rates["fpr"]
    True
    >>> playground.close()
    """

    _esm = front_end("theorem")
    _css = STYLE
    _title = "Playground of Theorem 1"

    epsilon = real(0.1, 0.0, 0.5)
    separation = real(4.0, 0.0, 6.0)
    dimension = whole(2, 1, 64, allowed=DIMENSIONS)
    tau = real(0.0, -1e3, 1e3)
    imbalance = Setting(default=False, check=_checked_switch)
    overlap = Setting(default=False, check=_checked_switch)
    heavy_tails = Setting(default=False, check=_checked_switch)
    psmi = traitlets.Any(read_only=True)
    outliers = traitlets.Any(read_only=True)
    wrong = traitlets.Any(read_only=True)
    means = traitlets.Dict(read_only=True)
    rates = traitlets.Dict(read_only=True)
    _size = traitlets.Dict().tag(sync=True)
    _official = traitlets.Dict().tag(sync=True)
    _by_separation = traitlets.Dict().tag(sync=True)
    _every_dimension = traitlets.List(list(DIMENSIONS)).tag(sync=True)

    def __init__(
        self,
        epsilon: float = 0.1,
        separation: float = 4.0,
        dimension: int = 2,
        *,
        tau: float = 0.0,
        imbalance: bool = False,
        overlap: bool = False,
        heavy_tails: bool = False,
        n: int = 2000,
        seed: int = 0,
        **traits: Any,
    ) -> None:
        self._judged: tuple[Mixture, Judged] | None = None
        self._swept: Mixture | None = None
        size = {
            "n": whole_number("n", n, 100, 5000),
            "seed": whole_number("seed", seed, 0, 999_999),
        }
        super().__init__(
            epsilon=epsilon,
            separation=separation,
            dimension=dimension,
            tau=tau,
            imbalance=imbalance,
            overlap=overlap,
            heavy_tails=heavy_tails,
            _size=size,
            **traits,
        )

    @property
    def mixture(self) -> Mixture:
        """The settings as a `Mixture`. Its ``draw()`` returns the samples."""
        return Mixture(
            self.epsilon,
            self.separation,
            self.dimension,
            self.imbalance,
            self.overlap,
            self.heavy_tails,
            **self._size,
        )

    @traitlets.observe(
        "epsilon", "separation", "dimension", "tau", "imbalance", "overlap", "heavy_tails"
    )
    def _set(self, change: Any) -> None:
        self._changed(change)

    # ---------------------------------------------------------------- official numbers

    def _settle(self) -> None:
        mixture = self.mixture
        if self._judged is None or self._judged[0] != mixture:
            judged = Judged.of(mixture)
            self._judged = mixture, judged
            self.set_trait("psmi", judged.psmi)
            self.set_trait("outliers", judged.draws.outliers)
            self.set_trait("wrong", judged.draws.wrong)
            self.set_trait("means", judged.means())
        if self._swept != (swept := replace(mixture, separation=0.0)):
            self._swept = swept
            self._compute(
                "_by_separation",
                partial(_at_every_separation, swept),
                lambda playground: playground._swept == swept,  # noqa: SLF001 - its own
            )
        self.set_trait("rates", self._judged[1].rates(self.tau))
        self._official = {
            "of": _of(mixture),
            "tau": self.tau,
            **_without_nan(self.rates),
        }

    def _facts(self) -> list[tuple[str, str]]:
        found = [
            ("ε", f"{self.epsilon:g}"),
            ("separation", f"{self.separation:g}"),
            ("dimension", str(self.dimension)),
            ("mean PSMI of others", f"{self.means['others']:.3f}"),
            ("mean PSMI of outliers", f"{self.means['outliers']:.3f}"),
        ]
        if "tpr" in self.rates:
            found += [
                (f"wrong labels at or below τ = {self.tau:g}", f"{self.rates['tpr_wrong']:.1%}"),
                ("outliers there", f"{self.rates['tpr']:.1%}"),
                ("others there", f"{self.rates['fpr']:.1%}"),
            ]
        return found


def _without_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, because JSON has no NaN."""
    wrong = {name for name, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
    return {name: None if name in wrong else value for name, value in values.items()}


def _of(mixture: Mixture) -> dict[str, Any]:
    """Return the traits that the front end may change."""
    return {name: value for name, value in asdict(mixture).items() if name not in {"n", "seed"}}


def _at_every_separation(swept: Mixture) -> dict[str, Any]:
    """Return what the page gets: the mean PSMI of each kind of samples at several separations."""
    means = []
    for separation in SEPARATIONS:
        judged = Judged.of(replace(swept, separation=separation), n_directions=128)
        means.append(_without_nan({"separation": separation, **judged.means()}))
    return {"of": _of(swept), "means": means}
