"""What is decided on samples: a table by id, its CSV form, and an undo; no widgets, no files."""

from __future__ import annotations

import csv
import io
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from memowidgets.edits import Edit, EditsFile
from memowidgets.visible import quoted, visible

if TYPE_CHECKING:
    import os

    import pandas as pd

__all__ = ["CHOICES", "Decision", "DecisionLog", "Keeper", "from_csv", "to_csv"]

CHOICES = ("keep", "anonymise", "remove", "undecided")
NO_FILE = (
    "edited texts need a file of your choice outside the run directory: set audit.edits_file (or "
    "the inspector's edits_file) to its path first"
)
HEADER = ["id", "decision", "note"]
MOST_CHARACTERS = 10_000
MOST_STEPS = 1000

# What a spreadsheet would run, at the start of a cell or of what it may take for a cell: after a
# line break, a tab, or the semicolon that separates cells in half of the world.
_RISKY = r"'*[ \"\x00\v\f\xa0\ufeff]*[\t\r\n=+\-@|%＝＋－＠]"
_TO_NEUTRALISE = re.compile(rf"(?:^|(?<=[;\t\r\n]))(?={_RISKY})")
_TO_RESTORE = re.compile(rf"(?:^|(?<=[;\t\r\n]))'(?={_RISKY})")
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Decision:
    """What is decided on one sample.

    Attributes
    ----------
    decision : {"keep", "anonymise", "remove", "undecided"}
        What becomes of it.
    note : str
        Why.
    """

    decision: str = "undecided"
    note: str = ""


UNDECIDED = Decision()
Table = dict[str, Decision]


class Keeper(Protocol):
    """A place where decisions are kept. Its errors are OSError, RuntimeError or ValueError."""

    def read(self) -> Table:
        """All decisions there."""
        ...

    def change(self, changes: Mapping[str, Decision]) -> Table:
        """Write these over what is there by now; all decisions there afterwards."""
        ...


class DecisionLog:
    """Decisions on samples, kept at once, with an undo of many levels. Safe to share by threads.

    Where they cannot be kept, they go on in memory and `problem` says why; the next time that
    keeping works, nothing is missing.

    Parameters
    ----------
    keeper : Keeper, optional
        Where they are kept; in memory alone by default.
    outside : path-like, optional
        The run directory, in which `edits_file` must not lie.
    known : iterable of str, optional
        Ids of the samples that can be decided on; any by default. Decisions that `keeper` has on
        other samples stay, and can be changed.

    Attributes
    ----------
    problem : str
        Why they are in memory alone; empty where they are kept.
    unread : str
        Why the decisions that were kept before could not be read; empty where they could.
    version : int
        Goes up with every change.

    Examples
    --------
    >>> log = DecisionLog()
    >>> log.decide(["7", "9"], "remove", note="names a patient")
    2
    >>> log["9"].decision
    'remove'
    >>> log.undo()
    2
    >>> log["9"].decision
    'undecided'
    """

    def __init__(
        self,
        keeper: Keeper | None = None,
        outside: str | os.PathLike[str] | None = None,
        known: Iterable[str] | None = None,
    ) -> None:
        self._keeper, self._outside, self._ids = keeper, outside, known
        self._edits: EditsFile | None = None
        self._table: Table | None = None
        self._unkept: Table = {}
        self._steps: list[_Step] = []
        self._listeners: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._lock = threading.RLock()
        self.problem, self.unread, self.version = "", "", 0

    # What is decided

    @property
    def kept(self) -> bool:
        """Whether decisions go into a file by now, not into memory alone."""
        written = not getattr(self._keeper, "read_only", False)
        return self._keeper is not None and written and not self.problem

    def __getitem__(self, name: str) -> Decision:
        return self.table().get(name, UNDECIDED)

    def __len__(self) -> int:
        return len(self.table())

    def __repr__(self) -> str:
        return f"DecisionLog({len(self)} decisions)"

    def table(self) -> Table:
        """All decisions by id; who is undecided and has no note is left out."""
        with self._lock:
            if self._table is None:
                self._table = self._read()
            return self._table

    def frame(self) -> pd.DataFrame:
        """All decisions as a table with the columns ``id``, ``decision`` and ``note``."""
        import pandas as pd

        rows = [(name, made.decision, made.note) for name, made in self.table().items()]
        return pd.DataFrame(rows, columns=HEADER, dtype=object)

    def refresh(self) -> None:
        """See what others decided in the same place."""
        with self._lock:
            before, found = self.table(), self._read()
            if found != before:
                self._table = found
                self._changed()

    # Deciding

    def decide(
        self, names: Iterable[str], decision: str | None = None, note: str | None = None
    ) -> int:
        """Decide on samples, as one step of undo.

        Parameters
        ----------
        names : iterable of str
            Ids; one id is a list of one.
        decision : {"keep", "anonymise", "remove", "undecided"}, optional
            Theirs so far by default.
        note : str, optional
            Theirs so far by default.

        Returns
        -------
        int
            How many changed.

        Raises
        ------
        TypeError
            If `names` is a single text, or an id is not a text.
        ValueError
            If the decision or an id is unknown, an id cannot be written, or a note is too long.
            Nothing is decided then.
        """
        if isinstance(names, str | bytes):
            raise TypeError(f"names must be a list of ids, not one text: give [{quoted(names)}]")
        if decision is not None and decision not in CHOICES:
            valid = ", ".join(map(repr, CHOICES))
            raise ValueError(f"unknown decision {decision!r}; valid: {valid}")
        note = None if note is None else _checked_note(note)
        with self._lock:
            changes = {}
            for name in map(self._checked, names):
                made = self[name]
                made = made if decision is None else replace(made, decision=decision)
                made = made if note is None else replace(made, note=note)
                if made != self[name]:
                    changes[name] = made
            return self._step(changes)

    def edit(self, name: str, edit: Edit) -> None:
        """Keep an anonymised text in `edits_file`, and decide so, as one step of undo.

        Raises
        ------
        ValueError
            If there is no such file yet, it holds something else, or the id is unknown.
        OSError
            If it cannot be written.
        """
        if self._edits is None:
            raise ValueError(NO_FILE)
        with self._lock:
            name = self._checked(name)
            before = self._edits.read().get(name)
            self._edits.change({name: edit})
            made = replace(self[name], decision="anonymise")
            self._step({name: made}, {name: (before, edit)})

    def undo(self) -> int | None:
        """Take the last step back; what others changed since stays as they left it.

        Returns
        -------
        int or None
            How many samples went back; None where there is nothing to undo.
        """
        with self._lock:
            if not self._steps:
                return None
            step = self._steps[-1]
            self._unedit(step)  # may fail: then the step can still be undone
            self._steps.pop()
            self.refresh()
            back = {n: old for n, (old, new) in step.made.items() if self[n] == new}
            self._keep(back)
            return len(back.keys() | step.edits.keys())

    @property
    def undo_levels(self) -> int:
        """How many steps can be undone."""
        return len(self._steps)

    # Edited texts

    @property
    def edits_file(self) -> Path | None:
        """Where edited texts are kept; None where the user chose no file yet."""
        return None if self._edits is None else self._edits.path

    @edits_file.setter
    def edits_file(self, path: str | os.PathLike[str] | None) -> None:
        self._edits = None if path is None else EditsFile(path, self._outside)
        self._changed()

    def edits(self) -> dict[str, Edit]:
        """The edited texts by id; none without a file."""
        return {} if self._edits is None else self._edits.read()

    # Listeners

    def listen(self, listener: Listener) -> None:
        """Call ``listener.decisions_changed()`` after each change, as long as it lives."""
        self._listeners.add(listener)

    def unlisten(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners.discard(listener)

    # Inside

    def _checked(self, name: str) -> str:
        """An id that can be decided on."""
        name = _checked_id(name)
        if self._known is not None and name not in self._known and name not in self.table():
            raise ValueError(f"unknown id {quoted(name)}: no sample of the data has it")
        return name

    @cached_property
    def _known(self) -> frozenset[str] | None:
        return None if self._ids is None else frozenset(map(str, self._ids))

    def _step(self, changes: Table, edits: EditChanges | None = None) -> int:
        if not changes and not edits:
            return 0
        made = {name: (self[name], new) for name, new in changes.items()}
        self._steps = [*self._steps[1 - MOST_STEPS :], _Step(made, edits or {})]
        self._keep(changes)
        return len(changes)

    def _unedit(self, step: _Step) -> None:
        if self._edits is None or not step.edits:
            return
        now = self._edits.read()
        self._edits.change({n: old for n, (old, new) in step.edits.items() if now.get(n) == new})

    def _keep(self, changes: Table) -> None:
        self._unkept |= changes
        kept = self._tried(lambda keeper: keeper.change(self._unkept))
        if kept is None:
            self._table = _applied(self.table(), changes)
        else:
            self._table, self._unkept = kept, {}
        self._changed()

    def _read(self) -> Table:
        found = self._tried(lambda keeper: keeper.read(), writing=False)
        self.unread = self.problem if found is None and self._keeper is not None else ""
        return _applied(found if found is not None else self._table or {}, self._unkept)

    def _tried(self, work: Callable[[Keeper], Table], *, writing: bool = True) -> Table | None:
        """What the keeper gives; None where it can't, and `problem` says why until all is kept."""
        if self._keeper is None:
            return None
        try:
            found = work(self._keeper)
        except (OSError, RuntimeError, ValueError) as error:
            self.problem = str(error) or type(error).__name__
            return None
        if writing or not self._unkept:
            self.problem = ""
        return found

    def _changed(self) -> None:
        self.version += 1
        for listener in list(self._listeners):
            listener.decisions_changed()


class Listener(Protocol):
    """Who wants to hear of changes."""

    def decisions_changed(self) -> None:
        """Something was decided, undone, or seen to be decided elsewhere."""
        ...


EditChanges = dict[str, tuple[Edit | None, Edit]]


@dataclass(frozen=True)
class _Step:
    """What one step changed: before and after, by id."""

    made: dict[str, tuple[Decision, Decision]]
    edits: EditChanges


def to_csv(table: Mapping[str, Decision]) -> str:
    r"""Decisions as CSV, every field quoted; what a spreadsheet would run is neutralised.

    An apostrophe goes before ``=``, ``+``, ``-``, ``@``, a tab or a line break at the start of a
    field, and of what a spreadsheet may take for one. `from_csv` takes it away again.

    Raises
    ------
    ValueError
        If an id cannot be written.

    Examples
    --------
    >>> print(to_csv({"7": Decision("keep", "=1+1")}), end="")
    "id","decision","note"
    "7","keep","'=1+1"
    """
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(HEADER)
    for name, made in table.items():
        writer.writerow([_neutral(_checked_id(name)), made.decision, _neutral(made.note)])
    return out.getvalue()


def from_csv(text: str, where: str = "decisions.csv") -> Table:
    r"""What `to_csv` wrote, or a spreadsheet made of it.

    Raises
    ------
    ValueError
        If a line is not one of ours; the message names file and line.

    Examples
    --------
    >>> from_csv('id,decision,note\n7,remove,"a, b"\n')
    {'7': Decision(decision='remove', note='a, b')}
    """
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    table: Table = {}
    try:
        header = next(reader, None)
        if header != HEADER:
            raise ValueError(f"{where}: its first line must be id,decision,note")
        for cells in reader:
            if cells:
                name, made = _parsed(cells, f"{where}, line {reader.line_num}")
                table[name] = made
    except csv.Error as error:
        raise ValueError(f"{where}, line {reader.line_num}: broken CSV ({error})") from None
    return _applied({}, table)


def _parsed(cells: list[str], where: str) -> tuple[str, Decision]:
    if len(cells) != len(HEADER):
        raise ValueError(f"{where}: there are {len(cells)} cells; id, decision, note are wanted")
    name, decision, note = _restored(cells[0]), cells[1].strip(), _restored(cells[2])
    if decision not in CHOICES:
        raise ValueError(
            f"{where}: unknown decision {quoted(decision)}; valid: {', '.join(map(repr, CHOICES))}"
        )
    return name, Decision(decision, note)


def _applied(table: Table, changes: Table) -> Table:
    """A table with changes; nothing is kept of who is undecided and has no note."""
    together = table | changes
    return {name: made for name, made in together.items() if made != UNDECIDED}


def _neutral(field: str) -> str:
    return _TO_NEUTRALISE.sub("'", field)


def _restored(field: str) -> str:
    return _TO_RESTORE.sub("", field)


def _checked_id(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"an id must be a text, not {visible(repr(name), 40)}")
    shown = quoted(name)
    if _HALF_CHARACTERS.search(name):
        raise ValueError(
            f"the id {shown} holds half a character (a lone surrogate), which no file can hold: "
            "give the sample another id"
        )
    if len(name) > MOST_CHARACTERS:
        raise ValueError(
            f"the id {shown} has {len(name)} characters, the limit is {MOST_CHARACTERS}: give the "
            "sample another id"
        )
    return str(name)


def _checked_note(note: str) -> str:
    if len(note) > MOST_CHARACTERS:
        raise ValueError(f"a note has at most {MOST_CHARACTERS} characters, not {len(note)}")
    return _HALF_CHARACTERS.sub("\ufffd", note)
