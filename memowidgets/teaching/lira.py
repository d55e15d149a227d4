"""The LiRA playground, Python side."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from memowidgets.teaching.checks import whole_within, within
from memowidgets.teaching.playground import STYLE, Playground, front_end
from memowidgets.teaching.shadow_gaps import (
    MOST_MODELS,
    VARIANCES,
    Result,
    Sample,
    checked_gaps,
    judged,
)
from memowidgets.widgets.guarded import validate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["LiRAPlayground"]

PLACES = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_RANGES = {
    "target_gap": (-5.0, 14.0),
    "effect": (0.0, 8.0),
    "spread": (0.4, 3.0),
    "eta": (0.0, 12.0),
}
_FEW = (
    "Fewer than 8 models on a side: a variance of the sample’s own is unreliable here. “shrunk” "
    "borrows from the other samples."
)


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

    n_shadows = traitlets.Any(16).tag(sync=True)
    target_gap = traitlets.Any(6.5).tag(sync=True)
    variance = traitlets.Any("per-sample").tag(sync=True)
    effect = traitlets.Any(4.0).tag(sync=True)
    spread = traitlets.Any(1.5).tag(sync=True)
    eta = traitlets.Any(4.0).tag(sync=True)
    seed = traitlets.Any(0).tag(sync=True)
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

    # ---------------------------------------------------------------- what is set

    @validate("target_gap", "effect", "spread", "eta")
    def _check_number(self, proposal: Any) -> float:
        name = proposal["trait"].name
        return within(name, proposal["value"], *_RANGES[name])

    @validate("n_shadows")
    def _check_models(self, proposal: Any) -> int:
        number = whole_within("n_shadows", proposal["value"], 4, MOST_MODELS)
        if number % 2:
            raise ValueError(f"n_shadows must be even, half of them in and half out, not {number}")
        return number

    @validate("seed")
    def _check_seed(self, proposal: Any) -> int:
        return whole_within("seed", proposal["value"], 0, 999_999)

    @validate("variance")
    def _check_variance(self, proposal: Any) -> str:
        if proposal["value"] not in VARIANCES:
            known = ", ".join(map(repr, VARIANCES))
            raise ValueError(f"unknown variance {proposal['value']!r}; valid are {known}")
        return str(proposal["value"])

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
        self._fit = _wire(result)

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


def _wire(result: Result) -> dict[str, Any]:
    """Return the front end's values, without NaN, which JSON lacks."""
    return {
        "log_lira": result.log_lira if math.isfinite(result.log_lira) else None,
        "std": result.std if math.isfinite(result.std) else None,
        "estimates": result.estimates,
        "remark": _FEW if result.remarks else "",
    }
