"""The guard: where the model has not learned its task, scores predict nothing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from memowidgets.training.rho import Record

__all__ = ["guard_warnings"]


def guard_warnings(
    record: Record, n_options: int, held_out_labels: NDArray[np.int64]
) -> tuple[str, ...]:
    """Why the scores at a checkpoint should not be trusted; empty if nothing is known against it.

    Parameters
    ----------
    record : Record
        The checkpoint.
    n_options : int
        Classes, or options of a question.
    held_out_labels : array of shape (n_held_out,), int64
        To know chance: the share of the largest class.

    Returns
    -------
    tuple of str
        Sentences.
    """
    notes = []
    limit = 0.5 * math.log(n_options)
    if record.median_loss > limit:
        notes.append(
            f"at {record.name} the median training loss is {record.median_loss:.2f}, above half of "
            f"log({n_options}) = {limit:.2f}: the model has not learned its task and the scores "
            "predict nothing"
        )
    if record.test_accuracy is not None and len(held_out_labels):
        chance = float(np.bincount(held_out_labels).max() / len(held_out_labels))
        lower = _lower_bound(
            round(record.test_accuracy * len(held_out_labels)), len(held_out_labels)
        )
        if lower <= chance:
            notes.append(
                f"at {record.name} the held-out accuracy, {record.test_accuracy:.0%} (at least "
                f"{lower:.0%} with 97.5 % confidence), is not above chance, {chance:.0%}: the "
                "model has not learned its task and the scores predict nothing"
            )
    return tuple(notes)


def _lower_bound(hits: int, n: int) -> float:
    """Lower end of the 95 % Clopper–Pearson interval of a share."""
    return float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
