"""All rows by name: the package's own, those of installed packages, and those of this session."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from memowidgets.checks import check_version, real_number, several, warn_user
from memowidgets.registry.row import Score
from memowidgets.registry.table import ROWS
from memowidgets.vocabulary import COLUMNS, first_line, quoted, visible

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "memowidgets.scores"  # of entry points
_LONGEST = 60  # of a name, which is also the name of a file
_Function = TypeVar("_Function", bound=Callable[..., Any])


class Registry:
    """The rows, in the order in which a picker lists them.

    Rows of installed packages are looked up when a name is asked for that is not the package's own.

    Parameters
    ----------
    own : sequence of Score
        Rows that nobody replaces.
    """

    def __init__(self, own: Sequence[Score]) -> None:
        self._own = {row.name: row for row in own}
        self._installed: dict[str, Score] = {}
        self._of_session: dict[str, Score] = {}
        self._lock = threading.RLock()
        self._is_loaded = False
        self._loading = ""  # version of the package whose entry point is being loaded

    def all_rows(self) -> dict[str, Score]:
        """Return all rows by name."""
        self._load()
        with self._lock:
            return self._own | self._installed | self._of_session

    def find(self, name: str) -> Score | None:
        """Return the row of a name, or None."""
        own = self._own.get(name)
        return self.all_rows().get(name) if own is None else own

    def is_own(self, name: str) -> bool:
        """Return whether a name is one of the package's own, in whatever case."""
        return name.casefold() in self._own

    def add(self, row: Score) -> None:
        """Add a row, or replace the one of its name.

        Raises
        ------
        ValueError
            If its name, or what a reader calls it, stands for something else, or it is made of
            itself.
        """
        with self._lock:
            rows = self._own | self._installed | self._of_session
            check_name(row.name)
            for other in rows.values():
                if other.name != row.name and other.spoken == row.spoken:
                    raise ValueError(
                        f"{quoted(row.spoken)} is what the score {other.name!r} is called: choose "
                        f"another spoken= for {row.name!r}"
                    )
            if row.name in _made_of(row, rows):
                raise ValueError(f"the score {row.name!r} cannot be made of itself")
            if self._loading and row.name in self._installed:
                raise ValueError(f"another package has a score {row.name!r} already")
            to = self._installed if self._loading else self._of_session
            to[row.name] = row

    @property
    def version_by_default(self) -> str | None:
        """Version of the package that is being loaded, which its scores have; None otherwise."""
        return self._loading or None

    def _load(self) -> None:
        """Load the entry points of installed packages, once. Say which ones cannot be loaded."""
        with self._lock:
            if self._is_loaded:
                return
            self._is_loaded = True
            from importlib.metadata import entry_points

            broken = []
            for point in entry_points(group=GROUP):
                try:
                    self._load_one(point)
                except Exception as error:  # noqa: BLE001 - of whatever code it runs
                    why = f"{type(error).__name__}: {first_line(error)}"
                    broken.append(visible(f"{point.name} ({point.value}): {why}", 300))
        if broken:
            warn_user(
                f"scores of installed packages cannot be loaded, and are left out: "
                f"{'; '.join(broken)}"
            )

    def _load_one(self, point: EntryPoint) -> None:
        """Load what an entry point names: a function that `score` decorates, or its module."""
        version = "0" if point.dist is None else point.dist.version
        self._loading = version
        try:
            found = point.load()
        finally:
            self._loading = ""
        if inspect.ismodule(found):
            return
        rows = (*self._installed.values(), *self._of_session.values())
        row = next((row for row in rows if row.function is found), None)
        if row is None:
            raise TypeError("it is not a function that mw.score decorates")
        if row.version is None:  # its module was imported before
            self._installed[row.name] = replace(row, version=version)
            self._of_session.pop(row.name)


def _made_of(row: Score, rows: dict[str, Score]) -> Iterator[str]:
    """Yield the names of all rows that a row is made of, at any depth."""
    for part in row.parts:
        if part not in rows:
            raise ValueError(f"unknown score {quoted(part)}; valid: {', '.join(rows)}")
        yield part
        yield from _made_of(rows[part], rows)


def is_name(name: str) -> bool:
    """Return whether a text can be the name of a score, which is also that of a file."""
    parts = name.split("+")
    return len(name) <= _LONGEST and all(part.isidentifier() for part in parts)


def check_name(name: object) -> None:
    """Raise for a name that no score of a user's can have.

    Raises
    ------
    TypeError, ValueError
        If it is not a text, is one of ours, or is more than letters, digits, ``_`` and ``+``.
    """
    if not isinstance(name, str):
        raise TypeError(
            f'the name of a score must be a text such as "margin", not {name!r}'
        )
    if not is_name(name):
        raise ValueError(
            f"a score cannot be named {quoted(name)}: use up to {_LONGEST} letters, digits and _, "
            "and + between parts. What a reader sees is spoken="
        )
    if REGISTRY.is_own(name) or name in COLUMNS:
        raise ValueError(
            f"{name!r} is a name of memowidgets' own: choose another one for your score"
        )


REGISTRY = Registry(ROWS)


def all_rows() -> dict[str, Score]:
    """Return all scores by name, the package's own first."""
    return REGISTRY.all_rows()


def own_names() -> tuple[str, ...]:
    """Return the names of the package's own scores."""
    return tuple(row.name for row in ROWS)


def find_row(metric: object) -> Score:
    """Return the row of a name, or one that is made of a function.

    Raises
    ------
    ValueError
        If there is none; the message lists the valid names.
    TypeError
        If a parameter of the function is not one of `PARAMETERS`.
    """
    if isinstance(metric, Score):
        return metric
    if callable(metric):
        return row_of_function(metric)
    row = REGISTRY.find(metric) if isinstance(metric, str) else None
    if row is None:
        valid = ", ".join(all_rows())
        shown = quoted(metric) if isinstance(metric, str) else repr(metric)
        raise ValueError(
            f"unknown score {visible(shown, _LONGEST)}; valid: {valid}, or a function whose "
            "parameters are what it needs"
        )
    return row


def parameters_of(row: Score) -> tuple[str, ...]:
    """Return what a score asks for, itself or by the rows that it is made of, as `PARAMETERS`."""
    found = list(row.parameters)
    for name in row.parts:
        found += parameters_of(find_row(name))
    if row.mean_over_checkpoints:
        found.append("losses")
    return tuple(dict.fromkeys(found))


def version_of(row: Score) -> str | None:
    """Return the version by which the values of a score are kept; None if they are not.

    That of a row made of others is made of theirs.
    """
    if not row.parts:
        return "" if row.at_once else row.version
    how = "mean rank" if row.mean_rank else "mean over checkpoints"
    versions = []
    for name in row.parts:
        version = version_of(find_row(name))
        if version is None:
            return None
        versions.append(f"{name} {version}".strip())
    return f"{how} of {', '.join(versions)}"


def definitions_of(row: Score) -> list[str]:
    """Return what a score is, in sentences for a page: its own, or those of its parts first."""
    if row.definition:
        return [row.definition]
    parts = [find_row(name) for name in dict.fromkeys(row.parts)]
    said = [sentence for part in parts for sentence in definitions_of(part)]
    if row.mean_rank:
        said.append("The score adds the ranks of the samples by each of these.")
    elif row.parts:
        said.append("The score is its mean over the checkpoints up to this one.")
    return said


def about_row(row: Score) -> dict[str, str]:
    """Return what is kept beside the values of a score, from which `kept_row` makes a row again."""
    tau = {} if row.tau is None else {"tau": repr(row.tau)}
    return {
        "spoken": row.spoken,
        "definition": " ".join(definitions_of(row)),
        "needs": " ".join(parameters_of(row)),
        **tau,
    }


def row_of_function(
    function: Callable[..., Any], name: str | None = None, version: str | None = None
) -> Score:
    """Return a row for a function that is given in place of a name; the registry lacks it."""
    check_version(version)
    called = str(getattr(function, "__name__", type(function).__name__))
    label = called if name is None else str(name)
    if version is not None:
        check_name(label)
    row = Score(label, label.replace("_", " "), function, version=version)
    row.parameters  # noqa: B018 - raises for one that is not valid
    return row


def spoken(name: str) -> str:
    """Return what a reader calls a score, or a column of a figure.

    Examples
    --------
    >>> spoken("psmi+csl"), spoken("my_score")
    ('PSMI + mean log-probability', 'my score')
    """
    if name in COLUMNS:
        return COLUMNS[name]
    row = REGISTRY.find(name)
    return name.replace("_", " ") if row is None else row.spoken


@overload
def score(
    name: str,
    *,
    spoken: str | None = None,
    tau: float | None = None,
    version: str | None = None,
) -> Callable[[_Function], _Function]: ...


@overload
def score(
    name: str,
    *,
    spoken: str | None = None,
    tau: float | None = None,
    mean_rank: Sequence[str],
) -> None: ...


@overload
def score(
    name: str,
    *,
    spoken: str | None = None,
    tau: float | None = None,
    mean_over_checkpoints: str,
) -> None: ...


def score(
    name: str,
    *,
    spoken: str | None = None,
    tau: float | None = None,
    version: str | None = None,
    mean_rank: Sequence[str] = (),
    mean_over_checkpoints: str = "",
) -> Any:
    """Add a score of your own, which is then a name everywhere.

    Its function takes what it needs by name, and returns one number for each member of the audit. A
    low number means that memorisation is likely.

    Parameters
    ----------
    name : str
        What it is called in code: letters, digits and ``_``, with ``+`` between parts. A name that
        is added again is replaced, so a notebook cell can run again.
    spoken : str, optional
        What a reader calls it. Default: the name, with spaces.
    tau : float, optional
        Threshold that means the same for every model. Without one, τ begins at the lowest 5 %.
    version : str, optional
        Version of the function. With one, its values are kept in the run directory, so change it
        with the function. Without one, they are computed once a session.
    mean_rank : sequence of str, optional
        Names of scores. The new one is the mean rank of the members by each, and has no function.
    mean_over_checkpoints : str, optional
        Name of a score. The new one is its mean over the checkpoints after step 0 up to the one
        that is asked for, and has no function.

    Returns
    -------
    callable
        Decorator that returns the function as it is; None for a score that is made of others.

    Raises
    ------
    ValueError, TypeError
        If the name is not valid or one of memowidgets' own, what a reader calls it is taken, a
        parameter of the function is not valid, or another score is not known.

    Notes
    -----
    These parameters are valid, for n members. What an audit does not have is said when the score is
    picked.

    ==================  ================  ====================================================
    name                shape             what it is, at the checkpoint that is asked for
    ==================  ================  ====================================================
    representations     (n, d)            output of the layer that is asked for
    logits              (n, k)            logits of the classes, −inf where there is no option
    labels              (n,)              labels that were trained on
    loss                (n,)              cross-entropy of the label, in nats
    logit_gap           (n,)              logit of the label less the highest other one
    losses              (checkpoints, n)  loss at each checkpoint after step 0 up to this one
    reference_gaps      (m, n)            logit gaps of reference models, NaN where one saw it
    shadow_gaps         (m, n)            logit gaps of shadow models
    shadow_members      (m, n)            whether each shadow model trained on each member
    target_gaps         (n,)              logit gaps of the target, to compare with these
    random_state        int               seed of the run
    ==================  ================  ====================================================

    A parameter of another name must have a default, and keeps it. The arrays are copies, so that
    the function may write to them. NaN stands for a member without a score. A tuple of two arrays
    is scores and their standard errors; a third element is a list of sentences that a reader must
    know. They may name samples, so a report without samples does not quote them. Memowidgets writes
    nothing of a score to the run unless it has a version. The first paragraph of the function's
    docstring is its definition in a report.

    Examples
    --------
    >>> import numpy as np
    >>> import memowidgets as mw
    >>> @mw.score("margin", spoken="Margin")
    ... def margin(logits, labels):
    ...     "The margin is the largest logit less the second largest, if the model is right."
    ...     return mw.metrics.logit_gap(logits, labels)
    >>> audit = mw.open_recorded("digits")
    >>> "margin" in audit.metrics
    True
    >>> audit.score("margin").equals(audit.score("logit_gap").rename("margin"))
    True
    """
    check_version(version)
    check_name(name)
    given: Any = name.replace("_", " ") if spoken is None else spoken
    if not isinstance(given, str) or not given.strip():
        raise TypeError(f'spoken must be a text such as "Margin", not {spoken!r}')
    threshold = None if tau is None else real_number("tau", tau, finite=True)
    parts = tuple(several("mean_rank", mean_rank)) if mean_rank else ()
    shown = visible(given)

    def add(function: _Function) -> _Function:
        row = Score(
            name,
            shown,
            function,
            definition=_summary(function),
            tau=threshold,
            version=version or REGISTRY.version_by_default,
        )
        row.parameters  # noqa: B018 - raises for one that is not valid
        REGISTRY.add(row)
        return function

    if not parts and not mean_over_checkpoints:
        return add
    if version is not None or (parts and mean_over_checkpoints):
        raise ValueError(
            f"{name!r} is made of other scores: give mean_rank= or mean_over_checkpoints=, and no "
            "version="
        )
    REGISTRY.add(
        Score(
            name,
            shown,
            tau=threshold,
            mean_rank=parts,
            mean_over_checkpoints=mean_over_checkpoints,
        )
    )
    return None


def _summary(function: Callable[..., Any]) -> str:
    """Return the first paragraph of a function's docstring as one line."""
    paragraph = (inspect.getdoc(function) or "").strip().split("\n\n")[0]
    return visible(paragraph, 400)
