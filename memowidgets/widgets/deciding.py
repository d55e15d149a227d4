"""Decisions that the page asks for: checked and carried out. No widgets here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.decisions import CHOICES, DecisionLog, to_csv
from memowidgets.vocabulary import quoted
from memowidgets.widgets.samples import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from memowidgets.widgets.items import Items
    from memowidgets.widgets.samples import SampleReader


_NO_TEXT = "Only texts can be anonymised: keep, relabel or remove this sample."
_RECORDED = "This is a recording"
_DONE = {
    "keep": "kept",
    "anonymise": "to be anonymised",
    "remove": "to be removed",
    "undecided": "undecided",
}


class Deciding:
    """Decisions as the inspector sees them: by position, and in sentences for the page.

    Parameters
    ----------
    log : DecisionLog
        Log that keeps the decisions.
    reader : SampleReader
        The samples.
    items : Items
        Ids of the samples.
    """

    def __init__(self, log: DecisionLog, reader: SampleReader, items: Items) -> None:
        self.log, self._reader, self._items = log, reader, items
        self._codes: tuple[int, NDArray[np.int8]] = (-1, np.empty(0, np.int8))

    @property
    def choices(self) -> tuple[str, ...]:
        """Decisions that the page offers for these samples.

        Only texts can be anonymised, and only samples of two or more classes relabelled.
        """
        without = {
            "anonymise": not self._reader.is_text,
            "relabel": len(self._items.class_names) < 2,
        }
        return tuple(choice for choice in CHOICES if not without.get(choice))

    def codes(self) -> NDArray[np.int8]:
        """Return each sample's decision as its number in `CHOICES`."""
        version, codes = self.log.version, self._codes[1]
        if self._codes[0] != version or not len(codes):
            codes = np.full(len(self._reader), CHOICES.index("undecided"), np.int8)
            for name, made in self.log.table().items():
                codes[self._items.positions.get(name, [])] = CHOICES.index(made.decision)
            self._codes = (version, codes)
        return codes

    def status(self) -> dict[str, Any]:
        """Return what the page shows beside the samples."""
        return {
            "choices": list(self.choices),
            "refused": {} if self._reader.is_text else {"anonymise": _NO_TEXT},
            "classes": [self._items.class_name(i) for i in range(len(self._items.class_names))],
            "undo": self.log.undo_levels,
            "decided": len(self.log),
            "problem": _RECORDED if self.log.is_recorded else readable(self.log.problem),
        }

    def decide(
        self,
        positions: Sequence[int],
        decision: str | None,
        note: str | None,
        to: int | None = None,
        label: int = -1,
    ) -> str:
        """Decide on these samples, and say what was done. `label` is that of a single sample.

        Raises
        ------
        ValueError
            If the decision is not to be had here, the new class does not exist, or a sample's id
            or note cannot be kept.
        """
        if decision is not None and decision not in self.choices:
            raise ValueError(
                f"unknown decision {quoted(decision)}; valid here: "
                f"{', '.join(map(repr, self.choices))}"
            )
        new = None if decision != "relabel" else self._class_of(positions, to)
        changed = self.log.decide(map(self._items.name, positions), decision, note, new)
        if decision is None:
            return "Note saved." if changed else ""
        done = _DONE[decision] if new is None else f"to be relabelled as {_quoted(new)}"
        if len(positions) == 1:
            name = _quoted(self._items.name(positions[0]))
            if new is not None:
                return f"{name}: {readable(self._items.renamed(positions[0], label, new))}."
            return f"{name} is {done}."
        return f"{changed} of {len(positions)} samples changed: now {done}."

    def _class_of(self, positions: Sequence[int], to: int | None) -> str:
        """Return the name of the class that samples are to be relabelled to, or raise."""
        names = self._items.class_names
        if to is None or not 0 <= to < len(names):
            raise ValueError(
                f"there is no class {to}: choose one of the {len(names)} classes to relabel to"
            )
        if self._reader.kind == "mcq":
            short = [p for p in positions if to >= len(self._reader.card(p).options)]
            if short:
                raise ValueError(
                    f"{_quoted(self._items.name(short[0]))} has no option {_quoted(names[to])}: "
                    "choose one of its options"
                )
        return names[to]

    def undo(self) -> str:
        """Take the last step back, and say so."""
        changed = self.log.undo()
        if changed is None:
            return "There is nothing to undo."
        return f"Undone: {changed} {'sample' if changed == 1 else 'samples'}."

    def csv(self) -> str:
        """Return all decisions in the form of ``decisions.csv``."""
        return to_csv(self.log.table())


def _quoted(name: str) -> str:
    return readable(name if len(name) <= 40 else f"{name[:39]}…")
