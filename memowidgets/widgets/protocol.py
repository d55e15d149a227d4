"""Protocol of what the widgets need of an audit, so that they never import one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memowidgets.decisions import DecisionLog
    from memowidgets.progress import Progress

# η to the expected number of truly memorised samples, the number of shadow models, and the
# probability of each sample
Doubt = Callable[[float], tuple[float, int, NDArray[np.float64]] | None]


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
class ScoreView:
    """Numbers of one choice of score, layer and checkpoint.

    Attributes
    ----------
    title : str
        Name of the scores, for axis titles.
    scores : array of shape (n,), float64
        Finite numbers. A low score means risk.
    labels : array of shape (n,), int
        Label that each sample was trained on.
    positions : array of shape (n,), int
        Position of each scored sample in the source's samples.
    errors : array of shape (n,), float64, optional
        Standard error of each score.
    log_lira : array of shape (n,), float64, optional
        NaN for a sample that has none; None without ground truth.
    eta : float
        A sample is memorised if its log-LiRA is at least this.
    probabilities : array of shape (n, n_classes), optional
        The model's at the chosen checkpoint.
    warnings : tuple of str
        What the reader must know before trusting the numbers.
    notes : tuple of str
        What is good to know, and no reason for doubt.
    natural : float, optional
        Threshold that means the same for every model; None if the score has none.
    canaries : array of shape (n,), bool, optional
        Which samples were planted to be memorised.
    right : array of shape (n,), bool, optional
        Whether the finished model gives a sample the label that it was trained on; None where that
        is not known.
    learned : bool
        Whether the model has learned its task at the chosen checkpoint. Before, no score predicts
        anything.
    doubt : callable, optional
        Function of η that returns the arguments of `Evaluation.with_truly`, or None where nobody
        knows how many of the memorised samples truly are.
    """

    title: str
    scores: NDArray[np.float64]
    labels: NDArray[np.int64]
    positions: NDArray[np.int64]
    errors: NDArray[np.float64] | None = None
    log_lira: NDArray[np.float64] | None = None
    eta: float = 4.0
    probabilities: NDArray[np.float64] | None = None
    warnings: tuple[str, ...] = ()
    natural: float | None = 0.0
    canaries: NDArray[np.bool_] | None = None
    notes: tuple[str, ...] = ()
    right: NDArray[np.bool_] | None = None
    learned: bool = True
    doubt: Doubt | None = None


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
    computed : array of shape (n_checkpoints, n_layers), bool
        Mask of the computed scores.
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
    computed: NDArray[np.bool_]
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

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> ScoreView:
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
        """The dataset whose rows `ScoreView.positions` names (an ImageDataset, an MCQDataset)."""
        ...

    def device_status(self) -> str:
        """The device and its memory in a few words, as in ``CPU, 4 threads``."""
        ...

    def export_text(
        self,
        score: str,
        layer: str,
        checkpoint: str,
        tau: float | str,
        eta: float,
        suffix: str,
        *,
        samples: bool,
    ) -> str:
        """Return the flagged and the decided samples with what is known of them, as a file's text.

        Parameters
        ----------
        score, layer, checkpoint : str
            What is shown.
        tau : float or "class"
            Threshold, or the rule by class.
        eta : float
            Log-LiRA from which on a sample counts as memorised.
        suffix : str
            ``".csv"`` or ``".jsonl"``.
        samples : bool
            Whether what the samples contain is in it.

        Raises
        ------
        ValueError
            If the suffix is another.
        """
        ...

    def report_page(self, score: str, tau: float | Literal["class"] | None) -> bytes:
        """Return the report as one page without samples; τ of None is the score's own."""
        ...

    def opened_by(self) -> str:
        """Return a line of Python that opens the audit again, "" if only memory holds it."""
        ...

    def let_go(self) -> None:
        """Forget what is kept to answer faster: the dashboard was closed."""
        ...
