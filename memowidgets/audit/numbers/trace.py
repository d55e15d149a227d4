"""The checkpoints so far, over which some scores are averaged."""

from __future__ import annotations

from memowidgets.audit.source import TRACE, NotGivenError, Source
from memowidgets.metrics.trace import FEWEST_CHECKPOINTS, checked_last
from memowidgets.training.rho import Record

__all__ = ["FEWEST", "records_up_to", "so_far"]

FEWEST = FEWEST_CHECKPOINTS


def so_far(source: Source, record: Record) -> list[Record]:
    """Return the checkpoints after step 0 up to one of them, in the order of training."""
    return [one for one in source.names.records() if 0 < one.step <= record.step]


def records_up_to(source: Source, record: Record, last: int | None = None) -> list[Record]:
    """Return the checkpoints that a mean is taken over.

    Raises
    ------
    NotGivenError
        If this source has one checkpoint, or kept no losses.
    ValueError
        If there are fewer than two, or fewer than `last`.
    """
    if TRACE not in source.evidence:
        raise NotGivenError(source.cannot("trace"))
    records = so_far(source, record)
    if len(records) < FEWEST:
        raise ValueError(
            f"a mean over the checkpoints up to {record.name} needs two after step 0, and there "
            f"{'is one' if records else 'is none'}: choose a later checkpoint or a score of one "
            "checkpoint such as psmi or loss, or train a new run with checkpoints closer together "
            "(checkpoint_every of TrainingConfig)"
        )
    kept = len(records) if last is None else checked_last(last)
    if kept > len(records):
        raise ValueError(
            f"last is {last}, but up to {record.name} there are only {len(records)} checkpoints "
            "after step 0"
        )
    return records[-kept:]
