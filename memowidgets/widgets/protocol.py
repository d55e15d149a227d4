"""What an audit answers the widgets, so that they never import one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
    """What is missing of a choice, and how `AuditView.view` makes it.

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
