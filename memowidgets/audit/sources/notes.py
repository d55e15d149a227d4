"""What a reader must know of a target before trusting its scores, in sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memowidgets.evaluation.intervals import clopper_pearson
from memowidgets.training.rho import Record
from memowidgets.visible import visible

__all__ = ["fork_note", "guard_warnings"]


def guard_warnings(
    record: Record, n_options: int, held_out_labels: NDArray[np.int64]
) -> tuple[str, ...]:
    """Return why the scores at a checkpoint should not be trusted; empty without a reason.

    Where the model has not learned its task, no score predicts anything.

    Parameters
    ----------
    record : Record
        The checkpoint.
    n_options : int
        Number of classes, or of options of a question.
    held_out_labels : array of shape (n_held_out,), int64
        Labels of the held-out samples. The share of the largest class is the accuracy of chance.

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
        hits = round(record.test_accuracy * len(held_out_labels))
        lower, _ = clopper_pearson(hits, len(held_out_labels))
        if lower <= chance:
            notes.append(
                f"at {record.name} the held-out accuracy, {record.test_accuracy:.0%} (at least "
                f"{lower:.0%} with 97.5 % confidence), is not above chance, {chance:.0%}: the "
                "model has not learned its task and the scores predict nothing"
            )
    return tuple(notes)


def fork_note(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What must be known of weights that have seen what was removed; empty for other runs."""
    fork = manifest.get("fork")
    if not fork or not fork["seen"]:
        return ()
    note = (
        f"this run goes on from {visible(str(fork['checkpoint']), 40)} of another one: its "
        "weights have already "
        f"seen {fork['seen']} samples that were removed or changed since, and what those left in "
        'them is not undone; fork with start="scratch" to be rid of it'
    )
    return (note,)
