"""Where to look: the checkpoint at which memorisation is predicted, from the curves of a training.

Pure: arrays in, a checkpoint out. `place_to_look` chooses it among the checkpoints that are there,
and `settled_at` says at which of them a training is interrupted to look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Why = Literal["rho", "turn", "level", "unsettled"]
_ERRORS = 2.0  # standard errors by which held-out loss has to have risen
_NEAR = 0.1  # a remaining loss that is larger by this share is as good as the same
_FEWEST = 3  # checkpoints for which a turn or a level stretch lasts
_LASTING = 0.5  # and the share of the epochs so far
_ROUNDING = 1e-9  # of epochs


class PlaceToLook(NamedTuple):
    """A checkpoint, and why it is the one to look at.

    Attributes
    ----------
    at : int
        Its number among the checkpoints after step 0, from 0.
    why : {"rho", "turn", "level", "unsettled"}
        It is the first one that reached ρ; that of the lowest held-out loss; the first one of a
        level stretch; or the last one, because nothing has settled yet.
    """

    at: int
    why: Why


@dataclass(frozen=True, eq=False)
class TrainingCurves:
    """What a training shows of itself at each checkpoint after step 0, in the order of training.

    Parameters
    ----------
    epochs : array of shape (n_checkpoints,)
        Epochs so far.
    drops : array of shape (n_checkpoints,)
        Drop of the median training loss since step 0, as a share.
    held_out : sequence of arrays of shape (n_held_out,), optional
        For each checkpoint, the loss of each held-out sample in nats.
    guessing : float
        Mean held-out loss of always answering with the class frequencies, in nats.
    least_drop : float
        Drop below which the model has learned nothing yet, so that nothing can level off.

    Raises
    ------
    ValueError
        If there is no checkpoint, epochs do not rise, lengths differ, or a number is not finite.
    """

    epochs: NDArray[Any]
    drops: NDArray[Any]
    held_out: Sequence[NDArray[Any]] | None = None
    guessing: float = np.inf
    least_drop: float = 0.0

    def __post_init__(self) -> None:
        n = len(self.epochs)
        if not n:
            raise ValueError("there is no checkpoint after step 0 yet")
        if len(self.drops) != n:
            raise ValueError(f"there are {len(self.drops)} drops for {n} checkpoints")
        if not np.isfinite([self.epochs, self.drops]).all():
            raise ValueError("the epoch and the drop of each checkpoint must be finite")
        for before, after in zip(self.epochs, self.epochs[1:], strict=False):
            if after <= before:
                raise ValueError(
                    f"checkpoints must be in the order of training: epoch {after:g} stands after "
                    f"epoch {before:g}"
                )
        if self.held_out is not None:
            self._check_held_out(self.held_out)

    def _check_held_out(self, held_out: Sequence[NDArray[Any]]) -> None:
        sizes = [len(losses) for losses in held_out]
        if len(sizes) != len(self.epochs) or len(set(sizes)) != 1:
            raise ValueError(
                f"held-out losses must be of the same samples at each of {len(self.epochs)} "
                f"checkpoints; here are {len(sizes)} with {sorted(set(sizes))} samples"
            )
        for epoch, losses in zip(self.epochs, held_out, strict=True):
            wrong = np.flatnonzero(~np.isfinite(losses))
            if len(wrong):
                raise ValueError(
                    f"the loss of held-out sample {wrong[0]} at epoch {epoch:g} is "
                    f"{losses[wrong[0]]}; held-out losses must be finite"
                )

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Mean held-out loss at each checkpoint; empty if nothing is held out."""
        every = self.held_out or []
        return np.array([np.mean(x, dtype=np.float64) for x in every if len(x)])

    def risen(self, before: int, after: int) -> bool:
        """Return whether held-out loss has risen by more than two standard errors, paired."""
        assert self.held_out is not None  # noqa: S101 - for the type checker
        there = self.held_out[before].astype(np.float64)
        rise = self.held_out[after].astype(np.float64) - there
        if len(rise) < 2:
            return False
        error = rise.std(ddof=1) / np.sqrt(len(rise))
        return bool(rise.mean() > _ERRORS * error)


def place_to_look(
    curves: TrainingCurves, rho: float, until: int | None = None
) -> PlaceToLook:
    """Choose the checkpoint at which memorisation is predicted.

    It is the earliest of three: the first one that reached ρ; the one with the lowest held-out
    loss before, if held-out loss has risen since by more than two standard errors; and, where ρ is
    not reached, the first one of the stretch on which the drop has levelled off. Without any, it is
    the last one.

    Parameters
    ----------
    curves : TrainingCurves
        The curves of the training.
    rho : float
        Required drop of the median loss.
    until : int, optional
        The last checkpoint that is known. Default: the last one there is.

    Examples
    --------
    >>> epochs, drops = np.arange(1, 6), np.array([0.5, 0.7, 0.8, 0.9, 0.96])
    >>> place_to_look(TrainingCurves(epochs, drops), rho=0.95)
    PlaceToLook(at=4, why='rho')
    >>> held_out = [np.array([1.0, 1.1, 0.9]) * x for x in (0.9, 0.6, 0.5, 0.7, 0.8)]
    >>> place_to_look(TrainingCurves(epochs, drops, held_out, guessing=1.4), rho=0.95)
    PlaceToLook(at=2, why='turn')
    """
    last = len(curves.epochs) - 1 if until is None else until
    reached = np.flatnonzero(curves.drops[: last + 1] >= rho)
    end = int(reached[0]) if len(reached) else last
    places: list[PlaceToLook] = []
    turn = _lowest(curves, end)
    if turn is not None and curves.risen(turn, end):
        places.append(PlaceToLook(turn, "turn"))
    if len(reached):
        places.append(PlaceToLook(end, "rho"))
    elif (level := _level_start(curves, end)) is not None:
        places.append(PlaceToLook(level, "level"))
    return min(
        places, default=PlaceToLook(last, "unsettled"), key=lambda place: place.at
    )


def settled_at(curves: TrainingCurves, rho: float) -> int | None:
    """Return the checkpoint at which a training is interrupted to look, or None if at none yet.

    That is the first one at which ρ is reached, a turn of the held-out loss has lasted, or the drop
    has levelled off. The place to look is then that of `place_to_look` until this checkpoint.

    Examples
    --------
    >>> drops = np.array([0.5, 0.7, 0.78, 0.79, 0.79, 0.8, 0.8])
    >>> level = TrainingCurves(np.arange(1, 8), drops)
    >>> settled_at(level, rho=0.95), place_to_look(level, rho=0.95)
    (5, PlaceToLook(at=2, why='level'))
    """
    for end, drop in enumerate(curves.drops):
        lasts = _turn_lasts(curves, end)
        if drop >= rho or lasts or _level_start(curves, end) is not None:
            return end
    return None


def _lowest(curves: TrainingCurves, end: int) -> int | None:
    """Return the checkpoint with the lowest held-out loss so far, if it is below guessing."""
    means = curves.means[: end + 1]
    if not len(means):
        return None
    lowest = int(np.argmin(means))
    return lowest if means[lowest] < curves.guessing else None


def _turn_lasts(curves: TrainingCurves, end: int) -> bool:
    """Return whether held-out loss has turned long ago: one spike is no turn."""
    turn = _lowest(curves, end)
    return turn is not None and _lasts(curves, turn, end) and curves.risen(turn, end)


def _level_start(curves: TrainingCurves, end: int) -> int | None:
    """Return the first checkpoint of the stretch on which the drop is level; None without one.

    What counts is the largest drop so far. A spike of the loss neither ends nor makes a stretch.
    """
    left = 1.0 - np.maximum.accumulate(curves.drops[: end + 1])
    near = (1.0 + _NEAR) * left[-1]
    if near >= 1.0 or 1.0 - left[-1] < curves.least_drop:
        return None
    start = int(np.argmax(left <= near))
    return start if _lasts(curves, start, end) else None


def _lasts(curves: TrainingCurves, start: int, end: int) -> bool:
    """Return whether three checkpoints and half of the epochs so far came since a checkpoint."""
    epochs = curves.epochs[end] - curves.epochs[start]
    enough = _LASTING * curves.epochs[end] - _ROUNDING
    return end - start >= _FEWEST and bool(epochs >= enough)
