"""Checkpoints and layers by the names that users give them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from memowidgets.store import NotThereError
from memowidgets.training.checkpoint import Record
from memowidgets.training.lookout import Prediction, StopRule
from memowidgets.vocabulary import listed, quoted, visible

GIVEN = "given"  # the one checkpoint of arrays
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Names:
    """Finds checkpoints and layers by the names that users give them.

    Attributes
    ----------
    layer_names : tuple of str
        Names of the layers, first to last.
    found : tuple of Record
        The checkpoints, in the order of training.
    rule : StopRule or None
        The rule of where to look; None for arrays.
    chosen : Prediction, Exception or None
        The place to look, or the error of whoever asks for it; None if nothing was trained yet.
    last_step : int
        Step at the end of training.
    to_go_on : str
        What to do for more checkpoints.
    """

    layer_names: tuple[str, ...]
    found: tuple[Record, ...] = ()
    rule: StopRule | None = None
    chosen: Prediction | Exception | None = None
    last_step: int = -1
    to_go_on: str = "call train()"

    @property
    def _is_given(self) -> bool:
        """Whether these are of arrays, which have one checkpoint under three names."""
        return [record.name for record in self.found] == [GIVEN]

    def so_far(self, record: Record) -> list[Record]:
        """Return the checkpoints after step 0 up to one of them, in the order of training."""
        return [one for one in self.found if 0 < one.step <= record.step]

    def final(self) -> Record | None:
        """The checkpoint at the end of training, if it was reached."""
        return next((one for one in self.found if one.step == self.last_step), None)

    def prediction(self) -> Prediction:
        """The checkpoint to look at.

        Raises
        ------
        NotThereError
            If the target was not trained yet.
        """
        if self.rule is None:  # how far the loss had dropped is not known
            return Prediction(self.found[0], np.nan, np.nan, reached=True)
        if self.chosen is None:
            raise self._untrained()
        if isinstance(self.chosen, Exception):
            raise self.chosen
        return self.chosen

    def _of_paper(self) -> Record:
        """The checkpoint that the paper looks at: the first that reached ρ, or the nearest."""
        if self.rule is None:
            return self.found[0]
        if len(self.found) < 2:
            raise self._untrained()
        return self.rule.of_paper(self.found)

    def _untrained(self) -> NotThereError:
        return NotThereError("there is no checkpoint after step 0 yet", self.to_go_on)

    def record(self, checkpoint: str | float) -> Record:
        """The checkpoint behind ``"prediction"``, ``"final"``, ``"rho"``, an epoch or a name.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        """
        if checkpoint == "prediction":
            return self.prediction().record
        if checkpoint == "rho":
            return self._of_paper()
        if checkpoint == "final":
            final = self.final()
            if final is None:
                raise NotThereError(
                    "the target is not trained to the end yet", self.to_go_on
                )
            return final
        given: Any = checkpoint
        is_number = isinstance(given, numbers.Real) and not isinstance(given, bool)
        epoch = float(given) if is_number else math.nan
        for record in self.found:
            if checkpoint == record.name or math.isclose(
                epoch, record.epoch, abs_tol=1e-6
            ):
                return record
        if not self.found:
            what = f"there is no checkpoint {_spell(checkpoint)}, because there is none yet"
            raise NotThereError(what, self.to_go_on)
        raise ValueError(
            f"unknown checkpoint {_spell(checkpoint)}; valid: prediction, final, rho, an epoch, or "
            f"one of the names {listed(record.name for record in self.found)}"
        )

    def some_records(
        self, checkpoints: str | float | Iterable[str | float]
    ) -> list[Record]:
        """One checkpoint, several, or "all" after step 0."""
        later = [one for one in self.found if one.step > 0]
        return _one_or_several(checkpoints, later, self.record)

    def layer(self, layer: str | int) -> str:
        """The name behind a number from 1, ``"last"`` or a name.

        A number is a position from 1, but a name where the layers are named by numbers: the blocks
        of a transformer, such as 27, 28, 29 and 30, or a user's own keys. Children of an
        `nn.Sequential` are named from 0, and there a number is a position. Evidence without
        representations has one layer, whose name is empty.

        Raises
        ------
        ValueError
            If there is none; the message lists the valid ones.
        """
        names = self.layer_names
        if not names:
            if layer in ("last", ""):
                return ""
            do = "give Audit.from_arrays representations={layer: array}"
            raise NotThereError(f"there is no layer {quoted(layer)}", do)
        if layer == "last":
            return names[-1]
        first = int(names[0]) if names[0].isdigit() else 0
        are_blocks = first > 0 and list(names) == [
            str(first + i) for i in range(len(names))
        ]
        numbered = (
            any(name.isdigit() for name in names) if self._is_given else are_blocks
        )
        is_number = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
        if is_number and not numbered:
            if 1 <= int(layer) <= len(names):
                return names[int(layer) - 1]
        elif str(layer) in names:
            return str(layer)
        valid = f"last, {'' if numbered else f'1 to {len(names)}, '}or a name of {listed(names)}"
        raise ValueError(f"unknown layer {_spell(layer)}; valid: {valid}")

    def some_layers(self, layers: str | int | Iterable[str | int]) -> list[str]:
        """Names of one layer, of several, or of "all"."""
        return _one_or_several(layers, self.layer_names, self.layer)


def _one_or_several(
    asked: str | float | Iterable[str | float],
    every: Sequence[_Value],
    find: Callable[..., _Value],
) -> list[_Value]:
    """Find one thing by name, or several; "all" stands for every one."""
    if isinstance(asked, str) and asked == "all":
        return list(every)
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        return [find(asked)]
    return [find(one) for one in asked]


def _spell(value: object) -> str:
    """A name in quotation marks, a number without."""
    return quoted(value) if isinstance(value, str) else visible(repr(value), 40)
