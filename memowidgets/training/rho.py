"""The ρ rule: predict at the first checkpoint whose median loss has dropped by ρ."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import median
from typing import Any

from memowidgets.checks import has_form
from memowidgets.visible import quoted
from memowidgets.vocabulary import Note, percent

_JUMP = 0.25
_FAR_LARGER = 3.0
_FIRST_STEPS = 4
_PLATEAU = 0.02  # drops this close to the largest one are of its plateau
_FEWEST_AFTER = 2  # checkpoints after the first one of a plateau


@dataclass(frozen=True)
class Record:
    """Values of a checkpoint, over the target's members and the held-out samples.

    Attributes
    ----------
    name : str
        Name, such as ``"epoch-2"``.
    epoch : float
        Passes over the members so far.
    step : int
        Optimizer steps so far.
    median_loss, train_loss, test_loss : float
        Losses in nats (natural logarithms). The test loss is None if nothing was held out.
    train_accuracy, test_accuracy : float
        Accuracies as shares.
    precision : str
        Precision of the pass over the members.
    weights : str
        Digest of the weights. Empty until they are written.
    seconds : float
        Seconds of the training since the checkpoint before, without the passes. 0 if not known.
    made_by : str
        What the rounding of the pass depends on, see `memowidgets.training.forward.Forward`.
    """

    name: str
    epoch: float
    step: int
    median_loss: float
    train_loss: float
    train_accuracy: float
    test_loss: float | None
    test_accuracy: float | None
    precision: str
    weights: str = ""
    seconds: float = field(default=0.0, compare=False)
    made_by: str = field(default="", compare=False)

    def checked(self) -> Record:
        """Return the record after checking each field's type, because its file may be untrusted.

        Raises
        ------
        ValueError
            If a field has the wrong type; the message names it.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            form = {"str": str, "int": int, "float": float}.get(str(each.type), float | None)
            if not has_form(value, form) or (each.name == "step" and value < 0):
                raise ValueError(f"its {each.name} is {quoted(value)}")
        return self

    def drop(self, first: Record) -> float:
        """Return the drop of the median loss since step 0, as a share."""
        return 1.0 - self.median_loss / first.median_loss


@dataclass(frozen=True)
class Prediction:
    """Checkpoint that the ρ rule chose.

    Attributes
    ----------
    record : Record
        Record of the checkpoint.
    drop, rho : float
        Its drop of the median loss, and the required drop.
    reached : bool
        Whether any checkpoint reached ρ. If not, this is the nearest one.
    jumped_from : float or None
        Drop at the checkpoint before, if ρ was crossed by a jump. Otherwise None.
    plateau : float or None
        Largest drop, if the drop levelled off below ρ. Otherwise None.
    """

    record: Record
    drop: float
    rho: float
    reached: bool
    jumped_from: float | None = None
    plateau: float | None = None

    @property
    def warnings(self) -> tuple[Note, ...]:
        """Warnings about the choice."""
        notes = []
        if self.plateau is not None:
            notes.append(
                Note(
                    "plateau",
                    f"the drop of the median loss levelled off at {percent(self.plateau)}, below "
                    f"{percent(self.rho)}; {self.record.name}, the first checkpoint within 2 % of "
                    "that, is taken. Label smoothing, mixup or wrong labels keep the loss up: "
                    "train without them, or set stop_at_drop below the plateau",
                    drop=self.plateau,
                    rho=self.rho,
                )
            )
        elif not self.reached:
            notes.append(
                Note(
                    "not reached",
                    f"no checkpoint reached a drop of {percent(self.rho)} in the median loss; "
                    f"{self.record.name} is the nearest, at {percent(self.drop)}",
                    drop=self.drop,
                    rho=self.rho,
                )
            )
        if self.jumped_from is not None:
            both = f"from {percent(self.jumped_from)} to {percent(self.drop)}"
            notes.append(
                Note(
                    "jumped",
                    f"the drop jumped {both} between two checkpoints, so part of the memorising "
                    "may be done already; set more checkpoints or a smoother schedule",
                    before=self.jumped_from,
                    drop=self.drop,
                )
            )
        return tuple(notes)


@dataclass(frozen=True)
class StopRule:
    """Rule for the interruption of training.

    Attributes
    ----------
    rho : float
        Required drop of the median loss, as a share.
    over_last : int
        Number of evaluations in the running median of the loss. Use 3 or so when the loss is noisy.

    Raises
    ------
    ValueError
        If either is out of range.
    """

    rho: float = 0.95
    over_last: int = 1

    def __post_init__(self) -> None:
        rho: Any = self.rho
        if not isinstance(rho, numbers.Real):
            raise TypeError(f"stop_at_drop must be a number, such as 0.95, not {self.rho!r}")
        if not 0 < self.rho < 1:
            raise ValueError(
                f"stop_at_drop must be a share between 0 and 1, such as 0.95, not {self.rho}"
            )
        if self.over_last != int(self.over_last) or self.over_last < 1:
            raise ValueError(
                f"over_last must be a number of evaluations of at least 1, not {self.over_last}"
            )

    def prediction(self, records: Sequence[Record]) -> Prediction:
        """Choose the checkpoint at which memorisation is predicted (paper, Section 4.3).

        It is the first one that has reached ρ. If none has, it is the first one whose drop is
        within .02 of the largest if two or more follow it (the drop levelled off), else the nearest
        to ρ.

        Parameters
        ----------
        records : sequence of Record
            Records in the order of training, step 0 first.

        Raises
        ------
        ValueError
            If there is no checkpoint after step 0.
        """
        if len(records) < 2:
            raise ValueError("there is no checkpoint after step 0 yet")
        if records[0].median_loss <= 0:
            raise ValueError("the median loss is 0 before training, so it cannot drop")
        drops = _drops(records, self.over_last)
        reached = next((i for i, drop in enumerate(drops) if drop >= self.rho), None)
        level = _levelled_off(drops, self.rho) if reached is None else None
        chosen = level if reached is None else reached
        if chosen is None:
            chosen = min(range(len(drops)), key=lambda i: abs(drops[i] - self.rho))
        return Prediction(
            records[1 + chosen],
            drops[chosen],
            self.rho,
            reached is not None,
            _jumped_from(drops, chosen, self.rho),
            None if level is None else max(drops),
        )

    def candidates(self, records: Sequence[Record]) -> set[str]:
        """Return the names of the checkpoints so far that the rule may choose, now or later.

        Examples
        --------
        >>> losses = [1.0, 0.5, 0.21, 0.2, 0.205, 0.195]
        >>> records = [
        ...     Record(f"epoch-{i}", i, i, loss, loss, 0.5, None, None, "float32")
        ...     for i, loss in enumerate(losses)
        ... ]
        >>> sorted(StopRule(0.95).candidates(records))
        ['epoch-2', 'epoch-3', 'epoch-5']
        """
        if len(records) == 1 or records[0].median_loss <= 0:  # nothing is chosen yet
            return {record.name for record in records}
        found = self.prediction(records)
        names = {found.record.name}
        if found.reached:
            return names
        # If the drop levels off, the rule goes back to the first checkpoint of the plateau. That
        # can't be one that has a higher one before it.
        drops = _drops(records, self.over_last)
        least, highest = max(drops) - _PLATEAU, 0.0
        for record, drop in zip(records[1:], drops, strict=True):
            if drop >= max(least, self.rho / 2) and drop > highest:
                names.add(record.name)
                highest = drop
        return names

    def is_reached(self, records: Sequence[Record]) -> bool:
        """Return whether a checkpoint has reached ρ."""
        return len(records) > 1 and self.prediction(records).reached


def _drops(records: Sequence[Record], over_last: int) -> list[float]:
    """Return the drop of the running median loss at each checkpoint after step 0."""
    first, losses = records[0].median_loss, [record.median_loss for record in records[1:]]
    return [
        1.0 - median(losses[max(0, i - over_last) : i]) / first for i in range(1, len(losses) + 1)
    ]


def _levelled_off(drops: Sequence[float], rho: float) -> int | None:
    """Return the first checkpoint of the plateau that the drop ends on, or None without one.

    A drop of less than half of ρ is no plateau: nothing was learned yet.
    """
    least = max(drops) - _PLATEAU
    first = next(i for i, drop in enumerate(drops) if drop >= least)
    after = drops[first + 1 :]
    level = len(after) >= _FEWEST_AFTER and min(after) >= least and drops[first] >= rho / 2
    return first if level else None


def _jumped_from(drops: Sequence[float], chosen: int, rho: float) -> float | None:
    """Return the drop before ρ was crossed in a step that is far larger than those before.

    The first few steps are always large, because the model is learning its task.
    """
    before = drops[chosen - 1] if chosen else 0.0
    if not before < rho <= drops[chosen] or 0 < chosen < _FIRST_STEPS:
        return None
    usual = before / chosen if chosen else 0.0
    return before if drops[chosen] - before > max(_JUMP, _FAR_LARGER * usual) else None
