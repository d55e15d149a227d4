"""What the widgets need of an audit: a small protocol, so that they never import one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from memowidgets.progress import Progress

__all__ = ["Choice", "DashboardSource", "Samples", "ScoreView"]


@dataclass(frozen=True)
class Choice:
    """One entry of a picker.

    Attributes
    ----------
    value : str
        What is handed back to the source.
    label : str
        What the user reads.
    marked : bool
        The recommended entry: the ρ checkpoint, the last layer, PSMI.
    """

    value: str
    label: str
    marked: bool = False


@dataclass(frozen=True)
class ScoreView:
    """All numbers behind one choice of score, layer and checkpoint.

    Attributes
    ----------
    title : str
        What the scores are, for axis titles.
    scores : array of shape (n,), float64
        Low means risk; finite.
    labels : array of shape (n,), int
        The label each sample was trained on.
    positions : array of shape (n,), int
        Where each scored sample stands in the source's samples.
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


class Samples(Protocol):
    """Anything with a length and a sample at each position: an ImageDataset, an MCQDataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class DashboardSource(Protocol):
    """An audit, as the dashboard sees it. All methods may be called from any thread."""

    def checkpoint_choices(self) -> Sequence[Choice]:
        """Checkpoints that can be scored, in the order of training."""
        ...

    def layer_choices(self) -> Sequence[Choice]:
        """Layers of the model, first to last."""
        ...

    def score_choices(self) -> Sequence[Choice]:
        """Scores that can be computed with what is there."""
        ...

    def is_computed(self, score: str, layer: str, checkpoint: str) -> bool:
        """Whether `view` would answer without work worth a progress bar."""
        ...

    def view(
        self, score: str, layer: str, checkpoint: str, progress: Progress | None = None
    ) -> ScoreView:
        """The numbers behind a choice, computed if need be.

        Raises
        ------
        memowidgets.progress.Cancelled
            After ``progress.cancel()``, between two batches; nothing finished is lost.
        """
        ...

    def samples(self) -> Samples:
        """The dataset whose rows `ScoreView.positions` names (an ImageDataset, an MCQDataset)."""
        ...

    def device_status(self) -> str:
        """The device and its memory in a few words, as in ``cpu · 0.6 GiB used``."""
        ...
