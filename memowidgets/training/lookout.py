"""Where to look in a run: the rule, what it chooses and why, and what was told of it.

The rule itself is in `memowidgets.training.looking`. Here it reads the checkpoints of a run
directory, and what it says at an interruption is kept there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from memowidgets.checks import has_form, real_number, warn_user, whole_number
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import Record, held_out_of
from memowidgets.training.looking import TrainingCurves, Why, place_to_look, settled_at
from memowidgets.vocabulary import Note, percent

RHO = "rho.json"
_TOLD = "told"
ELSEWHERE: Final = (
    "elsewhere"  # key of the note that another checkpoint would be chosen now
)
_GUESSING = "guessing"
_JUMP = 0.25
_FAR_LARGER = 3.0
_FIRST_STEPS = 4
_BELOW_GUESSING = 0.1  # least share by which a learned median loss is below guessing's


@dataclass(frozen=True)
class Prediction:
    """Checkpoint at which memorisation is predicted, and why it is this one.

    Attributes
    ----------
    record : Record
        Record of the checkpoint.
    drop, rho : float
        Its drop of the median loss, and the required drop.
    reached : bool
        Whether a checkpoint has reached ρ.
    why : {"rho", "turn", "level", "unsettled", "given"}
        It is the first checkpoint that reached ρ; that of the lowest held-out loss, which has risen
        since; the first one of the stretch on which the drop has levelled off; the last one so far,
        because nothing has settled yet; or the only one, of a user's arrays.
    until : Record or None
        Last checkpoint that it was chosen among.
    held_out : {"losses", "means", "none"}
        Whether the loss of each held-out sample was known, their mean alone, or nothing.
    lowest : Record or None
        Checkpoint with the lowest mean held-out loss up to ρ, where means alone are known.
    jumped_from : float or None
        Drop at the checkpoint before, if ρ was crossed by a jump. Otherwise None.
    elsewhere : Record or None
        Checkpoint that would be chosen among all that are there now, if it is another one. What was
        told at an interruption stays.
    """

    record: Record
    drop: float
    rho: float
    reached: bool
    why: Why | Literal["given"] = "given"
    until: Record | None = None
    held_out: Literal["losses", "means", "none"] = "none"
    lowest: Record | None = None
    jumped_from: float | None = None
    elsewhere: Record | None = None

    @property
    def reason(self) -> str:
        """Why it is this checkpoint, as a sentence without a capital; empty for arrays."""
        if self.until is None:
            return ""
        at = f"epoch {self.record.epoch:g} of {self.until.epoch:g}"
        if self.why == "turn":
            return (
                f"held-out loss was lowest at {at}; later checkpoints have learned what does not "
                "generalise"
            )
        if self.why == "level":
            return (
                f"the median training loss has levelled off since {at}, where it had dropped by "
                f"{percent(self.drop)}, as it does with wrong labels, label smoothing or mixup"
            )
        if self.why == "unsettled":
            return (
                f"nothing has settled yet at {at}: the median training loss has dropped by "
                f"{percent(self.drop)}, which is less than ρ ({percent(self.rho)}), and it has not "
                "been level for long, so this is the last checkpoint"
            )
        return f"the median training loss has dropped by {percent(self.drop)}{self._beside}"

    @property
    def in_short(self) -> str:
        """Why it is this checkpoint, in a few words."""
        if self.why == "turn":
            return "held-out loss is lowest"
        if self.why == "level":
            return "loss has levelled off"
        if self.why == "unsettled":
            return "nothing has settled yet"
        return f"loss is down {100 * self.drop:.0f} %"

    @property
    def _beside(self) -> str:
        """What else a reader of the ρ rule should know of held-out samples."""
        if self.held_out == "losses":
            return ""
        if self.held_out == "none":
            return (
                "; samples that are held out (held_out=) would tell whether the model has begun "
                "before to learn what does not generalise"
            )
        if self.lowest is None or self.lowest == self.record or self.until is None:
            return ""
        return (
            f"; the mean held-out loss was lowest at epoch {self.lowest.epoch:g} of "
            f"{self.until.epoch:g}, but whether that is chance is not known, because the loss of "
            "each held-out sample was not kept"
        )

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What is unusual about the choice."""
        if self.until is not None and self.until.step == 1:
            return ()  # a fit of scikit-learn is one step, and can be looked at nowhere else
        notes = []
        if self.why in ("turn", "level", "unsettled"):
            notes.append(Note(self.why, self.reason, drop=self.drop, rho=self.rho))
        if self.jumped_from is not None:
            sentence = (
                f"the drop jumped from {percent(self.jumped_from)} to {percent(self.drop)} between "
                "two checkpoints, so part of the memorising may be done already; set more "
                "checkpoints or a smoother schedule"
            )
            notes.append(
                Note("jumped", sentence, before=self.jumped_from, drop=self.drop)
            )
        if self.elsewhere is not None:
            name = self.record.name
            sentence = (
                f"{name} was told when the training was interrupted, and stays; of all checkpoints "
                f"there are now, {self.elsewhere.name} would be chosen"
            )
            notes.append(Note(ELSEWHERE, sentence))
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
    ValueError, TypeError
        If either is out of range, or no number.
    """

    rho: float = 0.95
    over_last: int = 1

    def __post_init__(self) -> None:
        if not 0 < real_number("stop_at_drop", self.rho) < 1:
            message = "stop_at_drop must be a share between 0 and 1, such as 0.95"
            raise ValueError(f"{message}, not {self.rho}")
        whole_number(
            "over_last, the number of evaluations in a median,", self.over_last, 1
        )

    def drops(self, records: Sequence[Record]) -> NDArray[np.float64]:
        """Return the drop of the running median loss at each checkpoint after step 0.

        Raises
        ------
        ValueError
            If the loss cannot drop.
        """
        first = records[0].median_loss
        if first <= 0:
            raise ValueError("the median loss is 0 before training, so it cannot drop")
        losses = [record.median_loss for record in records[1:]]
        medians = [
            median(losses[max(0, end - self.over_last) : end])
            for end in range(1, len(losses) + 1)
        ]
        return 1.0 - np.array(medians) / first

    def of_paper(self, records: Sequence[Record]) -> Record:
        """Return the checkpoint of the paper: the first that reached ρ, else the nearest to it."""
        if len(records) < 2:
            raise ValueError("there is no checkpoint after step 0 yet")
        drops = self.drops(records)
        reached = drops >= self.rho
        nearest = np.argmax(reached) if reached.any() else np.argmax(drops)
        return records[1 + int(nearest)]


def losses_of_guessing(
    labels: NDArray[np.int64], members: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the loss of labels answered with the class frequencies of the members.

    It is infinite for a class that they lack.
    """
    counts = np.bincount(members, minlength=int(labels.max(initial=0)) + 1)
    with np.errstate(divide="ignore"):
        return -np.log(counts[labels] / max(1, len(members)))


def described(
    rule: StopRule,
    records: Sequence[Record],
    index: int,
    why: Why,
    *,
    knows_losses: bool,
) -> Prediction:
    """Return a choice among records, by its place in them, with all that is said of it."""
    drops = rule.drops(records)
    reached = np.flatnonzero(drops >= rule.rho)
    last = 1 + int(reached[0]) if len(reached) else len(records) - 1
    means = {r: r.test_loss for r in records[1 : last + 1] if r.test_loss is not None}
    return Prediction(
        records[index],
        float(drops[index - 1]),
        rule.rho,
        bool(len(reached)),
        why,
        records[-1],
        "losses" if knows_losses else "means" if means else "none",
        min(means, key=means.__getitem__) if means else None,
        _jumped_from(drops, index - 1, rule.rho) if why == "rho" else None,
    )


def _jumped_from(drops: NDArray[np.float64], chosen: int, rho: float) -> float | None:
    """Return the drop before ρ was crossed in a step that is far larger than those before.

    The first few steps are always large, because the model is learning its task.
    """
    before = float(drops[chosen - 1]) if chosen else 0.0
    if not before < rho <= drops[chosen] or 0 < chosen < _FIRST_STEPS:
        return None
    usual = before / chosen if chosen else 0.0
    return before if drops[chosen] - before > max(_JUMP, _FAR_LARGER * usual) else None


# in a run directory


def read_stop(run: RunDirectory, *, has_records: bool) -> StopRule:
    """Return the rule by which a run is interrupted; the usual one if it has none."""
    if not run.has_file(RHO):
        if has_records:
            warn_user(
                f"{run.path / RHO} is missing, so the prediction checkpoint is chosen at a "
                f"drop of {percent(StopRule().rho)}: call train(stop_at_drop=…) with the run's own"
            )
        return StopRule()
    try:
        note = run.read_note(RHO)
        note.pop(_TOLD, None)
        return StopRule(**note)
    except (TypeError, ValueError) as error:
        raise StoreError(f"{run.path / RHO} is broken: {error}; delete it") from None


def write_stop(run: RunDirectory, rule: StopRule) -> None:
    """Keep the rule by which a run is interrupted, until another is given."""
    if not run.has_file(RHO) or rule != read_stop(run, has_records=False):
        run.write_note(RHO, asdict(rule))


@dataclass(frozen=True)
class Told:
    """What was told when a training was interrupted.

    Attributes
    ----------
    place, at : str
        Checkpoint to look at, and the one at which it was told.
    why : {"rho", "turn", "level"}
        Why it is that one, as in `PlaceToLook`.
    knows_losses : bool
        Whether the loss of each held-out sample was known.
    """

    place: str
    at: str
    why: Why
    knows_losses: bool


_TOLD_FORM = {
    "place": str,
    "at": str,
    "why": lambda value: value in ("rho", "turn", "level"),
    "knows_losses": lambda value: isinstance(value, bool),
}


def read_told(run: RunDirectory) -> Told | None:
    """Return what was told by the rule of a run, if anything was."""
    told = run.read_note(RHO).get(_TOLD) if run.has_file(RHO) else None
    if told is None:
        return None
    if not has_form(told, _TOLD_FORM) or told.keys() != _TOLD_FORM.keys():
        raise StoreError(f"{run.path / RHO} is broken: {_TOLD} is {told}; delete it")
    return Told(**told)


def forget_told(run: RunDirectory, names: Collection[str]) -> None:
    """Forget what was told at one of these checkpoints, or of one, before they are deleted."""
    told = read_told(run)
    if told is not None and not {told.place, told.at}.isdisjoint(names):
        run.write_note(RHO, asdict(read_stop(run, has_records=True)))


def write_held_out(
    run: RunDirectory,
    record: Record,
    losses: NDArray[np.float32],
    labels: NDArray[np.int64],
    members: NDArray[np.int64],
) -> None:
    """Keep the loss of each held-out sample at a checkpoint, 4 bytes a sample.

    A sample of a class that no member has is left out. The model cannot learn it, so its loss says
    nothing about what else is learned.

    Parameters
    ----------
    run, record
        The run directory, and the record of the checkpoint.
    losses, labels : array of shape (n_held_out,)
        Losses and labels of the held-out samples.
    members : array of shape (n_members,), int64
        Labels of the members.
    """
    guessing = losses_of_guessing(labels, members)
    is_known = np.isfinite(guessing)
    mean = float(guessing[is_known].mean()) if is_known.any() else np.inf
    arrays = {"losses": losses[is_known].astype(np.float32)}
    about = {_GUESSING: repr(mean)}
    run.write_tensors(held_out_of(record.name), arrays, about, record.weights)


def read_held_out(
    run: RunDirectory, records: Sequence[Record]
) -> tuple[list[NDArray[np.float32]], float] | None:
    """Return the held-out losses at the checkpoints after step 0; None if one lacks them.

    Returns
    -------
    list of array of shape (n_held_out,)
        By checkpoint, of the samples whose class the members have.
    float
        Their mean loss if each is answered with the members' class frequencies.

    Warns
    -----
    UserWarning
        If those of a checkpoint are lost.
    """
    later = records[1:]
    lost = lost_held_out(run, later)
    if lost and run.manifest.get("recording") is None:
        files = ", ".join(f"{run.path / held_out_of(one.name)}" for one in lost)
        warn_user(
            f"{files}.safetensors is missing or broken, so the place to look is chosen without "
            "held-out samples: restore it, or let the training go on, which makes it again"
        )
    if lost or any(record.test_loss is None for record in later):
        return None
    every = [run.read_tensors(held_out_of(one.name), one.weights) for one in later]
    try:
        guessing = float(every[-1].metadata[_GUESSING])
        return [np.array(one["losses"]) for one in every], guessing
    except (KeyError, ValueError) as error:
        place = run.place(held_out_of(later[-1].name))
        raise StoreError(f"{place} is broken: {error}; delete it") from None


def lost_held_out(run: RunDirectory, records: Sequence[Record]) -> list[Record]:
    """Return the checkpoints of which held-out losses were computed, and are not there."""
    return [
        record
        for record in records
        if record.test_loss is not None
        and not run.has(held_out_of(record.name), record.weights)
    ]


class Lookout:
    """Where to look in a run: by its rule, its curves, and what was told of it.

    Parameters
    ----------
    run : RunDirectory
        The run directory.
    labels : array of shape (n_members,), int64
        Labels of the members.
    rule : StopRule
        The rule.
    """

    def __init__(
        self, run: RunDirectory, labels: NDArray[np.int64], rule: StopRule
    ) -> None:
        self.rule = rule
        self._run = run
        self._guessing = float(np.median(losses_of_guessing(labels, labels)))

    def curves(self, records: Sequence[Record]) -> TrainingCurves:
        """Return the curves that the rule reads.

        Raises
        ------
        ValueError
            If there is no checkpoint after step 0, or held-out losses are not finite.
        """
        if len(records) < 2:
            raise ValueError("there is no checkpoint after step 0 yet")
        held_out = read_held_out(self._run, records)
        losses, guessing = (None, np.inf) if held_out is None else held_out
        epochs = np.array([record.epoch for record in records[1:]])
        learned = (1.0 - _BELOW_GUESSING) * self._guessing
        least_drop = 1.0 - learned / max(records[0].median_loss, learned)
        return TrainingCurves(
            epochs, self.rule.drops(records), losses, guessing, least_drop
        )

    def prediction(self, records: Sequence[Record]) -> Prediction:
        """Return the place to look: what was told at an interruption, else what is chosen now.

        Raises
        ------
        ValueError
            As `curves`.
        """
        curves = self.curves(records)
        at, why = place_to_look(curves, self.rule.rho)
        knows_losses = curves.held_out is not None
        now = described(self.rule, records, 1 + at, why, knows_losses=knows_losses)
        told = self.told(records)
        if told is None:
            return now
        elsewhere = None if now.record == told.record else now.record
        return replace(told, elsewhere=elsewhere)

    def told(self, records: Sequence[Record]) -> Prediction | None:
        """Return the place that was told at one of these checkpoints, if one was."""
        told = read_told(self._run)
        names = [record.name for record in records]
        if told is None or not {told.place, told.at} <= {*names}:
            return None
        before = records[: names.index(told.at) + 1]
        place = names.index(told.place)
        return described(
            self.rule, before, place, told.why, knows_losses=told.knows_losses
        )

    def tell(self, records: Sequence[Record]) -> Prediction | None:
        """Return the place to look, if the training is to be interrupted by now; it is kept."""
        if len(records) > 1 and read_told(self._run) is None:
            curves = self.curves(records)
            end = settled_at(curves, self.rule.rho)
            if end is not None:
                at, why = place_to_look(curves, self.rule.rho, until=end)
                names = records[1 + at].name, records[1 + end].name
                told = Told(*names, why, curves.held_out is not None)
                note = {**asdict(self.rule), _TOLD: asdict(told)}
                self._run.write_note(RHO, note)
        return self.told(records)
