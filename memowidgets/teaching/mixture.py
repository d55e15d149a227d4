"""The mixture of the paper's Theorem 1, its PSMI and the rates at τ, without widgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.evaluation import Evaluation, clopper_pearson, roc
from memowidgets.metrics import PSMI
from memowidgets.teaching.chance import normals, uniforms

__all__ = ["DIMENSIONS", "SEPARATIONS", "Draws", "Judged", "Mixture"]

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


def by_separation(mixture: Mixture) -> list[dict[str, float]]:
    """Return the mean PSMI of outliers and of others at several separations."""
    found = []
    for separation in SEPARATIONS:
        judged = Judged.of(replace(mixture, separation=separation), n_directions=128)
        found.append({"separation": separation, **judged.means()})
    return found


def _rate_of(name: str, flagged: Bools) -> dict[str, Any]:
    """Return a share with its interval; NaN and no interval where there is nothing to flag."""
    found: dict[str, Any] = {name: _mean(flagged)}
    if len(flagged):
        found[f"{name}_interval"] = list(clopper_pearson(int(flagged.sum()), len(flagged)))
    return found


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")
