"""What a dashboard asks of its source: the one thing that it knows of an audit."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol

from memowidgets.data import Dataset
from memowidgets.decisions import DecisionLog
from memowidgets.evaluation.scored import Rule, Scored
from memowidgets.progress import Progress
from memowidgets.widgets.messages import (
    Choice,
    Missing,
    Moment,
    Pick,
    SampleDetail,
    State,
    Steps,
)


class Place(NamedTuple):
    """A score by its metric, layer and checkpoint, as a source takes them."""

    metric: str
    layer: str
    checkpoint: str

    @property
    def pick(self) -> Pick:
        """The same for the page, which compares picks as texts: always in this order."""
        return {
            "checkpoint": self.checkpoint,
            "layer": self.layer,
            "metric": self.metric,
        }


class Source(Protocol):
    """What answers a dashboard's questions, such as `AuditView`, from any thread.

    A score, a layer and a checkpoint are named by the values of the choices that are offered.
    """

    @property
    def name(self) -> str:
        """What a saved page is named after; "" where there is nothing."""

    @property
    def decision_log(self) -> DecisionLog:
        """What was decided on the samples."""

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Return the checkpoints that can be picked."""

    def layer_choices(self) -> Sequence[Choice]:
        """Return the layers that can be picked."""

    def score_choices(self) -> Sequence[Choice]:
        """Return the scores that can be picked."""

    def moments(self) -> Sequence[Moment]:
        """Return the checkpoints of the timeline in the order of training; none without one."""

    def has_ended(self) -> bool:
        """Return whether the last checkpoint is the end of training."""

    def samples(self) -> Dataset:
        """Return the samples, in the order that positions count."""

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Return whether `view` only reads."""

    def is_ready(self, score: str, layer: str, checkpoint: str) -> bool:
        """Return whether `scores_at` answers in about a second."""

    def missing(self, score: str, layer: str, checkpoint: str) -> Missing:
        """Return what `view` has to make, and what that costs."""

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return the numbers behind a choice, computed if need be."""

    def cost(self, places: Sequence[tuple[str, str, str]]) -> str:
        """Return what the forward passes take that scores at several places need together."""

    def scores_at(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return scores and nothing else that is known of the samples."""

    def detail(
        self, position: int, score: str, layer: str, checkpoint: str, eta: float = 4.0
    ) -> SampleDetail:
        """Return all that is known of one sample; it is memorised from a log-LiRA of η on."""

    def steps(self) -> Steps:
        """Return what would say more of which samples are memorised, with its price."""

    def check(self, progress: Progress) -> None:
        """Train the models that say which samples are memorised."""

    def revision(self) -> Hashable:
        """Return a value that changes when there is something new to show; None if unknown."""

    def device_status(self) -> str:
        """Return the device and its memory in a few words."""

    def export_text(
        self, score: str, layer: str, checkpoint: str, rule: Rule, eta: float
    ) -> str:
        """Return the flagged and the decided samples as CSV."""

    def report_page(self, state: State) -> bytes:
        """Return the report as one page without samples, which opens as `Dashboard.state` says."""

    def opened_by(self) -> str:
        """Return a line of Python that opens the audit again; "" if only memory holds it."""

    def let_go(self) -> None:
        """Forget what is kept to answer faster."""
