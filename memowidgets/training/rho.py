"""When to interrupt: the first checkpoint at which the median training loss has dropped by ρ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from memowidgets.visible import quoted

__all__ = ["RULES", "Prediction", "Record", "StopRule", "prediction_checkpoint"]

RULES = ("first", "nearest")
_JUMP = 0.25
_FAR_LARGER = 3.0
_FIRST_STEPS = 4


@dataclass(frozen=True)
class Record:
    """What is known of a checkpoint, over the target's own members and the held-out samples.

    Attributes
    ----------
    name : str
        As in ``"epoch-2"``.
    epoch : float
        Passes over the members so far.
    step : int
        Optimizer steps so far.
    median_loss, train_loss, test_loss : float
        In nats; the test loss is None where nothing was held out.
    train_accuracy, test_accuracy : float
        Shares.
    precision : str or None
        Precision of the pass over the members; None in runs from before it was recorded.
    weights : str
        Digest of the weights; empty in runs from before it was there.
    """

    name: str
    epoch: float
    step: int
    median_loss: float
    train_loss: float
    train_accuracy: float
    test_loss: float | None
    test_accuracy: float | None
    precision: str | None = None
    weights: str = ""

    def checked(self) -> Record:
        """The same record, if each field is of its kind; it may come from anybody's file.

        Raises
        ------
        ValueError
            If one is not; the message names it.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            number = whole or isinstance(value, float)
            fits = {
                "name": isinstance(value, str),
                "step": whole and value >= 0,
                "precision": value is None or isinstance(value, str),
                "weights": isinstance(value, str),
            }.get(field.name, number or (value is None and field.name.startswith("test")))
            if not fits:
                raise ValueError(f"its {field.name} is {quoted(value)}")
        return self

    def drop(self, first: Record) -> float:
        """How much of the median loss at step 0 is gone, a share."""
        return 1.0 - self.median_loss / first.median_loss


@dataclass(frozen=True)
class Prediction:
    """The checkpoint that the ρ rule chose.

    Attributes
    ----------
    record : Record
        The checkpoint.
    drop, rho : float
        Its drop of the median loss, and the drop that was asked for.
    reached : bool
        Whether any checkpoint reached ρ; if not, this is the nearest.
    jumped_from : float or None
        The drop at the checkpoint before, where ρ was crossed by a jump.
    """

    record: Record
    drop: float
    rho: float
    reached: bool
    jumped_from: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader must know of the choice."""
        notes = []
        if not self.reached:
            notes.append(
                f"no checkpoint reached a drop of {self.rho:.0%} in the median loss; "
                f"{self.record.name} is the nearest, at {self.drop:.1%}"
            )
        if self.jumped_from is not None:
            notes.append(
                f"the drop jumped from {self.jumped_from:.0%} to {self.drop:.0%} between two "
                "checkpoints: part of the memorising may be done; set more checkpoints or a "
                "smoother schedule"
            )
        return tuple(notes)


@dataclass(frozen=True)
class StopRule:
    """When training is interrupted.

    Attributes
    ----------
    rho : float
        The drop of the median loss to reach, a share.
    over_last : int
        Of how many evaluations the median counts as the loss, where it jumps up and down.

    Raises
    ------
    ValueError
        If either is out of range.
    """

    rho: float = 0.95
    over_last: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rho < 1:
            raise ValueError(
                f"stop_at_drop is a share between 0 and 1, such as 0.95, not {self.rho}"
            )
        if self.over_last != int(self.over_last) or self.over_last < 1:
            raise ValueError(
                f"over_last is a number of evaluations, at least 1, not {self.over_last}"
            )

    def prediction(self, records: Sequence[Record]) -> Prediction:
        """The checkpoint that it chooses."""
        return prediction_checkpoint(records, self.rho, over_last=self.over_last)

    def is_reached(self, records: Sequence[Record]) -> bool:
        """Whether one of the checkpoints so far has reached ρ."""
        return len(records) > 1 and self.prediction(records).reached


def prediction_checkpoint(
    records: Sequence[Record], rho: float = 0.95, rule: str = "first", over_last: int = 1
) -> Prediction:
    """Choose the checkpoint at which memorisation is predicted (paper, Section 4.3).

    Parameters
    ----------
    records : sequence of Record
        In the order of training, step 0 first.
    rho : float
        The drop to reach, a share of the median loss at step 0.
    rule : {"first", "nearest"}
        The first checkpoint that has reached ρ, or, after the fact only, the nearest to ρ.
    over_last : int
        Of how many evaluations after step 0, the checkpoint's own the last, the median counts as
        its loss: some, such as 3, where the loss jumps up and down from one to the next.

    Returns
    -------
    Prediction

    Raises
    ------
    ValueError
        If there is no checkpoint after step 0, ρ is no share, the rule is unknown, or `over_last`
        is below 1.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}; valid: {', '.join(RULES)}")
    StopRule(rho, over_last)  # in range
    if len(records) < 2:
        raise ValueError("there is no checkpoint after step 0 yet: call train() first")
    first, later = records[0], records[1:]
    if first.median_loss <= 0:
        raise ValueError("the median loss is 0 before training: there is nothing left to drop")
    losses = [record.median_loss for record in later]
    drops = [
        1.0 - median(losses[max(0, i - over_last) : i]) / first.median_loss
        for i in range(1, len(losses) + 1)
    ]
    reached = [i for i, drop in enumerate(drops) if drop >= rho]
    if reached and rule == "first":
        chosen = reached[0]
    else:
        chosen = min(range(len(drops)), key=lambda i: abs(drops[i] - rho))
    return Prediction(
        later[chosen], drops[chosen], rho, bool(reached), _jumped_from(drops, chosen, rho)
    )


def _jumped_from(drops: Sequence[float], chosen: int, rho: float) -> float | None:
    """The drop before ρ was crossed in one step that is far larger than those before it.

    The first few steps are large anyhow: the model is learning its task.
    """
    before = drops[chosen - 1] if chosen else 0.0
    if not before < rho <= drops[chosen] or 0 < chosen < _FIRST_STEPS:
        return None
    usual = before / chosen if chosen else 0.0
    return before if drops[chosen] - before > max(_JUMP, _FAR_LARGER * usual) else None
