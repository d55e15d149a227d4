"""Decisions on samples: a table by id, its file and undo, and the dataset that they leave."""

from __future__ import annotations

import csv
import datetime as dt
import getpass
import io
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from memowidgets.checks import as_code, id_text, is_missing, several, warn_user
from memowidgets.data import Dataset, MCQDataset, TextDataset, WithheldDataset
from memowidgets.files import digest
from memowidgets.store import LockedError, RunDirectory, StoreError
from memowidgets.vocabulary import HALF_CHARACTERS, listed, quoted

if TYPE_CHECKING:
    import pandas as pd

FILE = "decisions.csv"
_PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.05
CHOICES = ("keep", "anonymise", "remove", "relabel", "undecided")
CHANGES = ("remove", "anonymise", "relabel")  # what a model trains on
HEADER = ["id", "decision", "note"]
TO = ["to"]  # a column only where a sample is to be relabelled
BY = ["by", "at"]  # columns only where somebody is known to have decided
CHECK = "check"  # a last column, by which a changed line is noticed
MOST_CHARACTERS = 10_000
MOST_STEPS = 1000
_MOST_OF_NAME = 200  # characters of who decided
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_A_CLASS = 60  # characters of a class in a message

# Start of a cell that a spreadsheet would run. A spreadsheet may also start a cell after a line
# break, a tab, or a semicolon, which separates cells in many countries.
_RISKY = r"'*[ \"\x00\v\f\xa0\ufeff]*[\t\r\n=+\-@|%＝＋－＠]"
_TO_NEUTRALISE = re.compile(rf"(?:^|(?<=[;\t\r\n]))(?={_RISKY})")
_TO_RESTORE = re.compile(rf"(?:^|(?<=[;\t\r\n]))'(?={_RISKY})")


@dataclass(frozen=True)
class Decision:
    """Decision on one sample.

    Attributes
    ----------
    decision : {"keep", "anonymise", "remove", "relabel", "undecided"}
        What to do with the sample.
    note : str
        Reason for the decision.
    to : str
        Name of the class that the sample gets, for "relabel".
    by, at : str
        Who decided, and when, ISO 8601 in UTC. Empty where that is not known. Two decisions are
        equal if the same was decided, whoever did.
    """

    decision: str = "undecided"
    note: str = ""
    to: str = ""
    by: str = field(default="", compare=False)
    at: str = field(default="", compare=False)

    @property
    def is_made(self) -> bool:
        """Whether somebody decided, rather than only wrote a note."""
        return self.decision != "undecided"


UNDECIDED = Decision()
Table = dict[str, Decision]


class DecisionLog:
    """Decisions on samples, stored immediately, with many levels of undo. Thread-safe.

    They are stored in ``decisions.csv`` of a run directory: ids, decisions, notes, who decided and
    when, never a text.
    Its last column notices a line that was changed, by a damaged disk or a spreadsheet. Who edits a
    line by hand empties that cell.

    If storing fails, decisions stay in memory and `problem` says why. The next time that storing
    works, all of them are stored.

    Parameters
    ----------
    run : RunDirectory, optional
        Where they are stored. By default they are only in memory.
    known : iterable of ids, optional
        Ids of the samples that can be decided on, of any type, which `frame` gives back. Files have
        their texts. By default any id is valid. Decisions in the file on other samples stay, and
        can be changed.
    texts : bool
        Whether the samples are texts or questions. Only those can be anonymised.
    class_names : sequence of str, optional
        Names of the classes that a sample can be relabelled to. By default any name is valid.
    folder : str
        Where in the run directory the decisions are, with a slash at its end.

    Attributes
    ----------
    problem : str
        Why decisions are only in memory. Empty if they are stored.
    unread : str
        Why earlier decisions could not be read. Empty if they could.
    version : int
        Number that increases with every change.

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
        run: RunDirectory | None = None,
        known: Iterable[Any] | None = None,
        *,
        texts: bool = True,
        class_names: Sequence[str] | None = None,
        folder: str = "",
    ) -> None:
        self._texts = texts
        self._class_names = class_names
        self._run = run
        self._ids = known
        self._file = f"{folder}{FILE}"
        # state of the file, and what it held
        self._seen: tuple[Any, Table] = (
            None,
            {},
        )
        self._table: Table | None = None
        self._unkept: Table = {}
        # values before and after each step, by id
        self._steps: list[dict[str, tuple[Decision, Decision]]] = []
        self._listeners: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.RLock()
        self.problem = ""
        self.unread = ""
        self.version = 0

    # Reading

    @property
    def is_recorded(self) -> bool:
        """Whether decisions cannot be stored, because the run is a recording."""
        return self._run is not None and self._run.read_only

    def __getitem__(self, name: object) -> Decision:
        return self.table().get(id_text(name), UNDECIDED)

    def __len__(self) -> int:
        return len(self.table())

    def __repr__(self) -> str:
        return f"DecisionLog({len(self)} decisions)"

    def table(self) -> Table:
        """Return all decisions by id, without samples that are undecided and have no note."""
        with self._lock:
            if self._table is None:
                self._table = self._read()
            return self._table

    def frame(self) -> pd.DataFrame:
        """Return all decisions as a table.

        Its columns are ``id``, ``decision``, ``note``, ``to`` if a sample is to be relabelled (its
        new class), and ``by`` and ``at`` where somebody is known to have decided.
        """
        import pandas as pd

        table = self.table()
        known = self._known or {}
        made = pd.DataFrame(_rows(table), columns=_header(table), dtype=object)
        made["id"] = pd.Series([known.get(name, name) for name in table], dtype=object)
        return made

    def refresh(self) -> None:
        """Read decisions that others made in the same run directory."""
        with self._lock:
            before = self.table()
            found = self._read()
            self._table = found
            if found != before:
                self._tell_listeners()

    # Deciding

    def decide(
        self,
        names: Iterable[Any],
        decision: str | None = None,
        note: str | None = None,
        to: str | None = None,
        by: str | None = None,
    ) -> int:
        """Decide on samples, as one step of undo.

        Who decides and when is kept with each decision. It stays where the decision is the one that
        was there, or only its note changes.

        Parameters
        ----------
        names : iterable of ids
            Ids of the samples, such as the index of `Audit.flagged`, or their texts. For one
            sample, pass a list with one id.
        decision : {"keep", "anonymise", "remove", "relabel", "undecided"}, optional
            New decision. By default the present one stays.
        note : str, optional
            New note. By default the present one stays.
        to : str, optional
            Name of the class that the samples get, for "relabel" and only for it.
        by : str, optional
            Who decides. Default: the user's name in the system.

        Returns
        -------
        int
            Number of samples that changed.

        Raises
        ------
        TypeError
            If `names` is a single text, or an id is missing.
        ValueError
            If the decision, the class or an id is unknown, an id cannot be written, a note is too
            long, `by` is empty, or samples are to be anonymised that are no texts. Then nothing is
            changed.
        """
        ids = several("names", names)
        if decision is not None and decision not in CHOICES:
            valid = ", ".join(map(repr, CHOICES))
            raise ValueError(f"unknown decision {decision!r}; valid: {valid}")
        if decision == "anonymise" and not self._texts:
            raise ValueError(
                "only texts can be anonymised: keep or remove these samples"
            )
        to = self._checked_class(decision, to)
        if note is not None and len(note) > MOST_CHARACTERS:
            raise ValueError(
                f"a note has at most {MOST_CHARACTERS} characters, not {len(note)}"
            )
        note = note and HALF_CHARACTERS.sub("\ufffd", note)
        who = _user() if by is None else _checked_name(by)
        now = f"{dt.datetime.now(dt.UTC):{_TIME}}"
        with self._lock:
            self.refresh()  # a note must not bring back what another writer has decided otherwise
            changes = {}
            for name in map(self._checked, ids):
                before = self[name]
                made = before
                if decision is not None:
                    made = replace(made, decision=decision, to=to)
                if note is not None:
                    made = replace(made, note=note)
                if made == before:
                    continue
                is_another = (made.decision, made.to) != (before.decision, before.to)
                if is_another or not before.is_made:
                    made = replace(made, by=who, at=now)
                changes[name] = UNDECIDED if made == UNDECIDED else made
            if changes:
                step = {name: (self[name], new) for name, new in changes.items()}
                self._steps = [*self._steps[1 - MOST_STEPS :], step]
                self._keep(changes)
            return len(changes)

    def undo(self) -> int | None:
        """Undo the last step, except for changes that others made since.

        Returns
        -------
        int or None
            Number of samples that changed back. None if there is nothing to undo.
        """
        with self._lock:
            if not self._steps:
                return None
            step = self._steps.pop()
            self.refresh()
            back = {
                name: old
                for name, (old, new) in step.items()
                if astuple(self[name]) == astuple(new)
            }
            self._keep(back)
            return len(back)

    @property
    def undo_levels(self) -> int:
        """Number of steps that can be undone."""
        return len(self._steps)

    # Listeners

    def listen(self, listener: object) -> None:
        """Call ``listener.decisions_changed()`` after each change, while the listener lives."""
        self._listeners.add(listener)

    def unlisten(self, listener: object) -> None:
        """Stop calling the listener."""
        self._listeners.discard(listener)

    # Private

    def _checked_class(self, decision: str | None, to: str | None) -> str:
        """Return the class for "relabel", and nothing for any other decision, or raise."""
        if decision != "relabel":
            if to is not None:
                raise ValueError(f"to={as_code(to)} is only for the decision 'relabel'")
            return ""
        known = self._class_names
        valid = (
            ""
            if known is None
            else f"; valid: {listed(map(quoted, known), each=_A_CLASS)}"
        )
        if not isinstance(to, str) or not to or (known is not None and to not in known):
            raise ValueError(
                f"'relabel' needs the new class as to=, not {as_code(to)}{valid}"
            )
        return to

    def _checked(self, given: object) -> str:
        """Return the text of an id that can be decided on, or raise."""
        if is_missing(given) or not isinstance(given, Hashable):
            raise TypeError(f"an id must be a text or a number, not {as_code(given)}")
        name = id_text(given)
        if (
            self._known is not None
            and name not in self._known
            and name not in self.table()
        ):
            raise ValueError(f"unknown id {quoted(name)}; it is not in the data")
        return name

    @cached_property
    def _known(self) -> dict[str, Any] | None:
        """The ids by their texts."""
        return None if self._ids is None else {id_text(one): one for one in self._ids}

    def _keep(self, changes: Table) -> None:
        self._unkept |= changes
        kept = self._ask_run(self._store)
        if kept is None:
            self._table = _apply(self.table(), changes)
        else:
            self._table = kept
            self._unkept = {}
        self._tell_listeners()

    def _read(self) -> Table:
        found = self._ask_run(self._load, writing=False)
        self.unread = self.problem if found is None and self._run is not None else ""
        return _apply(found if found is not None else self._table or {}, self._unkept)

    def _load(self, run: RunDirectory) -> Table:
        """Return all decisions in the file, which is read again only if it is another one."""
        state = run.state(self._file, "")
        if not state or state != self._seen[0]:
            text = run.read_text(self._file)
            self._seen = (
                state,
                {} if text is None else from_csv(text, str(run.path / self._file)),
            )
        return dict(self._seen[1])

    def _store(self, run: RunDirectory) -> Table:
        """Write what is not stored over what is there by now; the last write of an id wins."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with run.lock("decisions"):
                    table = _apply(self._load(run), self._unkept)
                    run.write_text(self._file, to_csv(table), is_evidence=False)
                    return table
            except LockedError:
                if time.monotonic() > end:
                    raise
                time.sleep(_POLL_SECONDS)

    def _ask_run(
        self, work: Callable[[RunDirectory], Table], *, writing: bool = True
    ) -> Table | None:
        """Return what the run directory answers, or None if it fails; then `problem` says why."""
        if self._run is None:
            return None
        try:
            found = work(self._run)
        except (OSError, RuntimeError, ValueError) as error:
            self.problem = str(error) or type(error).__name__
            return None
        if writing or not self._unkept:
            self.problem = ""
        return found

    def _tell_listeners(self) -> None:
        self.version += 1
        for listener in list(self._listeners):
            listener.decisions_changed()


def _user() -> str:
    """Return the user's name in the system; empty where it has none, as in some containers."""
    with suppress(OSError, KeyError, ImportError):
        return HALF_CHARACTERS.sub("\ufffd", getpass.getuser())[:_MOST_OF_NAME]
    return ""


def _checked_name(by: object) -> str:
    """Return who decides, or raise."""
    if not isinstance(by, str) or not 0 < len(by.strip()) <= _MOST_OF_NAME:
        raise ValueError(
            f"by= must be a name of 1 to {_MOST_OF_NAME} characters, not {as_code(by)}"
        )
    return HALF_CHARACTERS.sub("\ufffd", by.strip())


def to_csv(table: Mapping[str, Decision]) -> str:
    r"""Return decisions as CSV with every field quoted and spreadsheet formulas neutralised.

    An apostrophe is put before ``=``, ``+``, ``-``, ``@``, a tab or a line break at the start of
    a field, or where a spreadsheet may start a cell. `from_csv` removes it. The last column has a
    check of each line.

    Examples
    --------
    >>> print(to_csv({"7": Decision("keep", "=1+1")}), end="")
    "id","decision","note","check"
    "7","keep","'=1+1","xeba47f33"
    """
    checks = (_check_of(name, made) for name, made in table.items())
    rows = zip(_rows(table), checks, strict=True)
    every = ([*cells, check] for cells, check in rows)
    return csv_text([*_header(table), CHECK], every)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    r"""Return a table as CSV: texts with formulas neutralised as in `to_csv`, None as nothing.

    Examples
    --------
    >>> print(csv_text(["id", "score"], [["@me", -1.5]]), end="")
    "id","score"
    "'@me","-1.5"
    """
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    for cells in (header, *rows):
        writer.writerow(
            [
                _TO_NEUTRALISE.sub("'", cell) if isinstance(cell, str) else cell
                for cell in cells
            ]
        )
    return out.getvalue()


def _check_of(name: str, made: Decision) -> str:
    """Return what notices a changed line. Its letter keeps spreadsheets from reading a number."""
    return f"x{digest([name, *astuple(made)])[:8]}"


def _header(table: Mapping[str, Decision]) -> list[str]:
    made = table.values()
    to = TO if any(one.to for one in made) else []
    by = BY if any(one.by or one.at for one in made) else []
    return [*HEADER, *to, *by]


def _rows(table: Mapping[str, Decision]) -> list[list[str]]:
    """Return the cells of each decision, as many as there are columns."""
    names = _header(table)[1:]
    return [
        [name, *(getattr(made, column) for column in names)]
        for name, made in table.items()
    ]


def from_csv(text: str, where: str = "decisions.csv") -> Table:
    r"""Read CSV that `to_csv` wrote, or that a spreadsheet made of it.

    Raises
    ------
    ValueError
        If a line cannot be read or was changed, or an id has two different decisions; the message
        names file and line.

    Examples
    --------
    >>> from_csv('id,decision,note\n7,remove,"a, b"\n')
    {'7': Decision(decision='remove', note='a, b', to='', by='', at='')}
    """
    reader = csv.reader(
        io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True
    )
    table: Table = {}
    try:
        header = next(reader, [])
        columns = [name for name in header if name != CHECK]
        valid = [[*HEADER, *to, *by] for to in ([], TO) for by in ([], BY)]
        if columns not in valid:
            raise ValueError(
                f"{where}, line 1: the columns must be id,decision,note[,to][,by,at][,check]"
            )
        for cells in reader:
            if cells:
                line = f"{where}, line {reader.line_num}"
                name, made = _parse_row(cells, header, line)
                if table.setdefault(name, made) != made:
                    raise ValueError(
                        f"{line}: the id {quoted(name)} has another decision or note before; keep "
                        "one of the two lines"
                    )
    except csv.Error as error:
        raise ValueError(
            f"{where}, line {reader.line_num}: broken CSV ({error})"
        ) from None
    return _apply({}, table)


def _parse_row(cells: list[str], header: list[str], where: str) -> tuple[str, Decision]:
    if len(cells) != len(header):
        columns = ", ".join(header)
        raise ValueError(
            f"{where}: {len(cells)} cells instead of {len(header)} ({columns})"
        )
    row = dict(zip(header, cells, strict=True))
    name, note, new, by, at = (
        _TO_RESTORE.sub("", row.get(column, ""))
        for column in ("id", "note", "to", "by", "at")
    )
    decision = row["decision"].strip()
    check = row.get(CHECK, "").strip()
    if decision not in CHOICES:
        raise ValueError(
            f"{where}: unknown decision {quoted(decision)}; valid: {', '.join(map(repr, CHOICES))}"
        )
    if (decision == "relabel") != bool(new):
        raise ValueError(
            f"{where}: the decision {quoted(decision)} has the new class {quoted(new)}; 'relabel' "
            "needs one in the column to, and no other decision has one"
        )
    if at:
        _check_time(at, where)
    made = Decision(decision, note, new, by, at)
    if check and check != _check_of(name, made):
        raise ValueError(
            f"{where}: the line was changed after it was written; restore it, or empty its cell "
            f"'{CHECK}' if the change is meant"
        )
    return name, made


def _check_time(at: str, where: str) -> None:
    try:
        dt.datetime.strptime(at, _TIME).replace(tzinfo=dt.UTC)
    except ValueError:
        raise ValueError(
            f"{where}: {quoted(at)} is no time of the form 2026-01-31T09:30:00Z"
        ) from None


def _apply(table: Table, changes: Table) -> Table:
    """Return the table with changes, without samples that are undecided and have no note."""
    together = table | changes
    return {name: made for name, made in together.items() if made != UNDECIDED}


# decisions on the samples of an audit, and the dataset that they leave


def log_of(
    data: Dataset, run: RunDirectory | None = None, folder: str = ""
) -> DecisionLog:
    """Return the decisions on these samples: those of a run directory, or new ones in memory."""
    texts = isinstance(data, MCQDataset | TextDataset | WithheldDataset)
    names = data.class_names
    return DecisionLog(run, data.index, texts=texts, class_names=names, folder=folder)


def apply_decisions(
    data: Dataset, log: DecisionLog, texts: Mapping[str, Any] | None = None
) -> Dataset:
    """Return the dataset without the removed samples, with the new texts and the new labels.

    Raises
    ------
    StoreError
        If the samples are not at hand.
    ValueError
        If a sample is to be anonymised and has no new text, another sample has one, a new class
        is not one of the classes or options, or nothing would be left.
    """
    if isinstance(data, WithheldDataset):
        raise StoreError(
            f"the samples are not at hand, only their ids: give {data.hint}"
        )
    made = log.table()
    ids = data.ids.tolist()
    if strangers := sorted(set(made) - set(ids)):
        warn_user(
            f"{FILE} contains ids that are not in the dataset: {listed(strangers, 5)}"
        )
    decided = {name: made[name].decision for name in ids if name in made}
    removed = {name for name, decision in decided.items() if decision == "remove"}
    to_edit = [name for name, decision in decided.items() if decision == "anonymise"]
    if len(removed) == len(ids):
        raise ValueError(
            "every sample is to be removed: there is nothing left to train on"
        )
    new = {id_text(name): text for name, text in (texts or {}).items()}
    edited = _anonymise(_relabel(data, made), to_edit, new)
    _warn_of_duplicates(data, removed | set(to_edit))
    stays = np.array([name not in removed for name in ids])
    return edited if stays.all() else edited.take(np.flatnonzero(stays))


def _relabel(data: Dataset, made: Mapping[str, Decision]) -> Dataset:
    """Return the data with the classes that samples are to be relabelled to."""
    number = {name: i for i, name in enumerate(data.class_names)}
    labels = data.labels.copy()
    # of each question
    n_choices = getattr(data, "n_choices", np.full(len(data), len(number)))
    for row, name in enumerate(data.ids.tolist()):
        if name in made and made[name].decision == "relabel":
            label = number.get(made[name].to, len(number))
            if label >= n_choices[row]:
                raise ValueError(
                    f"{quoted(name)} is to be relabelled to {quoted(made[name].to)}, which is not "
                    f"one of its classes: {listed(data.class_names[: n_choices[row]])}"
                )
            labels[row] = label
    return data if np.array_equal(labels, data.labels) else data.with_labels(labels)


def _anonymise(data: Dataset, names: list[str], texts: Mapping[str, Any]) -> Dataset:
    """Return the data with the texts of the samples that are to be anonymised."""
    if others := sorted(texts.keys() - set(names), key=str):
        known = others[0] in data.ids.tolist()
        why = "not to be anonymised: decide so first" if known else "not in the data"
        raise ValueError(
            f"texts contains the sample {quoted(others[0])}, which is {why}"
        )
    if not names:
        return data
    if not isinstance(data, MCQDataset | TextDataset):
        raise ValueError(  # noqa: TRY004 - the decision is wrong, not an argument's type
            f"{_some(names)} to be anonymised, but only texts can be: keep or remove"
        )
    without = [name for name in names if name not in texts]
    if without:
        raise ValueError(
            f"{_some(without)} to be anonymised and without a new text: pass texts={{id: text}}"
        )
    return data.with_texts(texts)


def _warn_of_duplicates(data: Dataset, changed: set[str]) -> None:
    """Say which samples still hold, word for word, what was removed or anonymised."""
    if not changed:
        return
    hashes = data.content_hashes()
    twice = {content for content, count in Counter(hashes).items() if count > 1}
    ids = data.ids.tolist()
    gone = {hashes[i] for i, name in enumerate(ids) if name in changed} & twice
    pairs = zip(ids, hashes, strict=True)
    left = [name for name, h in pairs if h in gone and name not in changed]
    if left:
        warn_user(
            f"{len(left)} duplicates of removed or anonymised samples stay: {listed(left, 5)}; "
            "decide on them too"
        )


def _some(names: list[str]) -> str:
    return (
        f"{len(names)} samples ({listed(names, 5)}) are"
        if len(names) > 1
        else f"{quoted(names[0])} is"
    )
