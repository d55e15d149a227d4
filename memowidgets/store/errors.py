"""What goes wrong with a run directory, and what stands where something is not there."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast

from memowidgets.vocabulary import visible

# remedies
DELETE_IT = "delete it and call again"
INSTALL = "install the package again"
_FIXES = {
    errno.ENOSPC: "the disk is full; free some space and call again",
    errno.EDQUOT: "your disk quota is used up; free some space and call again",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.EACCES: "permission is denied; make the folder writable or choose another path",
    errno.EPERM: "permission is denied; make the folder writable or choose another path",
}


class StoreError(RuntimeError):
    """A run directory cannot be read, written or locked; the message says why.

    Parameters
    ----------
    message : str
        The message. It may contain names from untrusted files, so invisible characters are
        replaced by their numbers.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible(message))


class LockedError(StoreError):
    """Another process holds the lock."""


class UnusableError(StoreError):
    """A file cannot be used; the message has the fault and the remedy."""

    def __init__(self, fault: str, remedy: str = DELETE_IT) -> None:
        super().__init__(f"{fault}: {remedy}")
        self.fault = fault


class BrokenError(UnusableError):
    """A file of a run directory differs from what was written."""


class ForeignError(UnusableError):
    """A file of a run directory does not belong in its place."""


class MissingError(BrokenError, KeyError):
    """A file lacks an array."""

    __str__ = Exception.__str__  # KeyError's adds quotation marks


class NotThereError(StoreError, ValueError):
    """Something is not there; the message says what, where, and what to do.

    Parameters
    ----------
    what : str
        What is not there, and why if that is known.
    do : str
        What to do in Python, so that it is there; empty if nothing helps.
    where : str
        Name of the checkpoint where it is not; empty if it is nowhere.

    Attributes
    ----------
    said : str
        The message without what to do, for a page whose reader runs nothing.

    Examples
    --------
    >>> str(NotThereError("the losses were not kept", "train again", "epoch-2"))
    'the losses were not kept at epoch-2: train again'
    """

    def __init__(self, what: str, do: str = "", where: str = "") -> None:
        self.what = visible(what)
        self.do = do
        self.where = where
        self.said = f"{self.what} at {where}" if where else self.what
        super().__init__(f"{self.said}: {do}" if do else self.said)


@dataclass(frozen=True)
class Absent:
    """What stands where something is not there, put there by whoever knows why.

    Attributes
    ----------
    what, do : str
        As in `NotThereError`.
    """

    what: str
    do: str = ""

    def error(self, where: str = "") -> NotThereError:
        """Return the error for whoever needs it at a checkpoint."""
        return NotThereError(self.what, self.do, where)

    def refuse(self, *_: object) -> NoReturn:
        """Raise the error, in place of a function whose result is not there."""
        raise self.error()


def without_advice(error: Exception) -> str:
    """Return what an error says to a reader of a page, who calls nothing."""
    return error.said if isinstance(error, NotThereError) else str(error)


@contextmanager
def explain_failures(path: Path, run: Path) -> Iterator[None]:
    """Turn the system's error about writing a file of a run into a `StoreError`."""
    try:
        yield
    except OSError as error:
        fix = _FIXES.get(cast("int", error.errno), error.strerror or str(error))
        raise StoreError(
            f"{path} cannot be written: {fix}. {run} is unchanged"
        ) from error
