"""The τ explorer, Python side; imports nothing but evaluation and the arrays' checks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import anywidget
import numpy as np
import traitlets

from memowidgets.evaluation import Evaluation, roc
from memowidgets.widgets.arrays import (
    checked_flags,
    checked_floats,
    checked_tau,
    packed_scores,
    packed_undecided,
)
from memowidgets.widgets.assets import script, style
from memowidgets.widgets.cells import created, displayed
from memowidgets.widgets.standin import bundle, table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["ThresholdExplorer"]

MOST_FOR_BAND = 200_000  # samples; beyond, the band is as thin as the line
BAND_RESAMPLES = 300  # enough for a drawing, and a pick stays quick


class ThresholdExplorer(anywidget.AnyWidget):
    """Move a threshold τ over scores and see at once what it flags.

    A sample is flagged if its score is at most τ: low scores mean risk. With ground truth
    the explorer shows ROC, TPR, FPR, precision and AUC, each with its 95 % interval; without
    it, how many samples are flagged, and no rates.

    Parameters
    ----------
    scores : array-like of shape (n,), or None
        Finite numbers. None shows nothing until `update` brings scores.
    memorized : array-like of shape (n,), bool, optional
        Ground truth: which samples the finished model memorised.
    tau : float
        Where τ stands at first.
    title : str
        What the scores are, for the axis.
    errors : array-like of shape (n,), optional
        Standard error of each score; counts the samples that could go either way.
    truth : str
        What makes a sample memorised, as in ``"log-LiRA ≥ 4"``; for the legend.

    Attributes
    ----------
    tau : float
        Follows the user's hand, at most some twelve times a second.
    tau_committed : float
        Follows when the hand rests; observe this one to start work.
    counts : dict
        At `tau`: ``n``, ``flagged``, and with ground truth ``hits``, ``false_alarms``,
        ``missed``, ``clear``.
    evaluation : Evaluation or None
        Behind the ROC; None without ground truth, or if all or no samples are memorised.

    Raises
    ------
    ValueError
        If a score is NaN or infinite (the message counts them and names the first row), if
        there is no sample, or if the lengths differ.
    TypeError
        If the scores are not numbers or `memorized` is not true or false.

    Examples
    --------
    >>> explorer = ThresholdExplorer([-0.4, 0.1, 0.3, 0.9], [True, False, True, False])
    >>> explorer.counts["flagged"], explorer.counts["missed"]
    (1, 1)
    >>> explorer.tau = 0.3
    >>> explorer.counts["hits"], explorer.tau_committed
    (2, 0.3)
    >>> explorer.close()
    """

    _esm = script("explorer")
    _css = style()

    tau = traitlets.Float(0.0).tag(sync=True)
    tau_committed = traitlets.Float(0.0).tag(sync=True)
    counts = traitlets.Dict(read_only=True)
    _data = traitlets.Dict().tag(sync=True)
    _dimmed = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self,
        scores: ArrayLike | None,
        memorized: ArrayLike | None = None,
        tau: float = 0.0,
        *,
        title: str = "score",
        errors: ArrayLike | None = None,
        truth: str = "",
        **traits: Any,
    ) -> None:
        self._hand = threading.local()
        self._scores: NDArray[np.float64] = np.empty(0)
        self._memorized: NDArray[np.bool_] | None = None
        self.evaluation: Evaluation | None = None
        first = checked_tau(tau)
        prepared = None if scores is None else _prepare(scores, memorized, title, errors, truth)
        super().__init__(**traits)
        with self.hold_sync():
            self.tau = self.tau_committed = first
            if prepared is not None:
                self._take(prepared)
            self._count()
        created(self)

    def update(
        self,
        scores: ArrayLike,
        memorized: ArrayLike | None = None,
        tau: float | None = None,
        *,
        title: str = "score",
        errors: ArrayLike | None = None,
        truth: str = "",
    ) -> None:
        """Show other scores in the same view; parameters as for the constructor.

        `tau` stays where it is unless given. May be called from any thread.
        """
        threshold = self.tau if tau is None else checked_tau(tau)
        prepared = _prepare(scores, memorized, title, errors, truth)
        with self.hold_sync():
            self._take(prepared)
            self._dimmed = False
            self.tau = self.tau_committed = threshold
            self._count()

    def close(self) -> None:
        """Take the widget and its layout off the page and out of memory."""
        if self.layout is not None and self.comm is not None:
            self.layout.close()
        super().close()

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the front end sends; a τ that comes this way is not yet committed."""
        self._hand.moving = True
        try:
            super().set_state(sync_data)
        finally:
            self._hand.moving = False

    @traitlets.validate("tau", "tau_committed")
    def _check_tau(self, proposal: Any) -> float:
        return checked_tau(proposal["value"])

    @traitlets.observe("tau")
    def _tau_moved(self, _change: Any) -> None:
        self._count()
        if not getattr(self._hand, "moving", False):
            self.tau_committed = self.tau

    def _take(self, prepared: _Prepared) -> None:
        self._scores, self._memorized = prepared.scores, prepared.memorized
        self.evaluation = prepared.evaluation
        self._data = prepared.wire

    def _count(self) -> None:
        self.set_trait("counts", _counts(self._scores, self._memorized, self.tau))

    def __repr__(self) -> str:
        counts = self.counts
        auc = "" if self.evaluation is None else f", AUC {self.evaluation.auc:.3f}"
        return (
            f"ThresholdExplorer({counts['flagged']} of {counts['n']} samples flagged "
            f"at τ = {self.tau:.4g}{auc})"
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        displayed(self)
        return bundle(super()._repr_mimebundle_(**kwargs), repr(self), self._stand_in())

    def _stand_in(self) -> str:
        rows = [("τ", f"{self.tau:.4g}")]
        rows += [(name.replace("_", " "), str(value)) for name, value in self.counts.items()]
        if self.evaluation is not None:
            point = self.evaluation.at(self.tau)
            low, high = self.evaluation.auc_interval
            rows += [("TPR", f"{point.tpr:.3f}"), ("FPR", f"{point.fpr:.3f}")]
            rows += [("AUC", f"{self.evaluation.auc:.3f} ({low:.3f} to {high:.3f})")]
        return table("Threshold explorer", rows)


class _Prepared:
    """Checked arrays, their evaluation and their wire form: made before anything changes."""

    def __init__(
        self,
        scores: NDArray[np.float64],
        memorized: NDArray[np.bool_] | None,
        wire: dict[str, Any],
    ) -> None:
        self.scores = scores
        self.memorized = memorized
        self.evaluation = _evaluation(scores, memorized)
        self.wire = {**wire, **packed_scores(scores, memorized), **_packed_rates(self.evaluation)}


def _prepare(
    scores: ArrayLike,
    memorized: ArrayLike | None,
    title: str,
    errors: ArrayLike | None,
    truth: str,
) -> _Prepared:
    values = checked_floats("scores", scores)
    n = len(values)
    flags = None if memorized is None else checked_flags("memorized", memorized, n)
    spread = None if errors is None else checked_floats("errors", errors, n)
    wire = {"title": title, "truth": truth, **packed_undecided(values, spread)}
    return _Prepared(values, flags, wire)


def _evaluation(
    scores: NDArray[np.float64], memorized: NDArray[np.bool_] | None
) -> Evaluation | None:
    if memorized is None or memorized.all() or not memorized.any():
        return None
    return roc(scores, memorized)


def _packed_rates(evaluation: Evaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {"auc": None, "band": None, "remarks": []}
    band = None
    if evaluation.n <= MOST_FOR_BAND:
        frame = evaluation.band(BAND_RESAMPLES)
        columns = [frame[name].to_numpy() for name in ("fpr", "tpr_low", "tpr_high")]
        band = np.concatenate(columns).astype(np.float32).tobytes()
    numbers = (evaluation.auc, *evaluation.auc_interval)
    auc = [float(x) if np.isfinite(x) else None for x in numbers]
    return {"auc": auc, "band": band, "remarks": list(evaluation.warnings)}


def _counts(
    scores: NDArray[np.float64], memorized: NDArray[np.bool_] | None, tau: float
) -> dict[str, int]:
    flagged = scores <= tau
    n, n_flagged = len(scores), int(flagged.sum())
    if memorized is None:
        return {"n": n, "flagged": n_flagged}
    hits = int((flagged & memorized).sum())
    missed = int(memorized.sum()) - hits
    return {
        "n": n,
        "flagged": n_flagged,
        "hits": hits,
        "false_alarms": n_flagged - hits,
        "missed": missed,
        "clear": n - n_flagged - missed,
    }
