"""The package's own scores, as the rows of one table.

To add a score, add a row to `ROWS`. Its function takes what it needs by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets import memorization
from memowidgets.metrics import PSMI, Mahalanobis, csl
from memowidgets.metrics.arrays import like
from memowidgets.metrics.psmi import SMALL_CLASSES
from memowidgets.registry.row import Score
from memowidgets.vocabulary import Note

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def psmi(
    representations: Any, labels: Labels, random_state: int
) -> tuple[Floats, Floats, list[Note]]:
    """Return PSMI with its standard errors; NaN for a member whose class has no other."""
    # it needs a deviation of each class
    in_company = np.bincount(labels)[labels] > 1
    rows = np.flatnonzero(in_company)
    x = representations
    if not in_company.all():
        x = representations[like(representations, rows)]
    y = labels[rows]
    if len(np.unique(y)) < 2:
        n = f"{len(rows)} of {len(labels)} members share their class with another"
        raise ValueError(f"PSMI needs two classes of two members or more: {n}")
    fitted = PSMI(random_state=random_state).fit(x, y)
    values, errors = np.full((2, len(labels)), np.nan)
    values[rows], errors[rows] = fitted.score_samples(x, y, return_std=True)
    # the audit says it with the names of the classes
    notes = [note for note in fitted.warnings_ if note.key != SMALL_CLASSES]
    return values, errors, notes


def mahalanobis(representations: object) -> tuple[Floats, None, list[Note]]:
    """Return minus the Mahalanobis distance from all representations."""
    fitted = Mahalanobis().fit(representations)
    return fitted.score_samples(representations), None, list(fitted.warnings_)


def baseline(shadow_gaps: Any, shadow_members: Any, target_gaps: Any) -> Floats:
    """Return −log-LiRA; NaN for a member that too few shadow models had, or lacked."""
    found: Floats = memorization.log_lira(
        shadow_gaps, shadow_members, target_gaps, "shrunk"
    )
    return -found


def reference(reference_gaps: Any) -> Floats:
    """Return the mean logit gap of the models that never saw a member."""
    mean: Floats = np.nanmean(reference_gaps.astype(np.float64), axis=0)
    return mean


ROWS: tuple[Score, ...] = (
    Score(
        "psmi",
        "PSMI",
        psmi,
        definition=(
            "PSMI is pointwise sliced mutual information, in nats, a unit of information: how much "
            "what a layer of the model holds of a sample says of the sample's label."
        ),
        tau=0.0,
        version="1",
        on_device=True,
        fits_classes=True,
    ),
    Score(
        "loss",
        "Log-probability",
        lambda loss: -loss,
        definition=(
            "The log-probability is the logarithm, in nats, of the probability that the model "
            "gives the sample's label."
        ),
        at_once=True,
    ),
    Score(
        "logit_gap",
        "Logit gap",
        lambda logit_gap: logit_gap,
        definition=(
            "The logit gap is the model's logit of the sample's label, less the highest logit of "
            "another class."
        ),
        tau=0.0,
        at_once=True,
    ),
    Score(
        "mahalanobis",
        "Mahalanobis",
        mahalanobis,
        definition=(
            "The Mahalanobis score is minus the distance between what a layer of the model holds "
            "of a sample and the mean of all samples, in units of their spread."
        ),
        version="1",
    ),
    Score(
        "csl",
        "Mean log-probability",
        csl,
        definition=(
            "The mean log-probability is the log-probability of the label, in nats, averaged over "
            "the checkpoints up to this one."
        ),
        at_once=True,
    ),
    Score(
        "psmi_mean",
        "Mean PSMI",
        mean_over_checkpoints="psmi",
        definition=(
            "Mean PSMI averages PSMI, pointwise sliced mutual information, over the checkpoints up "
            "to this one: how much what a layer of the model holds of a sample says of its label."
        ),
    ),
    Score("psmi+csl", "PSMI + mean log-probability", mean_rank=("psmi", "csl")),
    Score(
        "baseline",
        "Baseline",
        baseline,
        definition=(
            "The baseline is minus a log-likelihood ratio at this checkpoint, between shadow "
            "models that trained on the sample and others that did not."
        ),
        tau=-4.0,
        at_once=True,
    ),
    Score(
        "reference",
        "Reference models",
        reference,
        definition=(
            "The score of reference models is the mean logit gap of models that never saw the "
            "sample: the logit of its label, less the highest logit of another class."
        ),
        at_once=True,
    ),
    Score(
        "reference+csl",
        "Reference models + mean log-probability",
        mean_rank=("csl", "reference", "reference"),
    ),
    Score(
        "reference+psmi+csl",
        "Reference models + PSMI + mean log-probability",
        mean_rank=("psmi", "csl", "reference"),
    ),
)
