"""Protocol of what the widgets need of an audit, so that they never import one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memowidgets.decisions import DecisionLog
    from memowidgets.evaluation.scored import Rule, Scored
    from memowidgets.progress import Progress


@dataclass(frozen=True)
class Choice:
    """One entry of a picker.

    Attributes
    ----------
    value : str
        Value that is passed to the source.
    label : str
        Label for the user.
    marked : bool
        Whether this entry is recommended: the ρ checkpoint, the last layer, PSMI.
    uses_layer : bool
        Whether a score differs from layer to layer.
    """

    value: str
    label: str
    marked: bool = False
    uses_layer: bool = True


@dataclass(frozen=True)
class Missing:
    """What is missing of a choice, and how `DashboardSource.view` makes it.

    Attributes
    ----------
    button : str
        Label of the button that makes it.
    cost : str
        What is done and what it takes, as in ``Scoring 356 samples, about 2 s.``; "" if that is
        not known.
    short : bool
        Whether it is known to take less than ten seconds, so that it starts by itself.
    trains : bool
        Whether models are trained for it, which never begins by itself.
    why_not : str
        Why it cannot be made; "" if it can.
    """

    button: str = "Compute"
    cost: str = ""
    short: bool = False
    trains: bool = False
    why_not: str = ""

    @property
    def label(self) -> str:
        """Label of the button, "" where there is none."""
        return "" if self.why_not else self.button


@dataclass(frozen=True)
class ShadowGaps:
    """Logit gaps of one sample under models that were trained on it, and under others.

    Attributes
    ----------
    inside, outside : array of shape (n_models,), float64
        Logit gaps of the shadow models that trained on it, and of the others.
    target : float
        Logit gap of the audited model.
    fit_in, fit_out : tuple of float
        Mean and standard deviation of the Gaussian of each side.
    log_lira : float
        In nats; NaN for a sample that has none.
    checkpoint : str
        Label of the checkpoint of the gaps.
    support : (int, int), optional
        How many models memorised it, and how many were trained on it, the audited one included.
        None with fewer than nine models on a side.
    """

    inside: NDArray[np.float64]
    outside: NDArray[np.float64]
    target: float
    fit_in: tuple[float, float]
    fit_out: tuple[float, float]
    log_lira: float
    checkpoint: str
    support: tuple[int, int] | None = None


@dataclass(frozen=True)
class SampleDetail:
    """All that is known of one sample.

    Attributes
    ----------
    title : str
        Name of the score.
    checkpoints : sequence of Choice
        Rows of `scores`. The marked one is shown.
    layers : sequence of Choice
        Columns of `scores`; one without a name for a score that has no layers.
    scores : array of shape (n_checkpoints, n_layers), float64
        NaN where it is not computed, or the sample has none.
    shadows : ShadowGaps, optional
        None without shadow models.
    neighbours : sequence of (int, float)
        Positions of the samples whose representations are nearest, and how far they are.
    notes : sequence of str
        What is missing, and why.
    guess : int, optional
        Class that the finished model gives.
    """

    title: str
    checkpoints: Sequence[Choice]
    layers: Sequence[Choice]
    scores: NDArray[np.float64]
    shadows: ShadowGaps | None = None
    neighbours: Sequence[tuple[int, float]] = ()
    notes: Sequence[str] = ()
    guess: int | None = None


class Samples(Protocol):
    """Anything with a length and a sample at each position: an ImageDataset, an MCQDataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class DashboardSource(Protocol):
    """What the dashboard needs of an audit. All methods may be called from any thread."""

    @property
    def name(self) -> str:
        """What is audited, in a word: the name of the run."""
        ...

    @property
    def decision_log(self) -> DecisionLog:
        """Where decisions go."""
        ...

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Checkpoints that can be scored, in the order of training."""
        ...

    def layer_choices(self) -> Sequence[Choice]:
        """Layers of the model, first to last."""
        ...

    def score_choices(self) -> Sequence[Choice]:
        """Scores to choose from; `missing` says which of them cannot be computed, and why."""
        ...

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Return whether `view` answers at once, so that no progress bar is needed."""
        ...

    def missing(self, score: str, layer: str, checkpoint: str) -> Missing:
        """Return at once what `view` makes before it answers, for a choice that is not computed."""
        ...

    def unchecked(self) -> Missing:
        """Return at once what `check` makes: what says which samples are memorised."""
        ...

    def check(self, progress: Progress) -> None:
        """Make it. It trains, and never begins by itself."""
        ...

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> Scored:
        """Return the numbers of a choice. Compute them if they are missing.

        Raises
        ------
        memowidgets.progress.Cancelled
            After ``progress.cancel()``, between two batches; nothing finished is lost.
        """
        ...

    def detail(
        self, position: int, score: str, layer: str, checkpoint: str, eta: float
    ) -> SampleDetail:
        """Return all that is known of one sample; it is memorised from a log-LiRA of η on."""
        ...

    def revision(self) -> Any:
        """Return at once a value that changes with new checkpoints, scores or shadow models."""
        ...

    def samples(self) -> Samples:
        """The dataset whose rows `Scored.positions` names (an ImageDataset, an MCQDataset)."""
        ...

    def device_status(self) -> str:
        """The device and its memory in a few words, as in ``CPU, 4 threads``."""
        ...

    def export_text(self, score: str, layer: str, checkpoint: str, rule: Rule, eta: float) -> str:
        """Return the flagged and the decided samples with what is known of them, as CSV.

        Parameters
        ----------
        score, layer, checkpoint : str
            What is shown.
        rule : float or AgainstClass
            Threshold of the score, or of the score against its class.
        eta : float
            Log-LiRA from which on a sample counts as memorised.
        """
        ...

    def report_page(self, state: Mapping[str, Any]) -> bytes:
        """Return the report as one page without samples, which opens as `Dashboard.state` says."""
        ...

    def opened_by(self) -> str:
        """Return a line of Python that opens the audit again, "" if only memory holds it."""
        ...

    def let_go(self) -> None:
        """Forget what is kept to answer faster: the dashboard was closed."""
        ...
