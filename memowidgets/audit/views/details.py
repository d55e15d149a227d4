"""All that is known of one member: scores everywhere, shadow gaps, nearest neighbours."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memowidgets.audit.evidence import Evidence
from memowidgets.audit.kept import Cache
from memowidgets.audit.numbers import scores as numbers_of
from memowidgets.audit.numbers.scores import PER_LAYER
from memowidgets.audit.numbers.truth import VARIANCE, log_lira, member_gaps, truth_version
from memowidgets.memorization.densities import Densities
from memowidgets.memorization.gaps import Moments, checked_models, moments
from memowidgets.store import StoreError
from memowidgets.widgets.protocol import Choice, SampleDetail, ShadowGaps

__all__ = ["Details", "nearest"]

NEIGHBOURS = 6
_ROWS_AT_ONCE = 4096


class Details:
    """Tells what is known of a member; what all members share is computed once."""

    def __init__(self) -> None:
        self._cache = Cache()
        self._lock = threading.Lock()

    def of(
        self,
        evidence: Evidence,
        position: int,
        pick: tuple[str, str, str],
        *,
        title: str,
        checkpoints: Sequence[Choice],
        layers: Sequence[Choice],
    ) -> SampleDetail:
        """All that is known of the member at a position.

        Parameters
        ----------
        evidence : Evidence
            Of the audit.
        position : int
            Among the members.
        pick : tuple of str
            The score, layer and checkpoint on show.
        title : str
            What the score is called.
        checkpoints, layers : sequence of Choice
            All there are.
        """
        score, layer, checkpoint = pick
        per_layer = score in PER_LAYER
        columns = layers if per_layer else [Choice("", "")]
        scores, computed = self._scores(evidence, position, score, checkpoints, columns)
        shadows, shadow_notes = self._shadows(evidence, position)
        near, near_notes = self._nearest(evidence, position, layer, checkpoint)
        return SampleDetail(
            title=title,
            checkpoints=_marked(checkpoints, checkpoint),
            layers=_marked(columns, layer if per_layer else ""),
            scores=scores,
            computed=computed,
            shadows=shadows,
            neighbours=near,
            notes=[*shadow_notes, *near_notes],
            guess=_final_guess(evidence, position),
        )

    def _scores(
        self,
        evidence: Evidence,
        position: int,
        score: str,
        checkpoints: Sequence[Choice],
        layers: Sequence[Choice],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The member's score everywhere it is computed."""
        shape = (len(checkpoints), len(layers))
        values, computed = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        for i, checkpoint in enumerate(checkpoints):
            for j, layer in enumerate(layers):
                place = layer.value or "last", checkpoint.value
                found = self._score(evidence, position, score, *place)
                if found is not None:
                    values[i, j], computed[i, j] = found, True
        return values, computed

    def _score(
        self, evidence: Evidence, position: int, score: str, layer: str, checkpoint: str
    ) -> float | None:
        """The member's score; NaN where it has none, None where it is not computed."""
        if not numbers_of.is_computed(evidence, score, layer, checkpoint):
            return None
        try:
            scores = numbers_of.score(evidence, score, layer, checkpoint)
        except (StoreError, ValueError):  # the baseline, where the shadow models kept no gaps
            return None
        row = int(np.searchsorted(scores.rows, position))
        there = row < len(scores.rows) and scores.rows[row] == position
        return float(scores.mu[row]) if there else float("nan")

    def _shadows(self, evidence: Evidence, position: int) -> tuple[ShadowGaps | None, list[str]]:
        """The picture of LiRA at the end of training."""
        if not evidence.has_ground_truth:
            return None, ["There are no shadow models to compare with."]
        try:
            fitted = self._fits(evidence)
        except StoreError as error:  # log-LiRA may be there without the gaps behind it
            return None, [f"No picture of LiRA: {error}."]
        inside = fitted.members[:, position]
        if not 0 < inside.sum() < len(inside):
            return None, ["This sample is in every shadow model, or in none: it has no log-LiRA."]
        gaps = fitted.gaps[:, position].astype(np.float64)
        shadows = ShadowGaps(
            inside=gaps[inside],
            outside=gaps[~inside],
            target=float(fitted.target[position]),
            fit_in=fitted.gaussian("inside", position),
            fit_out=fitted.gaussian("outside", position),
            log_lira=float(fitted.log_lira[position]),
            checkpoint=fitted.checkpoint.replace("-", " "),
        )
        return shadows, []

    def _fits(self, evidence: Evidence) -> _Fitted:
        """Both Gaussians of all members, fitted again once there are other shadow models."""
        with self._lock:
            return self._cache.of("fits", truth_version(evidence), lambda: _fitted(evidence))

    def _nearest(
        self, evidence: Evidence, position: int, layer: str, checkpoint: str
    ) -> tuple[list[tuple[int, float]], list[str]]:
        try:
            states = numbers_of.states(evidence, layer, checkpoint)
        except StoreError as error:
            return [], [f"No neighbours: {error}."]
        return nearest(states, position, NEIGHBOURS), []


@dataclass(frozen=True, eq=False)
class _Fitted:
    """What all members share: gaps of shape (n_shadows, n_members), and what is fitted to them."""

    checkpoint: str
    members: NDArray[np.bool_]
    gaps: NDArray[np.float32]
    target: NDArray[np.float32]
    moments: Moments
    densities: Densities
    log_lira: NDArray[np.float64]

    def gaussian(self, side: str, position: int) -> tuple[float, float]:
        """Mean and standard deviation of one side of a member, as log-LiRA takes them."""
        of = self.moments.inside if side == "inside" else self.moments.outside
        spread = self.densities.spread_in if side == "inside" else self.densities.spread_out
        one = of.at(slice(position, position + 1))
        variance = np.maximum(spread.of(one), self.densities.least)
        return float(one.mean[0]), float(np.sqrt(variance[0]))


def _final_guess(evidence: Evidence, position: int) -> int | None:
    """Return the class that the finished model gives a member; None where it is not known."""
    final = evidence.names.final()
    if final is None or np.isnan(final.epoch):
        return None
    try:
        return int(evidence.logits(final)[position].argmax())
    except StoreError:  # its logits were not kept
        return None


def _fitted(evidence: Evidence) -> _Fitted:
    name, members, gaps, target = member_gaps(evidence)
    found = moments(*checked_models(gaps, members))
    densities = Densities.fit(found.inside, found.outside, VARIANCE)
    values = log_lira(evidence).reindex(evidence.members).to_numpy(np.float64)
    return _Fitted(name, members, gaps, target, found, densities, values)


def nearest(states: NDArray[np.float32], position: int, k: int) -> list[tuple[int, float]]:
    """The rows nearest to one of them, by Euclidean distance, nearest first.

    Parameters
    ----------
    states : array of shape (n, values)
        Read in pieces: it may lie on disk.
    position : int
        The row that is compared with the others.
    k : int
        How many; fewer where there are fewer others.

    Examples
    --------
    >>> nearest(np.array([[0.0], [3.0], [1.0]]), 0, 2)
    [(2, 1.0), (1, 3.0)]
    """
    here = np.asarray(states[position], dtype=np.float64).ravel()
    squares = np.empty(len(states))
    for start in range(0, len(states), _ROWS_AT_ONCE):
        piece = np.asarray(states[start : start + _ROWS_AT_ONCE], dtype=np.float32)
        difference = piece.reshape(len(piece), -1) - here
        squares[start : start + len(piece)] = np.einsum("ij,ij->i", difference, difference)
    squares[position] = np.inf
    order = np.argsort(squares, kind="stable")[: min(k, len(states) - 1)]
    return [(int(row), float(np.sqrt(squares[row]))) for row in order]


def _marked(choices: Sequence[Choice], value: str) -> list[Choice]:
    """The same choices; the one on show is marked instead of the recommended one."""
    return [replace(choice, marked=choice.value == value) for choice in choices]
