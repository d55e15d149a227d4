"""Checkpoints and layers of a run directory, found by the names that users give them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from memowidgets.audit.source import check_key, looked_up, one_or_several
from memowidgets.store import RunDirectory, StoreError
from memowidgets.training.checkpoint import name_of, read_course, read_records, record_file
from memowidgets.training.config import Settings
from memowidgets.training.rho import Prediction, Record, StopRule
from memowidgets.visible import listed, quoted, visible

__all__ = ["Catalogue", "layer_called"]

_RHO = "rho.json"


class Catalogue:
    """Finds the checkpoints and layers of a run by the names that users give them.

    Parameters
    ----------
    run : RunDirectory
        Where the checkpoints are.
    manifest : mapping
        Manifest of the run.
    n_members : int
        Number of the target's members.
    """

    def __init__(self, run: RunDirectory, manifest: Mapping[str, Any], n_members: int) -> None:
        self._run = run
        self.layer_names: tuple[str, ...] = tuple(manifest["layers"])
        settings = Settings.read(manifest["training"])
        self._planned_steps = settings.total_steps(n_members)
        self._plan = settings.checkpoint_steps(n_members)

    @property
    def _last_step(self) -> int:
        course = read_course(self._run)
        return self._planned_steps if course is None else course.total_steps

    @property
    def _to_go_on(self) -> str:
        recorded = read_course(self._run) is not None
        return "let the training go on that is recorded here" if recorded else "call train()"

    @property
    def stop(self) -> StopRule:
        """When this run is interrupted."""
        if not self._run.has_file(_RHO):
            self._warn_of_lost_rule()
            return StopRule()
        kept = self._run.read_note(_RHO)
        try:
            return StopRule(**kept) if isinstance(kept, dict) else StopRule(float(kept))
        except (TypeError, ValueError) as error:
            raise StoreError(f"{self._run.path / _RHO} is broken: {error}; delete it") from None

    @stop.setter
    def stop(self, rule: StopRule) -> None:
        if not self._run.has_file(_RHO) or rule != self.stop:
            self._run.write_note(_RHO, asdict(rule))

    def begin(self) -> None:
        """Keep the rule by which a new run is interrupted, until another is given."""
        if not self._run.has_file(_RHO):
            self.stop = StopRule()

    def records(self) -> list[Record]:
        """All checkpoints, in the order of training."""
        return list(looked_up(self, self._read))

    def _read(self) -> list[Record]:
        found = read_records(self._run)
        lost = self._lost(found)
        if lost:
            files = ", ".join(str(self._run.path / record_file(name)) for name in lost)
            warnings.warn(
                f"{files} is missing, so the checkpoint is left out: restore it, or call train(), "
                "which makes it again",
                UserWarning,
                stacklevel=5,
            )
        return found

    def _lost(self, found: Sequence[Record]) -> list[str]:
        """Checkpoints that were whole once and have no record any more, by name."""
        course, known = read_course(self._run), {record.name for record in found}
        last = max((record.step for record in found), default=-1)
        if course is None:
            names = [name_of(epoch) for step, epoch in self._plan.items() if step < last]
            names += self._run.names("forward")
        else:
            names = list(course.weights)  # written last: what is not there was never whole
        for name in self._run.names("checkpoints", ""):
            if self._run.has_file(f"checkpoints/{name}/resume.safetensors"):  # written after it
                names.append(name)
        return [name for name in dict.fromkeys(names) if name not in known]

    def _warn_of_lost_rule(self) -> None:
        if self._run.is_stamped and read_records(self._run):
            warnings.warn(
                f"{self._run.path / _RHO} is missing, so the prediction checkpoint is chosen at a "
                f"drop of {StopRule().rho:.0%}: call train(stop_at_drop=…) with the run's own",
                UserWarning,
                stacklevel=4,
            )

    def final(self) -> Record | None:
        """The checkpoint at the end of training, if it was reached."""
        records = self.records()
        return records[-1] if records and records[-1].step == self._last_step else None

    def prediction(self) -> Prediction:
        """The checkpoint that the ρ rule chose.

        Raises
        ------
        ValueError
            If the target was not trained yet.
        """
        records = self.records()
        if len(records) < 2:
            raise ValueError(f"there is no checkpoint after step 0 yet: {self._to_go_on}")
        return self.stop.prediction(records)

    def record(self, checkpoint: str | float) -> Record:
        """The checkpoint behind ``"prediction"``, ``"final"``, an epoch or a name.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        TypeError
            If it is neither a name nor a number.
        """
        check_key("a checkpoint", checkpoint)
        if checkpoint == "prediction":
            return self.prediction().record
        if checkpoint == "final":
            final = self.final()
            if final is None:
                raise ValueError(f"the target is not trained to the end yet: {self._to_go_on}")
            return final
        records = self.records()
        for record in records:
            if checkpoint == record.name or _is_epoch(checkpoint, record.epoch):
                return record
        if not records:
            raise ValueError(
                f"there is no checkpoint {_named(checkpoint)}, because there is no checkpoint yet: "
                f"{self._to_go_on}"
            )
        raise ValueError(
            f"unknown checkpoint {_named(checkpoint)}; valid: prediction, final, an epoch, or one "
            f"of the names {listed(record.name for record in records)}"
        )

    def some_records(self, checkpoints: str | float | Iterable[str | float]) -> list[Record]:
        """One checkpoint, several, or "all" after step 0."""
        return one_or_several(checkpoints, lambda: self.records()[1:], self.record)

    def layer(self, layer: str | int) -> str:
        """The name behind a number from 1, ``"last"`` or a name.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        """
        return layer_called(layer, self.layer_names, numbered=_are_blocks(self.layer_names))

    def some_layers(self, layers: str | int | Iterable[str | int]) -> list[str]:
        """Names of one layer, of several, or of "all"."""
        return one_or_several(layers, lambda: self.layer_names, self.layer)


def layer_called(layer: str | int, names: Sequence[str], *, numbered: bool) -> str:
    """Return the one of these names that a number, ``"last"`` or a name stands for.

    A number is a position from 1, but a name if the layers are `numbered`.

    Raises
    ------
    ValueError
        If there is none; the message lists the valid ones.
    TypeError
        If it is neither a name nor a number.
    """
    check_key("a layer", layer)
    if layer == "last":
        return names[-1]
    is_number = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
    if is_number and not numbered:
        if 1 <= int(layer) <= len(names):
            return names[int(layer) - 1]
    elif str(layer) in names:
        return str(layer)
    raise ValueError(
        f"unknown layer {_named(layer)}; valid: last, {_numbers(names, numbered=numbered)}or a "
        f"name of {listed(names)}"
    )


def _numbers(names: Sequence[str], *, numbered: bool) -> str:
    """The numbers that stand for a layer, unless they are names with gaps between them."""
    if not numbered:
        return f"1 to {len(names)}, "
    return f"{names[0]} to {names[-1]}, " if _are_blocks(names) else ""


def _are_blocks(names: Sequence[str]) -> bool:
    """Whether layers are named by the numbers of a transformer's blocks, such as 27, 28, 29, 30.

    Children of an `nn.Sequential` are named from 0, and there a number is a position.
    """
    first = int(names[0]) if names[0].isdigit() else 0
    return first > 0 and list(names) == [str(first + place) for place in range(len(names))]


def _named(value: object) -> str:
    """A name in quotation marks, a number without."""
    return quoted(value) if isinstance(value, str) else visible(repr(value), 40)


def _is_epoch(checkpoint: str | float, epoch: float) -> bool:
    if isinstance(checkpoint, str | bool):
        return False
    return math.isclose(checkpoint, epoch, abs_tol=1e-6)
