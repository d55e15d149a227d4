"""The playground of Theorem 1, Python side."""

from __future__ import annotations

import math
import weakref
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import traitlets

from memowidgets.teaching.checks import whole_within, within
from memowidgets.teaching.mixture import DIMENSIONS, Judged, Mixture, by_separation
from memowidgets.teaching.playground import STYLE, Playground, front_end
from memowidgets.widgets.guarded import validate

__all__ = ["TheoremPlayground"]

_RANGES = {"epsilon": (0.0, 0.5), "separation": (0.0, 6.0), "tau": (-1e3, 1e3)}


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

    epsilon = traitlets.Any(0.1).tag(sync=True)
    separation = traitlets.Any(4.0).tag(sync=True)
    dimension = traitlets.Any(2).tag(sync=True)
    tau = traitlets.Any(0.0).tag(sync=True)
    imbalance = traitlets.Any(default_value=False).tag(sync=True)
    overlap = traitlets.Any(default_value=False).tag(sync=True)
    heavy_tails = traitlets.Any(default_value=False).tag(sync=True)
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
            "n": whole_within("n", n, 100, 5000),
            "seed": whole_within("seed", seed, 0, 999_999),
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

    # ---------------------------------------------------------------- what is set

    @validate("epsilon", "separation", "tau")
    def _check_number(self, proposal: Any) -> float:
        name = proposal["trait"].name
        return within(name, proposal["value"], *_RANGES[name])

    @validate("dimension")
    def _check_dimension(self, proposal: Any) -> int:
        return whole_within("dimension", proposal["value"], 1, 64, allowed=DIMENSIONS)

    @validate("imbalance", "overlap", "heavy_tails")
    def _check_switch(self, proposal: Any) -> bool:
        if not isinstance(proposal["value"], bool):
            name = proposal["trait"].name
            raise TypeError(f"{name} must be True or False, not {proposal['value']!r}")
        return proposal["value"]

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
            self._job = partial(_at_every_separation, weakref.ref(self), swept)
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


def _at_every_separation(widget: weakref.ref[TheoremPlayground], swept: Mixture) -> None:
    """Send the page the means at every separation."""
    means = [_without_nan(point) for point in by_separation(swept)]
    playground = widget()
    if playground is not None and playground._swept == swept:  # noqa: SLF001 - its own worker
        playground._by_separation = {"of": _of(swept), "means": means}  # noqa: SLF001
