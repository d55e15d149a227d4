"""What the page gets of an opened sample beside its card. No widgets here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.widgets.items import digits_for
from memowidgets.widgets.samples import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memowidgets.widgets.items import Items
    from memowidgets.widgets.pages import Rows
    from memowidgets.widgets.protocol import Choice, SampleDetail, ShadowGaps

__all__ = ["known_of"]

MOST_GAPS = 500


def known_of(detail: SampleDetail, rows: Rows, items: Items, pixels: bytearray) -> dict[str, Any]:
    """Return a sample's detail in its wire form. The neighbours' pixels go into the buffer.

    Raises
    ------
    ValueError
        If the table of scores does not fit its checkpoints and layers.
    """
    shape = (len(detail.checkpoints), len(detail.layers))
    if detail.scores.shape != shape or detail.computed.shape != shape:
        raise ValueError(
            f"the scores of a sample's detail have the shape {detail.scores.shape} for {shape[0]} "
            f"checkpoints and {shape[1]} layers"
        )
    return {
        "title": readable(detail.title),
        "checkpoints": _choices(detail.checkpoints),
        "layers": _choices(detail.layers),
        "scores": [[_number(value) for value in row] for row in detail.scores.tolist()],
        "computed": detail.computed.tolist(),
        "digits": digits_for(detail.scores[np.isfinite(detail.scores)]),
        "shadows": None if detail.shadows is None else _shadows(detail.shadows),
        "neighbours": [
            {**items.glimpse(position, _label(rows, position), pixels), "distance": distance}
            for position, distance in detail.neighbours
        ],
        "notes": [readable(note) for note in detail.notes],
    }


def _choices(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    return [{"value": c.value, "label": readable(c.label), "marked": c.marked} for c in choices]


def _shadows(shadows: ShadowGaps) -> dict[str, Any]:
    return {
        "inside": _thinned(shadows.inside),
        "outside": _thinned(shadows.outside),
        "models": [len(shadows.inside), len(shadows.outside)],
        "target": float(shadows.target),
        "fitIn": [float(value) for value in shadows.fit_in],
        "fitOut": [float(value) for value in shadows.fit_out],
        "logLira": _number(float(shadows.log_lira)),
        "checkpoint": readable(shadows.checkpoint),
    }


def _thinned(gaps: NDArray[np.float64]) -> list[float]:
    """Return at most a few hundred gaps, evenly spaced among the sorted ones."""
    ordered = np.sort(gaps)
    if len(ordered) > MOST_GAPS:
        ordered = ordered[np.linspace(0, len(ordered) - 1, MOST_GAPS).round().astype(int)]
    return [float(gap) for gap in ordered]


def _label(rows: Rows, position: int) -> int:
    """Return the label of a sample that may have no row, or -1 if it is not known."""
    if rows.labels is None:
        return -1
    at = np.flatnonzero(rows.positions == position)
    return int(rows.labels[at[0]]) if len(at) else -1


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None
