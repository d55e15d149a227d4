"""Precision in which the numbers of a run directory were computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import read_course

if TYPE_CHECKING:
    from memowidgets.training.rho import Record


_LOOKED_AT = 512  # number of samples
_FEWEST = 8  # least number of values for an answer
_LOW_BITS_OF_A_LOGIT = 0xFFFF  # 0 in every bfloat16
_LOW_BITS_OF_A_GAP = 0xFF  # 0 in a difference of two bfloat16 of similar size
_MOST = 0.9  # share of the gaps; for float32 it is about 0.004


def precision_at(run: RunDirectory, record: Record, trained_in: str) -> str:
    """Return the precision of the pass over the members at a checkpoint.

    Parameters
    ----------
    run : RunDirectory
        The run.
    record : Record
        Record of the checkpoint.
    trained_in : str
        The run's precision. A checkpoint of an external training has its own precision.

    Raises
    ------
    StoreError
        If the run's own training made the checkpoint in another precision.
    """
    elsewhere = read_course(run) is not None
    if record.precision is None:  # old runs did not record it
        if not elsewhere:
            return trained_in
        return "bfloat16" if rounded_on_disk(run, "forward") else "float32"
    if not elsewhere and record.precision != trained_in:
        raise StoreError(
            f"{run.path / 'checkpoints' / record.name} was trained in {record.precision}, and the "
            f"run computes in {trained_in}; delete the folder checkpoints and train again"
        )
    return record.precision


def are_rounded(values: NDArray[np.float32], *, gaps: bool) -> bool | None:
    """Return whether logits, or gaps between them, were rounded to bfloat16; None if unclear."""
    flat = np.asarray(values[:_LOOKED_AT], dtype=np.float32).ravel()
    bits = flat[np.isfinite(flat) & (flat != 0)].view(np.uint32)
    if len(bits) < _FEWEST:
        return None
    low, share = (_LOW_BITS_OF_A_GAP, _MOST) if gaps else (_LOW_BITS_OF_A_LOGIT, 1.0)
    return bool(np.mean((bits & low) == 0) >= share)


def rounded_on_disk(run: RunDirectory, *folders: str) -> bool | None:
    """Return whether the first numbers without a precision are rounded to bfloat16.

    Only bfloat16 runs from before the precision was recorded have such numbers.
    """
    for folder in folders:
        for file in sorted((run.path / folder).rglob("*.safetensors")):
            name = str(file.relative_to(run.path).with_suffix(""))
            if not run.has(name):
                continue
            kept = run.read_tensors(name)
            values = next((key for key in kept if key == "logits" or key.startswith("gap.")), None)
            if values is None or "precision" in kept.metadata:
                continue
            found = are_rounded(kept[values], gaps=values != "logits")
            if found is not None:
                return found
    return None
