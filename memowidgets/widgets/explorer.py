"""The τ explorer, Python side."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from memowidgets.evaluation.scored import AXES
from memowidgets.vocabulary import at, counted_flagged
from memowidgets.widgets.explored import (
    NOTHING,
    Judged,
    asked_rule,
    axes_of,
    checked_asked,
    checked_scores,
    opening,
    packed_floats,
)
from memowidgets.widgets.inspected import one_of
from memowidgets.widgets.standin import still
from memowidgets.widgets.widget import (
    Guarded,
    checked_tau,
    close_earlier_runs,
    script,
    style,
    validate,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from memowidgets.evaluation import Evaluation
    from memowidgets.evaluation.scored import Scored
    from memowidgets.widgets.messages import Asked, AskLogLira


class AtThreshold(Guarded):
    """A widget, or a part of one, that shows samples at a threshold."""

    tau = traitlets.Float(0.0).tag(sync=True)
    _dimmed = traitlets.Bool(default_value=False).tag(sync=True)

    @validate("tau")
    def _check_tau(self, proposal: Any) -> float:
        return checked_tau(proposal["value"])


class Thresholds(AtThreshold):
    """The explorer's part of a widget: scores, their truth, τ and η.

    Its `_show_scores` gives it something to show.
    """

    tau_committed = traitlets.Float(0.0).tag(sync=True)
    asked: Any = traitlets.Dict().tag(sync=True)
    axis = traitlets.Unicode(AXES[0]).tag(sync=True)
    eta = traitlets.Float(4.0).tag(sync=True)
    eta_committed = traitlets.Float(4.0).tag(sync=True)
    more = traitlets.Bool(default_value=False).tag(sync=True)
    counts = traitlets.Dict(read_only=True)
    _data = traitlets.Dict().tag(sync=True)
    _truth = traitlets.Dict().tag(sync=True)
    _late = traitlets.Dict().tag(sync=True)

    def __init__(self, **traits: object) -> None:
        self._hand = threading.local()
        self._lock = threading.RLock()
        self._judged, self._given = NOTHING, NOTHING.scored
        super().__init__(**traits)

    @property
    def evaluation(self) -> Evaluation | None:
        """Evaluation against the truth at `eta_committed`; None if there is no ROC."""
        return self._judged.evaluation

    @property
    def undecided(self) -> int | None:
        """Samples whose score is less than two standard errors from `tau`."""
        scored = self._judged.scored
        return None if scored.errors is None else int(scored.close(self.tau).sum())

    # ---------------------------------------------------------------- what the page says

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """Take what the front end sends; a τ or η that comes this way is not yet committed."""
        self._hand.moving = True
        try:
            super().set_state(sync_data)
        finally:
            self._hand.moving = False

    def _hear_log_lira(self, content: AskLogLira) -> None:
        """Send log-LiRA when η is moved for the first time."""
        judged, log_lira = self._judged, self._judged.scored.log_lira
        if content["version"] == judged.version and log_lira is not None:
            values, wide = packed_floats(log_lira[judged.scored.rising.order])
            self.send(
                {"type": "log_lira", "version": judged.version, "wide": wide}, [values]
            )

    @validate("tau_committed", "eta", "eta_committed")
    def _check_thresholds(self, proposal: Any) -> float:
        return checked_tau(proposal["value"], proposal["trait"].name)

    @validate("asked")
    def _check_asked(self, proposal: Any) -> Asked:
        return checked_asked(proposal["value"])

    @traitlets.observe("asked")
    def _take_asked(self, _change: object) -> None:
        self.tau = self._tau_for_asked

    @property
    def _tau_for_asked(self) -> float:
        """The τ that flags what was asked for."""
        scored = self._judged.scored
        return (
            scored.on(asked_rule(self.asked, self.tau))[1] if len(scored) else self.tau
        )

    @validate("axis")
    def _check_axis(self, proposal: Any) -> str:
        return one_of("axis", str(proposal["value"]), axes_of(self._judged.scored))

    @traitlets.observe("axis")
    def _turn(self, change: Any) -> None:
        """Show the scores that are on show on another axis."""
        if change["new"] != self._judged.scored.axis:
            self._show_on_axis()

    def _on_axis(self, found: Scored) -> Scored:
        """Return scores on the axis on show."""
        return found if self.axis == AXES[0] else found.against_class

    def _show_on_axis(self) -> None:
        raise NotImplementedError

    @traitlets.observe("tau", "eta")
    def _moved(self, change: Any) -> None:
        if self.tau != self._tau_for_asked:
            self.asked = {}
        self._count()
        if not getattr(self._hand, "moving", False):
            setattr(self, f"{change['name']}_committed", change["new"])

    @traitlets.observe("tau_committed", "eta_committed")
    def _committed(self, change: Any) -> None:
        if not getattr(self._hand, "moving", False):
            setattr(self, change["name"].removesuffix("_committed"), change["new"])

    @traitlets.observe("eta_committed")
    def _settled(self, _change: object) -> None:
        with self._lock:
            self._judge(self._judged)

    # ---------------------------------------------------------------- what the page is told

    def _show_scores(
        self,
        judged: Judged,
        tau: float | None,
        eta: float | None,
        asked: Asked | None = None,
    ) -> None:
        """Show other scores in the same view; None leaves what was asked for, or η, as it is."""
        threshold = None if tau is None else checked_tau(tau)
        least = self.eta if eta is None else checked_tau(eta, "eta")
        with self._lock, self.hold_sync():
            self._judged = replace(judged, version=self._judged.version + 1)
            if asked is not None:
                self.asked = asked
            self.tau = self._tau_for_asked if threshold is None else threshold
            self.tau_committed = self.tau
            self.eta = self.eta_committed = least
            self._judge(self._judged)
            self._data = self._judged.data
            self._count()
            self._dimmed = False

    def _judge(self, judged: Judged) -> None:
        """Compare scores with the truth at η."""
        self._judged = judged = replace(judged, eta=self.eta_committed)
        self._truth, self._late = judged.wire, judged.late()

    def _count(self) -> None:
        self.set_trait("counts", self._judged.scored.counts(self.tau, self.eta))

    def _let_scores_go(self) -> None:
        """Forget all arrays, because a notebook remembers what its cells showed, closed or not."""
        with self._lock:
            self._judged, self._given = (
                replace(NOTHING, eta=self.eta_committed),
                NOTHING.scored,
            )
            self._data, self._truth, self._late = {}, {}, {}

    def _in_words(self) -> str:
        counts, evaluation = self.counts, self.evaluation
        auc = "" if evaluation is None else f", {evaluation.areas_in_words}"
        flagged = counted_flagged(counts["flagged"], counts["n"])
        return f"{flagged} {at(self.tau)}{auc}"

    def _stand_in(self) -> str:
        judged = self._judged
        return still(judged.scored, self.tau, self.eta, judged.positives or "memorised")


class ThresholdExplorer(Thresholds, anywidget.AnyWidget):
    """Move a threshold τ over scores and see at once what it flags.

    A sample is flagged if its score is at most τ: low scores mean risk. With ground truth
    the explorer shows ROC, TPR, FPR, precision and AUC, each with its 95 % interval; without
    it, how many samples are flagged, and no rates. Where the truth is given as log-LiRA, η, from
    which on a sample counts as memorised, moves as well.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Finite numbers.
    memorized : array-like of shape (n,), bool, optional
        Ground truth: which samples the finished model memorised.
    tau : float, optional
        Where τ stands at first. Default: `natural`, or the lowest 5 % where that is None.
    title : str
        What the scores are, for the axis.
    errors : array-like of shape (n,), optional
        Standard error of each score; counts the samples that sit on the line of τ.
    truth : str
        What `memorized` marks, as in ``"canaries"``; for the legend. Empty: memorised samples.
    log_lira : array-like of shape (n,), optional
        In place of `memorized`: a sample is memorised if its log-LiRA is at least η. NaN for a
        sample that has none; it is left out, and the view says how many are.
    eta : float
        Where η stands at first.
    natural : float, optional
        Threshold that means the same for every model: 0 for PSMI. None if the score has none, as
        the loss; then flag a share of the samples.
    labels : array-like of shape (n,), optional
        Class of each sample. With them `axis` can be ``"class"``.

    Attributes
    ----------
    tau : float
        Follows the user's hand, at most some twelve times a second.
    tau_committed : float
        Follows when the hand rests; observe this one to start work.
    asked : dict
        What stays when the scores change: ``{"count": 20}`` or ``{"share": 0.1}`` for the samples
        with the lowest scores, as `Audit.flagged` takes a share, and ``{}`` for `tau` itself.
    axis : str
        ``"score"``, or ``"class"``: then scores and `tau` are in robust deviations from the median
        of each sample's class. There -1, where `tau` opens, flags what
        `memowidgets.evaluation.below_class` has.
    eta, eta_committed : float
        Likewise for η.
    more : bool
        Whether cautions, rates with their intervals, η and scales are shown, behind "i".
    counts : dict
        At `tau` and `eta`: ``n``, ``flagged``, ``left_alone``, and with ground truth ``found``,
        ``flagged_only``, ``missed``.
    evaluation : Evaluation or None
        Behind the ROC, at `eta_committed`; None without ground truth, or if all or no samples
        are memorised.
    undecided : int or None
        Samples whose score is less than two standard errors from `tau`; None without `errors`.

    Raises
    ------
    ValueError
        If a score is NaN or infinite (the message counts them and names the first row), if
        there is no sample, if lengths differ, if τ or η is not finite, or if both `memorized`
        and `log_lira` are given.
    TypeError
        If the scores are not numbers or `memorized` is not true or false.

    Examples
    --------
    >>> explorer = ThresholdExplorer([-0.4, 0.1, 0.3, 0.9], [True, False, True, False])
    >>> explorer.counts["flagged"], explorer.counts["missed"]
    (1, 1)
    >>> explorer.tau = 0.3
    >>> explorer.counts["found"], explorer.tau_committed
    (2, 0.3)
    >>> explorer.close()

    With log-LiRA, η can be moved:

    >>> explorer = ThresholdExplorer([-0.4, 0.1, 0.3, 0.9], log_lira=[9.0, 4.5, 1.0, float("nan")])
    >>> explorer.counts["found"], explorer.counts["missed"], explorer.counts["n"]
    (1, 1, 3)
    >>> explorer.eta = 5
    >>> explorer.counts["missed"]
    0
    >>> explorer.close()
    """

    evaluation = Thresholds.evaluation  # of this class, so that the reference has it
    _esm = script("explorer")
    _css = style()

    def __init__(
        self,
        scores: ArrayLike,
        memorized: ArrayLike | None = None,
        tau: float | None = None,
        *,
        title: str = "score",
        errors: ArrayLike | None = None,
        truth: str = "",
        log_lira: ArrayLike | None = None,
        eta: float = 4.0,
        natural: float | None = 0.0,
        labels: ArrayLike | None = None,
        **traits: Any,
    ) -> None:
        found = checked_scores(
            scores, memorized, title, errors, log_lira, natural, labels
        )
        least = checked_tau(eta, "eta")
        first = None if tau is None else checked_tau(tau)
        judged = Judged.of(found, least, truth)
        super().__init__(**traits)
        self._given = found
        asked = None
        if first is None and not self.asked:
            asked, first = opening(found)
        self._show_scores(judged, first, least, asked)
        close_earlier_runs(self)

    def update(
        self,
        scores: ArrayLike,
        memorized: ArrayLike | None = None,
        tau: float | None = None,
        *,
        truth: str = "",
        eta: float | None = None,
        **known: Any,
    ) -> None:
        """Show other scores in the same view; parameters as for the constructor.

        What was asked for stays, `tau` or how many samples, unless `tau` is given, and so does
        `eta`. May be called from any thread.
        """
        found = checked_scores(scores, memorized, **known)
        self._given = found
        if self.axis not in axes_of(found):
            self.axis = AXES[0]
        self._show_scores(Judged.of(self._on_axis(found), positives=truth), tau, eta)

    def _show_on_axis(self) -> None:
        found, positives = self._on_axis(self._given), self._judged.positives
        asked, tau = (self.asked, None) if self.asked else opening(found)
        self._show_scores(Judged.of(found, positives=positives), tau, None, asked)

    def close(self) -> None:
        """Take the widget off the page, and all arrays out of memory."""
        super().close()
        self._let_scores_go()

    # ---------------------------------------------------------------- without a page

    def __repr__(self) -> str:
        return f"ThresholdExplorer({self._in_words()})"
