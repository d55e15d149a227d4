"""The LiRA playground, Python side."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import traitlets
from numpy.typing import ArrayLike, NDArray

from memowidgets.checks import whole_number
from memowidgets.memorization import log_lira
from memowidgets.memorization.densities import Densities, Variance
from memowidgets.memorization.gaps import Side, moments
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

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


Floats = NDArray[np.float64]

VARIANCES: tuple[str, ...] = get_args(Variance)
MOST_MODELS = 256
REDRAWS = 200
OTHERS = 100  # samples beside the one that is looked at, which the pooled variances need
TYPICAL = 1.5  # deviation of a usual sample's gaps, in logits
OUT_MEAN = 2.0
_FREEDOM = 6  # how much variances differ from sample to sample: χ² with so many degrees
_SIDE = MOST_MODELS // 2
_STREAMS = {"in": 0, "out": 1}


@dataclass(frozen=True)
class Sample:
    """A sample's logit gaps under shadow models, and their true distribution.

    Attributes
    ----------
    n_in, n_out : int
        Shadow models that trained on the sample, and others.
    effect : float
        By how much training on the sample raises its mean gap, in logits.
    spread : float
        True deviation of its gaps on either side, in logits.
    seed : int
        Of the shadow models.
    given : (gaps in, gaps out) or None
        Measured gaps in place of simulated ones; their moments are then taken for the truth.
    """

    n_in: int
    n_out: int
    effect: float
    spread: float
    seed: int
    given: tuple[Floats, Floats] | None = None

    @property
    def truth(self) -> tuple[float, float, float, float]:
        """Mean and standard deviation of the gaps in and of the gaps out."""
        if self.given is None:
            return OUT_MEAN + self.effect, self.spread, OUT_MEAN, self.spread
        inside, outside = self.given
        return tuple(map(float, (inside.mean(), inside.std(), outside.mean(), outside.std())))  # type: ignore[return-value]

    def gaps(self, redraw: int = 0) -> tuple[Floats, Floats]:
        """Return the gaps in and out. Re-draw 0 is the one that is shown."""
        if self.given is not None and redraw == 0:
            return self.given
        mean_in, spread_in, mean_out, spread_out = self.truth
        inside = mean_in + spread_in * _own_draws(self.seed, "in", redraw, self.n_in)
        outside = mean_out + spread_out * _own_draws(self.seed, "out", redraw, self.n_out)
        return inside, outside

    def table(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the gaps (models, 1 + others) for `log_lira`, and which models are in."""
        inside, outside = self.gaps()
        own = np.concatenate([inside, outside])[:, None]
        gaps = np.concatenate([own, others_gaps(self.seed, self.n_in, self.n_out)], axis=1)
        members = np.arange(len(gaps)) < self.n_in
        return gaps, np.repeat(members[:, None], gaps.shape[1], axis=1)

    def true_ratio(self, gap: float) -> float:
        """Return log-LiRA of a gap for the true distributions."""
        return _ratio(gap, *self.truth)

    def limits(self, gap: float) -> dict[str, float]:
        """Return what log-LiRA of a gap closes in on with more and more models, by variance.

        "global" gives the sample the spread of all samples, so its limit is not the truth.
        """
        mean_in, spread_in, mean_out, spread_out = self.truth
        others = float((_deviations() ** 2).sum())
        pooled = [np.sqrt((others + own**2) / (OTHERS + 1)) for own in (spread_in, spread_out)]
        found = dict.fromkeys(VARIANCES, self.true_ratio(gap))
        return found | {"global": _ratio(gap, mean_in, pooled[0], mean_out, pooled[1])}


def _ratio(
    gap: float, mean_in: float, spread_in: float, mean_out: float, spread_out: float
) -> float:
    """Return the log of the ratio of two Gaussian densities; NaN where one has no width."""
    if not (spread_in and spread_out):
        return float("nan")
    return float(
        np.log(spread_out / spread_in)
        - 0.5 * ((gap - mean_in) / spread_in) ** 2
        + 0.5 * ((gap - mean_out) / spread_out) ** 2
    )


def _own_draws(seed: int, side: str, redraw: int, count: int) -> Floats:
    """Standard normal draws of the sample. A larger number of models starts with the same draws."""
    stream = _STREAMS[side] * (REDRAWS + 1) + redraw
    return normals(seed, stream * _SIDE, count)


def others_gaps(seed: int, n_in: int, n_out: int) -> Floats:
    """Return the gaps (n_in + n_out, others) of other samples with different deviations.

    Their means are no matter and left at 0.

    Examples
    --------
    >>> others_gaps(0, 4, 4).shape
    (8, 100)
    """
    begin = 2 * (REDRAWS + 1) * _SIDE
    draws = normals(seed, begin, 2 * OTHERS * _SIDE).reshape(2, OTHERS, _SIDE)
    both = np.concatenate([draws[0, :, :n_in].T, draws[1, :, :n_out].T])
    return np.asarray(both * _deviations())


def _deviations() -> Floats:
    """Return the true deviations (others,) of the other samples' gaps."""
    exponentials = -np.log(uniforms(-1, 0, OTHERS * _FREEDOM // 2)).reshape(OTHERS, -1)
    return np.asarray(TYPICAL * np.sqrt(_FREEDOM / (2 * exponentials.sum(axis=1))))


@dataclass(frozen=True)
class Result:
    """Log-LiRA of the sample's gap under the target, and of re-draws.

    Attributes
    ----------
    log_lira, std : float
        Official value and its standard error, in nats; NaN where log-LiRA is not defined.
    estimates : dict
        For each variance choice and side: squares, count and shared of `Estimate`, and the
        least variance; this is what the front end moves the target with.
    redraws : dict
        For each variance choice, log-LiRA (200,) that other shadow models would have given.
    remarks : tuple of str
        Warnings that apply.
    """

    log_lira: float
    std: float
    estimates: dict[str, Any]
    redraws: dict[str, Floats]
    remarks: tuple[str, ...]


def judged(sample: Sample, target_gap: float, variance: str) -> Result:
    """Return log-LiRA of the target's gap, for the shadow models and for re-draws of them.

    Re-draws keep what the other samples say of variances: their shadow models stay.
    """
    gaps, members = sample.table()
    goal = np.zeros(gaps.shape[1])
    goal[0] = target_gap
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ratio, error = log_lira(gaps, members, goal, variance, return_std=True)
    found = moments(gaps, members)
    densities = {name: Densities.fit(found.inside, found.outside, name) for name in VARIANCES}
    inside, outside = _redrawn(sample)
    again = {
        name: replace(fitted, inside=inside, outside=outside).ratio(np.full(REDRAWS, target_gap))
        for name, fitted in densities.items()
    }
    estimates = {name: _wire(fitted) for name, fitted in densities.items()}
    remarks = ["fewer than 8 models on a side"] if caught else []
    return Result(float(ratio[0]), float(error[0]), estimates, again, tuple(remarks))


def _redrawn(sample: Sample) -> tuple[Side, Side]:
    """Return the moments of both sides under re-draws 1 to 200."""
    pairs = [sample.gaps(redraw) for redraw in range(1, REDRAWS + 1)]
    inside, outside = (np.stack(side, axis=1) for side in zip(*pairs, strict=True))
    return _side(inside), _side(outside)


def _side(gaps: Floats) -> Side:
    mean = gaps.mean(axis=0)
    return Side(np.full(gaps.shape[1], float(len(gaps))), mean, ((gaps - mean) ** 2).sum(axis=0))


def _wire(fitted: Densities) -> dict[str, Any]:
    sides = {"in": fitted.spread_in, "out": fitted.spread_out}
    wire: dict[str, Any] = {
        side: {"squares": e.squares, "count": e.count, "shared": e.shared}
        for side, e in sides.items()
    }
    return {**wire, "least": fitted.least}


def checked_gaps(inside: ArrayLike, outside: ArrayLike) -> tuple[Floats, Floats]:
    """Return two rows of measured gaps after checking them."""
    sides = np.array(inside, dtype=np.float64), np.array(outside, dtype=np.float64)
    for name, side in zip(("gaps_in", "gaps_out"), sides, strict=True):
        if side.ndim != 1 or not 2 <= len(side) <= _SIDE:
            raise ValueError(f"{name} must hold 2 to {_SIDE} gaps in one row, not {side.shape}")
        if not np.isfinite(side).all():
            row = int((~np.isfinite(side)).argmax())
            raise ValueError(f"{name} must be finite: gap {row} is {side[row]}")
    return sides


PLACES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_FEW = (
    "Fewer than 8 models on a side: a variance of the sample’s own is unreliable here. “shrunk” "
    "borrows from the other samples."
)


def _checked_models(name: str, value: Any) -> int:
    number = whole_number(name, value, 4, MOST_MODELS)
    if number % 2:
        raise ValueError(f"{name} must be even, half of them in and half out, not {number}")
    return number


def _checked_variance(_name: str, value: Any) -> str:
    if value not in VARIANCES:
        known = ", ".join(map(repr, VARIANCES))
        raise ValueError(f"unknown variance {value!r}; valid are {known}")
    return str(value)


class LiRAPlayground(Playground):
    """Show how LiRA is wrong when there are few shadow models.

    One sample's logit gaps under shadow models that trained on it and under others, a Gaussian
    for each, and the gap of the audited model to drag. 200 re-draws show what other shadow
    models would have said. The pooled variances take 100 simulated other samples into account.

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
        Of `target_gap`, in nats, as `memorization.log_lira` computes it.
    log_lira_std : float
        Its standard error; NaN where log-LiRA is not defined.
    true_log_lira : float
        What infinitely many shadow models would give.
    limits : dict of str to float
        For each variance, what its log-LiRA closes in on with more and more shadow models. That
        of "global" is not the truth: it gives the sample the spread of all samples.
    redraws : dict of str to (200,) float64
        For each variance, log-LiRA under other shadow models.

    Raises
    ------
    ValueError
        If a setting is out of its range, or the variance is unknown.

    Examples
    --------
    >>> playground = LiRAPlayground(n_shadows=256, target_gap=7.0)
    >>> playground.log_lira > 4, playground.true_log_lira > 4
    (True, True)
    >>> few = LiRAPlayground(n_shadows=8, target_gap=7.0)
    >>> float(few.redraws["per-sample"].std()) > 3 * float(playground.redraws["per-sample"].std())
    True
    >>> few.close(), playground.close()
    (None, None)
    """

    _esm = front_end("lira")
    _css = STYLE
    _title = "LiRA playground"

    n_shadows = Setting(16, _checked_models)
    target_gap = real(6.5, -5.0, 14.0)
    variance = Setting("per-sample", _checked_variance)
    effect = real(4.0, 0.0, 8.0)
    spread = real(1.5, 0.4, 3.0)
    eta = real(4.0, 0.0, 12.0)
    seed = whole(0, 0, 999_999)
    log_lira = traitlets.Float(read_only=True)
    log_lira_std = traitlets.Float(read_only=True)
    true_log_lira = traitlets.Float(read_only=True)
    limits = traitlets.Dict(read_only=True)
    redraws = traitlets.Dict(read_only=True)
    _given: traitlets.List[Any] = traitlets.List().tag(sync=True)
    _fit = traitlets.Dict().tag(sync=True)
    _places = traitlets.List(list(PLACES)).tag(sync=True)

    def __init__(
        self,
        n_shadows: int = 16,
        target_gap: float = 6.5,
        variance: str = "per-sample",
        *,
        effect: float = 4.0,
        spread: float = 1.5,
        eta: float = 4.0,
        seed: int = 0,
        **traits: Any,
    ) -> None:
        self._measured: tuple[Floats, Floats] | None = None
        super().__init__(
            n_shadows=n_shadows,
            target_gap=target_gap,
            variance=variance,
            effect=effect,
            spread=spread,
            eta=eta,
            seed=seed,
            **traits,
        )

    def update(self, gaps_in: ArrayLike, gaps_out: ArrayLike) -> None:
        """Show measured gaps instead of simulated ones.

        Parameters
        ----------
        gaps_in, gaps_out : (models,) array-like
            Logit gaps under the shadow models that trained on the sample, and the others; 2 to
            128 of each. The re-draws then come from Gaussians with the moments of these gaps.
        """
        measured = checked_gaps(gaps_in, gaps_out)
        with self._at_once():
            self._measured = measured
            self._given = [side.tobytes() for side in measured]

    def simulate(self) -> None:
        """Show simulated gaps again."""
        with self._at_once():
            self._measured = None
            self._given = []

    @property
    def gaps_in(self) -> Floats:
        """Logit gaps under the shadow models that were trained on the sample."""
        return self._sample.gaps()[0].copy()

    @property
    def gaps_out(self) -> Floats:
        """Logit gaps under the other shadow models."""
        return self._sample.gaps()[1].copy()

    @property
    def _sample(self) -> Sample:
        n_in = n_out = self.n_shadows // 2
        if self._measured is not None:
            n_in, n_out = map(len, self._measured)
        return Sample(n_in, n_out, self.effect, self.spread, self.seed, self._measured)

    @traitlets.observe("n_shadows", "target_gap", "variance", "effect", "spread", "seed")
    def _set(self, change: Any) -> None:
        self._changed(change)

    # ---------------------------------------------------------------- official numbers

    def _settle(self) -> None:
        sample = self._sample
        result = judged(sample, self.target_gap, self.variance)
        self.set_trait("log_lira", result.log_lira)
        self.set_trait("log_lira_std", result.std)
        self.set_trait("true_log_lira", sample.true_ratio(self.target_gap))
        self.set_trait("limits", sample.limits(self.target_gap))
        self.set_trait("redraws", result.redraws)
        self._fit = _fit_of(result)

    def _facts(self) -> list[tuple[str, str]]:
        counts = [len(side) for side in self._sample.gaps()]
        says = (self.redraws[self.variance] >= self.eta).mean()
        return [
            ("shadow models", f"{counts[0]} in, {counts[1]} out"),
            ("variance", self.variance),
            ("target's gap", f"{self.target_gap:g}"),
            ("log-LiRA", f"{self.log_lira:.2f} ± {self.log_lira_std:.2f}"),
            ("with infinitely many models", f"{self.true_log_lira:.2f}"),
            (f"re-draws at or above η = {self.eta:g}", f"{says:.0%}"),
        ]


def _fit_of(result: Result) -> dict[str, Any]:
    """Return the front end's values, without NaN, which JSON lacks."""
    return {
        "log_lira": result.log_lira if math.isfinite(result.log_lira) else None,
        "std": result.std if math.isfinite(result.std) else None,
        "estimates": result.estimates,
        "remark": _FEW if result.remarks else "",
    }
