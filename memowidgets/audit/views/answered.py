"""Whether the finished model answers its members rightly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.source import Source
from memowidgets.metrics import logit_gap
from memowidgets.store import StoreError

__all__ = ["answered_rightly"]


def answered_rightly(source: Source) -> NDArray[np.bool_] | None:
    """Return whether the finished model gives each member the label that it was trained on.

    Returns
    -------
    array of shape (n_members,), bool, or None
        Where the logit gap at the end of training is positive. None where training has not ended,
        where the logits at its end were not kept, and for arrays, whose checkpoint is not known.
    """
    final = source.names.final()
    if final is None or np.isnan(final.epoch):
        return None
    try:
        if source.gaps_known(final.name):
            gaps = source.target_gaps(final)
        elif source.has_losses(final):
            gaps = logit_gap(source.logits_at(final), source.labels)
        else:
            return None
    except StoreError:  # a shadow model in the target's place may not have kept it
        return None
    right: NDArray[np.bool_] = gaps > 0
    return right
