"""The LiRA playground."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import traitlets

from memowidgets.checks import whole_number
from memowidgets.teaching.playground import Playground, Setting, front_end, real, result, whole

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

VARIANCES = ("per-sample", "global", "shrunk")
MOST_MODELS = 256


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


def _checked_gaps(name: str, gaps: ArrayLike) -> bytes:
    side = np.array(gaps, dtype=np.float64)
    if side.ndim != 1 or not 2 <= len(side) <= MOST_MODELS // 2:
        raise ValueError(
            f"{name} must hold 2 to {MOST_MODELS // 2} gaps in one row, not {side.shape}"
        )
    if not np.isfinite(side).all():
        row = int((~np.isfinite(side)).argmax())
        raise ValueError(f"{name} must be finite: gap {row} is {side[row]}")
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
    variance = Setting("per-sample", _checked_variance)
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
        self._given = [_checked_gaps("gaps_in", gaps_in), _checked_gaps("gaps_out", gaps_out)]
        self._show({})

    def simulate(self) -> None:
        """Show simulated gaps again."""
        self._given = []
        self._show({})
